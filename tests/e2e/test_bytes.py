"""The proxy as a client sees it that looks at the bytes: in-process mitmproxy, scripted provider."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import brotli
import pytest
from mitmproxy.http import HTTPFlow, Response
from mitmproxy.net import encoding

from addon import exchange, hooks
from dsml_core.parser import Parser
from tests.e2e.client import Client, Received
from tests.e2e.provider import Break, Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, KINDS, LEAK, PATHS, PROSE, body, cut, request, sse, stream

WIRES = list(PATHS)
CHAT = "openai-chat"
CODINGS = ["gzip", "deflate", "br", "zstd"]


def run(check: Coroutine[Any, Any, None]) -> None:
    asyncio.run(check)


async def ask(confdir: Path, reply: Reply, path: str = PATHS[CHAT], asked: Any = None, **how: Any) -> Received:
    """One request through the proxy. `how`: options of the addon (`dsml_`) and of the client."""
    ours = {name: how.pop(name) for name in list(how) if name.startswith("dsml_")}
    asked = request(CHAT) if asked is None else asked
    async with provider(reply) as upstream, in_process(confdir, upstream.port, **ours) as (port, _):
        received = await Client(port).ask(path, asked, **how)
        received.headers["x-asked-coding"] = upstream.asked[0].headers.get("accept-encoding", "")
        return received


def calls_in(chat: bytes) -> list[tuple[str, Any]]:
    """The tool calls of a Chat Completions stream."""
    found = []
    for line in chat.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for call in choice["delta"].get("tool_calls") or []:
                    found.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
    return found


# --- Nothing leaked: nothing changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_without_a_leak_passes_byte_for_byte(wire: str, confdir: Path) -> None:
    frames = stream(wire, PROSE)
    received = asyncio.run(ask(confdir, Reply(frames, KINDS[wire]), PATHS[wire], request(wire)))
    assert received.complete
    assert received.body == b"".join(frames)
    assert received.headers["x-asked-coding"] == "identity"


@pytest.mark.parametrize("wire", WIRES)
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


# --- A leak -----------------------------------------------------------------------------------------------------------


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
        async with provider(reply) as upstream, in_process(confdir, upstream.port) as (port, _):
            client = Client(port)
            first = await client.ask(PATHS[CHAT], request(CHAT))
            again = await client.ask(PATHS[CHAT], request(CHAT))
            assert calls_in(first.body) == [CALL]
            assert again.body == first.body  # ids too: a replay is the same

    run(check())


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_any_cut_of_the_bytes_gives_the_same(size: int, confdir: Path) -> None:
    data = b"".join(stream(CHAT, PROSE + "\n" + LEAK))
    whole = asyncio.run(ask(confdir, Reply([data])))
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    parts = asyncio.run(ask(confdir, Reply(pieces)))
    assert calls_in(whole.body) == calls_in(parts.body) == [CALL]


@pytest.mark.parametrize("coding", [None, "gzip", "zstd", "br", "deflate"])
def test_the_request_is_read_in_any_coding(coding: str | None, confdir: Path) -> None:
    asked = json.dumps(request(CHAT)).encode()
    headers = {}
    if coding:
        asked, headers = encoding.encode(asked, coding), {"content-encoding": coding}
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


# --- Codings of the response ------------------------------------------------------------------------------------------


def encoded(coding: str, data: bytes) -> bytes:
    made = encoding.encode(data, coding or "identity")
    assert isinstance(made, bytes)
    return made


def decoded(coding: str, data: bytes) -> bytes:
    made = encoding.decode(data, coding or "identity")
    assert isinstance(made, bytes)
    return made


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


# --- Moments outside of the stream ------------------------------------------------------------------------------------


def opener_then_silence(seconds: float) -> list[bytes | float | Break]:
    """A frame that ends in what may become markup, a silence, and the rest."""
    frames = stream(CHAT, "a < b")
    at = next(number for number, frame in enumerate(frames) if b"<" in frame) + 1
    return [*frames[:at], seconds, *frames[at:]]


def seconds_between(received: Received, first: bytes, second: bytes) -> float:
    times = [next(time for time, piece in received.pieces if sought in piece) for sought in (first, second)]
    return times[1] - times[0]


@pytest.mark.parametrize(("option", "early"), [("0.1", True), ("0", False)])
def test_held_text_goes_out_when_the_provider_is_silent(option: str, early: bool, confdir: Path) -> None:
    steps = opener_then_silence(0.6)
    held = next(step for step in steps if isinstance(step, bytes) and b"<" in step)
    received = asyncio.run(ask(confdir, Reply(steps), dsml_idle_flush=option))
    assert received.body == b"".join(step for step in steps if isinstance(step, bytes))
    assert (seconds_between(received, held, b"[DONE]") > 0.3) is early


def test_a_call_is_not_given_up_when_the_provider_is_silent(confdir: Path) -> None:
    frames = stream(CHAT, LEAK)
    reply = Reply([*frames[:20], 0.4, *frames[20:]])
    assert calls_in(asyncio.run(ask(confdir, reply, dsml_idle_flush="0.1")).body) == [CALL]


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_what_was_held_reaches_the_client_when_the_provider_breaks_off(
    framing: Any, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dsml")
    frames = stream(CHAT, "Look: " + LEAK)[:-4]
    received = asyncio.run(ask(confdir, Reply([*frames, 0.1, Break.ABORT, b"never"], framing=framing)))
    assert not received.complete
    assert calls_in(received.body) == []
    said = [json.loads(line[6:]) for line in received.body.decode().splitlines() if line.startswith("data: {")]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in said)
    assert ("Look: " + LEAK).startswith(text)
    assert len(text) >= len(LEAK)
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in said)
    assert "broken off" in caplog.text
    assert "peer closed connection" in caplog.text


class Flows:
    """An addon that keeps the flows it has seen."""

    def __init__(self) -> None:
        self.seen: list[HTTPFlow] = []

    def request(self, flow: HTTPFlow) -> None:
        self.seen.append(flow)


@pytest.mark.parametrize("how", ["ends", "client leaves", "provider breaks off"])
def test_no_state_is_left(how: str, confdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dsml")

    async def check() -> None:
        flows = Flows()
        frames = stream(CHAT, LEAK)
        ends: dict[str, list[float | Break]] = {"client leaves": [0.1] * 99, "provider breaks off": [Break.ABORT]}
        steps = [*frames[:20], *ends.get(how, [])]
        async with (
            provider(Reply(steps)) as upstream,
            in_process(confdir, upstream.port, after=[flows]) as (port, dsml),
        ):
            client = Client(port)
            received = await client.begin(PATHS[CHAT], request(CHAT))
            assert exchange.of(flows.seen[0])
            if how == "client leaves":
                client.leave()
                await asyncio.wait_for(upstream.gone.wait(), 5)
            else:
                await client.rest(received)
            for _ in range(100):
                if exchange.of(flows.seen[0]) is None:
                    break
                await asyncio.sleep(0.02)
            assert exchange.of(flows.seen[0]) is None
            assert dsml.tally.seen == 1

    run(check())
    assert ("Client disconnected" in caplog.text) is (how == "client leaves")


# --- Responses of other addons, and other addons' callables -----------------------------------------------------------


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
            received = await Client(port).ask(PATHS[CHAT], request(CHAT))
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
            assert (await Client(port).ask(PATHS[CHAT], request(CHAT))).body == content

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
            received = await Client(port).ask(PATHS[CHAT], request(CHAT))
            assert b"chatcmpl-1" not in received.body
            assert calls_in(received.body) == [CALL]

    run(check())


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


# --- Observing --------------------------------------------------------------------------------------------------------


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
    assert "dsml: observed only: recovered 1 call: read_file (V" in caplog.text


# --- The log ----------------------------------------------------------------------------------------------------------


def test_the_log_has_one_line_for_a_decision_and_no_content(confdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(ask(confdir, Reply(stream(CHAT, "My secret. " + LEAK))))
    ours = [record.getMessage() for record in caplog.records if record.name == "dsml"]
    assert len(ours) == 2
    assert ours[0].startswith("dsml: recovered 1 call: read_file (V")
    assert ours[0].count(f"({CHAT}, deepseek-test, held ") == 1
    assert ours[1] == "dsml: 1 response seen, 1 leaked, 1 call recovered, 0 responses with a refused call"
    assert "secret" not in caplog.text
    assert "a.txt" not in caplog.text


@pytest.mark.parametrize(
    ("reply", "asked", "reason"),
    [
        (Reply([b"{}"], "application/json", 500), request(CHAT), "status 500"),
        (Reply([b"{}"], "text/plain"), request(CHAT), "content type text/plain"),
        (Reply([b"{}"], ""), request(CHAT), "content type missing"),
        (Reply([b""" """]), {**request(CHAT), "tools": []}, "the request declares no tools"),
        (Reply([b"x"], headers=[("content-encoding", "x, y")]), request(CHAT), "content encoding x, y"),
    ],
    ids=["status", "type", "no type", "tools", "coding"],
)
def test_a_skip_is_said_at_debug_level(
    reply: Reply, asked: Any, reason: str, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dsml")
    asyncio.run(ask(confdir, reply, asked=asked))
    skips = [record for record in caplog.records if f"{CHAT} untouched: {reason}" in record.getMessage()]
    assert [record.levelname for record in skips] == ["DEBUG"]


# --- Faults -----------------------------------------------------------------------------------------------------------


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("injected")


HOOKS = ["wire_of", "read_context", "decoder_for", "Repairer", "reframe"]


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_fault_in_a_hook_costs_nothing(
    name: str, coding: str, confdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks, name, broken)
    data = b"".join(stream(CHAT, PROSE))
    sent = encoded(coding, data)
    reply = Reply([sent[:20], sent[20:]], headers=[("content-encoding", coding)] if coding else [])
    received = asyncio.run(ask(confdir, reply))
    assert received.complete
    assert received.body == (sent if "content-encoding" in received.headers else data)
    assert "injected" in caplog.text


@pytest.mark.parametrize("at", [0, 1, 5, 20, 40])
def test_a_fault_in_the_parser_costs_no_character(
    at: int, confdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    sound: Callable[[Parser, str], Any] = Parser.feed

    def feed(self: Parser, text: str) -> Any:
        nonlocal calls
        calls += 1
        return broken() if calls == at + 1 else sound(self, text)

    monkeypatch.setattr(Parser, "feed", feed)
    text = PROSE + "\n" + LEAK + " and on"
    received = asyncio.run(ask(confdir, Reply(stream(CHAT, text))))
    chunks = [json.loads(line[6:]) for line in received.body.decode().splitlines() if line.startswith("data: {")]
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said == text
    assert received.complete
    assert received.body.endswith(b"data: [DONE]\n\n")
    assert "after a fault in" in caplog.text


def test_whatever_is_not_json_passes(confdir: Path) -> None:
    frames = [b"data: {\n\n", b"data: []\n\n", sse({"choices": "x"}), sse({"choices": [1, {"delta": 7}]}), b"data:\n\n"]
    assert asyncio.run(ask(confdir, Reply(frames))).body == b"".join(frames)


def test_the_cut_helper_loses_nothing() -> None:
    assert "".join(cut(PROSE)) == PROSE
