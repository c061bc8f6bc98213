"""What the streams of the soak say, each tagged with its own number, and what a client makes of what it gets.

A part of soak.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import bench_frames
import bench_texts

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}
_MODEL = b"deepseek-v4"  # as bench_frames writes it
_SENTENCE = "Here {0} compares a < b, and <div>; {0} goes on. "
LINE = len(_SENTENCE.format("s000000"))
_UNTAGGED = b"s000000"  # the tag of number 0
_TAG = re.compile(r"s\d{6}(?!\d)")
_ERROR = {"type": "overloaded_error", "message": "overloaded"}
_NUMBERED = {"type": "error", "sequence_number": 9}
ERRORS = {
    "openai-chat": b"data: %b\n\n" % json.dumps({"error": _ERROR}).encode(),
    "openai-responses": b"event: error\ndata: %b\n\n" % json.dumps({**_ERROR, **_NUMBERED}).encode(),
    "anthropic": b"event: error\ndata: %b\n\n" % json.dumps({"type": "error", "error": _ERROR}).encode(),
    "ollama": json.dumps({"error": "overloaded"}).encode() + b"\n",
}


@dataclass(frozen=True)
class Said:
    """One answer: prose and, where it leaks, a call behind it. `repeats` makes the prose longer, `size` is that of a
    delta in characters."""

    number: int
    wire: str
    leaks: bool
    repeats: int = 2
    size: int = 8

    @property
    def tag(self) -> str:
        return f"s{self.number:06d}"

    @cached_property
    def prose(self) -> str:
        return _SENTENCE.format(self.tag) * self.repeats

    @property
    def arguments(self) -> dict[str, str]:
        return {"path": f"{self.tag}.txt", "content": f"{self.tag} wrote if (a < b) {{ return; }}\n" * 4}

    @cached_property
    def text(self) -> str:
        """What the model writes."""
        if not self.leaks:
            return self.prose
        return self.prose + bench_texts.call(self.arguments["content"], first=self.arguments["path"]).lstrip()

    @cached_property
    def frames(self) -> list[bytes]:
        """What the provider streams. The model's name, in the first frame or in all, is tagged too."""
        if self.leaks or self.size % LINE:
            return _made(self)
        return [frame.replace(_UNTAGGED, self.tag.encode()) for frame in _template(replace(self, number=0))]

    def header(self) -> str:
        """All of it, for the header that tells the provider what to say."""
        return json.dumps(asdict(self))

    def request(self) -> bytes:
        asked = [{"role": "user", "content": f"{self.tag} asks"}]
        said = {"input" if self.wire == "openai-responses" else "messages": asked}
        return json.dumps({"model": "deepseek-v4", "stream": True, "tools": _tools(self.wire), **said}).encode()

    @property
    def opener(self) -> str:
        """The tag that the markup begins with."""
        markup = self.text[len(self.prose) :]
        return markup[: markup.find(">") + 1]

    @property
    def middle(self) -> int:
        """Characters up to the middle of the call's value; of the prose where there is no call."""
        if not self.leaks:
            return len(self.prose) // 2
        value = self.arguments["content"]
        return self.text.index(value) + len(value) // 2

    def frames_to(self, characters: int) -> int:
        """The number of frames after which so much has been said."""
        said = 0
        for number, frame in enumerate(self.frames):
            if said >= characters:
                return number
            said += len(read(self.wire, frame).text)
        return len(self.frames)

    def finish_at(self) -> int:
        """The number of frames up to the finish, which is one of them."""
        return next(number for number, frame in enumerate(self.frames, 1) if read(self.wire, frame).finish)


def _made(said: Said) -> list[bytes]:
    model = b"deepseek-" + said.tag.encode()
    return [frame.replace(_MODEL, model) for frame in bench_frames.frames(said.wire, said.text, said.size)]


@cache
def _template(said: Said) -> list[bytes]:
    """To make a long answer takes long; where no frame cuts a tag, one serves for all."""
    return _made(said)


def _tools(wire: str) -> list[dict[str, Any]]:
    functions = [tool["function"] for tool in bench_texts.TOOLS]
    if wire == "anthropic":
        return [{"name": function["name"], "input_schema": function["parameters"]} for function in functions]
    if wire == "openai-responses":
        return [{"type": "function", **function} for function in functions]
    return bench_texts.TOOLS


@dataclass
class Seen:
    """What a client makes of a stream, whole or not. `done`: the wire's own end was there; `rest`: bytes of a frame
    that was cut; `bad`: frames that are no JSON."""

    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    error: bool = False
    done: bool = False
    models: set[str] = field(default_factory=set)
    rest: bytes = b""
    bad: list[bytes] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        return "".join(self.texts)

    def tags(self) -> set[str]:
        """The tags of all that can be seen."""
        return set(_TAG.findall(" ".join([self.text, json.dumps(self.calls), *self.models])))


def read(wire: str, data: bytes) -> Seen:
    """Read a stream, or any whole frames of one, as a client does."""
    seen = Seen()
    *frames, seen.rest = data.split(b"\n" if wire == "ollama" else b"\n\n")
    arguments: dict[Any, list[str]] = {}  # index -> name and arguments so far
    for frame in frames:
        value = frame if wire == "ollama" else frame[frame.find(b"data:") + 5 :].strip()
        if value == b"[DONE]":
            seen.done = True
            continue
        try:
            event = json.loads(value)
        except ValueError:
            if value and b"data:" in frame:  # no comment
                seen.bad.append(frame)
            continue
        for model in _found(event, "model"):
            seen.models.add(model)
        seen.error = seen.error or bool(event.get("error")) or event.get("type") == "error"
        _READERS[wire](event, seen, arguments)
    seen.calls += [(name, _loaded("".join(parts))) for name, *parts in arguments.values()]
    return seen


def _found(value: Any, key: str) -> Iterator[str]:
    for name, inner in value.items():
        if name == key and isinstance(inner, str):
            yield inner
        elif name in ("message", "response") and isinstance(inner, dict):
            yield from _found(inner, key)


def _loaded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments  # a call that is not whole


def _chat(event: dict[str, Any], seen: Seen, arguments: dict[Any, list[str]]) -> None:
    for choice in event.get("choices", ()):
        seen.texts.append(choice["delta"].get("content") or "")
        for call in choice["delta"].get("tool_calls") or ():
            arguments.setdefault(call["index"], [call["function"].get("name", "")])
            arguments[call["index"]].append(call["function"]["arguments"])
        seen.finish = choice["finish_reason"] or seen.finish


def _responses(event: dict[str, Any], seen: Seen, arguments: dict[Any, list[str]]) -> None:
    if event["type"] == "response.output_text.delta":
        seen.texts.append(event["delta"])
    elif event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call":
        arguments[event["output_index"]] = [event["item"]["name"]]
    elif event["type"] == "response.function_call_arguments.delta":
        arguments[event["output_index"]].append(event["delta"])
    elif event["type"] == "response.completed":
        seen.done = True
        seen.finish = "tool_calls" if arguments else "stop"


def _anthropic(event: dict[str, Any], seen: Seen, arguments: dict[Any, list[str]]) -> None:
    if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
        arguments[event["index"]] = [event["content_block"]["name"]]
    elif event["type"] == "content_block_delta":
        seen.texts.append(event["delta"].get("text", ""))
        if "partial_json" in event["delta"]:
            arguments[event["index"]].append(event["delta"]["partial_json"])
    elif event["type"] == "message_delta":
        seen.finish = {"end_turn": "stop", "tool_use": "tool_calls"}[event["delta"]["stop_reason"]]
    elif event["type"] == "message_stop":
        seen.done = True


def _ollama(event: dict[str, Any], seen: Seen, arguments: dict[Any, list[str]]) -> None:
    message = event.get("message", {})
    seen.texts.append(message.get("content", ""))
    seen.calls += [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    if event.get("done"):
        seen.done = True
        seen.finish = "tool_calls" if seen.calls else event["done_reason"]


_READERS = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _anthropic, "ollama": _ollama}
