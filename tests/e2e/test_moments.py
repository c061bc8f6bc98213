"""What happens at other moments than the arrival of bytes: silence, a break, a client that leaves."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from addon import exchange, kept
from dsml_core import Repairer
from tests.e2e.asking import CHAT, Flows, ask, calls_in, run, seconds_between
from tests.e2e.client import Client, once
from tests.e2e.provider import Break, Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, KINDS, LEAK, PATHS, any_wire, request, stream, tools

pytestmark = pytest.mark.slow


def opener_then_silence(seconds: float) -> list[bytes | float | Break]:
    """A frame that ends in what may become markup, a silence, and the rest."""
    frames = stream(CHAT, "a < b")
    at = next(number for number, frame in enumerate(frames) if b"<" in frame) + 1
    return [*frames[:at], seconds, *frames[at:]]


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


@any_wire
@pytest.mark.parametrize("mode", ["repair", "observe"])
def test_frames_that_come_in_pieces_are_repaired_and_kept(mode: str, wire: str, confdir: Path) -> None:
    frames = stream(wire, 20 * "Some words. " + LEAK)
    data, flows = b"".join(frames), Flows()
    pieces = [data[at : at + 61] for at in range(0, len(data), 61)]
    repairer = Repairer(wire, stream=True, tools=tools(wire))
    expected = b"".join([*map(repairer.feed, frames), repairer.close()])
    made = data if mode == "observe" else expected

    async def check() -> None:
        async with (
            provider(Reply(pieces, KINDS[wire])) as upstream,
            in_process(confdir, upstream.port, after=[flows], dsml_mode=mode) as (port, _),
        ):
            assert (await once(port, PATHS[wire], request(wire))).body == made

    run(check())
    (flow,) = flows.seen
    assert flow.response and flow.response.raw_content == made
    assert kept.sides(flow) == (data, expected)
    assert sum(size for _, size in kept.chunks_of(flow) or []) == len(data)


def test_what_is_pushed_is_stored_where_bodies_are_stored(confdir: Path) -> None:
    async def check() -> None:
        flows = Flows()
        steps = opener_then_silence(0.4)
        async with (
            provider(Reply(steps)) as upstream,
            in_process(
                confdir, upstream.port, after=[flows], mitm={"store_streamed_bodies": True}, dsml_idle_flush="0.1"
            ) as (port, _),
        ):
            received = await once(port, PATHS[CHAT], request(CHAT))
            stored = flows.seen[0].response
            assert stored and stored.raw_content == received.body

    run(check())


@pytest.fixture
def no_pushing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A mitmproxy without what `pushing` needs."""
    caplog.set_level(logging.WARNING, "dsml")
    monkeypatch.delattr("mitmproxy.proxy.events.Wakeup")
    yield
    said = [record.getMessage() for record in caplog.get_records("call")]
    assert sum("this mitmproxy is built in another way" in line for line in said) == 1


def test_without_pushing_held_text_waits(no_pushing: None, confdir: Path) -> None:
    steps = opener_then_silence(0.4)
    held = next(step for step in steps if isinstance(step, bytes) and b"<" in step)
    received = asyncio.run(ask(confdir, Reply(steps), dsml_idle_flush="0.1"))
    assert received.body == b"".join(step for step in steps if isinstance(step, bytes))
    assert seconds_between(received, held, b"[DONE]") < 0.2


def test_without_pushing_a_leak_is_repaired(no_pushing: None, confdir: Path) -> None:
    assert calls_in(asyncio.run(ask(confdir, Reply(stream(CHAT, LEAK)))).body) == [CALL]


def test_without_pushing_damage_still_breaks_the_response(no_pushing: None, confdir: Path) -> None:
    reply = Reply([gzip.compress(b"data: {}\n\n"), b"\xff" * 9, 0.1], headers=[("content-encoding", "gzip")])
    received = asyncio.run(ask(confdir, reply))
    assert received.body == b"data: {}\n\n"
    assert not received.complete


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
            Client(port) as client,
        ):
            received = await client.begin(PATHS[CHAT], request(CHAT))
            current = exchange.of(flows.seen[0])
            assert current and current.pipe
            pipe, current = weakref.ref(current.pipe), None
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
            gc.collect()
            assert pipe() is None
            assert dsml.tally.seen == 1

    run(check())
    assert ("Client disconnected" in caplog.text) is (how == "client leaves")
