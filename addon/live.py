"""What was decided about a response, for machines and for the list of flows: its record, its JSON lines, its mark.

A decision is one thing done or not done about one span of a response; docs/DEBUGGING.md lists the keys of its line.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from errno import EPERM
from io import FileIO
from pathlib import Path
from typing import Any

from mitmproxy.http import HTTPFlow

from addon import kept, log, story
from addon.exchange import Pipe
from addon.report import place
from dsml_core.policy import Policy
from dsml_core.report import Report

logger = logging.getLogger("dsml")

PREFIX = "dsml: "
OUTCOMES = ("fault", "refused", "recovered", "repaired", "removed", "candidate")  # the first that applies names it
_MARKERS = {"fault": ":x:", "refused": ":warning:"}
_MARKER, _OBSERVED = ":wrench:", ":eyes:"
_COMMENT = 120  # characters
_ENDED = 200  # characters
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # Windows has none, and no pipes in its folders

Decision = dict[str, Any]
Record = dict[str, Any]


def record(pipe: Pipe, policy: Policy, flow_id: str, ended: str = "", declared: Collection[str] = ()) -> Record | None:
    """What was decided about a response, JSON-like and without the text of a message; None where nothing was.

    `ended`: what mitmproxy says of a break. `declared`: the names of the tools in the request.
    """
    report = pipe.report
    ended = log.shown(ended, _ENDED)
    line = log.decision(report, observe=pipe.observe, held_seconds=pipe.held_seconds, declared=declared)
    if line is None:
        return None
    decisions = list(_decisions(report, declared))
    return {
        **_heading("observe" if pipe.observe else "repair", report.wire, flow_id),
        "outcome": min((made["decision"] for made in decisions), key=OUTCOMES.index),
        "model": report.model,
        "held_characters": report.held,
        "held_seconds": round(pipe.held_seconds, 3),
        "native_calls": report.native,
        "resumed": report.resumed,
        "aborted": report.aborted,
        "ended": ended or None,
        "changed": report.changed,
        "policy": {name: getattr(policy, name) for name in story.LASTING},
        "line": f"{line}: {ended}" if ended else line,
        "decisions": decisions,
    }


def skip(wire: str, reason: str, mode: str, flow_id: str) -> Record:
    """The record of a response that was not looked at."""
    return {
        **_heading(mode, wire, flow_id),
        "outcome": "skipped",
        "line": f"untouched: {reason}",
        "decisions": [_decision("skipped", reason=reason)],
    }


def _heading(mode: str, wire: str, flow_id: str) -> Record:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"version": 1, "time": time, "flow": flow_id, "mode": mode, "wire": wire}


def _decision(
    kind: str,
    *,
    tool: str | None = None,
    row: str | None = None,
    reason: str | None = None,
    start: int | None = None,
    characters: int | None = None,
    removed: bool = False,
) -> Decision:
    return {
        "decision": kind,
        "tool": tool,
        "row": row,
        "reason": reason,
        "start": start,
        "characters": characters,
        "removed": removed,
    }


def _decisions(report: Report, declared: Collection[str]) -> Iterator[Decision]:
    told: set[tuple[str | None, int]] = set()
    for call in report.calls:
        told.add((call.name, call.start))
        yield _decision(
            "recovered",
            tool=call.name,
            row=call.row,
            reason="a tool call",
            start=call.start,
            characters=call.chars,
            removed=True,
        )
    for name in report.repaired:
        yield _decision("repaired", tool=name, reason="a native call took the arguments that leaked")
    for span in report.rejected:
        told.add((span.name, span.start))
        yield _decision(
            "refused",
            tool=log.tool_name(span.name, declared),
            row=span.row,
            reason=span.reason,
            start=span.start,
            characters=span.end - span.start,
            removed=span.removed,
        )
    for cut in report.removed:
        if (cut.name, cut.start) not in told:
            yield _decision(
                "removed",
                tool=log.tool_name(cut.name, declared),
                row=cut.row,
                reason=cut.reason,
                start=cut.start,
                characters=cut.end - cut.start,
                removed=True,
            )
    for fault in report.faults:
        yield _decision("fault", reason=fault)
    if report.saw_syntax and not (told or report.removed or report.repaired or report.faults):
        yield _decision("candidate", reason="markup without a call")


def mark(flow: HTTPFlow, made: Record) -> None:
    """Say it in the list of flows, beside what a user has written there."""
    said = PREFIX + made["line"].partition(" (" + made["wire"])[0]
    said = said if len(said) <= _COMMENT else said[: _COMMENT - 1] + "\u2026"
    flow.comment = f"{flow.comment}; {said}" if flow.comment else said
    if not flow.marked:
        flow.marked = _OBSERVED if made["mode"] == "observe" else _MARKERS.get(made["outcome"], _MARKER)


def unmark(flow: HTTPFlow) -> None:
    """Take back what `mark` and `kept` left with a flow that is replayed."""
    if story.is_decided(flow):
        flow.comment = flow.comment.partition(PREFIX)[0].removesuffix("; ")
        flow.marked = ""
    kept.forget(flow)


def lines(made: Record, report: Report | None = None) -> Iterator[str]:
    """One JSON object a decision; with the text that was taken out where `report` is given."""
    shared = {key: value for key, value in made.items() if key not in ("decisions", "line", "policy", "outcome")}
    for decision in made["decisions"]:
        line = {**shared, **decision}
        if report is not None:
            line["text"] = next((cut.text for cut in report.removed if cut.start == decision["start"]), None)
        yield json.dumps(line)


class Recent:
    """The flows on which something was decided last, as many as fit: at most `count`, of `size` bytes in all."""

    def __init__(self, count: int = 100, size: int = 32 * 1024 * 1024) -> None:
        self._flows: deque[tuple[HTTPFlow, int]] = deque()
        self._count, self._left = count, size

    def add(self, flow: HTTPFlow) -> None:
        """Keep a flow that was decided on; another is none of these."""
        if not story.is_decided(flow):
            return
        messages = [message for message in (flow.request, flow.response) if message is not None]
        size = sum(len(message.raw_content or b"") for message in messages)
        self._flows.append((flow, size))
        self._left -= size
        while self._flows and (self._left < 0 or len(self._flows) > self._count):
            self._left += self._flows.popleft()[1]

    def flows(self) -> list[HTTPFlow]:
        """The oldest first."""
        return [flow for flow, _ in self._flows]


def _is_planted(where: Path) -> bool:
    """A link of another user, in a folder that all may write to, leads where he likes. The system's own are trusted."""
    try:
        seen = where.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(seen.st_mode) and seen.st_uid != 0 and seen.st_uid != os.geteuid()


class JsonLog:
    """The file of the option `dsml_log`: appended to, readable by its owner alone, and never in the way."""

    def __init__(self) -> None:
        self._path = ""
        self._file: FileIO | None = None

    def open(self, path: str) -> None:
        """Write to `path` from now on, to nothing where it is empty; `OSError` where that cannot be opened."""
        if path == self._path:
            return
        self.close()
        if path:
            where = place(path)
            if _is_planted(where):
                raise OSError(EPERM, "it is a link that another user made", path)
            # A pipe that nobody reads is an error instead of a wait.
            number = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NONBLOCK, 0o600)
            if _NONBLOCK:
                os.set_blocking(number, True)
            self._file = FileIO(number, "a")
            if stat.S_ISREG(os.fstat(number).st_mode):
                where.chmod(0o600)
        self._path = path

    def write(self, text: Iterable[str]) -> None:
        """Append lines. A file that cannot be written is given up, with one warning."""
        if self._file is None:
            return
        data = "".join(f"{line}\n" for line in text).encode("ascii")
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            logger.warning("dsml: nothing more is written to dsml_log: %s", error)
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._path = None, ""
