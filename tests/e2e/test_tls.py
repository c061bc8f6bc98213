"""TLS and HTTP/2: CONNECT and the proxy's own certificates, streams side by side, trailers, resets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import httpx
import pytest
from mitmproxy.http import HTTPFlow

from tests.e2e.asking import calls_in
from tests.e2e.client import once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, LEAK, PATHS, PROSE, request, stream

pytestmark = pytest.mark.slow

CHAT = PATHS["openai-chat"]
TRAILERS = [("x-tokens", "7")]


class Http2Provider:
    """Answers each stream with `frames` and trailers, or resets it after the frames.

    Streams after the first get the frames in `then` as long as there are some; a number is seconds to wait. `gone`
    is set when the proxy went away during an answer.
    """

    def __init__(self, frames: Sequence[bytes | float], headers: Sequence[tuple[str, str]], reset: bool) -> None:
        self._frames, self._headers, self._reset = frames, headers, reset
        self.asked: list[dict[bytes, bytes]] = []
        self.then: list[Sequence[bytes | float]] = []
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        connection.initiate_connection()
        with self._noting_that_it_is_gone():
            writer.write(connection.data_to_send())
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        self.asked.append({bytes(name): bytes(value) for name, value in event.headers})
                    elif isinstance(event, h2.events.DataReceived):
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        await self._answer(connection, writer, event.stream_id)
                writer.write(connection.data_to_send())
        writer.close()

    @contextlib.contextmanager
    def _noting_that_it_is_gone(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionError, ssl.SSLError):
            self.gone.set()

    async def _answer(self, connection: h2.connection.H2Connection, writer: asyncio.StreamWriter, number: int) -> None:
        connection.send_headers(number, [(":status", "200"), *self._headers])
        frames: Sequence[bytes | float] = self._frames
        if self.then:
            self._frames, frames = self.then.pop(0), self._frames
        for frame in frames:
            if isinstance(frame, float):
                await asyncio.sleep(frame)
                continue
            connection.send_data(number, frame)
            writer.write(connection.data_to_send())
            await writer.drain()
            await asyncio.sleep(0)
        if self._reset:
            await asyncio.sleep(0.1)
            connection.reset_stream(number)
        else:
            connection.send_headers(number, TRAILERS, end_stream=True)


def certified(confdir: Path, protocol: str) -> ssl.SSLContext:
    """What a provider over TLS shows and speaks."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(confdir / "provider-ca.pem")
    context.set_alpn_protocols([protocol])
    return context


@contextlib.asynccontextmanager
async def http2_provider(
    confdir: Path, frames: Sequence[bytes], *headers: tuple[str, str], reset: bool = False
) -> AsyncIterator[tuple[int, Http2Provider]]:
    made = Http2Provider(frames, [("content-type", "text/event-stream"), *headers], reset)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=certified(confdir, "h2"))
    try:
        yield server.sockets[0].getsockname()[1], made
    finally:
        server.close()


class Trailers:
    """An addon that keeps the trailers of responses."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    def response(self, flow: HTTPFlow) -> None:
        assert flow.response
        self.seen.append(dict(flow.response.trailers or {}))


@contextlib.asynccontextmanager
async def asking(confdir: Path, port: int, *after: Any, **ours: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client behind a regular proxy that it trusts by the proxy's authority alone."""
    trust = ssl.create_default_context(cafile=str(confdir / "mitmproxy-ca-cert.pem"))
    async with (
        in_process(confdir, port, after=after, mode="regular", mitm={"ssl_insecure": True}, **ours) as (proxy, _),
        httpx.AsyncClient(
            http2=True, verify=trust, proxy=f"http://127.0.0.1:{proxy}", base_url=f"https://127.0.0.1:{port}"
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("length", [True, False], ids=["length", "no length"])
def test_a_leak_is_repaired_over_http2(length: bool, confdir: Path) -> None:
    frames = stream("openai-chat", LEAK)
    headers = [("content-length", str(len(b"".join(frames))))] if length else []

    async def check() -> None:
        kept = Trailers()
        async with (
            http2_provider(confdir, frames, *headers) as (port, made),
            asking(confdir, port, kept) as client,
        ):
            answers = [client.post(CHAT, json=request("openai-chat")) for _ in range(3)]
            for answer in await asyncio.gather(*answers):
                assert answer.http_version == "HTTP/2"
                assert calls_in(answer.content) == [CALL]
                assert "content-length" not in answer.headers
            assert {asked[b"accept-encoding"] for asked in made.asked} == {b"identity"}
            assert kept.seen == [dict(TRAILERS)] * 3

    asyncio.run(check())


def test_http1_over_tls_through_a_regular_proxy(confdir: Path) -> None:
    async def check() -> None:
        reply = Reply(stream("openai-chat", LEAK), framing="length")
        async with (
            provider(reply, certified(confdir, "http/1.1")) as upstream,
            asking(confdir, upstream.port) as client,
        ):
            answer = await client.post(CHAT, json=request("openai-chat"))
            assert answer.http_version == "HTTP/1.1"
            assert calls_in(answer.content) == [CALL]

    asyncio.run(check())


def test_a_reverse_proxy_in_front_of_tls(confdir: Path) -> None:
    async def check() -> None:
        async with provider(Reply(stream("openai-chat", LEAK)), certified(confdir, "http/1.1")) as upstream:
            mode = f"reverse:https://127.0.0.1:{upstream.port}"
            async with in_process(confdir, 0, mode=mode, mitm={"ssl_insecure": True}) as (port, _):
                assert calls_in((await once(port, CHAT, request("openai-chat"))).body) == [CALL]

    asyncio.run(check())


def test_a_stream_without_a_leak_passes_byte_for_byte_over_http2(confdir: Path) -> None:
    frames = stream("openai-chat", PROSE)

    async def check() -> None:
        async with http2_provider(confdir, frames) as (port, _), asking(confdir, port) as client:
            assert (await client.post(CHAT, json=request("openai-chat"))).content == b"".join(frames)

    asyncio.run(check())


def test_what_was_held_reaches_the_client_when_the_provider_resets_the_stream(confdir: Path) -> None:
    frames = stream("openai-chat", "a < b")
    at = next(number for number, frame in enumerate(frames) if b"<" in frame) + 1

    async def check() -> None:
        async with http2_provider(confdir, frames[:at], reset=True) as (port, _), asking(confdir, port) as client:
            received = b""
            with pytest.raises(httpx.RemoteProtocolError):
                async with client.stream("POST", CHAT, json=request("openai-chat")) as answer:
                    async for piece in answer.aiter_bytes():
                        received += piece
            assert received == b"".join(frames[:at])

    asyncio.run(check())
