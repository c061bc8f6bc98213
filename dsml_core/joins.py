"""How a further answer of the provider goes on with a response that has begun, on each wire.

A join is told of every frame the client gets, so it knows what is open, what has a number and what was spent.
"""

from __future__ import annotations

from typing import Any

from dsml_core.formats.wire import Body, dicts, make_id
from dsml_core.pieces import Pieces


class Join:
    """What the client has seen of one response. The bodies it returns are new objects."""

    def __init__(self) -> None:
        self.said = Pieces()  # all text the client has
        self._before: Body = {}  # usage of the answers before this one
        self._usage: Body = {}  # of this one

    def next(self) -> None:
        """A further answer is to come."""
        self._before = _sum(self._before, self._usage)
        self._usage = {}

    def count(self, body: Body) -> None:
        """Note the usage in a frame of the provider, also in one the client never gets."""
        self._usage = self._usage | {key: value for key, value in self.usage(body).items() if value is not None}

    def priced(self, body: Body) -> Body:
        """The frame, with the usage of all answers where it tells that of its own."""
        return self.with_usage(body, _sum(self._before, self._usage)) if self.usage(body) else body

    def seen(self, body: Body) -> None:
        """The client gets this frame."""
        if text := self.text(body):
            self.said.add(text)

    def numbered(self, body: Body) -> Body:
        """The frame with its place in the stream."""
        return body

    def usage(self, body: Body) -> Body:
        """What the frame tells of the tokens spent so far in its answer."""
        raise NotImplementedError

    def with_usage(self, body: Body, usage: Body) -> Body:
        raise NotImplementedError

    def text(self, body: Body) -> str:
        """The visible text a frame adds."""
        raise NotImplementedError

    def silent(self, body: Body) -> bool:
        """True for a frame that shows the client nothing."""
        raise NotImplementedError

    def closing(self) -> list[Body]:
        """Frames that close what is open, ahead of a further answer."""
        return []

    def joined(self, body: Body) -> list[Body]:
        """A frame of a further answer, as a frame of this response."""
        raise NotImplementedError

    def say(self, text: str) -> list[Body]:
        """Frames that say `text`."""
        raise NotImplementedError

    def noop(self) -> Body:
        """A frame that says nothing and shows that the stream lives."""
        return self.say("")[0]

    def ending(self, body: Body) -> list[Body]:
        """Of a frame of a further answer, what ends the response."""
        raise NotImplementedError


class ChatJoin(Join):
    def __init__(self) -> None:
        super().__init__()
        self._head: Body = {}
        self._begun = False  # the client knows whose message it is

    def count(self, body: Body) -> None:
        super().count(body)
        if not self._head and body.get("choices"):
            self._head = {key: value for key, value in body.items() if key not in ("choices", "usage")}

    def seen(self, body: Body) -> None:
        super().seen(body)
        self._begun = self._begun or bool(body.get("choices"))

    def usage(self, body: Body) -> Body:
        return _dict(body.get("usage"))

    def with_usage(self, body: Body, usage: Body) -> Body:
        return body | {"usage": usage}

    def text(self, body: Body) -> str:
        return "".join(_text(choice.get("delta"), "content") for choice in dicts(body.get("choices")))

    def silent(self, body: Body) -> bool:
        if body.get("usage") or body.get("error"):
            return False
        choices = dicts(body.get("choices"))
        return not any(choice.get("finish_reason") or _says(choice.get("delta")) for choice in choices)

    def joined(self, body: Body) -> list[Body]:
        said_once = ("role",) if self._begun else ()
        choices = []
        for choice in dicts(body.get("choices")):
            delta = {key: value for key, value in _dict(choice.get("delta")).items() if key not in said_once}
            choices.append({**choice, "delta": delta})
        return [body | self._head | {"choices": choices}] if "choices" in body else [body]

    def say(self, text: str) -> list[Body]:
        delta = {"content": text} if self._begun else {"role": "assistant", "content": text}
        return [self._head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]

    def ending(self, body: Body) -> list[Body]:
        choices = [{**choice, "delta": {}} for choice in dicts(body.get("choices")) if choice.get("finish_reason")]
        return self.joined(body | {"choices": choices}) if choices or body.get("usage") else []


class AnthropicJoin(Join):
    def __init__(self) -> None:
        super().__init__()
        self._open: int | None = None  # the index of the block that is open
        self._open_text = False
        self._count = 0  # blocks the client has seen
        self._offset = 0  # of this answer's indexes

    def next(self) -> None:
        super().next()
        self._offset = -1

    def seen(self, body: Body) -> None:
        super().seen(body)
        if body["type"] == "content_block_start":
            self._open, self._open_text = body["index"], body["content_block"].get("type") == "text"
            self._count = body["index"] + 1
        elif body["type"] == "content_block_stop":
            self._open = None

    def usage(self, body: Body) -> Body:
        return _dict(body.get("usage") or _dict(body.get("message")).get("usage"))

    def with_usage(self, body: Body, usage: Body) -> Body:
        own = self.usage(body)
        return body | {"usage": {key: value for key, value in usage.items() if key in own or isinstance(value, int)}}

    def text(self, body: Body) -> str:
        return _text(body.get("delta"), "text") or _text(body.get("content_block"), "text")

    def silent(self, body: Body) -> bool:
        return body["type"] in ("ping", "message_start")

    def closing(self) -> list[Body]:
        return [] if self._open is None else [{"type": "content_block_stop", "index": self._open}]

    def joined(self, body: Body) -> list[Body]:
        if body["type"] == "message_start":
            return []
        if "index" not in body:
            return [body]
        if self._offset < 0:
            self._offset = self._count
        return [body | {"index": body["index"] + self._offset}]

    def say(self, text: str) -> list[Body]:
        delta = {"type": "text_delta", "text": text}
        if self._open is not None and self._open_text:
            return [{"type": "content_block_delta", "index": self._open, "delta": delta}]
        at = {"index": self._count}
        return [
            *self.closing(),
            {"type": "content_block_start", **at, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", **at, "delta": delta},
            {"type": "content_block_stop", **at},
        ]

    def noop(self) -> Body:
        return {"type": "ping"}

    def ending(self, body: Body) -> list[Body]:
        return [body] if body["type"] in ("message_delta", "message_stop", "error") else []


class OllamaJoin(Join):
    def __init__(self) -> None:
        super().__init__()
        self._head: Body = {}

    def seen(self, body: Body) -> None:
        super().seen(body)
        self._head = self._head or {key: body[key] for key in ("model", "created_at") if key in body}

    def usage(self, body: Body) -> Body:
        numbers = {key: value for key, value in body.items() if key.endswith(("_count", "_duration"))}
        return numbers if body.get("done") else {}

    def with_usage(self, body: Body, usage: Body) -> Body:
        return body | usage

    def text(self, body: Body) -> str:
        return _text(body.get("message"), "content")

    def silent(self, body: Body) -> bool:
        return not (body.get("done") or body.get("error") or _says(body.get("message")))

    def joined(self, body: Body) -> list[Body]:
        return [body]

    def say(self, text: str) -> list[Body]:
        return [self._head | {"message": {"role": "assistant", "content": text}, "done": False}]

    def ending(self, body: Body) -> list[Body]:
        return [body | {"message": {"role": "assistant", "content": ""}}] if body.get("done") else []


class ResponsesJoin(Join):
    """`_parts` are the open text parts by (output index, content index): the part, and its text in pieces."""

    _BEGINNING = ("response.created", "response.queued")
    _FINAL = ("response.completed", "response.incomplete", "response.failed", "error")

    def __init__(self) -> None:
        super().__init__()
        self._response: Body = {}
        self._sequence: int | None = None
        self._open: dict[int, Body] = {}
        self._parts: dict[tuple[int, int], tuple[Body, list[str]]] = {}
        self._complete: dict[int, Body] = {}
        self._ids: dict[str, str] = {}  # of this answer's items -> the client's
        self._used: set[str] = set()
        self._count = 0
        self._offset = 0

    def next(self) -> None:
        super().next()
        self._offset = -1
        self._ids = {}

    def seen(self, body: Body) -> None:
        super().seen(body)
        self._sequence = body.get("sequence_number", self._sequence)
        self._response = self._response or _dict(body.get("response"))
        if "output_index" not in body:
            return
        kind, index = body["type"].removeprefix("response."), body["output_index"]
        place = (index, body.get("content_index", 0))
        if kind == "output_item.added":
            self._open[index] = body["item"]
            self._used.add(body["item"].get("id", ""))
            self._count = index + 1
        elif kind == "content_part.added":
            self._parts[place] = (body["part"], [])
        elif kind == "output_text.delta" and place in self._parts:
            self._parts[place][1].append(body["delta"])
        elif kind == "content_part.done":
            self._parts.pop(place, None)
        elif kind == "output_item.done":
            self._open.pop(index, None)
            self._complete[index] = body["item"]

    def numbered(self, body: Body) -> Body:
        return body if self._sequence is None else body | {"sequence_number": self._sequence + 1}

    def usage(self, body: Body) -> Body:
        return _dict(_dict(body.get("response")).get("usage"))

    def with_usage(self, body: Body, usage: Body) -> Body:
        return body | {"response": body["response"] | {"usage": usage}}

    def text(self, body: Body) -> str:
        return _text(body, "delta") if body["type"] == "response.output_text.delta" else ""

    def silent(self, body: Body) -> bool:
        return body["type"] in ("response.in_progress", *self._BEGINNING)

    def closing(self) -> list[Body]:
        events = []
        for index, item in sorted(self._open.items()):
            content = list(item.get("content") or [])
            for (_, number), (part, pieces) in sorted(
                (place, open_part) for place, open_part in self._parts.items() if place[0] == index
            ):
                at = {"item_id": item.get("id"), "output_index": index, "content_index": number}
                done = part | {"text": "".join(pieces)}
                content.append(done)
                events.append({"type": "response.output_text.done", **at, "text": done["text"], "logprobs": []})
                events.append({"type": "response.content_part.done", **at, "part": done})
            whole = item | {"status": "completed"} | ({"content": content} if content else {})
            events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
        return events

    def joined(self, body: Body) -> list[Body]:
        kind = body["type"]
        if kind in self._BEGINNING:
            return []
        if kind == "response.in_progress":
            return [body | {"response": self._response}]
        if isinstance(response := body.get("response"), dict):
            same = {key: self._response[key] for key in ("id", "created_at") if key in self._response}
            output = [self._complete[index] for index in sorted(self._complete)]
            return [body | {"response": response | same | {"output": output}}]
        return [self._placed(body)] if "output_index" in body else [body]

    def say(self, text: str) -> list[Body]:
        for (index, number), _ in self._parts.items():
            at = {"item_id": self._open[index].get("id"), "output_index": index, "content_index": number}
            return [{"type": "response.output_text.delta", **at, "delta": text, "logprobs": []}]
        index = self._count
        identity = make_id("msg_", self._response.get("id"), index)
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": identity, "role": "assistant", "status": "completed", "content": [part]}
        at = {"item_id": identity, "output_index": index, "content_index": 0}
        early = item | {"status": "in_progress", "content": []}
        return [
            {"type": "response.output_item.added", "output_index": index, "item": early},
            {"type": "response.content_part.added", **at, "part": part | {"text": ""}},
            {"type": "response.output_text.delta", **at, "delta": text, "logprobs": []},
            {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **at, "part": part},
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]

    def noop(self) -> Body:
        return {"type": "response.in_progress", "response": self._response}

    def ending(self, body: Body) -> list[Body]:
        return self.joined(body) if body["type"] in self._FINAL else []

    def _placed(self, body: Body) -> Body:
        if self._offset < 0:
            self._offset = self._count
        placed = body | {"output_index": body["output_index"] + self._offset}
        if "item_id" in body:
            placed["item_id"] = self._id(body["item_id"])
        if isinstance(item := body.get("item"), dict) and "id" in item:
            placed["item"] = item | {"id": self._id(item["id"])}
        return placed

    def _id(self, given: str) -> str:
        """The item's own id, another one where an earlier answer had it too."""
        if given not in self._ids:
            taken = given in self._used
            prefix = f"{given.partition('_')[0]}_"
            self._ids[given] = make_id(prefix, given, self._offset) if taken else given
        return self._ids[given]


JOINS: dict[str, type[Join]] = {
    "openai-chat": ChatJoin,
    "openai-responses": ResponsesJoin,
    "anthropic": AnthropicJoin,
    "ollama": OllamaJoin,
}


def _dict(value: Any) -> Body:
    return value if isinstance(value, dict) else {}


def _text(value: Any, key: str) -> str:
    text = _dict(value).get(key)
    return text if isinstance(text, str) else ""


def _says(delta: Any) -> bool:
    return any(value for key, value in _dict(delta).items() if key != "role")


def _sum(one: Any, two: Any) -> Any:
    """Two usages as one: numbers are added, at any depth."""
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _sum(one.get(key), two.get(key)) for key in one | two}
    if isinstance(one, int | float) and isinstance(two, int | float) and not isinstance(two, bool):
        return one + two
    return one if two is None else two
