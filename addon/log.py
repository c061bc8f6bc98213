"""What the addon says: one line for a response that had anything to decide, and a summary at the end.

Names of tools and models are shown, shortened to one printable line; the text of a message never is.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from mitmproxy import ctx

from dsml_core.report import Report

logger = logging.getLogger("dsml")

NAME_LENGTH = 60
_TOOL = re.compile(r"[\w.:/\-]+")
# All that steers a terminal or turns the order of what is read: controls but tab and line feed, marks of direction,
# separators of lines, invisible signs, tags and halves of surrogate pairs. The joiners, which scripts need, are none.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def set_level() -> None:
    """Make lines of level debug only where they are shown.

    mitmproxy tells all addons of every line of any level, which costs more than a whole hook of ours. Where it has no
    log of its own, the level is left to whoever runs it.
    """
    kept = ctx.master.addons.get("eventstore") is not None  # type: ignore[no-untyped-call]  # mitmweb, the console
    if verbosity := getattr(ctx.options, "termlog_verbosity", None):
        logger.setLevel(logging.DEBUG if kept or verbosity == "debug" else logging.INFO)


def decision(
    report: Report, *, observe: bool = False, held_seconds: float = 0.0, declared: Collection[str] = ()
) -> str | None:
    """One line on what was decided, None when there was nothing to decide. `declared`: the names of tools."""
    parts = [part for part in (_recovered(report), _repaired(report), _refused(report, declared)) if part]
    if not parts and report.removed:
        parts = ["removed markup: " + ", ".join(sorted({f"{cut.row} {cut.reason}" for cut in report.removed}))]
    if observe and parts:
        parts[0] = f"would have {parts[0]}"
    if report.faults:
        parts.append(f"passed on as it came after a fault in {', '.join(report.faults)}")
    if not parts and report.saw_syntax:
        parts = ["candidate without a call"]
    if not parts:
        return None
    if report.native and report.removed:
        parts.append(f"beside {counted(report.native, 'native call')}")
    if report.resumed:
        parts.append(f"asked again {counted(report.resumed, 'time')}")
    if report.aborted:
        parts.append("broken off")
    held = f"held {report.held} characters, {held_seconds:.1f} s"
    about = ", ".join([report.wire, shown(report.model or "unknown model"), held])
    return f"{'observed only: ' if observe else ''}{'; '.join(parts)} ({about})"


def _recovered(report: Report) -> str:
    calls = [f"{shown(call.name)} ({call.row}, {call.chars} characters)" for call in report.calls]
    return f"recovered {counted(len(calls), 'call')}: {', '.join(calls)}" if calls else ""


def _repaired(report: Report) -> str:
    names = ", ".join(shown(name) for name in report.repaired)
    return f"repaired {counted(len(report.repaired), 'native call')} with leaked arguments: {names}" if names else ""


def _refused(report: Report, declared: Collection[str]) -> str:
    refused = []
    for span in report.rejected:
        name, now = tool_name(span.name, declared) or "nameless", "removed" if span.removed else "still text"
        refused.append(f"{shown(name)} ({span.row}: {span.reason}; {now})")
    return f"refused {', '.join(refused)}" if refused else ""


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shown(name: str, length: int = NAME_LENGTH) -> str:
    """A name as it may stand in a log, at most `length` characters: the model or the provider chose it."""
    line = "".join(character if character.isprintable() else "?" for character in name[: length + 1])
    return line if len(line) <= length else line[: length - 1] + "\u2026"


def printable(text: str) -> str:
    """`text` of any number of lines as it may be shown in a terminal: what steers one is a question mark."""
    return _STEERING.sub("?", text)


def tool_name(name: str | None, declared: Collection[str] = ()) -> str | None:
    """The name of a refused call: one word, or that of a tool the request declares.

    None for any other: it may be text of the message that ran into the name.
    """
    return name if name and (name in declared or _TOOL.fullmatch(name)) else None


@dataclass(slots=True)
class Count:
    """How many responses were seen, leaked, and held a refused call; and how many calls were recovered."""

    seen: int = 0
    leaked: int = 0
    calls: int = 0
    refused: int = 0

    def add(self, report: Report) -> None:
        self.seen += 1
        self.leaked += bool(report.removed or report.calls or report.rejected)
        self.calls += len(report.calls)
        self.refused += bool(report.rejected)

    def __str__(self) -> str:
        return (
            f"{counted(self.seen, 'response')} seen, {self.leaked} leaked, "
            f"{counted(self.calls, 'call')} recovered, {counted(self.refused, 'response')} with a refused call"
        )


_MODELS = 100  # told apart; the provider names them


@dataclass(slots=True)
class Tally(Count):
    """The counts of all responses, the calls recovered in them and the spans refused by row, and all by model."""

    recovered_rows: Counter[str] = field(default_factory=Counter)
    refused_rows: Counter[str] = field(default_factory=Counter)
    models: dict[str, Count] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        Count.add(self, report)
        self.recovered_rows.update(call.row for call in report.calls)
        self.refused_rows.update(span.row for span in report.rejected)
        model = shown(report.model or "unknown model")
        if model not in self.models and len(self.models) >= _MODELS:
            model = "other models"
        self.models.setdefault(model, Count()).add(report)

    def summary(self) -> list[str]:
        """Lines: the whole, what was recovered and what was refused by row, each model."""
        lines = [str(self)]
        for word, rows in (("recovered", self.recovered_rows), ("refused", self.refused_rows)):
            if rows:
                lines.append(f"{word} by row: {', '.join(f'{row} {number}' for row, number in rows.most_common())}")
        return lines + [f"model {model}: {count}" for model, count in sorted(self.models.items())]
