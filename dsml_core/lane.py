"""The fast lane: a frame that differs from the one before in nothing but its text is not read as JSON again."""

from __future__ import annotations

import re
from typing import Final

from dsml_core.parts import Part

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]+')  # stands in a JSON string as it is


class Lane:
    """Frames that are `head`, more text of `part`, and `tail`, and leave as they came."""

    def __init__(self, head: bytes, tail: bytes, part: Part) -> None:
        self.part = part
        self._head = head
        self._tail = tail

    @classmethod
    def behind(cls, frame: bytes, field: str, text: str, part: Part) -> Lane | None:
        """The lane of frames like `frame`, which says `text` in `field`; None where its place is not plain to see."""
        key, said = b'"%b":' % field.encode(), text.encode("utf-8", "replace")
        at = frame.find(key) + len(key)
        start = at + (2 if frame.startswith(b" ", at) else 1)
        if frame.count(key) != 1 or frame[start - 1 : start + len(said) + 1] != b'"%b"' % said:
            return None
        return cls(frame[:start], frame[start + len(said) :], part) if _PLAIN.fullmatch(said) else None

    def text(self, data: bytes) -> str | None:
        """What `data` says, None where it is not one whole frame of the lane."""
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        said = data[len(self._head) : -len(self._tail)]
        if _PLAIN.fullmatch(said) is None:
            return None
        try:
            return said.decode()
        except UnicodeDecodeError:
            return None
