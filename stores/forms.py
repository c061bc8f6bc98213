"""The two forms of a message that clients store: OpenAI's Chat Completions and Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from dsml_core.formats.wire import make_id
from dsml_core.transcript import Repaired
from stores.base import INTERRUPTED, Fix

Json = dict[str, Any]


class Form(Protocol):
    """How one API writes a message. A message is a JSON object with a `role`; what has not its shape gives nothing."""

    def texts(self, message: Json) -> tuple[str, ...]:
        """The text parts, in order."""

    def native(self, message: Json) -> bool:
        """Whether the message holds native calls."""

    def repaired(self, message: Json, fix: Fix) -> list[Json]:
        """The repaired message, and behind it those that hold the results of added calls."""

    def is_result(self, message: Any) -> bool:
        """Whether the message is a result as `repaired` adds one."""

    def shows(self, message: Json) -> bool:
        """Whether the message can only be of this form."""

    def shows_body(self, rest: Json) -> bool:
        """Whether a request body can only be of this form, by what it holds besides its messages."""


class OpenAI(Form):
    def texts(self, message: Json) -> tuple[str, ...]:
        return _texts(message.get("content"))

    def native(self, message: Json) -> bool:
        return bool(message.get("tool_calls") or message.get("function_call"))

    def repaired(self, message: Json, fix: Fix) -> list[Json]:
        new = {**message, "content": _with_texts(message["content"], fix.parts)}
        calls = [
            {"id": id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments)}}
            for id, call in zip(_ids("call_", fix, len(message.get("tool_calls") or ())), fix.calls, strict=True)
        ]
        if calls:
            new["tool_calls"] = [*(message.get("tool_calls") or ()), *calls]
        return [new, *({"role": "tool", "tool_call_id": call["id"], "content": INTERRUPTED} for call in calls)]

    def is_result(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get("role") == "tool" and message.get("content") == INTERRUPTED

    def shows(self, message: Json) -> bool:
        if self.native(message) or message.get("role") in ("tool", "system", "developer", "function"):
            return True
        answers_nothing = message["role"] == "assistant" and "content" in message and message["content"] is None
        return answers_nothing or _has_type(message, ("image_url", "input_audio", "file", "refusal"))

    def shows_body(self, rest: Json) -> bool:
        tools = rest.get("tools")
        wrapped = isinstance(tools, list) and any(isinstance(tool, dict) and "function" in tool for tool in tools)
        return wrapped or "functions" in rest or "stream_options" in rest or "max_completion_tokens" in rest


class Anthropic(Form):
    def texts(self, message: Json) -> tuple[str, ...]:
        return _texts(message.get("content"))

    def native(self, message: Json) -> bool:
        return _has_type(message, ("tool_use", "server_tool_use", "mcp_tool_use"))

    def repaired(self, message: Json, fix: Fix) -> list[Json]:
        content = _with_texts(message["content"], fix.parts)
        calls = [
            {"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}
            for id, call in zip(_ids("toolu_", fix, len(_blocks(message))), fix.calls, strict=True)
        ]
        if not calls:
            return [{**message, "content": content}]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": INTERRUPTED, "is_error": True}
            for call in calls
        ]
        return [{**message, "content": [*content, *calls]}, {"role": "user", "content": results}]

    def is_result(self, message: Any) -> bool:
        if not isinstance(message, dict) or message.get("role") != "user":
            return False
        blocks = _blocks(message)
        return bool(blocks) and all(
            block.get("type") == "tool_result" and block.get("content") == INTERRUPTED for block in blocks
        )

    def shows(self, message: Json) -> bool:
        types = ("tool_result", "thinking", "redacted_thinking", "image", "document")
        return self.native(message) or _has_type(message, types)

    def shows_body(self, rest: Json) -> bool:
        tools = rest.get("tools")
        plain = isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
        return plain or "system" in rest or "anthropic_version" in rest or "stop_sequences" in rest


class Either(OpenAI):
    """Reads both forms."""

    def native(self, message: Json) -> bool:
        return super().native(message) or _ANTHROPIC.native(message)

    def is_result(self, message: Any) -> bool:
        return super().is_result(message) or _ANTHROPIC.is_result(message)


_ANTHROPIC: Final = Anthropic()


def strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value that are no keys, in order."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            waiting.extend(reversed(part))
        elif isinstance(part, dict):
            waiting.extend(reversed(part.values()))


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _has_type(message: Json, types: Sequence[str]) -> bool:
    return any(block.get("type") in types for block in _blocks(message))


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _texts(content: Any) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple(block["text"] for block in content if _is_text(block)) if isinstance(content, list) else ()


def _with_texts(content: Any, parts: Sequence[Repaired]) -> Any:
    """`content` with its texts replaced, as many as `_texts` finds in it."""
    if isinstance(content, str):
        return parts[0].text
    rest = iter(parts)
    return [{**block, "text": next(rest).text} if _is_text(block) else block for block in content]


def _ids(prefix: str, fix: Fix, first: int) -> list[str]:
    """An id for each call, numbered from `first`: behind those that a repair added before."""
    message = fix.message
    return [make_id(prefix, message.session.id, message.id, first + number) for number in range(len(fix.calls))]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
