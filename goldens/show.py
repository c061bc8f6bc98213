"""What a replay did, as lines for a terminal. No live marker is printed: bars are shown as broken ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import unified_diff
from typing import Any

from goldens import replay
from goldens.format import Golden, Outcome, dumps

_BARS = re.compile(r"[\uff5c\u2016]|\|(?=[\s|]{0,8}dsml)|(?<=dsml)[\s|]{1,8}", re.IGNORECASE)
_BAR = "\u00a6"


def tame(text: str) -> str:
    """A text that can be printed: no bar of a marker, no control character."""
    text = _BARS.sub(lambda bars: re.sub(r"[|\uff5c\u2016]", _BAR, bars[0]), text)
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def decisions(outcome: Outcome) -> Iterator[str]:
    """A line for each thing decided."""
    decided = outcome.decided
    for call in decided["recovered"]:
        yield f"recovered {call['name']} ({call['row']}), {call['chars']} characters from {call['start']}"
    for name in decided["repaired"]:
        yield f"repaired the arguments of {name}"
    for span in decided["rejected"]:
        where = f"{span['end'] - span['start']} characters from {span['start']}"
        yield f"refused {_name(span)} ({span['row']}), {where}, {'removed' if span['removed'] else 'still text'}"
    told = [span["start"] for span in [*decided["recovered"], *decided["rejected"]]]
    for span in decided["removed"]:
        if span["start"] in told:
            continue
        yield f"removed markup ({span['row']}), {span['end'] - span['start']} characters from {span['start']}"
    for place in decided["faults"]:
        yield f"fault in {place}: passed on as it came"


def _name(span: dict[str, Any]) -> str:
    return str(span["name"]) if span["name"] else "a call without a name"


def changes(golden: Golden, outcome: Outcome) -> Iterator[str]:
    """What the client reads, before and after, as a diff; nothing where no byte was changed."""
    if outcome.emitted == golden.received:
        return
    before = list(_said(replay.message(golden, golden.received)))
    after = list(_said(replay.message(golden, outcome.emitted)))
    yield from unified_diff(before, after, "what the provider sent", "what the client gets", n=2, lineterm="")


def _said(message: dict[str, Any]) -> Iterator[str]:
    for part in message["parts"]:
        choice = f"{part['choice']}: " if "choice" in part else ""
        if "call" in part:
            yield f"{choice}call {part['call']}"
            yield from json.dumps(part["arguments"], indent=2, ensure_ascii=False).split("\n")
        elif "reasoning" in part:
            yield f"{choice}reasoning"
            yield from part["reasoning"].split("\n")
        else:
            yield f"{choice}text"
            yield from part["text"].split("\n")
    yield f"finish {', '.join(message['finish']) or '(none)'}"


def difference(golden: Golden, outcome: Outcome) -> Iterator[str]:
    """The expectation of a golden and what came of it now, as a diff of its file."""
    old, new = (dumps(one).splitlines() for one in (golden, replace(golden, expected=outcome)))
    yield from unified_diff(old, new, "expected", "now", n=1, lineterm="")
