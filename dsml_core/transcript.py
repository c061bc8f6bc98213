"""A stored assistant message -> the repaired message: its text without leaked markup, and the calls it never made.

The same parser as for a live response decides, so a row means the same in both places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dsml_core.echo import echoes
from dsml_core.events import End, Removed, ToolCall
from dsml_core.parser import parse
from dsml_core.policy import Policy
from dsml_core.prompts import note

# One literal character first, and no letter before the word: both keep it fast on source code.
_SUSPECT: Final = re.compile("<[^<A-Za-z]*+(?:[dD][sS][mM][lL]|[iI][nN][vV][oO][kK][eE])")
_BARE: Final = re.compile("(?:\\A|\n)[ \t]*[/\uff0f]?[ \t]*[|\uff5c\u2016\\\\\u951d\u6ed0\u7d94]+[ \t]*(?i:dsml)")
_PASSES: Final = 8  # readings of a repaired text until nothing comes of it any more; real ones need one


@dataclass(frozen=True, slots=True)
class Repaired:
    """`text` is what stays, each run of removed markup replaced by notes that name its tools.

    `calls` are the calls to add, in order; `removed` is what was taken out of the text as it was given, nothing where
    nothing changed.
    """

    text: str
    calls: tuple[ToolCall, ...]
    removed: tuple[Removed, ...]


def repair(
    text: str, tools: Any = None, policy: Policy | None = None, *, native: bool = False, end: End = End.STOP
) -> Repaired:
    """Repair the text of a stored message.

    `native` says that the message carries native calls: then no call is added, and markup that never closed is
    removed too. Else that stays, as it does in a response (V15). `tools` and `policy` are those of `Parser`; `end` is
    why the message ended, as far as that is known.
    """
    removed, calls = _read(text, tools, policy, end, tail=native)
    if not removed:
        return Repaired(text, (), ())
    rest = _with_notes(text, removed)
    for _ in range(_PASSES):
        # Cutting may bring tags together; what then looks like a call was never written as one.
        more, _calls = _read(rest, tools, policy, end, tail=native)
        if not more:
            break
        rest = _with_notes(rest, more)
    return Repaired(rest, () if native else tuple(calls), tuple(removed))


def lost_call(text: str, tools: Any = None, policy: Policy | None = None) -> bool:
    """True where the text holds leaked markup, be it not closed, and not one call can be recovered from it."""
    return bool(lost_markup(text, tools, policy))


def lost_markup(text: str, tools: Any = None, policy: Policy | None = None) -> list[Removed]:
    """The leaked markup of a text, be it not closed, where not one call can be recovered from it."""
    removed, calls = _read(text, tools, policy, End.STOP, tail=True)
    return [] if calls else removed


def _read(text: str, tools: Any, policy: Policy | None, end: End, tail: bool) -> tuple[list[Removed], list[ToolCall]]:
    if not may_leak(text):
        return [], []
    parsed = parse(text, tools, policy, end=end)
    removed = list(parsed.ranges)
    at = removed[-1].end if removed else 0
    if tail and may_leak(text[at:]):
        # Before a native call the parser removes residue wherever it stands. Here only what the text ends in is
        # residue: a block opener that prose follows is a mention.
        last = parse(text, tools, policy, end=End.NATIVE).ranges[-1:]
        removed += [span for span in last if span.start >= at and span.end == len(text) and may_leak(span.text)]
    if policy is not None and policy.quoted and not parsed.calls:
        removed = [span for run in _runs(removed) for span in run if not _is_quoted(run, policy.quoted)]
    return removed, parsed.calls


def _is_quoted(run: Sequence[Removed], quoted: tuple[str, ...]) -> bool:
    """True where a message of the request holds that markup (G1), be it that more text was read as its last value."""
    text = "".join(span.text for span in run)
    head, _, _ = text[(last := text.rfind("<")) :].partition("\n")
    return echoes(quoted).hold(text[: max(last, 0)] + head)


def may_leak(text: str) -> bool:
    """False where the text cannot hold leaked markup.

    All of it has the marker's word, or an invoke, behind a `<`, or the word behind a bar at a line start (N2).
    """
    if "\uff1c" in text:
        text = text.replace("\uff1c", "<")
    if "<" in text and _SUSPECT.search(text) is not None:
        return True
    return ("DSML" in text or "dsml" in text) and _BARE.search(text) is not None


def _with_notes(text: str, removed: Sequence[Removed]) -> str:
    pieces: list[str] = []
    at, blank = 0, True
    for run in _runs(removed):
        start, end = run[0].start, run[-1].end
        pieces.append(text[at:start])
        _, newline, line = text[at:start].rpartition("\n")
        blank = not line.strip() and (blank or bool(newline))
        notes = " ".join(dict.fromkeys(note(span.name) for span in run if span.name is not None))
        # What stands at the start of a line has to go on standing there: it may be a code fence.
        pieces.append(f"{notes}\n" if notes and blank and text[end : end + 1].strip() else notes)
        at = end
    pieces.append(text[at:])
    visible = "".join(pieces)
    return visible if visible.strip() else note(None)


def _runs(removed: Sequence[Removed]) -> list[list[Removed]]:
    """The spans in runs of those that touch."""
    runs: list[list[Removed]] = []
    for span in removed:
        if not runs or runs[-1][-1].end != span.start:
            runs.append([])
        runs[-1].append(span)
    return runs
