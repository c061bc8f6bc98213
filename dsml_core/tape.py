"""The text a parser still needs, by offset: added once, cut by offset, dropped once decided."""

from __future__ import annotations

from bisect import bisect_right

LOOK_BACK = 64  # characters: as far as a line's indentation is followed
_PIECES = 256  # small pieces that are kept before they are joined


class Tape:
    """Characters `[start, end)` of a text, kept as the pieces they arrived in.

    Cutting costs what is cut, adding costs one append: of a megabyte in four-character pieces each character is
    joined once, and once more when somebody asks for it. A string takes 50 bytes beside its characters.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._small = 0  # the last pieces: those that were not joined

    def add(self, text: str) -> None:
        """Append `text`."""
        if not text:
            return
        self._pieces.append(text)
        self._starts.append(self.end)
        self.end += len(text)
        self._small += 1
        if self._small == _PIECES:
            self._small = 0
            self._pieces[-_PIECES:] = ["".join(self._pieces[-_PIECES:])]
            del self._starts[1 - _PIECES :]

    def pass_by(self, text: str) -> None:
        """Append `text` that was decided at once. Only where all text is decided."""
        if len(text) < LOOK_BACK:
            self.add(text)
            self.drop(self.end)
        else:
            self._pieces, self._starts, self._small = [text], [self.end], 0
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
            self._small = min(self._small, len(self._pieces))
            self.start = self._starts[0]
