"""The slow way through the text: finds the tags in it; what a tag does stands in `machine.TABLE`."""

from __future__ import annotations

from dsml_core import gaps, params
from dsml_core.grammar import CANDIDATE, CANONICAL, CLOSERS, OPENERS, UNFINISHED, Kind, Lexer, Miss, Tag
from dsml_core.hold import Hold, State
from dsml_core.jsontext import begins_as_json
from dsml_core.machine import take
from dsml_core.markdown import CodeSpan, Quote
from dsml_core.tape import LOOK_BACK
from dsml_core.value import Role

SURELY = 16  # characters of an incomplete tag before its place is looked at


class Reader:
    """Reads one text; `win` is what it has not dealt with yet, and `at` the offset of that."""

    def __init__(self, hold: Hold) -> None:
        self.win = ""
        self.at = 0
        self._hold = hold
        self._tape = hold.tape
        self._out = hold.out
        self._judge = hold.judge
        self.lexer = Lexer(hold.judge.tools or (), hold.judge.policy.candidate_limit)
        self._code: CodeSpan | None = None
        self._synced = 0  # the offset up to which the open value was looked at

    def add(self, text: str) -> None:
        """More text."""
        self.win += text
        self._tape.add(text)

    def move(self, at: int) -> None:
        """Go on at offset `at`, the end of the text that is there."""
        self.win, self._code = "", None
        self._hold.cursor = self.at = at

    @property
    def waits(self) -> bool:
        """True inside of a marked call, where more text settles nothing until a tag is finished."""
        hold = self._hold
        unread = UNFINISHED.match(self.win) is not None if self.win else hold.state is not State.VALUE
        return hold.inside and unread

    def run(self, final: bool) -> None:
        """Deal with all that can be dealt with; `final`: nothing follows."""
        while self._step(final):
            cursor = self._hold.cursor
            if cursor < self.at:
                self._rewind()
        cursor = self._hold.cursor
        self.win, self.at = self.win[cursor - self.at :], cursor
        if self._hold.spilled:
            self._advance_value(cursor)
            self._out.text(cursor)

    def read_again(self, stopped: bool) -> bool:
        """The text ends in a value or a JSON string: its first possible closer counts (T6, T7, T11, T14, T16).

        Not one that a fence protects where the text was cut off (`stopped` is False): the value was not finished.
        """
        hold = self._hold
        value, strings = hold.value, hold.json
        if hold.spilled:
            return False
        end = None if value is None else value.loose or value.weak or (value.skipped if stopped else None)
        if end is not None:
            params.end_at(hold, end)
        elif strings is not None and strings.inside and strings.skipped is not None:
            strings.give_up()
            hold.cursor = strings.skipped
        else:
            return False
        hold.second = True
        self._rewind()
        return True

    def _rewind(self) -> None:
        cursor = self._hold.cursor
        self.win, self.at = self._tape.cut(cursor, self._tape.end), cursor
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
        start, cut_off = self._hold.cursor - self.at, self._tape.end
        patient = not final and self._hold.inside
        while True:
            candidate = CANDIDATE.search(self.win, start)
            if candidate is None:
                return cut_off, None
            index = candidate.start()
            tag = self.lexer.lex(self.win, index, patient)
            if tag is not Miss.NO and self._may_stand(tag, index, cut_off):
                if isinstance(tag, Tag):
                    return self.at + index, tag
                cut_off = min(cut_off, self.at + index)
                if not final:
                    return cut_off, None
            start = index + 1

    def _may_stand(self, tag: Tag | Miss, index: int, cut_off: int) -> bool:
        """N2: without its bracket a tag stands at a line start only. `strict` knows canonical tags only.

        The closing think tag is an end token where the text is reasoning (E1), else text.
        """
        if isinstance(tag, Tag) and tag.kind is Kind.END_TOKEN and tag.name and not self._hold.reasoning:
            return False
        if self._hold.strict and isinstance(tag, Tag):
            if self._hold.state is State.TAIL and tag.kind in OPENERS and tag.kind is not Kind.BLOCK_OPEN:
                return False
            return CANONICAL.fullmatch(self.win, index, index + tag.length) is not None
        if self.win[index] in "<\uff1c":
            return True
        offset = self.at + index
        before = self._tape.cut(max(self._tape.start, offset - LOOK_BACK), offset)
        prose = self._hold.state is State.PROSE and self._out.deferred_from is None and offset <= cut_off
        if prose and (not before or before[-1] in " \t\n"):
            self._out.text(offset)
            return self._out.read_prose().at_line_start
        return before.rstrip(" \t").endswith("\n")

    def _scan_prose(self, final: bool) -> bool:
        hold, out = self._hold, self._out
        offset, tag = self._find(final)
        out.text(offset)
        hold.cursor = offset
        if tag is None:
            if self._tape.end - offset > SURELY and out.read_prose().place is Quote.QUOTED:
                hold.cursor = offset + 1
                return True
            return False
        place = out.read_prose().place
        if place is Quote.QUOTED:
            hold.abandon(offset + 1)
        elif not self._may_start(tag):
            hold.abandon(offset + tag.length)
        elif place is Quote.CODE:
            hold.state, self._code = State.CODE, CodeSpan(out.quoting.run, offset)
        else:
            hold.thought = hold.reasoning or place is Quote.THINK
            out.deferring = hold.thought or hold.strict
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
        hold, start, at = self._hold, self._code.start, self._hold.cursor
        limit = self._judge.policy.hold_limit
        over = self._tape.end - start > limit
        # What stands behind the limit settles nothing, however much of it is there.
        found = self._code.end(self.win[at - self.at : start + limit + 1 - self.at], final and not over)
        if isinstance(found, int):
            hold.cursor = at + found
            if not over:
                return False
            closed, end = False, start + limit + 1
        else:
            closed, end = found[0], at + found[1]
        if end - start > limit:
            hold.abandon(start + limit)
            return True
        hold.state, hold.cursor = State.PROSE, start
        if closed:
            hold.abandon(end)
        else:
            self._out.quoting.unmatched(self._tape.cut(start, end), start)
        return True

    def _scan_gap(self, final: bool) -> bool:
        hold = self._hold
        offset, tag = self._find(final)
        gap = self.win[hold.cursor - self.at : offset - self.at]
        blank = len(gap) - len(gap.lstrip())
        begin = hold.cursor + blank
        if blank < len(gap) and (self._is_over(begin, begin) or gaps.junk(hold, begin, gap[blank])):
            return True
        strings = hold.json
        if strings is not None:
            strings.advance(gap)
        end = offset + (tag.length if tag is not None else 0)
        if self._is_over(end, offset):
            return True
        hold.cursor = offset
        if tag is None:
            return False
        if strings is not None and strings.inside:
            if strings.skipped is None and tag.kind in CLOSERS:
                strings.skipped = offset
            strings.advance(self.win[offset - self.at : end - self.at])
            hold.cursor = end
            return True
        if gaps.unfit(hold, tag):
            hold.abandon(offset)
        elif not take(hold, tag, offset):
            hold.cursor = end
        self._synced = hold.cursor
        return True

    def _is_over(self, end: int, offset: int) -> bool:
        """Up to `end` more is held than may be; True where that is text after all, up to `offset`."""
        hold, limit = self._hold, self._limit(end)
        if hold.spilled or end <= limit:
            return False
        if hold.draft is None or not hold.draft.holding:
            hold.given_up = hold.draft is not None
            hold.abandon(offset)
            return True
        hold.spill(limit)
        return False

    def _limit(self, end: int) -> int:
        """The offset up to which may be held; `end` is what has to be."""
        hold, start = self._hold, self._out.done
        if hold.state is State.TAIL:
            return start + self._judge.policy.hold_limit
        limit = start + hold.judge.limit(hold.draft, hold.value)
        if end <= limit or hold.json is None or not self._holds_json():
            return limit
        return start + (hold.judge.limit(hold.draft, None) if hold.draft is not None else self._judge.policy.hold_limit)

    def _holds_json(self) -> bool:
        """Decided by the characters up to the limit, so that chunks do not matter."""
        hold = self._hold
        opened = hold.draft or hold.block
        assert opened is not None
        found = begins_as_json(self._tape.cut(opened.body, self._out.done + self._judge.policy.candidate_limit + 1))
        if hold.draft is not None:
            hold.draft.holding = hold.draft.holding or found
        return found

    def _scan_value(self, final: bool) -> bool:
        hold = self._hold
        value = hold.value
        assert value is not None
        offset, tag = self._find(final)
        end = offset + (tag.length if tag is not None else 0)
        if not hold.spilled and end > self._limit(end):
            hold.spill(self._limit(end))
        if hold.draft is None and not value.marked and self._is_text(offset, tag):
            return True
        hold.cursor = offset
        if tag is None:
            return False
        self._advance_value(offset)
        role = value.role(tag, offset, hold.spilled)
        if role is Role.DATA:
            hold.cursor = end
        elif role is Role.NEXT and value.weak is not None:
            params.end_at(hold, value.weak)
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
        gap = self.win[cursor - self.at : offset - self.at]
        if gap.strip():
            self._hold.abandon(cursor + len(gap) - len(gap.lstrip()))
        elif tag is not None and not (tag.marked and tag.kind is Kind.PARAM_OPEN):
            self._hold.abandon(offset)
        else:
            return False
        return True
