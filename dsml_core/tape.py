"""The text a parser still needs, by offset: added once, cut by offset, dropped once decided."""

from __future__ import annotations

from bisect import bisect_right

LOOK_BACK = 64  # characters: as far as a line's indentation is followed


class Tape:
    """Characters `[start, end)` of a text, kept as the pieces they arrived in.

    Cutting costs what is cut, adding costs one append: a value of a megabyte in four-character
    pieces is joined once, when somebody asks for it.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._pieces: list[str] = []
        self._starts: list[int] = []

    def add(self, text: str) -> None:
        """Append `text`."""
        if not text:
            return
        self._pieces.append(text)
        self._starts.append(self.end)
        self.end += len(text)

    def pass_by(self, text: str) -> None:
        """Append `text` that was decided at once. Only where all text is decided."""
        if len(text) < LOOK_BACK:
            self.add(text)
            self.drop(self.end)
        else:
            self._pieces, self._starts = [text], [self.end]
            self.start = self.end
            self.end += len(text)

    def cut(self, start: int, end: int) -> str:
        """The characters `[start, end)`; both within the tape."""
        if start >= end:
            return ""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1) - 1
        base = self._starts[first]
        joined = self._pieces[first] if first == last else "".join(self._pieces[first : last + 1])
        return joined[start - base : end - base]

    def drop(self, before: int) -> None:
        """Forget what stands before offset `before`, but for the start of a line near it."""
        keep = bisect_right(self._starts, before - LOOK_BACK) - 1
        if keep > 0:
            del self._pieces[:keep], self._starts[:keep]
            self.start = self._starts[0]
