"""What the addon says: one line for a response that had anything to decide, and a summary at the end.

Names of tools and models are shown, shortened to one printable line; the text of a message never is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dsml_core.report import Report

logger = logging.getLogger("dsml")

NAME_LENGTH = 60


def decision(report: Report, *, observe: bool = False) -> str | None:
    """One line on what was decided, None when there was nothing to decide."""
    parts = [part for part in (_recovered(report), _repaired(report), _refused(report), _faults(report)) if part]
    if not parts and report.removed:
        parts = ["removed markup: " + ", ".join(sorted({f"{cut.row} {cut.reason}" for cut in report.removed}))]
    if not parts and report.saw_syntax:
        parts = ["candidate without a call"]
    if not parts:
        return None
    if report.native and report.removed:
        parts.append(f"beside {_count(report.native, 'native call')}")
    if report.aborted:
        parts.append("broken off")
    about = ", ".join([report.wire, _shown(report.model or "unknown model"), f"held {report.held} characters"])
    return f"{'observed only: ' if observe else ''}{'; '.join(parts)} ({about})"


def _recovered(report: Report) -> str:
    calls = [f"{_shown(call.name)} ({call.row}, {call.chars} characters)" for call in report.calls]
    return f"recovered {_count(len(calls), 'call')}: {', '.join(calls)}" if calls else ""


def _repaired(report: Report) -> str:
    names = ", ".join(_shown(name) for name in report.repaired)
    return f"gave the leaked arguments to {_count(len(report.repaired), 'native call')}: {names}" if names else ""


def _refused(report: Report) -> str:
    refused = [
        f"{_shown(span.name or 'nameless')} ({span.row}: {span.reason}; {'removed' if span.removed else 'still text'})"
        for span in report.rejected
    ]
    return f"refused {', '.join(refused)}" if refused else ""


def _faults(report: Report) -> str:
    return f"passed on as it came after a fault in {', '.join(report.faults)}" if report.faults else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(name: str) -> str:
    """A name as it may stand in a log: the model or the provider chose it."""
    line = "".join(character if character.isprintable() else "?" for character in name)
    return line if len(line) <= NAME_LENGTH else line[: NAME_LENGTH - 1] + "\u2026"


@dataclass(slots=True)
class Tally:
    """Counts responses, and the calls recovered in them."""

    seen: int = 0
    leaked: int = 0
    calls: int = 0
    refused: int = 0

    def add(self, report: Report) -> None:
        self.seen += 1
        self.leaked += bool(report.removed or report.calls or report.rejected)
        self.calls += len(report.calls)
        self.refused += bool(report.rejected)

    def summary(self) -> str:
        return (
            f"{_count(self.seen, 'response')} seen, {self.leaked} leaked, "
            f"{_count(self.calls, 'call')} recovered, {_count(self.refused, 'response')} with a refused call"
        )
