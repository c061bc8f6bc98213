"""Responses that other addons made, and other addons' stream callables."""

from __future__ import annotations

from pathlib import Path

import pytest
from mitmproxy.http import HTTPFlow, Response

from tests.e2e.asking import CHAT, calls_in, decoded, run
from tests.e2e.client import once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, LEAK, PATHS, PROSE, request, stream

pytestmark = pytest.mark.slow


class Answers:
    """An addon that answers by itself, as server replay does."""

    def __init__(self, content: bytes, kind: str, coding: str = "") -> None:
        self._content, self._kind, self._coding = content, kind, coding

    def request(self, flow: HTTPFlow) -> None:
        flow.response = Response.make(200, self._content, {"content-type": self._kind})
        if self._coding:
            flow.response.encode(self._coding)


@pytest.mark.parametrize("coding", ["", "gzip", "br"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_response_made_by_another_addon_is_repaired(coding: str, place: str, confdir: Path) -> None:
    async def check() -> None:
        made = Answers(b"".join(stream(CHAT, LEAK)), "text/event-stream", coding)
        before, after = ([made], []) if place == "before" else ([], [made])
        async with (
            provider(Reply([])) as upstream,
            in_process(confdir, upstream.port, before=before, after=after) as (port, _),
        ):
            received = await once(port, PATHS[CHAT], request(CHAT))
            assert calls_in(decoded(coding, received.body)) == [CALL]
            assert received.headers.get("content-encoding", "") == coding
            assert received.headers["content-length"] == str(len(received.body))

    run(check())


@pytest.mark.parametrize(
    ("content", "kind"), [(b"".join(stream(CHAT, PROSE)), "text/event-stream"), (b"{", "application/json")]
)
def test_a_response_made_by_another_addon_is_not_touched_without_a_leak(
    content: bytes, kind: str, confdir: Path
) -> None:
    async def check() -> None:
        async with (
            provider(Reply([])) as upstream,
            in_process(confdir, upstream.port, before=[Answers(content, kind)]) as (port, _),
        ):
            assert (await once(port, PATHS[CHAT], request(CHAT))).body == content

    run(check())


class Streams:
    """An addon with a stream callable of its own."""

    def responseheaders(self, flow: HTTPFlow) -> None:
        assert flow.response
        flow.response.stream = lambda data: [data.replace(b"chatcmpl-1", b"chatcmpl-2")]


def test_the_stream_callable_of_another_addon_comes_first(confdir: Path) -> None:
    async def check() -> None:
        reply = Reply(stream(CHAT, LEAK))
        async with provider(reply) as upstream, in_process(confdir, upstream.port, before=[Streams()]) as (port, _):
            received = await once(port, PATHS[CHAT], request(CHAT))
            assert b"chatcmpl-1" not in received.body
            assert calls_in(received.body) == [CALL]

    run(check())


class Takes:
    """An addon that replaces whatever stream callable is there."""

    def responseheaders(self, flow: HTTPFlow) -> None:
        assert flow.response
        flow.response.stream = True


def test_an_addon_that_takes_the_stream_is_reported(confdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        reply = Reply(stream(CHAT, LEAK))
        async with provider(reply) as upstream, in_process(confdir, upstream.port, after=[Takes()]) as (port, _):
            assert calls_in((await once(port, PATHS[CHAT], request(CHAT))).body) == []

    run(check())
    assert "another addon took the stream" in caplog.text


def test_a_flow_that_is_only_loaded_is_not_touched(confdir: Path) -> None:
    from mitmproxy.test import tflow

    async def check() -> None:
        flow = tflow.tflow(resp=True)
        flow.request.path, flow.request.method = PATHS[CHAT], "POST"
        flow.live = False
        assert flow.response
        flow.response.headers["content-type"] = "text/event-stream"
        flow.response.content = content = b"".join(stream(CHAT, LEAK))
        async with in_process(confdir, 1) as (_, dsml):
            for hook in (dsml.requestheaders, dsml.request, dsml.responseheaders, dsml.response):
                hook(flow)
        assert flow.response.content == content
        assert dsml.tally.seen == 0

    run(check())
