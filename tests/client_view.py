"""What a strict client makes of a response: it refuses whatever one of the official SDKs or agents trips over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass
class Seen:
    """The answer as the client puts it together. `calls` are names and arguments, `ids` their ids."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    finish: str | None = None

    def __post_init__(self) -> None:
        assert len(set(self.ids)) == len(self.ids), "ids are not unique"


def see(wire: str, data: bytes, *, stream: bool = True) -> Seen:
    """Read a whole response; AssertionError where it is not well-formed on its wire."""
    return _STREAMS[wire](data) if stream else _BODIES[wire](json.loads(data))


def given(arguments: str) -> Any:
    """The arguments of a call; a text where they are no JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def events(data: bytes) -> list[tuple[str | None, Any]]:
    """Name and value of each event; comments are left out."""
    found: list[tuple[str | None, Any]] = []
    for block in data.decode().replace("\r\n", "\n").split("\n\n"):
        lines = [line.split(": ", 1) for line in block.split("\n") if ": " in line]
        fields = {name: value for name, value in lines if name}
        if "data" in fields:
            value = fields["data"]
            found.append((fields.get("event"), value if value == "[DONE]" else json.loads(value)))
    return found


# -- Chat Completions


def _chat_stream(data: bytes) -> Seen:
    seen = Seen()
    calls: dict[int, Body] = {}
    *chunks, last = [value for _, value in events(data)]
    assert last == "[DONE]"
    assert chunks[0]["choices"][0]["delta"].get("role") == "assistant"
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert seen.finish is None, "a choice after its finish"
            delta = choice["delta"]
            seen.text += delta.get("content") or ""
            seen.reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                assert call["index"] in (len(calls), len(calls) - 1), "indexes have a gap"
                if call["index"] == len(calls):
                    assert call["type"] == "function"
                    calls[call["index"]] = {"id": call["id"], "name": call["function"]["name"], "arguments": ""}
                calls[call["index"]]["arguments"] += call["function"].get("arguments") or ""
            seen.finish = choice["finish_reason"]
    assert "usage" in chunks[-1]
    made = [calls[index] for index in sorted(calls)]
    called = [(call["name"], given(call["arguments"])) for call in made]
    return Seen(seen.text, seen.reasoning, called, [call["id"] for call in made], seen.finish)


def _chat_body(body: Body) -> Seen:
    (choice,) = body["choices"]
    said = choice["message"]
    made = said.get("tool_calls") or []
    calls = [(call["function"]["name"], given(call["function"]["arguments"])) for call in made]
    reasoning = said.get("reasoning_content") or ""
    return Seen(said["content"] or "", reasoning, calls, [call["id"] for call in made], choice["finish_reason"])


# -- Responses


class _Items:
    """The output items of a stream, checked event by event."""

    def __init__(self) -> None:
        self.texts: dict[int, dict[tuple[str, int], str]] = {}
        self.arguments: dict[int, str] = {}
        self.done: dict[int, Body] = {}

    def take(self, kind: str, event: Body) -> None:
        index = event["output_index"]
        if kind == "output_item.added":
            assert index == len(self.texts), "output indexes have a gap"
            self.texts[index], self.arguments[index] = {}, ""
            return
        assert index in self.texts and index not in self.done, "an event of an item that is not open"
        part = next(((name, event[name]) for name in ("content_index", "summary_index") if name in event), ("", -1))
        if kind.endswith("part.added"):
            assert part[1] == sum(name == part[0] for name, _ in self.texts[index]), "part indexes have a gap"
            self.texts[index][part] = ""
        elif kind.endswith("text.delta"):
            self.texts[index][part] += event["delta"]
        elif kind.endswith("text.done"):
            assert event["text"] == self.texts[index][part]
        elif kind.endswith("part.done"):
            assert event["part"]["text"] == self.texts[index][part]
        elif kind.endswith(("arguments.delta", "input.delta")):
            self.arguments[index] += event["delta"]
        elif kind.endswith(("arguments.done", "input.done")):
            assert event.get("arguments", event.get("input")) == self.arguments[index]
        elif kind == "output_item.done":
            self._check(index, event["item"])
            self.done[index] = event["item"]

    def _check(self, index: int, item: Body) -> None:
        shown = [part["text"] for name in ("summary", "content") for part in item.get(name, [])]
        assert shown == list(self.texts[index].values()), "an item does not hold what was streamed"
        assert item.get("arguments", item.get("input", "")) == self.arguments[index]


def _responses_stream(data: bytes) -> Seen:
    items = _Items()
    response = None
    for number, (name, event) in enumerate(events(data)):
        assert name == event["type"]
        assert event["sequence_number"] == number, "sequence numbers have a gap"
        assert response is None, "an event after the last"
        kind = event["type"].removeprefix("response.")
        if "output_index" in event:
            items.take(kind, event)
        elif kind in ("completed", "incomplete"):
            assert event["response"]["status"] == kind
            response = event["response"]
    assert response is not None
    assert response["output"] == [items.done[index] for index in sorted(items.done)]
    return _responses_body(response)


def _responses_body(response: Body) -> Seen:
    seen = Seen(finish="stop" if response["status"] == "completed" else response["incomplete_details"]["reason"])
    ids = [item["id"] for item in response["output"]]
    assert len(set(ids)) == len(ids), "item ids are not unique"
    for item in response["output"]:
        if item["type"] == "function_call":
            seen.calls.append((item["name"], given(item["arguments"])))
            seen.ids.append(item["call_id"])
        elif item["type"] == "message":
            seen.text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "reasoning":
            seen.reasoning += "".join(part["text"] for part in item["summary"])
    finish = "tool_calls" if seen.calls and seen.finish == "stop" else seen.finish
    return Seen(seen.text, seen.reasoning, seen.calls, seen.ids, finish)


# -- Anthropic Messages

_STOPS = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter", "tool_use": "tool_calls"}


def _anthropic_stream(data: bytes) -> Seen:
    blocks: list[Body] = []
    stop = None
    is_open = False
    *early, (last, _) = events(data)
    assert last == "message_stop"
    for name, event in early:
        kind = event["type"]
        assert name == kind
        if kind == "content_block_start":
            assert not is_open and event["index"] == len(blocks), "block indexes have a gap"
            is_open = True
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            assert is_open and event["index"] == len(blocks) - 1, "a delta of a block that is not open"
            for field_, key in {"text": "text", "thinking": "thinking", "partial_json": "json"}.items():
                blocks[-1][key] = blocks[-1].get(key, "") + event["delta"].get(field_, "")
        elif kind == "content_block_stop":
            assert is_open and event["index"] == len(blocks) - 1
            is_open = False
        elif kind == "message_delta":
            assert not is_open
            stop = event["delta"]["stop_reason"]
    for block in blocks:
        if block["type"] == "tool_use":
            assert block["input"] == {}
            block["input"] = given(block["json"] or "{}")
    return _anthropic_body({"content": blocks, "stop_reason": stop})


def _anthropic_body(message: Body) -> Seen:
    seen = Seen(finish=_STOPS[message["stop_reason"]])
    for block in message["content"]:
        if block["type"] == "text":
            seen.text += block["text"]
        elif block["type"] == "thinking":
            seen.reasoning += block["thinking"]
        else:
            seen.calls.append((block["name"], block["input"]))
            seen.ids.append(block["id"])
    return Seen(seen.text, seen.reasoning, seen.calls, seen.ids, seen.finish)


# -- Ollama


def _ollama_stream(data: bytes) -> Seen:
    lines = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    seen = Seen()
    for line in lines:
        one = _ollama_body(line)
        seen.text += one.text
        seen.reasoning += one.reasoning
        seen.calls += one.calls
    finish = "tool_calls" if seen.calls else lines[-1]["done_reason"]
    return Seen(seen.text, seen.reasoning, seen.calls, finish=finish)


def _ollama_body(line: Body) -> Seen:
    said = line["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in said.get("tool_calls") or []]
    assert all(isinstance(arguments, dict) for _, arguments in calls)
    finish = "tool_calls" if calls else line.get("done_reason")
    return Seen(said["content"], said.get("thinking") or "", calls, finish=finish)


_STREAMS: dict[str, Callable[[bytes], Seen]] = {
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "ollama": _ollama_stream,
}
_BODIES: dict[str, Callable[[Body], Seen]] = {
    "openai-chat": _chat_body,
    "openai-responses": _responses_body,
    "anthropic": _anthropic_body,
    "ollama": _ollama_body,
}
