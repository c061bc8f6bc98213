"""A stored assistant message -> the repaired message: its text without leaked markup, and the calls it never made.

The same parser as for a live response decides, so a row means the same in both places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsml_core.events import End, Removed, ToolCall
from dsml_core.parser import parse
from dsml_core.policy import Policy
from dsml_core.prompts import note


@dataclass(frozen=True, slots=True)
class Repaired:
    """`text` is what stays, each run of removed markup replaced by notes that name its tools.

    `calls` are the calls to add, in order; `removed` is what was taken out. Without any, `text` is what was given.
    """

    text: str
    calls: tuple[ToolCall, ...]
    removed: tuple[Removed, ...]


def repair(text: str, tools: Any = None, policy: Policy | None = None, *, native: bool = False) -> Repaired:
    """Repair the text of a stored message.

    `native` says that the message carries native calls: then no call is added, and markup that never closed is
    removed too. Else that stays, as it does in a response (V15). `tools` and `policy` are those of `Parser`.
    """
    if not may_leak(text):
        return Repaired(text, (), ())
    parsed = parse(text, tools, policy, end=End.NATIVE if native else End.STOP)
    removed = tuple(parsed.ranges)
    if not removed:
        return Repaired(text, (), ())
    return Repaired(_with_notes(text, removed), () if native else tuple(parsed.calls), removed)


def lost_call(text: str, tools: Any = None, policy: Policy | None = None) -> bool:
    """True where the text holds leaked markup and not one call could be recovered from it."""
    if not may_leak(text):
        return False
    parsed = parse(text, tools, policy)
    return parsed.saw_syntax and not parsed.calls


def may_leak(text: str) -> bool:
    """False where the text cannot hold leaked markup: every row needs a bracket, and the marker's word or an invoke."""
    if "<" not in text and "\uff1c" not in text:
        return False
    # str.lower is slow beyond ASCII, bytes.lower knows ASCII alone
    folded = text.encode("utf-8", "replace").lower()
    return b"dsml" in folded or b"invoke" in folded


def _with_notes(text: str, removed: Sequence[Removed]) -> str:
    pieces: list[str] = []
    names: list[str] = []
    at = 0
    for span in removed:
        if span.start > at:
            pieces += [_notes(names), text[at : span.start]]
            names = []
        if span.name is not None:
            names.append(span.name)
        at = span.end
    pieces += [_notes(names), text[at:]]
    visible = "".join(pieces)
    return visible if visible.strip() else note(None)


def _notes(names: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(note(name) for name in names))
