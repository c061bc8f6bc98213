"""What is not to be changed comes through byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import logging
from pathlib import Path
from typing import Any

import brotli
import pytest

from tests.e2e.asking import CHAT, CODINGS, ask, encoded
from tests.e2e.provider import Reply
from tests.e2e.wires import KINDS, LEAK, PATHS, PROSE, body, request, stream


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_stream_without_a_leak_passes_byte_for_byte(wire: str, confdir: Path) -> None:
    frames = stream(wire, PROSE)
    received = asyncio.run(ask(confdir, Reply(frames, KINDS[wire]), PATHS[wire], request(wire)))
    assert received.complete
    assert received.body == b"".join(frames)
    assert received.headers["x-asked-coding"] == "identity"


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_a_body_without_a_leak_passes_byte_for_byte(wire: str, framing: Any, confdir: Path) -> None:
    whole = b"\n\n" + body(wire, PROSE)
    reply = Reply([whole[:1], whole[1:30], whole[30:]], "application/json; charset=utf-8", framing=framing)
    received = asyncio.run(ask(confdir, reply, PATHS[wire], request(wire, stream=False)))
    assert received.complete
    assert received.body == whole


def test_comments_and_line_ends_and_a_cut_last_event_pass_byte_for_byte(confdir: Path) -> None:
    data = b"\xef\xbb\xbf: keep-alive\r\n\r\n" + b"".join(stream(CHAT, PROSE)).replace(b"\n", b"\r\n")
    data += b'retry: 3\rid: 7\r\r: bye\n\ndata: {"cut": tr'
    pieces = [data[start : start + 7] for start in range(0, len(data), 7)]
    assert asyncio.run(ask(confdir, Reply(pieces))).body == data


NOT_OURS = {
    "another path": (Reply([LEAK.encode()], "text/event-stream"), "/v1/completions", request(CHAT)),
    "another type": (Reply([LEAK.encode()], "text/plain", framing="length"), PATHS[CHAT], request(CHAT)),
    "no type": (Reply([LEAK.encode()], "", framing="length"), PATHS[CHAT], request(CHAT)),
    "an error": (Reply([body(CHAT, LEAK)], "application/json", 429, framing="length"), PATHS[CHAT], request(CHAT)),
    "no tools": (Reply(stream(CHAT, LEAK), framing="length"), PATHS[CHAT], {**request(CHAT), "tools": []}),
    "tools absent": (Reply(stream(CHAT, LEAK), framing="length"), PATHS[CHAT], {"model": "m", "messages": []}),
    "stacked codings": (
        Reply([gzip.compress(brotli.compress(b"x"))], headers=[("content-encoding", "br, gzip")], framing="length"),
        PATHS[CHAT],
        request(CHAT),
    ),
}


@pytest.mark.parametrize(("reply", "path", "asked"), NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_not_ours_is_not_touched_at_all(reply: Reply, path: str, asked: Any, confdir: Path) -> None:
    received = asyncio.run(ask(confdir, reply, path, asked))
    sent = [step for step in reply.steps if isinstance(step, bytes)]
    assert received.body == b"".join(sent)
    assert received.status == reply.status
    assert received.headers.get("content-length") == (str(len(received.body)) if reply.framing == "length" else None)
    assert received.headers.get("content-encoding") == dict(reply.headers).get("content-encoding")


def test_another_method_is_not_ours(confdir: Path) -> None:
    reply = Reply(stream(CHAT, LEAK), framing="length")
    received = asyncio.run(ask(confdir, reply, asked=b"", method="GET"))
    assert received.headers["x-asked-coding"] == "gzip, br"
    assert LEAK.encode()[:4] in received.body


@pytest.mark.parametrize("options", [{"dsml_mode": "off"}, {"dsml_stream": "off", "dsml_body": "off"}])
def test_switched_off(options: dict[str, str], confdir: Path) -> None:
    frames = stream(CHAT, LEAK)
    received = asyncio.run(ask(confdir, Reply(frames, framing="length"), **options))
    assert received.body == b"".join(frames)
    assert received.headers["x-asked-coding"] == "gzip, br"
    assert "content-length" in received.headers


def test_streams_and_bodies_are_switched_one_by_one(confdir: Path) -> None:
    frames, whole = stream(CHAT, LEAK), body(CHAT, LEAK)
    streamed = asyncio.run(ask(confdir, Reply(frames), dsml_stream="off"))
    assert streamed.body == b"".join(frames)
    asked = request(CHAT, stream=False)
    assert asyncio.run(ask(confdir, Reply([whole], "application/json"), asked=asked, dsml_body="off")).body == whole
    assert asyncio.run(ask(confdir, Reply([whole], "application/json"), asked=asked, dsml_stream="off")).body != whole


def test_an_event_stream_that_is_not_ours_is_not_kept_back(confdir: Path) -> None:
    received = asyncio.run(ask(confdir, Reply([b": one\n\n", 0.4, b": two\n\n"]), path="/events"))
    (first, _), (last, _) = received.pieces
    assert last - first > 0.2


@pytest.mark.parametrize("coding", ["", *CODINGS])
def test_observing_changes_nothing_in_either_direction(
    coding: str, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dsml")
    data = b"".join(stream(CHAT, LEAK))
    data = encoded(coding, data)
    headers = [("content-encoding", coding)] if coding else []
    received = asyncio.run(ask(confdir, Reply([data], headers=headers, framing="length"), dsml_mode="observe"))
    assert received.body == data
    assert received.headers.get("content-encoding", "") == coding
    assert received.headers["content-length"] == str(len(data))
    assert received.headers["x-asked-coding"] == "gzip, br"
    assert "dsml: observed only: would have recovered 1 call: read_file (V" in caplog.text
