"""Faults of the provider, of the client and of what is between them, over real sockets.

Each fault of `soak_upstream` in turn: what the client gets, what is said of it, and that nothing of it stays behind.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import re
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import soak
import soak_probe
from mitmproxy.http import HTTPFlow
from soak_client import Answer, ask, judge, said_for
from soak_says import Said, read
from soak_upstream import Fault, Upstream, upstream

from addon import exchange
from tests.e2e.asking import CHAT, CODINGS, Flows, encoded
from tests.e2e.asking import ask as ask_once
from tests.e2e.provider import Break, Reply
from tests.e2e.proxy import in_process, mitmdump
from tests.e2e.wires import KINDS, LEAK, PATHS, body, request, stream

slow = pytest.mark.slow
two_wires = pytest.mark.parametrize("wire", [CHAT, "anthropic"])
QUICK = {"patience": 0.5, "slow": 0.8}  # seconds: of a client that gives up, of one that reads nothing
STALL = 0.5  # seconds, of a provider; the proxy flushes after a fifth of that
SMALL = [fault for fault in Fault if fault is not Fault.SLOW_CLIENT]


class Watch(Flows):
    """Knows the pipe of each flow without keeping it alive."""

    def __init__(self) -> None:
        super().__init__()
        self.pipes: list[weakref.ref[exchange.Pipe]] = []

    def responseheaders(self, flow: HTTPFlow) -> None:
        current = exchange.of(flow)
        if current and current.pipe:
            self.pipes.append(weakref.ref(current.pipe))

    def left(self) -> list[object]:
        """What is still there of exchanges that are over."""
        gc.collect()
        return [flow for flow in self.seen if exchange.of(flow)] + [pipe() for pipe in self.pipes if pipe()]


async def meet(port: int, said: Said, fault: Fault) -> Answer:
    return await asyncio.wait_for(ask(port, said, fault, **QUICK), 20)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds.

    mitmproxy leaves a connection to the garbage collector when it is told to close it while it waits for its own lock.
    """
    end = asyncio.get_running_loop().time() + 5
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it did not come to that"
        gc.collect()
        await asyncio.sleep(0.02)


async def ended(port: int, served: Upstream) -> dict[str, Any]:
    """What the probe in a mitmdump says when no connection to the provider is open any more."""
    end = asyncio.get_running_loop().time() + 10
    while True:
        found = await asyncio.to_thread(soak.probe, port)
        await asyncio.sleep(STALL)  # the last timers; the connection of the probe
        if not served.open:
            return found
        assert asyncio.get_running_loop().time() < end, "connections are left"


async def through(confdir: Path, streams: Iterable[tuple[Said, Fault]]) -> None:
    """All `streams` at once through a proxy in this process: each is right, and nothing stays behind."""
    watch = Watch()
    async with (
        upstream(stall=STALL) as served,
        in_process(confdir, served.port, after=[watch], dsml_idle_flush=str(STALL / 5)) as (port, _),
    ):
        met = [(said_for(0, CHAT, Fault.NONE, True), Fault.NONE), *streams]
        await meet(port, *met[0])
        before = asyncio.all_tasks()  # mitmproxy's own run by now
        answers = await asyncio.gather(*(meet(port, said, fault) for said, fault in met))
        for (said, fault), answer in zip(met, answers, strict=True):
            assert judge(said, fault, answer, strict=True) == [], (said, fault)
        again = said_for(999_999, CHAT, Fault.NONE, True)
        assert judge(again, Fault.NONE, await meet(port, again, Fault.NONE), strict=True) == []
        await until(lambda: not asyncio.all_tasks() - before)
        assert served.open == 0
        assert watch.left() == []


# --- Every fault ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_fault_at_once(confdir: Path) -> None:
    streams = [(said_for(number, CHAT, fault, number > 99), fault) for fault in SMALL for number in (7, 108)]
    asyncio.run(through(confdir, streams))


CUT = r"candidate without a call"
BROKEN = r"; broken off \(.*\): HTTP/1 protocol error: peer closed connection without .*"
LEFT = r"; broken off \(.*\): Client disconnected\."
WHOLE = r"recovered 1 call: write \(V1, 348 characters\)"
LINES = {  # of a response with a leak
    Fault.NONE: WHOLE + r" \(.*\)",
    Fault.RESET_MID_FRAME: CUT + BROKEN,
    Fault.RESET_MID_HOLD: CUT + BROKEN,
    Fault.RESET_AFTER_FINISH: WHOLE + BROKEN,
    Fault.HALF_CLOSED: CUT + BROKEN,
    Fault.HALF_OPEN: CUT + LEFT,
    Fault.STALL: WHOLE + r" \(.*, held 342 characters, (0\.[5-9]|[1-9]\d*\.\d) s\)",
    Fault.CLIENT_GONE: CUT + LEFT,
    Fault.ERROR_EVENT: CUT + r" \(.*\)",
}
CALLED = (Fault.NONE, Fault.STALL, Fault.RESET_AFTER_FINISH)


@slow
@pytest.mark.parametrize("fault", SMALL)
def test_a_fault_on_every_wire_and_what_is_said_of_it(
    fault: Fault, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dsml")
    streams = [said_for(number, wire, fault, number > 99) for wire in PATHS for number in (7, 8, 108, 109)]
    asyncio.run(through(confdir, [(said, fault) for said in streams]))
    lines = [record.getMessage() for record in caplog.records]
    for said in streams:
        about = [line.removeprefix("dsml: ") for line in lines if f"({said.wire}, deepseek-{said.tag}," in line]
        if fault in LINES and said.leaks:
            assert [bool(re.fullmatch(LINES[fault], line)) for line in about] == [True], about
        elif fault is not Fault.GZIP_CUT:
            assert about == []
    for wire in PATHS:
        assert lines.count(f"dsml: {wire} untouched: status 500") == (4 if fault is Fault.HTML_500 else 0)
        damaged = f"dsml: {wire}: the provider's content encoding is damaged: it ends too early"
        assert lines.count(damaged) == (2 if fault is Fault.GZIP_CUT else 0)
    assert not [record for record in caplog.records if record.levelno > logging.WARNING or record.exc_info]


# --- Through a real mitmdump ------------------------------------------------------------------------------------------


@slow
def test_every_fault_through_a_real_mitmdump(confdir: Path) -> None:
    async def check() -> None:
        options = ("-s", soak_probe.__file__, "--set", f"dsml_idle_flush={STALL / 5}")
        async with upstream(stall=STALL) as served, mitmdump(confdir, served.port, *options) as running:
            port = await running.port()
            before = await asyncio.to_thread(soak.probe, port)
            wires, numbers = (CHAT, "anthropic"), (7, 108)
            met = [
                (said_for(number, wire, fault, number > 99), fault)
                for fault in SMALL
                for wire in wires
                for number in numbers
            ]
            answers = await asyncio.gather(*(meet(port, said, fault) for said, fault in met))
            for (said, fault), answer in zip(met, answers, strict=True):
                assert judge(said, fault, answer, strict=True) == [], (said, fault)
            await ended(port, served)
            after = await ended(port, served)
            assert (after["tasks"], after["exchanges"], after["pipes"]) == (before["tasks"], 0, 0)
            assert after["calls"] == sum(said.leaks and fault in CALLED for said, fault in met)
            assert not soak.BAD_LOG.search(running.log)

    asyncio.run(check())


@slow
@two_wires
def test_a_slow_client_slows_its_provider_down_and_nobody_else(wire: str, confdir: Path) -> None:
    async def check() -> None:
        async with upstream() as served, mitmdump(confdir, served.port, "-s", soak_probe.__file__) as running:
            port = await running.port()
            said = said_for(7, wire, Fault.SLOW_CLIENT, False)
            slow_one = asyncio.create_task(ask(port, said, Fault.SLOW_CLIENT, slow=2))
            await asyncio.sleep(1)
            other = said_for(8, wire, Fault.NONE, True)
            async with asyncio.timeout(1):
                assert judge(other, Fault.NONE, await ask(port, other, Fault.NONE), strict=True) == []
            assert not slow_one.done()
            assert judge(said, Fault.SLOW_CLIENT, await slow_one, strict=True) == []
            assert served.longest > 0.5

            left = asyncio.create_task(ask(port, said, Fault.SLOW_CLIENT, slow=60))
            await asyncio.sleep(1)
            left.cancel()  # all buffers are full
            await ended(port, served)
            assert (await ended(port, served))["exchanges"] == 0

    asyncio.run(check())


# --- Other shapes of the same -----------------------------------------------------------------------------------------


@slow
@two_wires
@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_body_that_is_cut_short_arrives_as_far_as_it_came(end: str, wire: str, confdir: Path) -> None:
    whole = body(wire, "Look: " + LEAK)
    half = whole[: len(whole) // 2]
    steps: list[bytes | float | Break] = [half[:50], half[50:], 0.1, *([Break.ABORT] if end == "reset" else [])]
    reply = Reply(steps, "application/json", framing="chunked" if end == "reset" else "close")
    received = asyncio.run(ask_once(confdir, reply, PATHS[wire], request(wire, stream=False)))
    assert received.body == half
    assert received.complete is (end == "close")


@slow
@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("leaks", [False, True])
def test_a_frame_cut_where_the_end_says_nothing_of_it_is_the_last_thing_there(
    leaks: bool, wire: str, confdir: Path
) -> None:
    """A provider that dies looks like one that has ended, where the end of the connection is that of the body."""
    said = Said(7, wire, leaks)
    at = said.frames_to(said.middle)
    half = said.frames[at][: len(said.frames[at]) // 2]
    reply = Reply([*said.frames[:at], half], KINDS[wire], framing="close")
    received = asyncio.run(ask_once(confdir, reply, PATHS[wire], json.loads(said.request())))
    seen = read(wire, received.body)
    assert seen.text == read(wire, b"".join(said.frames[:at])).text
    assert (seen.rest, seen.bad, seen.calls, seen.finish) == (half, [], [], None)


@slow
@pytest.mark.parametrize("coding", CODINGS)
def test_a_coding_cut_short_does_not_end_as_if_all_were_well(coding: str, confdir: Path) -> None:
    data = b"".join(stream(CHAT, "Nothing leaks here. " * 40))
    coded = encoded(coding, data)
    for cut in (0, 1, len(coded) // 2):
        sent = coded[: len(coded) - cut]
        reply = Reply([sent[:99], sent[99:]], headers=[("content-encoding", coding)])
        received = asyncio.run(ask_once(confdir, reply))
        assert data.startswith(received.body)
        assert received.complete is (cut == 0)


@slow
@pytest.mark.parametrize("cut", [False, True])
def test_damage_that_is_only_observed_changes_nothing(cut: bool, confdir: Path) -> None:
    coded = gzip.compress(b"".join(stream(CHAT, LEAK)))
    steps: list[bytes | float | Break] = [coded[:-9]] if cut else [coded, b"\xff" * 9, 0.1]
    reply = Reply(steps, headers=[("content-encoding", "gzip")])
    received = asyncio.run(ask_once(confdir, reply, dsml_mode="observe"))
    assert received.body == b"".join(step for step in steps if isinstance(step, bytes))
    assert received.complete
    assert received.headers["content-encoding"] == "gzip"
