"""A client that sees the bytes: HTTP/1.1 over a plain socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Received:
    """One response. `pieces` are its chunks (or reads) with the second each came at; `complete`: it ended well."""

    status: int
    version: str
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


class Client:
    """One connection, to be used in `async with`. Use `ask` again on it to see that it was kept alive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._streams:
            self._streams[1].close()

    async def begin(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        version: str = "HTTP/1.1",
    ) -> Received:
        """Send a request and read the head of the response. `body` is sent as JSON, bytes as they are."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"host": "127.0.0.1", "content-length": str(len(data)), "accept-encoding": "gzip, br", **(headers or {})}
        lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in sent.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in head[1:] if line)
        named = {name.lower(): value.strip() for name, _, value in fields}
        return Received(int(head[0].split()[1]), head[0].split()[0], named)

    async def rest(self, received: Received) -> Received:
        """Read the body to its end, good or bad."""
        assert self._streams
        reader = self._streams[0]
        try:
            if received.headers.get("transfer-encoding") == "chunked":
                while size := int(await reader.readline(), 16):
                    received.pieces.append((time.monotonic(), (await reader.readexactly(size + 2))[:-2]))
                await reader.readline()
            elif "content-length" in received.headers:
                data = await reader.readexactly(int(received.headers["content-length"]))
                received.pieces.append((time.monotonic(), data))
            else:
                received.pieces.append((time.monotonic(), await reader.read()))
            received.complete = True
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass
        return received

    async def ask(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **how: str) -> Received:
        return await asyncio.wait_for(self.rest(await self.begin(path, body, headers, **how)), 20)

    def leave(self) -> None:
        if self._streams:
            self._streams[1].transport.abort()


async def once(
    port: int, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **how: str
) -> Received:
    """One question on a connection of its own."""
    async with Client(port) as client:
        return await client.ask(path, body, headers, **how)
