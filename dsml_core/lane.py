"""The fast lane: frames that differ from the one before in nothing but their text are not read as JSON again.

What is said in them is told to the part they belong to in one go, when another frame comes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import cycle, zip_longest
from typing import Final, NamedTuple, Protocol

from dsml_core.grammar import CANDIDATE

_SURE: Final = re.compile(rb'[^"\\<|/\x00-\x1f\x7f-\xff]+').fullmatch  # stands in a JSON string as it is; begins no tag
_STRING: Final = rb'(?:[^"\\\x00-\x1f]|\\[^u\x00-\x1f])*'
_TEXT: Final = re.compile(_STRING).fullmatch  # what a JSON string holds; no \u, which may be half of a character
_VARIES: Final = rb'(?:"[^"\\\x00-\x1f]*"|0|[1-9][0-9]*)'
_VALUE: Final = re.compile(rb' ?"(%b)"' % _STRING)
_candidate: Final = CANDIDATE.search


class Goer(Protocol):
    """What the text of a lane belongs to."""

    @property
    def room(self) -> int:
        """Bytes of text that may go by before it has to be told."""
        ...

    def glides(self, text: str) -> bool:
        """True where `text`, behind all that was told, is visible at once."""
        ...

    def glide(self, text: str) -> None:
        """Note visible text that has left already."""
        ...


class Run(NamedTuple):
    """Frames that went by in a lane: what all of them have, and what each has between, line by line."""

    shape: tuple[bytes, ...]
    values: bytes

    def data(self) -> bytes:
        """The bytes of these frames."""
        values, (first, *between, last) = self.values.split(b"\n"), self.shape
        behind = cycle([*between, last + first])  # of each value, until the next
        joined = b"".join(map(b"".join, zip(values, behind, strict=False)))
        return first + joined.removesuffix(first)


class Lane:
    """Frames like the last one, whose text goes on in `goer`, and which leave as they came.

    `varying`: fields, numbers or strings, that differ from frame to frame and mean nothing to us but for their `last`
    value.
    """

    def __init__(self, head: bytes, tail: bytes, goer: Goer, varying: tuple[str, ...]) -> None:
        self.goer = goer
        self.last: dict[str, bytes] = {}
        self._head, self._tail = head, tail
        self._start, self._end = len(head), -len(tail)
        self._shape, self._names = _shape(head, tail, varying)
        self._pattern = _pattern(self._shape, self._names) if len(self._names) > 1 else None
        self._room = goer.room
        self._said: list[bytes] = []
        self._values: list[bytes] = []
        self._told = 0  # of what was said

    @classmethod
    def behind(cls, frame: bytes, field: str, text: str, goer: Goer, varying: tuple[str, ...]) -> Lane | None:
        """The lane of frames like `frame`, which says `text` in `field`; None where its place is not plain to see."""
        key = b'"%b":' % field.encode()
        value = _VALUE.match(frame, frame.find(key) + len(key)) if frame.count(key) == 1 else None
        if value is None or _decoded(value[1]) != text:
            return None
        return cls(frame[: value.start(1)], frame[value.end(1) :], goer, varying)

    def again(self, frame: bytes, goer: Goer) -> bool:
        """Whether the lane goes on behind `frame`, which did not go by in it."""
        self._room = goer.room
        return goer is self.goer and self._fits(frame)

    def takes(self, data: bytes) -> bool:
        """True where `data` is whole frames of the lane, whose text is sure to stay as it is: it was taken note of."""
        if self._pattern is None:
            if not (data.startswith(self._head) and data.endswith(self._tail)):
                return False
            said, match = data[self._start : self._end], None
        else:
            match = self._pattern(data)
            if match is None:
                return False
            said = match["said"]
        if len(said) > self._room:
            return False
        if _SURE(said) is None and not self._stays(said):
            return self._takes_all(said)
        if match is not None:
            self._values += match.groups()
        self._room -= len(said)
        self._said.append(said)
        return True

    def run(self) -> Run | None:
        """The frames that were taken since the last `settle`."""
        return Run(self._shape, b"\n".join(self._values or self._said)) if self._said else None

    def settle(self) -> None:
        """Tell what was said."""
        self._tell()
        if self._values:
            self.last = dict(zip(self._names, self._values[-len(self._names) :], strict=True))
        self._said, self._values, self._told = [], [], 0

    def _tell(self) -> None:
        if len(self._said) > self._told:
            text = _decoded(b"".join(self._said[self._told :]))
            assert text is not None
            self._told = len(self._said)
            self.goer.glide(text)

    def _stays(self, said: bytes) -> bool:
        """True where all of the text that stands in a JSON string as `said` is visible at once."""
        text = _text(said)
        if not text:
            return False
        if _candidate(text) is None:
            return True
        self._tell()
        return self.goer.glides(text)

    def _takes_all(self, said: bytes) -> bool:
        """The same for several frames in one piece."""
        pieces = said.split(self._tail + self._head)
        if len(pieces) == 1 or not all(_SURE(piece) or _is_plain(piece) for piece in pieces):
            return False
        self._room -= len(said)
        self._said += pieces
        return True

    def _fits(self, frame: bytes) -> bool:
        """Whether it is a frame like those of the lane, whatever it says."""
        if self._pattern is not None:
            return self._pattern(frame) is not None
        said = frame[self._start : self._end]
        return frame == self._head + said + self._tail and _TEXT(said) is not None


def _shape(head: bytes, tail: bytes, varying: tuple[str, ...]) -> tuple[tuple[bytes, ...], list[str]]:
    """What stays the same, and the names of the values between: of fields that vary, and "said" for the text."""
    if not varying:
        return (head, tail), ["said"]
    field = re.compile(rb'"(%b)": ?(%b)' % ("|".join(varying).encode(), _VARIES))
    shape, names, at = [], [], 0
    frame = head + tail
    places = [(found.start(2), found.end(2), found[1].decode()) for found in field.finditer(frame)]
    for start, end, name in sorted([*places, (len(head), len(head), "said")]):
        shape.append(frame[at:start])
        names.append(name)
        at = end
    return (*shape, frame[at:]), names


def _pattern(shape: tuple[bytes, ...], names: list[str]) -> Callable[[bytes], re.Match[bytes] | None]:
    values = (b"(?P<said>%b)" % _STRING if name == "said" else b"(%b)" % _VARIES for name in names)
    literals = (re.escape(literal) for literal in shape)
    return re.compile(b"".join(map(b"".join, zip_longest(literals, values, fillvalue=b"")))).fullmatch


def _decoded(said: bytes) -> str | None:
    """The text that stands in a JSON string as `said`, None where it is not well formed."""
    try:
        text = said.decode()
        return str(json.loads(f'"{text}"')) if "\\" in text else text
    except ValueError:
        return None


def _text(said: bytes) -> str:
    """The same, and "" also where it may be half of a character."""
    return (_decoded(said) or "") if _TEXT(said) else ""


def _is_plain(said: bytes) -> bool:
    text = _text(said)
    return bool(text) and _candidate(text) is None
