"""The parser: text in any chunking in, events out. One code path for streams and whole texts.

This file is the quick way, for text that cannot matter; all other text goes through `reader`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dsml_core import ending
from dsml_core.draft import Judge
from dsml_core.events import End, Event, Rejected, Removed, Text, ToolCall
from dsml_core.grammar import BEGUN, CANDIDATE, Miss
from dsml_core.hold import Hold, State
from dsml_core.policy import Policy
from dsml_core.reader import SURELY, Reader
from dsml_core.tape import LOOK_BACK, Tape
from dsml_core.tools import as_tools

_candidate = CANDIDATE.search
_settles = re.compile("[<>|\uff1c\uff1e\uff5c\u2016]").search  # signs that can begin or end a tag
_new = object.__new__  # of an event whose fields are set one by one: quicker than its constructor
_PASSING = 2048  # characters noted on the quick way before the others are told


class Parser:
    """Finds the tool calls in one text.

    `tools`: what the request declares (see `as_tools`); None is unknown, an empty collection is
    none, and then nothing is touched. `reasoning`: the text is a reasoning channel, where only a
    complete block that ends the text counts.
    """

    def __init__(self, tools: Any = None, policy: Policy | None = None, *, reasoning: bool = False) -> None:
        self._policy = policy or Policy()
        self._tools = as_tools(tools)
        self._tape = Tape()
        self._hold = Hold(self._tape, Judge(self._tools, self._policy), reasoning)
        self._out = self._hold.out
        self._reader = Reader(self._hold)
        # The quick way: what passed by and is only noted, and what might be the start of a tag.
        self._quick = False
        self._keeps = False  # all text is held, in a value; else it goes out
        self._passed: list[str] = []
        self._win = ""
        self._at = 0  # offset of `_win`
        self._limit = 0  # where the others have to be told
        self._due = 0  # the same, 0 where the next delta needs a closer look
        # The slow way, inside of a call: text that can settle nothing, and how much of it there may be.
        self._later = ""
        self._room = 0
        self._speed_up()

    @property
    def held(self) -> int:
        """Characters fed and not yet decided."""
        if self._quick:
            return len(self._win) + (self._at - self._out.done if self._keeps else 0)
        deferred = self._out.deferred_from
        return self._tape.end + len(self._later) - (self._out.done if deferred is None else deferred)

    @property
    def standing(self) -> bool:
        """True while a marked tag stands in what is held."""
        return self._out.deferred_from is not None or (self._hold.standing and self._out.done < self._tape.end)

    @property
    def saw_syntax(self) -> bool:
        """True once a marked tag or a block tag stood in the text; an unmarked invoke does not count."""
        return self._hold.saw_syntax

    @property
    def rejected(self) -> list[Rejected]:
        """Spans that were not made calls, in the order in which that was decided."""
        return self._out.rejected

    def feed(self, text: str) -> list[Event]:
        """Read on; returns what that decides, in text order."""
        start = self._at
        end = start + len(text)
        if start < end < self._due and (
            (text.isascii() and not ("<" in text or "|" in text or "/" in text or "\\" in text))
            or _candidate(text) is None
        ):
            self._at = end
            self._passed.append(text)
            if self._keeps:
                return []
            event = _new(Text)
            event.start = start
            event.end = end
            event.text = text
            return [event]
        return self._look(text) if self._quick else self._read(text)

    @property
    def room(self) -> int:
        """Characters of text that `passes` which may be given to `pass_by` now."""
        return max(0, self._due - self._at - 1)

    @property
    def keeps(self) -> bool:
        """All text is held for now, in a value."""
        return self._quick and self._keeps

    def passes(self, text: str) -> bool:
        """True where `feed` would find all of `text` visible at once, or `keeps` it; only where there is `room`."""
        return _candidate(text) is None or self._possible(text)[0] == len(text)

    def pass_by(self, text: str) -> None:
        """Read on over text that `passes`."""
        self._at += len(text)
        self._passed.append(text)

    def renew(self) -> None:
        """Take note of all that passed by, so that there is room again."""
        if self._quick and not self._win:
            self._slow_down()
            self._speed_up()

    def close(self, end: End = End.STOP) -> list[Event]:
        """The text ends here, or its part does; decides all that is held. `feed` may follow."""
        self._slow_down()
        if end is not End.ABORT and end is not End.REFUSAL:
            self._reader.run(final=True)
            while self._reader.read_again(end is not End.LENGTH):
                self._reader.run(final=True)
            ending.finish(self._hold, end)
        strict = self._hold.strict and not (self._hold.exact and self._hold.block is None)
        if (end is End.STOP or end is End.LENGTH) and not strict:
            self._out.settle()
        self._out.take_back()
        self._out.text(self._tape.end)
        self._hold.reset()
        self._reader.move(self._tape.end)
        self._speed_up()
        return self._out.drain()

    def _read(self, text: str) -> list[Event]:
        """The slow way."""
        if self._room and _settles(text) is None:
            self._later += text
            if len(self._later) < self._room:
                return []
            text = ""
        self._slow_down()
        self._reader.add(text)
        self._reader.run(final=False)
        self._speed_up()
        return self._out.drain()

    def _speed_up(self) -> None:
        """Go the quick way where nothing is held, or all text is, in a value."""
        hold, out, reader = self._hold, self._out, self._reader
        limit = out.done + hold.judge.limit(hold.draft, hold.value)
        self._room = max(0, min(_PASSING, limit - self._tape.end)) if reader.waits else 0
        if reader.win:
            return
        if hold.state is State.PROSE and out.deferred_from is None:
            self._keeps, length = False, _PASSING
        elif hold.state is State.VALUE and hold.quiet:
            self._keeps = True
            length = min(_PASSING, limit - reader.at)
        else:
            return
        self._quick = True
        self._at = reader.at
        self._due = self._limit = self._at + length

    def _slow_down(self) -> None:
        """Leave the quick way: tell the others what passed by on it."""
        if self._later:
            self._reader.add(self._later)
            self._later = ""
        if not self._quick:
            return
        passed = "".join(self._passed)
        if self._keeps:
            self._tape.add(passed)
        else:
            self._out.pass_by(passed)
        self._reader.move(self._at)
        self._reader.add(self._win)
        self._passed, self._win = [], ""
        self._quick = False
        self._due = 0

    def _look(self, text: str) -> list[Event]:
        """A delta with signs of a tag, or behind one that had: what is before a possible tag passes by."""
        win = self._win + text
        index, begun = self._possible(win)
        passed, start = win[:index], self._at
        self._passed.append(passed)
        self._at = end = start + index
        self._win = win[index:]
        self._due = 0 if self._win else self._limit
        events: list[Event] = []
        if passed and not self._keeps:
            event = _new(Text)
            event.start, event.end, event.text = start, end, passed
            events.append(event)
        if end >= self._limit or not begun or len(win) - index > SURELY:
            events += self._read("")
        return events

    def _possible(self, win: str) -> tuple[int, bool]:
        """Where a tag may stand in `win`, its length for nowhere; and whether that is sure to be the start of one."""
        candidate = _candidate(win)
        if candidate is None or self._tools == {}:
            return len(win), True
        while candidate is not None:
            index = candidate.start()
            if win[index : index + SURELY] in BEGUN:
                return index, True
            before = "\n" if win[index] in "<\uff1c" else self._before(win, index)
            if not before:
                return index, False
            if before == "\n":
                tag = self._reader.lexer.lex(win, index, patient=self._keeps and self._hold.standing)
                if tag is not Miss.NO:
                    return index, tag is Miss.NOT_YET
            candidate = _candidate(win, index + 1)
        return len(win), True

    def _before(self, win: str, index: int) -> str:
        """What stands in front of a bar, but for blanks; "" where that is not at hand."""
        end = self._tape.end
        near = self._passed[-1] if self._passed else self._tape.cut(max(self._tape.start, end - LOOK_BACK), end)
        return (near + win[:index]).rstrip(" \t")[-1:]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result for a whole text. `text` is what stays visible, `ranges` what was removed."""

    text: str
    calls: list[ToolCall]
    ranges: list[Removed]
    rejected: list[Rejected]
    saw_syntax: bool


def parse(
    text: str,
    tools: Any = None,
    policy: Policy | None = None,
    *,
    end: End = End.STOP,
    reasoning: bool = False,
) -> Parsed:
    """Parse a whole text: `Parser.feed` and `Parser.close`, nothing else."""
    parser = Parser(tools, policy, reasoning=reasoning)
    events = parser.feed(text) + parser.close(end)
    return Parsed(
        text="".join(event.text for event in events if isinstance(event, Text)),
        calls=[event for event in events if isinstance(event, ToolCall)],
        ranges=[event for event in events if isinstance(event, Removed)],
        rejected=parser.rejected,
        saw_syntax=parser.saw_syntax,
    )
