"""Where a request of one wire keeps its turns: what assistants said, and where system text may stand.

A body is the decoded JSON object of a request. It is never changed: every function gives a new one that shares all
it did not touch, or the very same object when there was nothing to do. What has not the wire's shape is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Body = dict[str, Any]
Role = Literal["system", "user", "assistant"]

_SYSTEM_ROLES: Final = ("system", "developer")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True)
class Shape:
    """Where one wire keeps the parts of a request.

    `turns`: the key of the list of messages. `system`: the key of system text outside that list, "" where the wire has
    none. `typed`: text parts tell their direction (`input_text`, `output_text`). `late`: a system message may stand at
    the end of the turns.
    """

    turns: str
    system: str
    typed: bool
    late: bool


SHAPES: Final[Mapping[str, Shape]] = {
    "openai-chat": Shape("messages", "", typed=False, late=True),
    "openai-responses": Shape("input", "instructions", typed=True, late=True),
    "anthropic": Shape("messages", "system", typed=False, late=False),
    "ollama": Shape("messages", "", typed=False, late=True),
}


def turns(wire: str, body: Body) -> list[Any] | None:
    """The list of messages, in the order they were said; None where the body has none."""
    found = body.get(SHAPES[wire].turns)
    return found if isinstance(found, list) else None


def role_of(said: Any) -> str:
    """The role of a message, "" for anything else that stands among the turns (calls, their results, reasoning)."""
    if not isinstance(said, dict) or said.get("type", "message") != "message":
        return ""
    role = said.get("role")
    return role if isinstance(role, str) else ""


def texts(said: dict[str, Any]) -> Iterator[str]:
    """The text parts of a message."""
    content = said.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if _is_text(part):
            yield part["text"]


def made_call(said: dict[str, Any]) -> bool:
    """True where an assistant message carries native calls, or a message the result of one."""
    if said.get("tool_calls") or said.get("function_call"):
        return True
    content = said.get("content")
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and str(part.get("type")).startswith("tool_") for part in parts)


def assistant_texts(wire: str, body: Body) -> Iterator[str]:
    """Every text of an assistant message, and perhaps of items that are none: quick to rule out a whole history."""
    for said in turns(wire, body) or ():
        if isinstance(said, dict) and said.get("role") == "assistant":
            content = said.get("content")
            if isinstance(content, str):
                yield content
            else:
                yield from texts(said)


def map_assistant(wire: str, body: Body, change: Callable[[str], str]) -> Body:
    """`body` with each text of an assistant message replaced by `change(text)`."""
    history = turns(wire, body)
    if history is None:
        return body
    changed = [_map_texts(said, change) if role_of(said) == "assistant" else said for said in history]
    if all(new is old for new, old in zip(changed, history, strict=True)):
        return body
    return {**body, SHAPES[wire].turns: changed}


def answers(wire: str, body: Body) -> int:
    """How many messages of assistants the turns hold: the place of the one that answers `body`."""
    return sum(role_of(said) == "assistant" for said in turns(wire, body) or ())


def last_said(wire: str, body: Body) -> tuple[int, str] | None:
    """Place and text of the assistant message the turns end in, before what users said since.

    None where there is none, or where a call was made after it or in it. A place counts assistant messages from 0.
    """
    for said in reversed(turns(wire, body) or []):
        if not isinstance(said, dict):
            return None
        if said.get("type") in ("reasoning", "additional_tools"):
            continue
        role = role_of(said)
        if made_call(said) or role not in ("assistant", "user", *_SYSTEM_ROLES):
            return None
        if role == "assistant":
            return answers(wire, body) - 1, "".join(texts(said))
    return None


def message(wire: str, role: Role, text: str) -> dict[str, Any]:
    """A message of the wire with one text."""
    if SHAPES[wire].typed:
        return {"type": "message", "role": role, "content": [_part(wire, role, text)]}
    return {"role": role, "content": text}


def append_turns(wire: str, body: Body, *messages: dict[str, Any]) -> Body:
    """`body` with messages added at the end; an input that is one string (Responses) becomes the user's message."""
    history = body.get(SHAPES[wire].turns)
    if SHAPES[wire].typed and isinstance(history, str):
        history = [message(wire, "user", history)]
    if not isinstance(history, list):
        return body
    return {**body, SHAPES[wire].turns: [*history, *messages]}


def append_system(wire: str, body: Body, text: str) -> Body:
    """`body` with `text` at the end of its standing system text, where it stays at the same place in later requests."""
    key = SHAPES[wire].system
    if wire == "anthropic":
        return _append_block(body, key, _part(wire, "system", text))
    if key and isinstance(body.get(key), str) and body[key]:
        return {**body, key: f"{body[key]}\n\n{text}"}
    history = turns(wire, body)
    at = _leading_system(history or [])
    if history is not None and at is not None:
        extended = _append_text(history[at], _part(wire, "system", text))
        if extended is history[at]:
            return body
        return {**body, SHAPES[wire].turns: [*history[:at], extended, *history[at + 1 :]]}
    if key:
        return {**body, key: text} if body.get(key) in (None, "") else body
    if history is None:
        return body
    return {**body, SHAPES[wire].turns: [message(wire, "system", text), *history]}


def append_late(wire: str, body: Body, text: str) -> Body:
    """`body` with `text` as the last system text the wire allows."""
    if SHAPES[wire].late:
        return append_turns(wire, body, message(wire, "system", text))
    return append_system(wire, body, text)


def says(wire: str, body: Body, text: str) -> bool:
    """True where `text` stands in a system text of the request already."""
    top = body.get(SHAPES[wire].system)
    if any(text in part for part in texts({"content": top})):
        return True
    history = turns(wire, body) or ()
    return any(text in part for said in history if role_of(said) in _SYSTEM_ROLES for part in texts(said))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


def _part(wire: str, role: Role, text: str) -> dict[str, str]:
    if not SHAPES[wire].typed:
        return {"type": "text", "text": text}
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def _map_texts(said: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    content = said.get("content")
    if isinstance(content, str):
        text = change(content)
        return said if text == content else {**said, "content": text}
    if not isinstance(content, list):
        return said
    parts = [_map_part(part, change) if _is_text(part) else part for part in content]
    if all(new is old for new, old in zip(parts, content, strict=True)):
        return said
    return {**said, "content": parts}


def _map_part(part: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    text = change(part["text"])
    return part if text == part["text"] else {**part, "text": text}


def _leading_system(history: list[Any]) -> int | None:
    """The system message before everything users and assistants said: a later one moves from request to request."""
    for at, said in enumerate(history):
        role = role_of(said)
        if role in _SYSTEM_ROLES:
            return at
        if role:
            return None
    return None


def _append_text(said: dict[str, Any], part: dict[str, str]) -> dict[str, Any]:
    content = said.get("content")
    if isinstance(content, str):
        return {**said, "content": f"{content}\n\n{part['text']}" if content else part["text"]}
    if isinstance(content, list):
        return {**said, "content": [*content, part]}
    return said


def _append_block(body: Body, key: str, part: dict[str, str]) -> Body:
    system = body.get(key)
    if isinstance(system, str):
        system = [{"type": "text", "text": system}] if system else []
    elif system is None:
        system = []
    if not isinstance(system, list):
        return body
    return {**body, key: [*system, part]}
