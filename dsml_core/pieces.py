"""Text that comes in many small strings."""

from __future__ import annotations

_SMALL = 256  # strings that are kept before they are joined


class Pieces:
    """The strings are joined, many at a time: each takes 50 bytes beside its characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._joined = 0  # the first of them: those that were

    def add(self, text: str) -> None:
        """Append `text`."""
        self._pieces.append(text)
        if len(self._pieces) - self._joined == _SMALL:
            self._pieces[self._joined :] = ["".join(self._pieces[self._joined :])]
            self._joined += 1

    def clear(self) -> None:
        """Forget all of it."""
        self._pieces.clear()
        self._joined = 0

    def take(self) -> str:
        """All of it, which is then forgotten."""
        text = self.text
        self.clear()
        return text

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)
