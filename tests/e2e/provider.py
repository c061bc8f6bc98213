"""A scripted provider: it sends exactly the bytes it is given, when it is told to, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol


class Break(Enum):
    """A step of a script: the connection is cut here."""

    ABORT = "abort"


@dataclass
class Reply:
    """One response. A step is bytes to write, seconds to wait, or the cut of the connection."""

    steps: Sequence[bytes | float | Break]
    kind: str = "text/event-stream"
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    framing: Literal["chunked", "length", "close"] = "chunked"
    version: str = "HTTP/1.1"

    def head(self) -> bytes:
        fields = [("content-type", self.kind), *self.headers]
        if self.framing == "chunked":
            fields.append(("transfer-encoding", "chunked"))
        elif self.framing == "length":
            fields.append(("content-length", str(sum(len(step) for step in self.steps if isinstance(step, bytes)))))
        lines = [f"{self.version} {self.status} Said", *(f"{name}: {value}" for name, value in fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class Asked:
    """One request as the provider got it. Header names are lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Provider:
    """Answers every request with `reply`, those after the first with what is in `then` as long as there is some."""

    reply: Reply
    then: list[Reply] = field(default_factory=list)
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # set when the proxy went away during a reply

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.asked.append(await _request(reader))
                if not await self._answer(reader, writer):
                    break
        except asyncio.IncompleteReadError:
            pass  # no further request
        except ConnectionError:
            self.gone.set()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        reply = self.reply
        if self.then:
            self.reply = self.then.pop(0)
        writer.write(reply.head())
        for step in reply.steps:
            if isinstance(step, Break):
                writer.transport.abort()
                return False
            if isinstance(step, float):
                await asyncio.sleep(step)
                if reader.at_eof():
                    self.gone.set()
                    return False
                continue
            writer.write(b"%x\r\n%s\r\n" % (len(step), step) if reply.framing == "chunked" else step)
            await writer.drain()
            await asyncio.sleep(0)
        if reply.framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return reply.framing != "close"


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if headers.get("transfer-encoding") == "chunked":
        body = await _chunked(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(head[0], headers, body)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


class Serving(Protocol):
    """What serves connections to a port."""

    port: int

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@contextlib.asynccontextmanager
async def listening[S: Serving](made: S, tls: ssl.SSLContext | None = None) -> AsyncIterator[S]:
    """`made`, on a free port of this machine."""
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def provider(reply: Reply, tls: ssl.SSLContext | None = None) -> AbstractAsyncContextManager[Provider]:
    """A provider on a free port of this machine."""
    return listening(Provider(reply), tls)
