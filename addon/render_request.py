"""Plain text for the content views of a request: its history with the leaks in it, and what was added to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from addon.log import shown
from addon.reading import read_text
from addon.render import ADDED, marked, passage, pretty, side_by_side
from dsml_core import prompts
from dsml_core.context import Context, read_context
from dsml_core.framing import loads
from dsml_core.history import SHAPES, Body, role_of, texts, turns
from dsml_core.policy import Policy

_OURS = {prompts.DIRECTIVE: "the directive", prompts.NUDGE: "the correction", prompts.WAKE: "the wake line"}
_NOTE = re.compile(r"\[removed (?:malformed )?(?:[\w./:-]{1,64} )?call\]")
_FIXED = re.compile(rf"\n*(?:{'|'.join(map(re.escape, _OURS))})")
_SYSTEM = ("system", "developer")  # the roles in whose name this addon speaks of its own accord
_ADDED = re.compile("|".join([*map(re.escape, _OURS), _NOTE.pattern]))


def read_request(wire: str, data: bytes) -> Body | None:
    """The JSON object of a request that has messages of `wire`."""
    body = loads(data.decode("utf-8", "replace"))
    return body if isinstance(body, dict) and SHAPES[wire].turns in body else None


def request(wire: str, body: Body, policy: Policy, asked: Body | None = None) -> str:
    """The view DSML of a request as the provider got it; `asked` is what the client sent, where it was cleaned."""
    context = read_context(wire, body)
    tools = "not known" if context.tools is None else ", ".join(map(shown, context.tools)) or "none"
    head = [f"request, {wire}, {shown(context.model or 'no model')}", f"tools: {tools}"]
    return "\n".join([*head, *_messages(wire, body, context, policy, asked)]) + "\n"


def request_diff(wire: str, body: Body, columns: int, asked: Body | None = None) -> str:
    """The view DSML diff of a request: what the client sent against what the provider got.

    `body` and `asked` as for `request`. Without `asked` the client sent `body` without the fixed texts of this addon.
    """
    sides = list(_spoken(wire, asked) if asked else _spoken(wire, body, ours=False)), list(_spoken(wire, body))
    head: list[str] = []
    if asked is None:
        head = [_unchanged(list(_added(wire, body))), ""]
    elif sides[0] == sides[1]:
        head = [_unchanged([]), ""]
    return "\n".join([*head, *side_by_side(("the client sent", "the provider got"), *sides, columns)]) + "\n"


def _messages(wire: str, body: Body, context: Context, policy: Policy, asked: Body | None) -> Iterator[str]:
    originals = (said for _, role, said in _said(wire, asked or body) if role == "assistant")
    for title, role, said in _said(wire, body):
        yield from ("", f"== {title} ==")
        if role == "assistant":
            for text in texts(next(originals, said)):
                yield from _assistant(text, context, policy, "" if asked else "would be ")
        else:
            for text in texts(said):
                yield from _with_additions(text)
        yield from _others(said)


def _unchanged(added: list[str]) -> str:
    if not added:
        return "No difference: the provider got what the client sent."
    return f"The history was not changed. Added by dsml: {', '.join(added)}."


def _added(wire: str, body: Body) -> Iterator[str]:
    """What of the fixed texts of this addon stands in a request, in words."""
    told = [text for _, role, said in _said(wire, body) if role in _SYSTEM for text in texts(said)]
    return (word for fixed, word in _OURS.items() if any(fixed in text for text in told))


def _spoken(wire: str, body: Body, *, ours: bool = True) -> Iterator[str]:
    """A request as lines of text; without `ours`, as it was before this addon added its fixed texts."""
    for title, role, said in _said(wire, body):
        told = list(texts(said))
        if not ours and role in _SYSTEM and any(_FIXED.search(text) for text in told):
            told = [text for text in (_FIXED.sub("", text) for text in told) if text]
            if not told:
                continue
        yield f"== {title} =="
        for text in told:
            yield from text.split("\n")
        yield from _others(said)


def _said(wire: str, body: Body) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Title, role and message of the system text beside the turns and of each turn."""
    if body.get(SHAPES[wire].system):
        yield "system", "system", {"content": body[SHAPES[wire].system]}
    history = body.get(SHAPES[wire].turns)
    if isinstance(history, str):
        yield "user", "user", {"content": history}
    for number, said in enumerate(turns(wire, body) or ()):
        if isinstance(said, dict):
            role = shown(role_of(said) or str(said.get("type")))
            yield f"{number + 1} {role}", role, said


def _assistant(text: str, context: Context, policy: Policy, would: str) -> Iterator[str]:
    spans = read_text(text, context.tools or None, policy)
    if len(spans) > 1 or any(span.kind != "shown" for span in spans):
        yield from passage(spans, would)
    else:
        yield from _with_additions(text)


def _with_additions(text: str) -> Iterator[str]:
    """The text, with what this addon writes into requests set apart."""
    at = 0
    for found in _ADDED.finditer(text):
        if before := text[at : found.start()].strip("\n"):
            yield from before.split("\n")
        yield f"[added by dsml: {_OURS.get(found[0], 'a note in the place of leaked markup')}]"
        yield from marked(found[0], ADDED)
        at = found.end()
    if rest := text[at:].strip("\n"):
        yield from rest.split("\n")


def _others(said: Mapping[str, Any]) -> Iterator[str]:
    """Calls, results and all that is no text, in a few words each."""
    for call in said.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield from _call(function.get("name"), function.get("arguments"))
    if "name" in said and "arguments" in said:
        yield from _call(said["name"], said["arguments"])
    if "output" in said:
        yield _short(said["output"])
    content = said.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict) and kind == "tool_use":
            yield from _call(part.get("name"), part.get("input"))
        elif isinstance(part, dict) and kind == "tool_result":
            yield from texts({"content": part.get("content")})
        elif isinstance(kind, str) and not kind.endswith("text"):
            yield f"[{shown(kind)}]"


def _call(name: Any, arguments: Any) -> Iterator[str]:
    yield f"[call of {shown(str(name))}]"
    yield pretty(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
