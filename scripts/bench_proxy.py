"""The whole path: a stream through mitmdump in reverse mode with the addon, against one with an identity callable.

The provider and the clients are in this process, so one clock sees an event leave and arrive. Linux only: CPU time and
memory of a proxy are read from /proc.

A part of bench.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import bench_frames
import bench_texts as texts

ROOT = Path(__file__).resolve().parent.parent
ADDON = ROOT / "addon" / "dsml.py"
IDENTITY = """\
def responseheaders(flow):
    flow.response.stream = lambda data: data
"""
_MITMDUMP = "from mitmproxy.tools.main import mitmdump; mitmdump()"
CPU_GOAL = 1.10  # of the identity callable's CPU time
LATENCY_GOAL = 1.0  # milliseconds of p99 above it, while a core is at most 60 % busy
BUSY = 0.60
MEMORY_GOAL = 50.0  # KB a stream above it
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_REQUEST = json.dumps(
    {"model": "deepseek-v4", "stream": True, "messages": [{"role": "user", "content": "go"}], "tools": texts.TOOLS}
).encode()
_SIGN = b"["  # in each event once, and too short to be cut in two
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Load:
    """`streams` at once, each of `events`, one every `pace` milliseconds (0: as fast as they go).

    They say prose, or (`held`) a leaked call with a value of that many events.

    All streams are open before the first event, none ends before the last one, and paced ones take turns: what opening
    and ending them costs is in the CPU time, but not in the way of the events whose latency is measured.
    """

    name: str
    streams: int
    events: int
    pace: float
    held: bool = False

    def frames(self) -> list[bytes]:
        text = texts.prose(4 * self.events)
        return bench_frames.frames("openai-chat", texts.call(text) if self.held else text)


@dataclass
class Proxy:
    name: str
    pid: int
    port: int

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> float:
        """Resident KB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / 1024


@dataclass
class Run:
    """What one load showed with one proxy: microseconds of CPU an event, milliseconds of latency, share of a core.

    No latencies of what is held: the events that arrive are not those that left.
    """

    load: str
    proxy: str
    cpu: float
    p50: float | None
    p99: float | None
    busy: float


@dataclass
class Provider:
    """Answers each request with the events of the load that is on, and keeps the time each of them left."""

    load: Load = field(default_factory=lambda: Load("", 1, 1, 0))
    frames: list[bytes] = field(default_factory=list)
    left: dict[int, list[float]] = field(default_factory=dict)
    go: asyncio.Event = field(default_factory=asyncio.Event)  # set when all streams are open
    end: asyncio.Event = field(default_factory=asyncio.Event)  # set when all events have arrived

    def set_up(self, load: Load, frames: list[bytes]) -> None:
        self.load, self.frames, self.left = load, frames, {}
        self.go, self.end = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            stream = int(head.partition(b"x-stream:")[2].split(b"\r\n")[0])
            writer.write(_HEAD)
            left = self.left.setdefault(stream, [])
            await self.go.wait()
            start = time.perf_counter()
            for number, frame in enumerate(self.frames):
                if self.load.pace:
                    due = start + (number + stream / self.load.streams) * self.load.pace / 1000
                    await asyncio.sleep(due - time.perf_counter())
                left.append(time.perf_counter())
                writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                if not self.load.pace:
                    await writer.drain()
            await self.end.wait()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        writer.close()


@dataclass
class Client:
    """One request through a proxy, and the time at which each event of its answer arrived."""

    expected: int
    open: asyncio.Event = field(default_factory=asyncio.Event)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: list[float] = field(default_factory=list)

    async def ask(self, port: int, stream: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: provider\r\ncontent-type: application/json\r\n"
            b"x-stream: %d\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (stream, len(_REQUEST), _REQUEST)
        )
        await reader.readuntil(b"\r\n\r\n")
        self.open.set()
        while more := await reader.read(65536):
            now = time.perf_counter()
            self.arrived += [now] * more.count(_SIGN)
            if len(self.arrived) >= self.expected:
                self.complete.set()
        self.complete.set()
        writer.close()


@contextlib.asynccontextmanager
async def _said(provider: Provider, proxy: Proxy, load: Load, frames: list[bytes]) -> AsyncIterator[list[Client]]:
    """The clients of a load whose streams are open; at the end all their events have arrived and they are closed."""
    provider.set_up(load, frames)
    clients = [Client(len(frames)) for _ in range(load.streams)]
    asking = [asyncio.create_task(client.ask(proxy.port, stream)) for stream, client in enumerate(clients)]
    for client in clients:
        await client.open.wait()
    yield clients
    provider.end.set()
    await asyncio.gather(*asking)


async def _arrived(clients: list[Client]) -> None:
    for client in clients:
        await client.complete.wait()


async def _drive(provider: Provider, proxy: Proxy, load: Load) -> Run:
    cpu = proxy.cpu()
    frames = load.frames()
    async with _said(provider, proxy, load, frames) as clients:
        start, opened = time.perf_counter(), proxy.cpu()
        provider.go.set()
        await _arrived(clients)
        seconds, busy = time.perf_counter() - start, proxy.cpu() - opened
    cpu = (proxy.cpu() - cpu) / (len(frames) * load.streams) * 1e6
    if load.held:
        return Run(load.name, proxy.name, cpu, None, None, busy / seconds)
    percent = statistics.quantiles(_delays(provider, proxy, clients), n=100)
    return Run(load.name, proxy.name, cpu, percent[49], percent[98], busy / seconds)


def _delays(provider: Provider, proxy: Proxy, clients: list[Client]) -> list[float]:
    delays = []
    for stream, client in enumerate(clients):
        left = provider.left[stream]
        if len(client.arrived) != len(left):
            raise SystemExit(f"{proxy.name}: {len(client.arrived)} events arrived of {len(left)}")
        delays += [(there - here) * 1000 for here, there in zip(left, client.arrived, strict=True)]
    return delays


async def _memory(provider: Provider, proxy: Proxy, streams: int, events: int) -> float:
    """Resident KB a stream, of streams that have said `events` deltas and are idle."""
    frames = bench_frames.frames("openai-chat", texts.prose(4 * events))[:events]
    before = proxy.memory()
    async with _said(provider, proxy, Load("idle", streams, events, 0), frames) as clients:
        provider.go.set()
        await _arrived(clients)
        return (proxy.memory() - before) / streams


@contextlib.asynccontextmanager
async def _proxy(name: str, script: Path, upstream: int, folder: Path) -> AsyncIterator[Proxy]:
    port = _free_port()
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _MITMDUMP, "-q", "-s", str(script)),
            *("--mode", f"reverse:http://127.0.0.1:{upstream}", "--set", f"confdir={folder / name}"),
            *("--listen-host", "127.0.0.1", "-p", str(port)),
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
        )
    try:
        await _until_up(port, process, folder / f"{name}.log")
        yield Proxy(name, process.pid, port)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _until_up(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise SystemExit("mitmdump did not start: " + log.read_text()[-2000:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


LOADS = (
    Load("one stream, as fast as it goes", 1, 4000, 0),
    Load("1 stream, an event a ms", 1, 2000, 1),
    Load("a held value of 16 KB, as fast as it goes", 1, 4000, 0, held=True),
    Load("a held value of 200 KB, as fast as it goes", 1, 50_000, 0, held=True),
    Load("a held value, an event a ms", 1, 2000, 1, held=True),
    Load("50 streams, an event each 50 ms", 50, 200, 50),
    Load("200 streams, an event each 200 ms", 200, 100, 200),
)


async def _measure(rounds: int, scale: float) -> dict[str, Any]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    upstream = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="dsml-bench-") as name:
        folder = Path(name)
        async with _pair(upstream, folder) as pair:
            for proxy in pair:
                await _drive(provider, proxy, Load("warm-up", 2, 200, 0))
            runs = []
            for load in LOADS:
                load = replace(load, events=max(8, int(load.events * scale)))
                for _ in range(rounds):
                    runs += [await _drive(provider, proxy, load) for proxy in pair]
            exchanges = [
                {proxy.name: await _exchanges(provider, proxy, max(4, int(200 * scale))) for proxy in pair}
                for _ in range(rounds)
            ]
            growth = await _growth(provider, pair[1], rounds, scale)
        memory = {}
        for streams, events in ((200, 4), (200, 1000)):
            # New ones: what an earlier load has given back would be taken again, and not be seen.
            async with _pair(upstream, folder) as pair:
                for proxy in pair:
                    await _drive(provider, proxy, Load("warm-up", 2, 200, 0))
                streams = max(4, int(streams * scale))
                memory[str(events)] = {proxy.name: await _memory(provider, proxy, streams, events) for proxy in pair}
    server.close()
    return {"runs": [asdict(run) for run in runs], "exchanges": exchanges, "memory": memory, "growth": growth}


@contextlib.asynccontextmanager
async def _pair(upstream: int, folder: Path) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """A proxy with the identity callable and one with the addon."""
    identity = folder / "identity.py"
    identity.write_text(IDENTITY)
    async with (
        _proxy("identity", identity, upstream, folder) as plain,
        _proxy("dsml", ADDON, upstream, folder) as ours,
    ):
        yield plain, ours


async def _exchanges(provider: Provider, proxy: Proxy, number: int) -> float:
    """Milliseconds of CPU for a whole exchange with next to no events, one after another."""
    cpu = proxy.cpu()
    for _ in range(number):
        await _drive(provider, proxy, Load("exchange", 1, 1, 0))
    return (proxy.cpu() - cpu) / number * 1000


async def _growth(provider: Provider, proxy: Proxy, rounds: int, scale: float) -> list[float]:
    """Resident MB after each of several equal loads: it must level off."""
    sizes = []
    for _ in range(rounds + 2):
        await _drive(provider, proxy, Load("growth", max(4, int(50 * scale)), 100, 0))
        sizes.append(proxy.memory() / 1024)
    return sizes


def measure(rounds: int = 3, scale: float = 1.0) -> dict[str, Any]:
    """All figures of the whole path, and how they stand to the goals.

    Of the `rounds` of each load and proxy the best one's CPU counts, which others can only make worse, and the middle
    one's p99, which is luck at its best.
    """
    figures = asyncio.run(_measure(rounds, scale))
    checks = []
    for load in LOADS:
        best = {
            proxy: [run for run in figures["runs"] if run["load"] == load.name and run["proxy"] == proxy]
            for proxy in ("identity", "dsml")
        }
        cpu, busy = (
            {proxy: min(run[what] for run in runs) for proxy, runs in best.items()} for what in ("cpu", "busy")
        )
        checks.append({"what": f"CPU: {load.name}", "ratio": cpu["dsml"] / cpu["identity"], "goal": CPU_GOAL})
        if load.pace and not load.held and busy["dsml"] <= BUSY:
            p99 = {proxy: statistics.median(run["p99"] for run in runs) for proxy, runs in best.items()}
            added = p99["dsml"] - p99["identity"]
            checks.append({"what": f"added p99, ms: {load.name}", "ratio": added, "goal": LATENCY_GOAL})
    each = {proxy: min(round[proxy] for round in figures["exchanges"]) for proxy in ("identity", "dsml")}
    checks.append({"what": "CPU: exchanges of an event each", "ratio": each["dsml"] / each["identity"], "goal": None})
    for events, used in figures["memory"].items():
        added = used["dsml"] - used["identity"]
        checks.append({"what": f"added KB an idle stream after {events} deltas", "ratio": added, "goal": MEMORY_GOAL})
    return {**figures, "checks": checks}
