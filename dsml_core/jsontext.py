"""Where a JSON text is inside a string: markup that stands there is data (T11)."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r"\\.|\\\Z|\"", re.DOTALL)
_BEGINS: Final = re.compile(r"\s*+(?:[{\[]|`{3}|~{3})")


def begins_as_json(text: str) -> bool:
    """True where a body begins as JSON, also in a code fence."""
    return _BEGINS.match(text) is not None


class JsonStrings:
    """Follows the strings of a JSON text that arrives in pieces."""

    def __init__(self, protects: bool = True) -> None:
        self.inside = False
        self.skipped: int | None = None  # the first closer that stood in a string
        self._escaped = False
        self._protects = protects

    def advance(self, text: str) -> None:
        """Read on."""
        if not self._protects or not text:
            return
        start, self._escaped = int(self._escaped), False
        for match in _MARK.finditer(text, start):
            if match[0] == '"':
                self.inside = not self.inside
            else:
                self._escaped = len(match[0]) == 1

    def give_up(self) -> None:
        """A string was never closed: from here on nothing is protected."""
        self.inside = self._protects = False
