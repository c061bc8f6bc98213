"""Fixes in a form for people, and in one for programs.

Neither shows a live marker: a harness that reads this output could take it for a call. People see another bar, in JSON
every bar is escaped.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Final

from stores.base import INTERRUPTED, Fix, Session
from stores.words import many

SHOWN_BAR: Final = "\u00a6"
_BARS: Final = re.compile("[\uff5c\u2016]|\\|(?=\\s*dsml)|(?<=dsml)\\|", re.IGNORECASE)
_CONTEXT: Final = 2  # lines around a change
_WIDTH: Final = 160  # characters of a line
_RUN: Final = 24  # lines of one kind in a row


def as_text(fix: Fix) -> Iterator[str]:
    """The lines of a diff of one message."""
    message = fix.message
    yield f"message {message.id}  ({counts(Counter(fix.rows))})"
    for text, part in zip(message.texts, fix.parts, strict=True):
        if part.removed:
            yield from map(_shown, _short_runs(_diff(text, part.text)))
    for call in fix.calls:
        yield _shown(f"  + call {call.name} {json.dumps(call.arguments, ensure_ascii=False)}  ({INTERRUPTED})")


def session_line(session: Session) -> str:
    when = datetime.fromtimestamp(session.changed).strftime("%Y-%m-%d %H:%M")
    return _shown(f"session {session.id}  {when}  {session.title}".rstrip())


def listed(session: Session, messages: int, rows: Counter[str]) -> str:
    """A line of `--list`."""
    return f"{session_line(session)}\n  {many(messages, 'message')}: {counts(rows)}"


def as_json(event: str, **facts: Any) -> str:
    """A line of JSON that is safe to show."""
    return json.dumps({"event": event, **facts}).replace("|", "\\u007c")


def fix_as_json(store: str, fix: Fix) -> str:
    message = fix.message
    return as_json(
        "repair",
        store=store,
        session=message.session.id,
        message=message.id,
        rows=fix.rows,
        texts=[
            {"before": text, "after": part.text}
            for text, part in zip(message.texts, fix.parts, strict=True)
            if part.removed
        ],
        calls=[{"name": call.name, "arguments": call.arguments} for call in fix.calls],
    )


def counts(rows: Counter[str]) -> str:
    """How often each row decided."""
    return ", ".join(f"{row} {count}" for row, count in sorted(rows.items()))


def _diff(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_CONTEXT)
    for line in islice(lines, 3, None):  # behind the names of the files and the first place
        yield "  ..." if line.startswith("@@") else f"  {line[0]} {line[1:]}"


def _short_runs(lines: Iterator[str]) -> Iterator[str]:
    """The lines, without the middle of a long run of removed ones."""
    run: list[str] = []
    for line in lines:
        if run and line[:4] != run[0][:4]:
            yield from _ends(run)
            run = []
        run.append(line)
    yield from _ends(run)


def _ends(run: list[str]) -> list[str]:
    if len(run) <= _RUN:
        return run
    half = _RUN // 2
    return [*run[:half], f"{run[0][:4]}[{many(len(run) - 2 * half, 'more line')}]", *run[-half:]]


def _shown(line: str) -> str:
    if len(line) > _WIDTH:
        line = f"{line[:_WIDTH]} [{many(len(line) - _WIDTH, 'more character')}]"
    line = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)
    return _BARS.sub(SHOWN_BAR, line)
