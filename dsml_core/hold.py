"""What the parser holds: the open block, invoke and value, and the text that is not decided yet.

The actions that move it stand in `tails`, `blocks`, `invokes`, `params`, `gaps` and `ending`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dsml_core.draft import Draft, Judge, Verdict
from dsml_core.jsontext import JsonStrings
from dsml_core.output import Output
from dsml_core.tape import Tape
from dsml_core.value import OpenValue


class State(Enum):
    """Where the parser stands."""

    PROSE = "prose"  # outside of all markup
    CODE = "code"  # at a tag behind an open backtick run: quoted or not, its paragraph will tell
    BLOCK = "block"  # in a block, between invokes
    INVOKE = "invoke"  # in an invoke, between parameters
    VALUE = "value"  # in a parameter
    WAIT = "wait"  # behind a complete unmarked invoke: a block closer would make it a call (B1)
    TAIL = "tail"  # in a run of closers and end tokens


class Tail(Enum):
    """What becomes of a run of closers and end tokens."""

    RESIDUE = "residue"  # behind a decided block: removed
    STRAY = "stray"  # behind prose: removed at the end of the message, else text (T8)
    QUOTED = "quoted"  # behind a block that was left alone: text


_EVIDENCE: Final = ("tool_calls", "function_calls")  # B1: unmarked wrappers that count


@dataclass(slots=True)
class Block:
    """An open block; `body` is where its opener ends.

    `sure`: its name is a known one and marked, so prose behind it may wait (T2); `prose` is where
    that begins. `decided` counts its invokes, `recovered` those that became calls; -1: left alone.
    """

    body: int
    marked: bool
    name: str
    row: str
    sure: bool
    prose: int | None = None
    json: JsonStrings | None = None  # it may hold calls as JSON
    decided: int = 0
    recovered: int = 0

    @property
    def evidence(self) -> bool:
        """True where the block makes an unmarked invoke in it a candidate (B1)."""
        return self.marked or self.name in _EVIDENCE


class Hold:
    """State of one parser; `cursor` is the offset from which reading goes on, and may be moved back."""

    def __init__(self, tape: Tape, judge: Judge, reasoning: bool) -> None:
        self.tape = tape
        self.judge = judge
        self.out = Output(tape)
        self.cursor = 0
        self.reasoning = reasoning
        self.strict = judge.policy.profile == "strict"
        self.saw_syntax = False
        self.reset()

    def reset(self) -> None:
        """Back to prose, nothing open."""
        self.state = State.PROSE
        self.block: Block | None = None
        self.draft: Draft | None = None
        self.value: OpenValue | None = None
        self.waiting: list[tuple[Draft, int]] = []
        self.tail = Tail.STRAY
        self.tail_end: int | None = None
        self.tail_closers = False
        self.left_block = False  # prose stands in a block that gave calls: its closer is residue
        self.standing = False
        self.spilled = False  # the hold was too long: it goes out until its invoke has closed
        self.exact = True  # all of the open block is canonical (R3)
        self.wrapper = ""  # the name in its opener
        self.given_up = False  # the last invoke was too long to be one: its parameters are text like it (S2)
        self.thought = False  # it stands in reasoning or in an open <think>, and counts only if it ends the text (T17)
        self.second = False  # the text has ended once: no fence, CDATA or JSON string protects any more (T16)

    @property
    def json(self) -> JsonStrings | None:
        """The JSON that is being read, if any."""
        if self.state is State.INVOKE and self.draft is not None:
            return self.draft.json
        return self.block.json if self.state is State.BLOCK and self.block is not None else None

    def to_prose(self, offset: int) -> None:
        """Markup is over at `offset`."""
        self.state, self.block, self.draft, self.value = State.PROSE, None, None, None
        self.waiting = []
        self.standing = self.spilled = False
        self.cursor = offset

    def end_strict(self) -> None:
        """In the profile `strict` a block is taken as a whole or not at all (R3)."""
        if self.exact:
            self.out.confirm()
        else:
            self.out.take_back("R3", "not one of the official grammars throughout")
        self.out.deferring = False
        self.exact = True

    def abandon(self, offset: int) -> None:
        """What is held up to `offset` is text after all (S2)."""
        self.out.text(offset)
        self.to_prose(offset)

    def report(self, name: str, verdict: Verdict, start: int, end: int, row: str | None = None) -> None:
        if verdict.call:
            self.out.call(name, verdict.arguments, row or verdict.row, start, end)
        else:
            self.out.reject(name, verdict.row, verdict.reason, start, end, removed=True)

    def decided(self, end: int, recovered: int, kept: bool = False) -> None:
        self.standing = False
        if self.block is None:
            self.enter_tail(Tail.QUOTED if kept else Tail.RESIDUE)
        else:
            self.state = State.BLOCK
            self.block.decided += 1
            if recovered:
                self.block.recovered = max(self.block.recovered, 0) + recovered
        self.cursor = end

    def strip(self, end: int, row: str, reason: str, name: str | None = None) -> None:
        """Take out what is held up to `end`."""
        self.out.remove(end, row, reason, name)

    def enter_tail(self, tail: Tail, end: int | None = None) -> None:
        self.state, self.tail, self.tail_end = State.TAIL, tail, end
        self.tail_closers = False
        self.block = None
        self.standing = False

    @property
    def inside(self) -> bool:
        """True inside of a marked block or invoke, where an unfinished tag matters to nobody."""
        state = self.state
        inside = state is State.INVOKE or state is State.VALUE or state is State.BLOCK
        return inside and self.standing and not self.spilled

    @property
    def quiet(self) -> bool:
        """True in a value where text without a tag only has to be kept."""
        return not self.spilled and self.value is not None and (self.value.marked or self.draft is not None)

    def spill(self, limit: int) -> None:
        """What is held goes beyond `limit` (S3): it goes out as text, and nothing runs until its invoke has closed."""
        self.spilled = True
        start = self.draft.start if self.draft is not None else self.out.done
        name = self.draft.name if self.draft is not None else None
        self.out.reject(name, "S3", "longer than the hold limit", start, limit, removed=False)
