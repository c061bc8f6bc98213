"""What a request says that decides how its response is repaired."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsml_core.framing import loads
from dsml_core.tools import Tool, as_tools

# Where each wire's messages stand. System text beside the messages counts as one.
_MESSAGES = {
    "openai-chat": ("messages",),
    "openai-responses": ("instructions", "input"),
    "anthropic": ("system", "messages"),
    "ollama": ("messages",),
}
# What tools returned, in messages of the model's own: by the end of a type, and by key.
_RESULTS = ("_output", "_result", "_tool_result")
_RETURNED = ("output", "outputs", "result", "results")
_LONG_S = "\u017f"  # the marker's pattern takes it for an s
_NO_TEXT = frozenset({"id", "type", "role", "url", "image_url", "input_audio", "encrypted_content", "signature"})
_NO_CALLS = re.compile(r'"(?:tool_choice|function_call)"\s*:\s*(?:"none"|\{\s*"type"\s*:\s*"none"\s*\})')


@dataclass(frozen=True, slots=True)
class Context:
    """`tools` None: unknown, empty: none. `calls` False: the request forbids calls.

    `quoted`: the texts that may hold markup of all messages but the model's own, of tools and of their descriptions.
    `model`: as the request names it. `stream`: whether it asks for a stream.
    """

    tools: dict[str, Tool] | None = None
    calls: bool = True
    quoted: tuple[str, ...] = ()
    model: str | None = None
    stream: bool = False


def read_context(wire: str, body: Any) -> Context:
    """The context of a request; `body` is its JSON value, or the JSON text in characters or bytes.

    A body that cannot be read counts as quoted, all of it; no more is known than whether it forbids calls. `wire` is
    one of the four names; tools count from `tools`, legacy `functions` and, in Responses, the tools that stand in
    items of `input`.
    """
    if isinstance(body, str | bytes):
        text = body if isinstance(body, str) else _decoded(body)
        body = loads(text)
        if body is None:
            return Context(calls=_NO_CALLS.search(text) is None, quoted=(text,) if _may_hold_markup(text) else ())
    if not isinstance(body, Mapping):
        return Context()
    model = body.get("model")
    return Context(
        tools=_tools(wire, body),
        calls=not any(_is_none(body.get(key)) for key in ("tool_choice", "function_call")),
        quoted=tuple(text for text in _texts(wire, body) if _may_hold_markup(text)),
        model=model if isinstance(model, str) else None,
        stream=body.get("stream", wire == "ollama") is True,
    )


def _tools(wire: str, body: Mapping[str, Any]) -> dict[str, Tool] | None:
    declared: list[Any] = []
    for key in ("tools", "functions"):
        given = body.get(key)
        if given is None:
            continue
        if not isinstance(given, list):
            return None
        declared += given
    items = body.get("input") if wire == "openai-responses" else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping):
            for key in ("tools", "additional_tools"):
                given = item.get(key)
                declared += given if isinstance(given, list) else ()
    return as_tools(declared)


def _is_none(choice: Any) -> bool:
    return choice == "none" or (isinstance(choice, Mapping) and choice.get("type") == "none")


def _texts(wire: str, body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        declared = tool.get("function", tool) if isinstance(tool, Mapping) else None
        yield from _parts(declared.get("description") if isinstance(declared, Mapping) else None)
    for key in _MESSAGES[wire]:
        given = body.get(key)
        for message in given if isinstance(given, list) else (given,):
            yield from _returned(message) if _is_models_own(message) else _parts(message)


def _is_models_own(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    if "role" in message:
        return bool(message["role"] == "assistant")
    kind = message.get("type")
    return isinstance(kind, str) and kind not in ("text", "input_text", "message") and not kind.endswith(_RESULTS)


def _returned(message: Any) -> Iterator[str]:
    """The texts in a message of the model's own that the provider's tools returned."""
    for key in _RETURNED:
        yield from _parts(message.get(key))
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and str(block.get("type")).endswith(_RESULTS):
            yield from _parts(block)


def _parts(content: Any) -> Iterator[str]:
    """All texts of a message or content part, at any depth, in order."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            waiting.extend(reversed(part))
        elif isinstance(part, Mapping) and part.get("type") != "base64":
            waiting.extend(value for key, value in reversed(list(part.items())) if key not in _NO_TEXT)


def _may_hold_markup(text: str) -> bool:
    if len(text) < len("dsml"):
        return False
    if "&#" in text or "\\u00" in text or _LONG_S in text:  # the first two: escapes
        return True
    lowered = text.encode("utf-8", "surrogatepass").lower()
    return b"dsml" in lowered or b"invoke" in lowered


def _decoded(body: bytes) -> str:
    """A body in any encoding that JSON knows; what is wrong in it is replaced."""
    return body.decode(json.detect_encoding(body), "replace")
