"""The parser: text in any chunking in, events out. One code path for streams and whole texts.

This file finds the tags in the chunks; what a tag does stands in `machine.TABLE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsml_core import ending, gaps, params
from dsml_core.draft import Judge
from dsml_core.events import End, Event, Rejected, Removed, Text, ToolCall
from dsml_core.grammar import CANONICAL, CLOSERS, TRIGGER, Kind, Miss, Tag, lex
from dsml_core.hold import Hold, State
from dsml_core.machine import take
from dsml_core.markdown import CodeSpan, Quote
from dsml_core.policy import Policy
from dsml_core.tape import LOOK_BACK, Tape
from dsml_core.tools import as_tools
from dsml_core.value import Role

_SURELY = 16  # characters of an incomplete tag before its place is looked at


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
        self._win = ""  # the text from the cursor on
        self._at = 0  # its offset
        self._code: CodeSpan | None = None
        self._synced = 0  # the offset up to which the open value was looked at

    @property
    def held(self) -> int:
        """Characters fed and not yet decided."""
        deferred = self._out.deferred_from
        return self._tape.end - (self._out.done if deferred is None else deferred)

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
        hold = self._hold
        if not self._win and text:
            if hold.state is State.PROSE:
                if self._tools == {} or (self._out.deferred_from is None and TRIGGER.search(text) is None):
                    self._at = hold.cursor = self._at + len(text)
                    return [self._out.pass_by(text)]
            elif hold.state is State.VALUE and hold.quiet and TRIGGER.search(text) is None:
                self._tape.add(text)
                self._at = hold.cursor = self._at + len(text)
                if not self._over_limit(self._at):
                    return []
                text = ""
        self._win += text
        if text:
            self._tape.add(text)
        self._run(final=False)
        return self._out.drain()

    def close(self, end: End = End.STOP) -> list[Event]:
        """The text ends here, or its part does; decides all that is held. `feed` may follow."""
        if end is not End.ABORT and end is not End.REFUSAL:
            self._run(final=True)
            while self._read_again():
                self._run(final=True)
            ending.finish(self._hold, end)
        if end is End.STOP or end is End.LENGTH:
            self._out.settle()
        self._out.take_back()
        self._out.text(self._tape.end)
        self._hold.reset()
        self._hold.cursor = self._at = self._tape.end
        self._win, self._code = "", None
        return self._out.drain()

    def _read_again(self) -> bool:
        """The text ends in a value: its first possible closer counts (T6, T7, T16)."""
        value = self._hold.value
        if value is None or self._hold.spilled:
            return False
        if value.weak is not None:
            params.end_at_weak(self._hold)
        elif value.skipped is not None:
            self._hold.value = value.unprotected()
            self._hold.cursor = self._synced = value.start
        else:
            return False
        self._rewind()
        return True

    # -- reading

    def _run(self, final: bool) -> None:
        while self._step(final):
            cursor = self._hold.cursor
            if cursor < self._at:
                self._rewind()
        cursor = self._hold.cursor
        self._win, self._at = self._win[cursor - self._at :], cursor
        if self._hold.spilled:
            self._advance_value(cursor)
            self._out.text(cursor)

    def _rewind(self) -> None:
        cursor = self._hold.cursor
        self._win, self._at = self._tape.cut(cursor, self._tape.end), cursor
        self._synced = min(self._synced, cursor)

    def _step(self, final: bool) -> bool:
        state = self._hold.state
        if state is State.PROSE:
            return self._scan_prose(final)
        if state is State.CODE:
            return self._scan_code(final)
        if state is State.VALUE:
            return self._scan_value(final)
        return self._scan_gap(final)

    def _find(self, final: bool) -> tuple[int, Tag | None]:
        """The next tag at or behind the cursor: its offset, and the tag or None where it is not complete.

        Without any, the offset is the end of the text, or where a tag begins that the end cut off.
        """
        start, cut_off = self._hold.cursor - self._at, self._tape.end
        while True:
            trigger = TRIGGER.search(self._win, start)
            if trigger is None:
                return cut_off, None
            index = trigger.start()
            tag = lex(self._win, index, self._tools or (), self._policy.candidate_limit)
            if tag is not Miss.NO and self._may_stand(tag, index):
                if isinstance(tag, Tag):
                    return self._at + index, tag
                cut_off = min(cut_off, self._at + index)
                if not final:
                    return cut_off, None
            start = index + 1

    def _may_stand(self, tag: Tag | Miss, index: int) -> bool:
        """N2: without its bracket a tag stands at a line start only. `strict` knows canonical tags only.

        The closing think tag is an end token where the text is reasoning (E1), else text.
        """
        if isinstance(tag, Tag) and tag.kind is Kind.END_TOKEN and tag.name and not self._hold.reasoning:
            return False
        if self._hold.strict and isinstance(tag, Tag):
            return CANONICAL.fullmatch(self._win, index, index + tag.length) is not None
        if self._win[index] in "<\uff1c":
            return True
        offset = self._at + index
        if self._hold.state is State.PROSE:
            self._out.text(offset)
            return self._out.read_prose().at_line_start
        before = self._tape.cut(max(self._tape.start, offset - LOOK_BACK), offset)
        return before.rstrip(" \t").endswith("\n")

    def _scan_prose(self, final: bool) -> bool:
        hold, out = self._hold, self._out
        offset, tag = self._find(final)
        out.text(offset)
        hold.cursor = offset
        if tag is None:
            if self._tape.end - offset > _SURELY and out.read_prose().place is Quote.QUOTED:
                hold.cursor = offset + 1
                return True
            return False
        place = out.read_prose().place
        if place is Quote.QUOTED or not self._may_start(tag):
            hold.abandon(offset + tag.length)
        elif place is Quote.CODE:
            hold.state, self._code = State.CODE, CodeSpan(out.quoting.run)
        else:
            out.deferring = hold.reasoning or hold.strict or place is Quote.THINK
            take(hold, tag, offset)
            self._synced = hold.cursor
        return True

    def _may_start(self, tag: Tag) -> bool:
        """In prose a plain closer is text, and so is a parameter without a name."""
        if self._hold.strict and tag.kind is not Kind.BLOCK_OPEN:
            return False
        if tag.kind is Kind.PARAM_OPEN:
            return "name" in tag.attrs
        if tag.kind is Kind.BARE_CLOSE and tag.name:
            return self._hold.left_block
        return tag.marked or tag.kind not in CLOSERS

    def _scan_code(self, final: bool) -> bool:
        assert self._code is not None
        hold, start = self._hold, self._hold.cursor
        limit = self._policy.hold_limit
        found = self._code.end(self._win[start - self._at :], final)
        if found is None and self._tape.end - start <= limit:
            return False
        if found is None or found[1] > limit:
            hold.abandon(start + limit)
            return True
        closed, length = found
        hold.state = State.PROSE
        if closed:
            hold.abandon(start + length)
        else:
            self._out.quoting.unmatched(self._tape.cut(start, start + length), start)
        return True

    def _scan_gap(self, final: bool) -> bool:
        hold = self._hold
        offset, tag = self._find(final)
        gap = self._win[hold.cursor - self._at : offset - self._at]
        blank = len(gap) - len(gap.lstrip())
        if blank < len(gap) and gaps.junk(hold, hold.cursor + blank, gap[blank]):
            return True
        end = offset + (tag.length if tag is not None else 0)
        if not hold.spilled and self._over_limit(end):
            if hold.draft is None or not hold.draft.holding:
                hold.abandon(offset)
                return True
            hold.spill()
        hold.cursor = offset
        if tag is None:
            return False
        if gaps.unfit(hold, tag):
            hold.abandon(offset)
        elif not take(hold, tag, offset):
            hold.cursor = end
        self._synced = hold.cursor
        return True

    def _over_limit(self, end: int) -> bool:
        hold, held = self._hold, end - self._out.done
        if hold.state is State.TAIL or (hold.block is not None and hold.block.json):
            return held > self._policy.hold_limit
        return held > hold.judge.limit(hold.draft, hold.value)

    def _scan_value(self, final: bool) -> bool:
        hold = self._hold
        value = hold.value
        assert value is not None
        offset, tag = self._find(final)
        end = offset + (tag.length if tag is not None else 0)
        if not hold.spilled and self._over_limit(end):
            hold.spill()
        if hold.draft is None and not value.marked and self._is_text(offset, tag):
            return True
        hold.cursor = offset
        if tag is None:
            return False
        self._advance_value(offset)
        role = value.role(tag, offset)
        if role is Role.DATA:
            hold.cursor = end
        elif role is Role.NEXT and value.weak is not None:
            params.end_at_weak(hold)
        elif role is Role.NEXT:
            params.bound_value(hold, tag, offset)
        else:
            params.end_value(hold, offset, end, closed=True, marked=tag.marked)
        return True

    def _advance_value(self, offset: int) -> None:
        if self._hold.value is not None:
            self._hold.value.advance(self._tape.cut(self._synced, offset))
        self._synced = offset

    def _is_text(self, offset: int, tag: Tag | None) -> bool:
        """V26 with a plain opener: only a marked parameter may come directly behind it."""
        cursor = self._hold.cursor
        gap = self._win[cursor - self._at : offset - self._at]
        if gap.strip():
            self._hold.abandon(cursor + len(gap) - len(gap.lstrip()))
        elif tag is not None and not (tag.marked and tag.kind is Kind.PARAM_OPEN):
            self._hold.abandon(offset)
        else:
            return False
        return True


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
