"""Feeds a text to the parser whole, in steps and in pieces: every way must say the same, and lose nothing."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from dsml_core.events import End, Event, Removed, Text, ToolCall
from dsml_core.parser import Parser
from dsml_core.policy import Policy
from dsml_core.tools import as_tools

CASES = Path(__file__).parent / "cases"
STEPS = (1, 5)
TAIL = "\n\nAnd so on."


@dataclass(frozen=True)
class Setup:
    """What a parser is told beside the text."""

    tools: Any = None
    policy: Policy = field(default_factory=Policy)
    reasoning: bool = False
    end: End = End.STOP


@dataclass(frozen=True)
class Outcome:
    """What the parser said, without how it was said in pieces."""

    text: str
    visible: list[tuple[int, int]]
    calls: list[tuple[str, str, str, int, int]]
    rejected: list[tuple[str | None, str, int, int, bool]]

    @property
    def named_calls(self) -> list[dict[str, Any]]:
        """Name and arguments of each call."""
        return [{"name": name, "arguments": json.loads(arguments)} for name, arguments, *_ in self.calls]


@dataclass(frozen=True)
class Case:
    """A row of a case table; tests/cases/README.md says what its fields mean."""

    id: str
    rows: list[str]
    source: str
    text: str
    setup: Setup
    expect: dict[str, Any]
    at_end: bool

    def __repr__(self) -> str:
        return self.id


@cache
def tool_set(name: str | None) -> Any:
    """A set of tests/cases/tools.json, read as a request declares it; None: the tools are not known."""
    if name is None:
        return None
    tools = json.loads((CASES / "tools.json").read_text())[name]
    return as_tools([{"type": "function", "function": {"name": tool, "parameters": tools[tool]}} for tool in tools])


def cases() -> Iterator[Case]:
    """All case tables, in order."""
    for path in sorted(CASES.glob("*.jsonl")):
        yield from map(_case, map(json.loads, path.read_text().splitlines()))


def _case(row: dict[str, Any]) -> Case:
    if "fill" in row:
        mark, unit, times = row.pop("fill")
        row = json.loads(json.dumps(row).replace(mark, json.dumps(unit * times)[1:-1]))
    policy = Policy(
        calls=row.get("tool_choice") != "none", quoted=tuple(row.get("quoted", ())), **row.get("policy", {})
    )
    end = End(row.get("end", "stop"))
    setup = Setup(tool_set(row["tools"]), policy, row.get("field") == "reasoning", end)
    return Case(row["id"], row["row"], row["source"], row["text"], setup, row["expect"], row.get("at_end", False))


def feed(text: str, setup: Setup, cuts: Sequence[int] = ()) -> Outcome:
    """Feed `text` cut at `cuts` and check what must hold of any text.

    Text and removed ranges tile what was fed, in order; nothing is held after the end; a call follows its markup.
    """
    parser = Parser(setup.tools, setup.policy, reasoning=setup.reasoning)
    events: list[Event] = []
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        events += parser.feed(text[start:stop])
    events += parser.close(setup.end)
    assert parser.held == 0
    assert not parser.standing
    return Outcome(
        text="".join(event.text for event in events if isinstance(event, Text)),
        visible=_tiled(text, events),
        calls=[(e.name, json.dumps(e.arguments, allow_nan=False), e.row, e.start, e.end) for e in _calls(events)],
        rejected=[(r.name, r.row, r.start, r.end, r.removed) for r in parser.rejected],
    )


def _calls(events: list[Event]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]


def _tiled(text: str, events: list[Event]) -> list[tuple[int, int]]:
    """The visible ranges, those that touch as one."""
    place = 0
    visible: list[tuple[int, int]] = []
    for event in events:
        if isinstance(event, ToolCall):
            assert event.start < event.end <= place
            continue
        assert (event.start, event.text) == (place, text[event.start : event.end])
        assert event.text
        place = event.end
        if isinstance(event, Removed):
            continue
        if visible and visible[-1][1] == event.start:
            visible[-1] = (visible[-1][0], event.end)
        else:
            visible.append((event.start, event.end))
    assert place == len(text)
    return visible


def in_every_way(text: str, setup: Setup, pairs: int = 10) -> Outcome:
    """Feed `text` whole, in small steps and cut in two places (`pairs` choices): all must say the same."""
    whole = feed(text, setup)
    for step in STEPS:
        assert feed(text, setup, range(step, len(text), step)) == whole, f"in steps of {step}"
    for cuts in _pairs(len(text), pairs):
        assert feed(text, setup, cuts) == whole, f"cut at {cuts}"
    return whole


def cut_anywhere(text: str, setup: Setup, limit: int = 400) -> None:
    """All ways to cut `text` in two places; of a text longer than `limit` as many as that length has."""
    whole = feed(text, setup)
    for cuts in _pairs(len(text), limit * (limit - 1) // 2):
        assert feed(text, setup, cuts) == whole, f"cut at {cuts}"


def _pairs(length: int, count: int) -> Iterator[tuple[int, int]]:
    if length * (length - 1) // 2 <= count:
        yield from combinations(range(1, length), 2)
        return
    chosen = random.Random(length)
    for _ in range(count):
        first, second = sorted(chosen.sample(range(1, length), 2))
        yield first, second
