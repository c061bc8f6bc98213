"""What a request says that decides how its response is repaired."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsml_core.tools import Tool, as_tools

# Where each wire's messages stand. System text beside the messages counts as one.
_MESSAGES = {
    "openai-chat": ("messages",),
    "openai-responses": ("instructions", "input"),
    "anthropic": ("system", "messages"),
    "ollama": ("messages",),
}
# Responses items without a role: tool outputs are the client's, the rest is the model's own.
_OUTPUT = "_output"
_LONG_S = "\u017f"  # the marker's pattern takes it for an s
_TEXT_KEYS = ("text", "content", "output", "source", "data")


@dataclass(frozen=True, slots=True)
class Context:
    """`tools` None: unknown, empty: none. `calls` False: the request forbids calls.

    `quoted`: the texts of all messages but the model's own that may hold markup. `model`: as the request names
    it. `stream`: whether it asks for a stream.
    """

    tools: dict[str, Tool] | None = None
    calls: bool = True
    quoted: tuple[str, ...] = ()
    model: str | None = None
    stream: bool = False


def read_context(wire: str, body: Any) -> Context:
    """The context of a request; `body` is its JSON value, or the JSON text in characters or bytes.

    A body that cannot be read gives `Context()`: nothing known. `wire` is one of the four names; tools count
    from `tools`, legacy `functions` and, in Responses, the tools that stand in items of `input`.
    """
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return Context()
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
    for key in _MESSAGES[wire]:
        given = body.get(key)
        for message in given if isinstance(given, list) else (given,):
            if isinstance(message, Mapping) and _is_models_own(message):
                continue
            yield from _parts(message)


def _is_models_own(message: Mapping[str, Any]) -> bool:
    if "role" in message:
        return bool(message["role"] == "assistant")
    kind = message.get("type")
    return isinstance(kind, str) and kind not in ("text", "input_text", "message") and not kind.endswith(_OUTPUT)


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
            waiting.extend(part[key] for key in reversed(_TEXT_KEYS) if key in part)


def _may_hold_markup(text: str) -> bool:
    lowered = text.encode("utf-8", "surrogatepass").lower()
    return b"dsml" in lowered or b"invoke" in lowered or _LONG_S in text
