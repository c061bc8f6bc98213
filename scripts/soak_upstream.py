"""The provider of the soak: it answers each request as its headers ask, with a fault or without one.

A part of soak.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import struct
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum, StrEnum

from soak_says import ERRORS, Said

from tests.e2e.provider import listening


class Fault(StrEnum):
    """What goes wrong with a response, and where."""

    NONE = "none"
    RESET_BEFORE_HEADERS = "reset before headers"
    RESET_MID_FRAME = "reset in a frame"
    RESET_MID_HOLD = "reset in a hold"
    RESET_AFTER_FINISH = "reset after the finish"
    HALF_CLOSED = "half closed"  # it ends its side of the connection in the middle, and keeps the other
    HALF_OPEN = "half open"  # not a byte more, no end: the client gives up
    STALL = "stall"  # a long silence, then the rest
    SLOW_CLIENT = "slow client"  # the client reads nothing for a while: all buffers between are full
    CLIENT_GONE = "client gone"
    HTML_500 = "500 with HTML"
    ERROR_EVENT = "error event"
    GZIP_CUT = "gzip cut short"


LEAKY = (Fault.RESET_MID_HOLD, Fault.RESET_AFTER_FINISH)  # they need a call
WHOLE = (Fault.NONE, Fault.STALL, Fault.SLOW_CLIENT)  # the client gets the whole answer
HTML = b"<!doctype html>\n<html><body><h1>500</h1>\n<script>alert('a < b')</script></body></html>\n"
PAUSE = 0.2  # seconds before a reset: what the proxy has not read by then is lost with it


class Act(Enum):
    """A step of a script that is no bytes."""

    RESET = "reset"
    END = "end"  # of this side only
    WAIT = "wait"  # until the proxy goes away


Step = bytes | float | Act


@dataclass
class Script:
    """A head, then steps: bytes to write, seconds to wait, or an act. `chunked`: in chunks, with their end."""

    head: bytes
    steps: list[Step]
    chunked: bool = True


def _head(kind: str, *fields: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"content-type: {kind}", *fields, "", ""]).encode()


def script(fault: Fault, said: Said, stall: float) -> Script:
    """What the provider does for this fault; `stall`: seconds of silence."""
    kind = "application/x-ndjson" if said.wire == "ollama" else "text/event-stream"
    head = _head(kind, "transfer-encoding: chunked")
    frames = said.frames
    if fault is Fault.RESET_BEFORE_HEADERS:
        return Script(b"", [PAUSE, Act.RESET], False)
    if fault is Fault.HTML_500:
        return Script(_head("text/html", f"content-length: {len(HTML)}", status="500 No"), [HTML], False)
    if fault is Fault.GZIP_CUT:
        coded = gzip.compress(b"".join(frames))
        third = len(coded) // 3
        # The connection ends well, or not: of the two, the first is the one that could be taken for a whole answer.
        ending: list[Step] = [PAUSE, Act.RESET] if said.number % 2 else []
        coded_head = _head(kind, "content-encoding: gzip", "transfer-encoding: chunked")
        return Script(coded_head, [coded[:third], 0.0, coded[third : 2 * third], *ending])
    if fault in (Fault.NONE, Fault.SLOW_CLIENT):
        return Script(head, list(frames))
    middle, finish = said.frames_to(said.middle), said.finish_at()
    before, after = frames[:middle], frames[middle:]
    steps: dict[Fault, list[Step]] = {
        Fault.RESET_MID_FRAME: [*before, after[0][: len(after[0]) // 2], PAUSE, Act.RESET],
        Fault.RESET_MID_HOLD: [*before, PAUSE, Act.RESET],
        Fault.RESET_AFTER_FINISH: [*frames[:finish], PAUSE, Act.RESET],
        Fault.HALF_CLOSED: [*before, Act.END, Act.WAIT],
        Fault.HALF_OPEN: [*before, Act.WAIT],
        Fault.STALL: [*before, stall, *after],
        Fault.CLIENT_GONE: [*before, Act.WAIT],
        Fault.ERROR_EVENT: [*before, ERRORS[said.wire]],
    }
    return Script(head, steps[fault])


@dataclass
class Upstream:
    """Answers request after request. `pace`: seconds between two events; `stall`: those of a stall."""

    pace: float = 0.0
    stall: float = 30.0
    open: int = 0  # connections
    longest: float = 0.0  # seconds for which a write had to wait
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        headers = await _request(reader)
        said = Said(**json.loads(headers["x-said"]))
        fault = Fault(headers["x-fault"])
        plan = script(fault, said, self.stall)
        if fault is Fault.SLOW_CLIENT:  # a buffer of ours that is never full would hide that the others are
            _socket(writer).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        writer.write(plan.head)
        for step in plan.steps:
            if isinstance(step, bytes):
                writer.write(b"%x\r\n%b\r\n" % (len(step), step) if plan.chunked else step)
                await self._drain(writer)
                await asyncio.sleep(0 if fault is Fault.SLOW_CLIENT else self.pace)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is Act.RESET:
                _reset(writer)
                return False
            elif step is Act.END:
                writer.write_eof()
            else:
                await reader.read()
                return False
        if plan.chunked:
            writer.write(b"0\r\n\r\n")
        await self._drain(writer)
        return True

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        start = time.monotonic()
        await writer.drain()
        self.longest = max(self.longest, time.monotonic() - start)


def _socket(writer: asyncio.StreamWriter) -> socket.socket:
    carrier: socket.socket = writer.get_extra_info("socket")
    return carrier


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a crash does: the other side gets a reset, not an end."""
    _socket(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> dict[str, str]:
    """The headers of a request, its body read."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    await reader.readexactly(int(headers["content-length"]))
    return headers


def upstream(pace: float = 0.0, stall: float = 30.0) -> AbstractAsyncContextManager[Upstream]:
    """A provider on a free port of this machine."""
    return listening(Upstream(pace, stall))
