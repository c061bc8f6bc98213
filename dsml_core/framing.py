"""Bytes <-> frames: server-sent events (WHATWG), newline-delimited JSON, one JSON body.

A frame keeps the bytes it came in. For any chunking `b"".join(frame.raw for all frames) == input`, and time and memory
are linear: a line that arrives byte by byte grows in place.
"""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

BOM = b"\xef\xbb\xbf"
_LINE_SIGNS = "\x85\u2028\u2029"  # line ends to some readers of lines, and plain characters to JSON
LINE_END = re.compile(rb"\r\n|\n|\r")


class Frame:
    """One event, line or body. `data` is None where there is none or it is not UTF-8.

    `head` holds the SSE lines that are neither data nor event (comments, id, retry); `cut` is True for a last frame
    whose terminator never came.
    """

    __slots__ = ("cut", "data", "event", "head", "raw")

    def __init__(self, raw: bytes, data: bytes | None, event: str | None = None, head: bytes = b"") -> None:
        self.raw = raw
        self.data = None if data is None else decode(data)
        self.event = event
        self.head = head
        self.cut = False

    @property
    def torn(self) -> bool:
        """More than its terminator is missing: the body broke off, whatever its end says."""
        return self.cut and self.data is not None and self.data.startswith("{") and loads(self.data) is None


class Framer(Protocol):
    """`feed` takes bytes cut anywhere and gives the frames they complete; `close` gives what is left."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]: ...

    def rest(self) -> bytes:
        """The bytes of the frame not complete yet."""
        ...


class SseFramer:
    """Server-sent events: LF, CRLF and CR line ends, BOM, comments, any field, several data lines."""

    def __init__(self) -> None:
        self._raw = bytearray()  # all bytes of this frame
        self._line = bytearray()  # those of the line that is not complete
        self._data: list[bytes] = []
        self._head: list[bytes] = []
        self._event: str | None = None
        self._first = True
        self._cr = False  # a CR ended the last chunk: a LF now belongs to it
        self._crlf = False  # lines end in CRLF: a CR that ends a chunk waits for its LF
        self._half = b""  # that CR

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if not data:
            return frames
        start = self._feed_plain(data, frames)
        if self._cr and data[0] == 0x0A:
            self._raw += b"\n"
            start, self._crlf = 1, True
        if b"\r" in data or self._half:
            data = self._with_whole_ends(data)
        for end in LINE_END.finditer(data, start):
            line = data[start : end.start()]
            if self._line:
                line = bytes(self._line + line)
                self._line.clear()
            self._raw += data[start : end.end()]
            start = end.end()
            if line:
                self._field(line)
            else:
                frames.append(self._dispatch())
        if start < len(data):
            self._line += data[start:]
            self._raw += data[start:]
        self._cr = data.endswith(b"\r")
        return frames

    def _feed_plain(self, data: bytes, frames: list[Frame]) -> int:
        """The short way for events of one data line that lie whole in a chunk; returns where they end."""
        start = 0
        if self._raw or self._cr or self._half or b"\r" in data:
            return start
        while (end := data.find(b"\n\n", start)) > 0 and data.startswith(b"data: ", start):
            if data.find(b"\n", start, end) > 0:
                break
            frames.append(Frame(data[start : end + 2], data[start + 6 : end]))
            self._first = False
            start = end + 2
        return start

    def _with_whole_ends(self, data: bytes) -> bytes:
        """`data` with the CR that waited, and without one that waits now."""
        data, self._half = self._half + data, b""
        self._crlf = self._crlf or b"\r\n" in data
        if self._crlf and data.endswith(b"\r"):
            data, self._half = data[:-1], b"\r"
        return data

    def close(self) -> list[Frame]:
        self._crlf = False
        half, self._half = self._half, b""
        frames = self.feed(half)
        line, self._line = bytes(self._line), bytearray()
        if line:
            self._field(line)
        if not self._raw:
            return frames
        frame = self._dispatch()
        frame.cut = bool(frame.raw.strip(b"\r\n"))
        return [*frames, frame]

    def rest(self) -> bytes:
        return bytes(self._raw) + self._half

    def _field(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(BOM)
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace")
        else:
            self._head.append(line)

    def _dispatch(self) -> Frame:
        self._first = False
        frame = Frame(
            bytes(self._raw),
            b"\n".join(self._data) if self._data else None,
            self._event,
            b"".join(line + b"\n" for line in self._head),
        )
        self._raw, self._data, self._head, self._event = bytearray(), [], [], None
        return frame


class LineFramer:
    """Newline-delimited JSON."""

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        *lines, rest = data.split(b"\n")
        frames = []
        for line in lines:
            self._line += line + b"\n"
            frames.append(self._dispatch())
        if rest:
            self._line += rest
        return frames

    def close(self) -> list[Frame]:
        if not self._line:
            return []
        frame = self._dispatch()
        frame.cut = True
        return [frame]

    def rest(self) -> bytes:
        return bytes(self._line)

    def _dispatch(self) -> Frame:
        raw, self._line = bytes(self._line), bytearray()
        return Frame(raw, raw.strip() or None)


class BodyFramer:
    """One JSON document: the only frame comes at the end."""

    def __init__(self) -> None:
        self._body = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._body += data
        return []

    def close(self) -> list[Frame]:
        raw, self._body = bytes(self._body), bytearray()
        return [Frame(raw, raw.removeprefix(BOM))] if raw else []

    def rest(self) -> bytes:
        return bytes(self._body)


def decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


_decode = json.JSONDecoder().decode


def loads(text: str) -> Any:
    """The JSON value of `text`, or None when it is no JSON that Python can read."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return None


def dumps(value: Any) -> bytes:
    """Compact JSON in one line for any reader. Lone surrogates (a pair cut between two deltas) stay as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in _LINE_SIGNS:
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def sse(value: Any, event: str | None = None, head: bytes = b"") -> bytes:
    """One event in its standard form: LF line ends, one data line."""
    name = b"event: " + event.encode() + b"\n" if event else b""
    return head + name + b"data: " + dumps(value) + b"\n\n"


def line(value: Any) -> bytes:
    """One line of newline-delimited JSON."""
    return dumps(value) + b"\n"
