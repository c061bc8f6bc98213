"""The fast lane: frames that differ from the one before in nothing but their text are not read as JSON again.

They leave as they came; or, where their text is held, as the one before left: without it. What is said in them is told
to the part they belong to in one go, when another frame comes.
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
_VARIES: Final = rb'(?:"[ !#-\[\]-~]*"|0|[1-9][0-9]{0,15})'  # what is written as it was read
_VALUE: Final = re.compile(rb' ?"(%b)"' % _STRING)
_candidate: Final = CANDIDATE.search


class Goer(Protocol):
    """What the text of a lane belongs to."""

    @property
    def room(self) -> int:
        """Bytes of text that may go by before it has to be told."""
        ...

    def renew(self) -> int:
        """The room there is once all was told."""
        ...

    def glides(self, text: str) -> bool:
        """True where `text`, behind all that was told, meets the same fate: it is visible at once, or held."""
        ...

    def glide(self, text: str) -> None:
        """Note text whose frames have left already."""
        ...


class Run(NamedTuple):
    """Frames that went by in a lane: what all of them have, and what each has between, line by line."""

    shape: tuple[bytes, ...]
    values: bytes

    def data(self) -> bytes:
        """The bytes of these frames."""
        first, *between, last = self.shape
        if not between:
            return first + self.values.replace(b"\n", last + first) + last
        behind = cycle([*between, last + first])  # of each value, until the next
        joined = b"".join(map(b"".join, zip(self.values.split(b"\n"), behind, strict=False)))
        return first + joined.removesuffix(first)


class Lane:
    """Frames like the last one, whose text goes on in `goer`.

    `varying`: fields, numbers or strings, that differ from frame to frame and mean nothing to us but for their `last`
    value. `count`: the number the last frame left with, where all leave with other numbers than they came with: then
    that is the only field that varies, and their text is held.
    """

    def __init__(
        self, head: bytes, tail: bytes, goer: Goer, varying: tuple[str, ...], count: int | None = None
    ) -> None:
        self.goer = goer
        self.last: dict[str, bytes] = {}
        self.begun = b""  # of a frame that is not complete
        self._head, self._tail = head, tail
        self._start, self._end = len(head), -len(tail)
        self._close = b"\n\n" if tail.endswith(b"\n\n") else b"\n"  # of a frame
        self._shape, self._names = _shape(head, tail, varying)
        self._pattern = _pattern(self._shape, self._names) if len(self._names) > 1 else None
        self._hushed: tuple[bytes, ...] = ()  # what all frames have that leave without their text
        self._count = count
        self._room = goer.room
        self._forget()

    def _forget(self) -> None:
        """No frame has gone by."""
        self._past: list[bytes] = []  # the values of frames that were told, many at a time
        self._gone = 0  # how many frames these are
        self._latest: list[bytes] = []  # the values of the last of them, where some vary
        self._said: list[bytes] = []
        self._values: list[bytes] = []
        self._told = 0  # of what was said

    @classmethod
    def behind(
        cls,
        frame: bytes,
        left: bytes,
        field: str,
        text: str,
        goer: Goer,
        varying: tuple[str, ...],
        count: int | None = None,
    ) -> Lane | None:
        """The lane of frames like `frame`, which says `text` in `field`; None where its place is not plain to see.

        `left`: as what it left, if not as it came: then its text is held, and so is that of the others.
        """
        key = b'"%b":' % field.encode()
        value = _VALUE.match(frame, frame.find(key) + len(key)) if frame.count(key) == 1 else None
        if value is None or _decoded(value[1]) != text:
            return None
        lane = cls(frame[: value.start(1)], frame[value.end(1) :], goer, varying, count)
        return lane if left == frame or lane._hush(frame, left) else None

    @property
    def holds(self) -> bool:
        """The text of its frames is held."""
        return bool(self._hushed)

    def again(self, frame: bytes, left: bytes, goer: Goer, count: int | None = None) -> bool:
        """Whether the lane goes on behind `frame`, which did not go by in it and left as `left`."""
        self._count = count
        self._room, self.last = goer.room, {}
        self._forget()
        return goer is self.goer and left == self._leaves_as(frame)

    def goes_by(self, data: bytes) -> bytes | None:
        """The same as `takes` for bytes cut anywhere: the beginning of a frame is kept, in `begun`, until the rest
        of it comes. What was kept is not taken where the answer is None.
        """
        data = self.begun + data
        left = self.takes(data)
        if left is not None:
            self.begun = b""
            return left
        end = data.rfind(self._close) + len(self._close)
        whole, begun = (data[:end], data[end:]) if end >= len(self._close) else (b"", data)
        if not begun or begun.startswith(b"\n") or b"\r" in data:  # it may have an end in it
            return None
        if self.begun and not whole:  # one that never ends would be joined for ever
            return None
        left = self.takes(whole) if whole else b""
        if left is not None:
            self.begun = begun
        return left

    def takes(self, data: bytes) -> bytes | None:
        """What leaves for `data` where that is whole frames of the lane, whose text is sure to meet the fate of the
        text before: it was taken note of. Else None.
        """
        values: tuple[bytes, ...] = ()
        if self._pattern is None:
            if not (data.startswith(self._head) and data.endswith(self._tail)):
                return None
            said = data[self._start : self._end]
        else:
            match = self._pattern(data)
            if match is None:
                return None
            said, values = match["said"], match.groups()
        if len(said) > self._room and len(said) > self._new_room():
            return None
        if _SURE(said) is None and not self._stays(said):
            return self._takes_all(data, said)
        if self._count is not None:
            self._count += 1
        left = self._hushed_with(values) if self._hushed else data
        self._values += values
        self._room -= len(said)
        self._said.append(said)
        return left

    def runs(self) -> tuple[Run, Run] | None:
        """The frames that were taken since the lane was entered, as they came and as they left."""
        frames = self._gone + len(self._said)
        if not frames:
            return None
        came = Run(self._shape, b"\n".join([*self._past, *(self._values or self._said)]))
        if not self._hushed:
            return came, came
        if self._count is not None:
            varied = [b"%d" % number for number in range(self._count - frames + 1, self._count + 1)]
        else:
            at, each = self._names.index("said"), len(self._names)
            values = came.values.split(b"\n") if each > 1 else []
            varied = [value for number, value in enumerate(values) if number % each != at]
        return came, Run(self._hushed, b"\n".join(varied or [b""] * frames))

    def settle(self) -> None:
        """Tell what was said."""
        self.tell()
        last = self._values[-len(self._names) :] or self._latest
        if last:
            self.last = dict(zip(self._names, last, strict=True))
            if self._count is not None:
                self.last = {name: b"%d" % self._count for name in self.last if name != "said"}

    def untold(self) -> bytes:
        """The frames whose text is held and was not told: they have to leave where that fails."""
        each = len(self._names)
        values = self._values[self._told * each :] if self._values else self._said[self._told :]
        return Run(self._shape, b"\n".join(values)).data() if values and self._hushed else b""

    def tell(self) -> None:
        """Tell what was not told yet."""
        if len(self._said) > self._told:
            text = _decoded(b"".join(self._said[self._told :]))
            assert text is not None
            self._told = len(self._said)
            self.goer.glide(text)

    def _new_room(self) -> int:
        """All was told: what was said is kept in one piece, for small ones take many times their bytes."""
        self.tell()
        if self._said:
            self._past.append(b"\n".join(self._values or self._said))
            self._gone += len(self._said)
            self._latest = self._values[-len(self._names) :]
            self._said, self._values, self._told = [], [], 0
        self._room = self.goer.renew()
        return self._room

    def _stays(self, said: bytes) -> bool:
        """True where all of the text that stands in a JSON string as `said` meets the fate of that before."""
        text = _text(said)
        if not text:
            return False
        if _candidate(text) is None:
            return True
        self.tell()
        return self.goer.glides(text)

    def _takes_all(self, data: bytes, said: bytes) -> bytes | None:
        """The same for several frames in one piece."""
        pieces = said.split(self._tail + self._head)
        if len(pieces) == 1 or not all(_SURE(piece) or _is_plain(piece) for piece in pieces):
            return None
        self._room -= len(said)
        self._said += pieces
        return b"".join(self._hushed) * len(pieces) if self._hushed else data

    def _hush(self, frame: bytes, left: bytes) -> bool:
        """Let frames leave as `frame` did: with what varies in them, and without their text."""
        match = self._pattern(frame) if self._pattern is not None else None
        shape, at = [], 0
        for name, value in zip(self._names, match.groups(), strict=True) if match else ():
            if name != "said":
                key = b'"%b":' % name.encode()
                start = left.find(key) + len(key)
                value = value if self._count is None else b"%d" % self._count
                if left.count(key) != 1 or start < at or not left.startswith(value, start):
                    return False
                shape.append(left[at:start])
                at = start + len(value)
        self._hushed = (*shape, left[at:]) if shape else (left, b"")
        return self._leaves_as(frame) == left and (self._count is None or len(shape) == 1)

    def _hushed_with(self, values: tuple[bytes, ...]) -> bytes:
        if not values:
            return self._hushed[0]
        if self._count is not None:
            return self._hushed[0] + b"%d" % self._count + self._hushed[1]
        varied = [value for name, value in zip(self._names, values, strict=True) if name != "said"]
        return b"".join(map(b"".join, zip_longest(self._hushed, varied, fillvalue=b"")))

    def _leaves_as(self, frame: bytes) -> bytes | None:
        """What a frame like those of the lane leaves as, whatever it says; None for another one."""
        values: tuple[bytes, ...] = ()
        if self._pattern is not None:
            match = self._pattern(frame)
            if match is None:
                return None
            values = match.groups()
        else:
            said = frame[self._start : self._end]
            if frame != self._head + said + self._tail or _TEXT(said) is None:
                return None
        return self._hushed_with(values) if self._hushed else frame


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
