"""Where a parameter's value ends: the one hard question of a grammar that escapes nothing.

A tag inside a value is the value's end, data, or a weak end: one that counts only if no
parameter closer comes before the next marked opener (T6, T7). Fences (T16) and CDATA (T14) protect.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from dsml_core.grammar import CLOSERS, OPENERS, Kind, Tag
from dsml_core.markdown import Fences
from dsml_core.tape import LOOK_BACK


class Role(Enum):
    """What a tag is to the value it stands in."""

    DATA = auto()
    END = auto()  # the value's own closer
    NEXT = auto()  # the value had no closer of its own: it ends at a weak one, or at this marked opener


class Weak(NamedTuple):
    """A tag in a value that may turn out to be its end."""

    at: int
    tag: Tag

    @property
    def end(self) -> int:
        """The offset behind the tag."""
        return self.at + self.tag.length


_BOUNDS: Final = frozenset({Kind.BLOCK_OPEN, Kind.INVOKE_OPEN, Kind.PARAM_OPEN})
_ENDS: Final = frozenset({Kind.INVOKE_CLOSE, Kind.BLOCK_CLOSE})
_BEHIND: Final = {Kind.BLOCK_OPEN: Kind.INVOKE_OPEN, Kind.INVOKE_OPEN: Kind.PARAM_OPEN}
_LINE_START: Final = re.compile(r"\n[ \t]*\Z")


@dataclass(slots=True)
class OpenValue:
    """A value being read.

    `eager`: opened in a second reading, when it is known that no better closer follows: nothing protects
    markup in it, and the first possible closer counts.
    `loose`: in CDATA, the first closer outside of a fence that no opener in it explains: the end if `]]>` never comes.
    """

    name: str
    string: bool | None
    opener: int
    start: int
    marked: bool
    names: Container[str] | None = None  # of the tool's parameters, None where they are not known
    eager: bool = False
    cdata: bool | None = None
    blank: bool = True
    weak: Weak | None = None
    loose: Weak | None = None
    skipped: Weak | None = None  # the first closer that only its protection made data (T16)
    _again: Weak | None = None  # an opener at a line start: what comes next will tell whether it is data
    _data: Weak | None = None  # one that is
    _first: str = ""
    _last: str = ""
    _shown: int = 0  # parameters that are open in the CDATA
    _fences: Fences = field(default_factory=Fences)
    _fence_id: int = 0
    _depth: dict[tuple[Kind, bool], int] = field(default_factory=dict)

    def advance(self, text: str) -> None:
        """Read on in the value, at the latest before a tag's role is asked for."""
        self._fences.advance(text)
        if self.cdata is None and len(self._first) < LOOK_BACK:
            self._first = (self._first + text[:LOOK_BACK]).lstrip()
        self.blank = self.blank and not text.strip()
        self._last = (self._last + text[-LOOK_BACK:])[-LOOK_BACK:]

    def role(self, tag: Tag, at: int, spilled: bool = False) -> Role:
        """What `tag` at offset `at` is. `spilled`: the value goes out as text, and no markup in it may run."""
        if self.cdata is None:
            self.cdata = self._first.upper().startswith("<![CDATA[")
        if tag.dropped_lt and tag.kind in OPENERS and not self.blank:
            return Role.DATA  # N2: a table row or a quoted marker
        fenced = not self.eager and self._fences.inside and not self._fences.closes_here("]]>" if self.cdata else "")
        closed = self.cdata and self._last.rstrip().endswith("]]>")
        if self.cdata and not self.eager and (fenced or not closed):
            if not fenced and self._ends_cdata(tag, at):
                return Role.NEXT
            return self._skip(tag, at)
        if (fenced or spilled) and self._in_its_fence(tag):
            return self._skip(tag, at)
        again = self._again
        if again is not None and again.tag.kind is Kind.INVOKE_OPEN and tag.marked and tag.kind in _ENDS:
            self.weak, self._again = again, None
            return Role.NEXT if self.eager else Role.DATA
        if tag.kind in _BOUNDS:
            return Role.NEXT if tag.marked and self._bounds(tag, at) else Role.DATA
        if tag.kind is Kind.PARAM_CLOSE and (tag.marked or closed or not self.marked):
            return Role.END
        if tag.kind in CLOSERS and (self.weak is None or closed) and self._counts(tag):
            self.weak = Weak(at, tag)
            return Role.NEXT if self.eager or closed else Role.DATA
        return Role.DATA

    def _bounds(self, tag: Tag, at: int) -> bool:
        """V11, T2: a marked opener in the value shows that this had no closer, unless the model may have meant it as
        data: one in the middle of a line, but for a parameter that the tool has, and what such an opener holds; a block
        opener before anything but an invoke; an invoke opener before a parameter's closer.
        """
        again, self._again = self._again, None
        data, self._data = self._data, None
        new_line = _LINE_START.search(self._last) is not None
        if again is not None and (again.tag.kind is Kind.INVOKE_OPEN or self._holds(again, tag, at)):
            self.weak = again
        if self.weak is not None:
            return True
        if data is not None and self._holds(data, tag, at):
            self._data = Weak(at, tag)
            return False
        if tag.kind is Kind.PARAM_OPEN:
            named = self.names is None or tag.attrs.get("name", "").strip() in self.names
            return new_line or self.blank or named
        opener = Weak(at, tag)
        if new_line or (self.blank and tag.kind is Kind.BLOCK_OPEN):
            self._again = opener
        else:
            self._data = opener
        return False

    def _holds(self, opener: Weak, tag: Tag, at: int) -> bool:
        """What belongs in `opener` follows it directly."""
        return tag.kind is _BEHIND.get(opener.tag.kind) and self._follows(opener, at)

    def _follows(self, weak: Weak, at: int) -> bool:
        """Only white space stands between `weak` and the tag at `at`."""
        gap = at - weak.end
        return gap <= LOOK_BACK and not self._last[len(self._last) - gap :].strip()

    def _ends_cdata(self, tag: Tag, at: int) -> bool:
        """T14: a closer without an opener, and directly behind it the next parameter: this CDATA was never closed."""
        weak, self.weak = self.weak, None
        if self.marked and not tag.marked:
            return False
        if tag.kind is Kind.PARAM_OPEN:
            if weak is not None and self._follows(weak, at):
                self.weak = weak
                return True
            self._shown += 1
        elif tag.kind is Kind.PARAM_CLOSE and self._shown:
            self._shown -= 1
        elif tag.kind is Kind.PARAM_CLOSE:
            self.weak = Weak(at, tag)
            self.loose = self.loose or self.weak
        return False

    def _counts(self, tag: Tag) -> bool:
        """T7: beside marked tags a plain closer of a parameter counts, not one of an invoke or block."""
        return tag.marked or tag.kind is Kind.PARAM_CLOSE or not (self.marked or tag.kind is Kind.BARE_CLOSE)

    def _skip(self, tag: Tag, at: int) -> Role:
        inner = self.cdata and not self._last.rstrip().endswith("]]>")  # T14
        if self.skipped is None and not inner and tag.kind is Kind.PARAM_CLOSE and (tag.marked or not self.marked):
            self.skipped = Weak(at, tag)
        return Role.DATA

    def _in_its_fence(self, tag: Tag) -> bool:
        """T16: in a fence an opener is data, and a closer whose opener stands in the same fence.

        A plain opener does not explain a marked closer.
        """
        if self._fence_id != self._fences.opened:
            self._fence_id, self._depth = self._fences.opened, {}
        if tag.kind in _BOUNDS or tag.kind is Kind.BARE_OPEN:
            opened = _PAIRS[tag.kind], tag.marked
            self._depth[opened] = self._depth.get(opened, 0) + 1
            return True
        for opened in ((tag.kind, tag.marked), (tag.kind, True)):
            if self._depth.get(opened, 0) > 0:
                self._depth[opened] -= 1
                return True
        return False


_PAIRS = {
    Kind.BLOCK_OPEN: Kind.BLOCK_CLOSE,
    Kind.BARE_OPEN: Kind.BARE_CLOSE,
    Kind.INVOKE_OPEN: Kind.INVOKE_CLOSE,
    Kind.PARAM_OPEN: Kind.PARAM_CLOSE,
}
