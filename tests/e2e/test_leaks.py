"""A leak is repaired however the bytes come: framing, cuts, codings."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.client_view import see
from tests.e2e.asking import CHAT, CODINGS, ask, calls_in, encoded, run
from tests.e2e.client import Client
from tests.e2e.provider import Break, Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, KINDS, LEAK, PATHS, PROSE, any_wire, body, request, stream


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@any_wire
def test_a_leak_is_repaired_on_every_wire(wire: str, streamed: bool, confdir: Path) -> None:
    if streamed:
        reply = Reply(stream(wire, "Look: " + LEAK), KINDS[wire])
    else:
        reply = Reply([body(wire, "Look: " + LEAK)], "application/json", framing="length")
    received = asyncio.run(ask(confdir, reply, PATHS[wire], request(wire, stream=streamed)))
    assert received.complete
    seen = see(wire, received.body, stream=streamed)
    assert (seen.text.strip(), seen.calls, seen.finish) == ("Look:", [CALL], "tool_calls")


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_leak_is_repaired_whatever_frames_the_body(framing: Any, version: str, confdir: Path) -> None:
    reply = Reply(stream(CHAT, "Look: " + LEAK), framing=framing if version == "HTTP/1.1" else "close")
    received = asyncio.run(ask(confdir, reply, version=version))
    assert received.complete
    assert calls_in(received.body) == [CALL]
    assert "content-length" not in received.headers
    assert received.headers.get("transfer-encoding") == ("chunked" if version == "HTTP/1.1" else None)


def test_the_connection_stays_alive(confdir: Path) -> None:
    async def check() -> None:
        reply = Reply(stream(CHAT, LEAK), framing="length")
        async with (
            provider(reply) as upstream,
            in_process(confdir, upstream.port) as (port, _),
            Client(port) as client,
        ):
            first = await client.ask(PATHS[CHAT], request(CHAT))
            again = await client.ask(PATHS[CHAT], request(CHAT))
            assert calls_in(first.body) == [CALL]
            assert again.body == first.body  # ids too: a replay is the same

    run(check())


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 3)), 1000])
def test_any_cut_of_the_bytes_gives_the_same(size: int, confdir: Path) -> None:
    data = b"".join(stream(CHAT, PROSE + "\n" + LEAK))
    whole = asyncio.run(ask(confdir, Reply([data])))
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    parts = asyncio.run(ask(confdir, Reply(pieces)))
    assert calls_in(whole.body) == calls_in(parts.body) == [CALL]


@pytest.mark.parametrize("coding", ["", *CODINGS])
def test_the_request_is_read_in_any_coding(coding: str, confdir: Path) -> None:
    asked = encoded(coding, json.dumps(request(CHAT)).encode())
    headers = {"content-encoding": coding} if coding else {}
    received = asyncio.run(ask(confdir, Reply(stream(CHAT, LEAK)), asked=asked, headers=headers))
    assert calls_in(received.body) == [CALL]


@pytest.mark.parametrize("asked", [b"{not JSON", b"", b"[1]"])
def test_a_request_that_cannot_be_read_declares_tools_unknown(asked: bytes, confdir: Path) -> None:
    received = asyncio.run(ask(confdir, Reply(stream(CHAT, LEAK)), asked=asked))
    assert calls_in(received.body) == [("read_file", {"path": "a.txt", "limit": "7"})]


def test_options_reach_the_parser(confdir: Path) -> None:
    reply = Reply(stream(CHAT, LEAK))
    unread = asyncio.run(ask(confdir, reply, asked=b"{", dsml_values="literals"))
    assert calls_in(unread.body) == [CALL]
    other = request(CHAT)
    other["tools"][0]["function"]["name"] = "other"
    kept = asyncio.run(ask(confdir, reply, asked=other))
    assert calls_in(kept.body) == [("read_file", {"path": "a.txt", "limit": "7"})]
    assert calls_in(asyncio.run(ask(confdir, reply, asked=other, dsml_undeclared="reject")).body) == []


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_coded_stream_is_sent_decoded(coding: str, framing: Any, confdir: Path) -> None:
    data = encoded(coding, b"".join(stream(CHAT, LEAK)))
    reply = Reply([data[:50], data[50:]], headers=[("content-encoding", coding)], framing=framing)
    received = asyncio.run(ask(confdir, reply))
    assert calls_in(received.body) == [CALL]
    assert "content-encoding" not in received.headers
    assert "content-length" not in received.headers


@pytest.mark.parametrize("coding", CODINGS)
def test_a_coded_body_is_sent_decoded(coding: str, confdir: Path) -> None:
    whole = body(CHAT, PROSE)
    reply = Reply([encoded(coding, whole)], "application/json", headers=[("content-encoding", coding)])
    received = asyncio.run(ask(confdir, reply, asked=request(CHAT, stream=False)))
    assert received.body == whole
    assert "content-encoding" not in received.headers


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("end", [(), (0.5,), (Break.ABORT,)], ids=["ends", "waits", "breaks"])
def test_damage_comes_after_what_was_decoded_and_breaks_the_response(coding: str, end: Any, confdir: Path) -> None:
    compressor = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    frames = stream(CHAT, "Here it is.")
    good = [compressor.compress(frame) + compressor.flush(zlib.Z_SYNC_FLUSH) for frame in frames[:3]]
    reply = Reply([*good, b"\xff" * 99, *end], headers=[("content-encoding", coding)])
    received = asyncio.run(ask(confdir, reply))
    assert received.body == b"".join(frames[:3])
    assert not received.complete
