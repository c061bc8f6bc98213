"""A golden run through the repair once more, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from addon.reading import Passage, Structured, read_answer
from dsml_core.context import read_context
from dsml_core.framing import LINE_END
from dsml_core.report import Report
from dsml_core.stream import Repairer
from goldens.format import Golden, Outcome, Step, policy_of


def run(golden: Golden, steps: Sequence[Step] | None = None) -> Outcome:
    """What the repair makes of the response, in the golden's own pieces or in those of `steps`."""
    emitted, report = repair(golden, steps)
    return Outcome(emitted, {"message": message(golden, emitted), **spans(report)})


def repair(golden: Golden, steps: Sequence[Step] | None = None) -> tuple[bytes, Report]:
    """The bytes that leave the repair, and its report."""
    context = read_context(golden.wire, golden.request)
    policy = policy_of(golden, calls=context.calls, quoted=context.quoted)
    repairer = Repairer(golden.wire, stream=golden.stream, tools=context.tools, policy=policy)
    emitted = []
    for step in golden.steps if steps is None else steps:
        emitted.append(repairer.flush_idle() if step.data is None else repairer.feed(step.data))
    emitted.append(repairer.close(golden.clean))
    return b"".join(emitted), repairer.report


def same_bytes(golden: Golden, one: bytes, other: bytes) -> bool:
    """True where two outputs of one response are equal, whatever its cuts were.

    Of a response with CR line ends the lines count: where it is cut between CR and LF, the LF belongs to what follows.
    """
    return one == other or (b"\r" in golden.received and _lines(one) == _lines(other))


def _lines(data: bytes) -> list[bytes]:
    return [line for line in LINE_END.split(data) if line]


def spans(report: Report) -> dict[str, Any]:
    """What was decided, as JSON: each span with the row that decided. Spans count characters of their part."""
    return {
        "recovered": [
            {"name": call.name, "row": call.row, "start": call.start, "chars": call.chars} for call in report.calls
        ],
        "removed": [{"name": cut.name, "row": cut.row, "start": cut.start, "end": cut.end} for cut in report.removed],
        "rejected": [
            {"name": span.name, "row": span.row, "start": span.start, "end": span.end, "removed": span.removed}
            for span in report.rejected
        ],
        "syntax": report.saw_syntax,
        "native": report.native,
        "repaired": list(report.repaired),
        "faults": list(report.faults),
    }


def message(golden: Golden, data: bytes) -> dict[str, Any]:
    """What a client reads in a response of the golden's wire: its texts and calls in order, and its finish."""
    answer = read_answer(golden.wire, data, stream=golden.stream, tools={})
    return {"parts": [_part(item) for item in answer.items], "finish": answer.finish}


def _part(item: Passage | Structured) -> dict[str, Any]:
    choice = {"choice": item.choice} if item.choice else {}
    if isinstance(item, Passage):
        return {**choice, "reasoning" if item.reasoning else "text": item.text}
    return {**choice, "call": item.name, "arguments": _arguments(item.arguments)}


def _arguments(text: str) -> Any:
    """The JSON value, the text where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def leaked(outcome: Outcome) -> bool:
    """There was something to decide."""
    return any(outcome.decided[key] for key in ("recovered", "removed", "rejected", "repaired", "syntax", "faults"))
