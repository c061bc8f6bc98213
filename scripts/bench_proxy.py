"""The whole path: a stream through mitmdump in reverse mode with the addon, against one with an identity callable.

The provider and the clients are in this process, so one clock sees an event leave and arrive. Linux only: CPU time and
memory of a proxy are read from /proc.
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
from dataclasses import asdict, dataclass, field
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

    All streams are open before the first event, and paced ones take turns: what opening them costs is in the CPU time,
    but not in the way of the events whose latency is measured.
    """

    name: str
    streams: int
    events: int
    pace: float


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
    """What one load showed with one proxy: microseconds of CPU an event, milliseconds of latency, share of a core."""

    load: str
    proxy: str
    cpu: float
    p50: float
    p99: float
    busy: float


@dataclass
class Provider:
    """Answers each request with the events of the load that is on, and keeps the time each of them left."""

    load: Load = field(default_factory=lambda: Load("", 1, 1, 0))
    frames: list[bytes] = field(default_factory=list)
    left: dict[int, list[float]] = field(default_factory=dict)
    waiting: int = 0  # streams that are open and have no event yet
    go: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None  # set when idle streams may end

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            stream = int(head.partition(b"x-stream:")[2].split(b"\r\n")[0])
            writer.write(_HEAD)
            left = self.left.setdefault(stream, [])
            self.waiting += 1
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
            if self.hold is not None:
                await self.hold.wait()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        writer.close()


async def _client(port: int, stream: int, started: asyncio.Event | None = None, expect: int = 0) -> list[float]:
    """One request through the proxy on `port`; returns when each event arrived."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: provider\r\ncontent-type: application/json\r\n"
        b"x-stream: %d\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (stream, len(_REQUEST), _REQUEST)
    )
    arrived: list[float] = []
    while more := await reader.read(65536):
        now = time.perf_counter()
        arrived += [now] * more.count(_SIGN)
        if started is not None and len(arrived) >= expect:
            started.set()
    writer.close()
    return arrived


async def _drive(provider: Provider, proxy: Proxy, load: Load) -> Run:
    provider.load, provider.left, provider.waiting, provider.go = load, {}, 0, asyncio.Event()
    provider.frames = bench_frames.frames("openai-chat", texts.prose(4 * load.events))
    cpu = proxy.cpu()
    clients = [asyncio.create_task(_client(proxy.port, stream)) for stream in range(load.streams)]
    while provider.waiting < load.streams:
        await asyncio.sleep(0.01)
    start, opened = time.perf_counter(), proxy.cpu()
    provider.go.set()
    arrivals = await asyncio.gather(*clients)
    seconds, busy, cpu = time.perf_counter() - start, proxy.cpu() - opened, proxy.cpu() - cpu
    delays = []
    for stream, arrived in enumerate(arrivals):
        left = provider.left[stream]
        if len(arrived) != len(left):
            raise SystemExit(f"{proxy.name}: {len(arrived)} events arrived of {len(left)}")
        delays += [(there - here) * 1000 for here, there in zip(left, arrived, strict=True)]
    percent = statistics.quantiles(delays, n=100)
    return Run(load.name, proxy.name, cpu / len(delays) * 1e6, percent[49], percent[98], busy / seconds)


async def _memory(provider: Provider, proxy: Proxy, streams: int, events: int) -> float:
    """Resident KB a stream, of streams that have said `events` deltas and are idle."""
    provider.load, provider.left, provider.hold = Load("idle", streams, events, 0), {}, asyncio.Event()
    provider.frames = bench_frames.frames("openai-chat", texts.prose(4 * events))[:events]
    provider.go.set()
    before = proxy.memory()
    started = [asyncio.Event() for _ in range(streams)]
    clients = [asyncio.create_task(_client(proxy.port, number, event, events)) for number, event in enumerate(started)]
    for event in started:
        await event.wait()
    used = (proxy.memory() - before) / streams
    provider.hold.set()
    await asyncio.gather(*clients)
    provider.hold = None
    return used


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
    Load("50 streams, an event each 50 ms", 50, 200, 50),
    Load("200 streams, an event each 200 ms", 200, 100, 200),
)


async def _measure(rounds: int, scale: float) -> dict[str, Any]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    upstream = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="dsml-bench-") as name:
        folder = Path(name)
        identity = folder / "identity.py"
        identity.write_text(IDENTITY)
        async with (
            _proxy("identity", identity, upstream, folder) as plain,
            _proxy("dsml", ADDON, upstream, folder) as ours,
        ):
            for proxy in (plain, ours):
                await _drive(provider, proxy, Load("warm-up", 2, 200, 0))
            runs = []
            for load in LOADS:
                load = Load(load.name, load.streams, max(8, int(load.events * scale)), load.pace)
                for _ in range(rounds):
                    runs += [await _drive(provider, proxy, load) for proxy in (plain, ours)]
            memory = {
                str(events): {
                    proxy.name: await _memory(provider, proxy, max(4, int(streams * scale)), events)
                    for proxy in (plain, ours)
                }
                for streams, events in ((200, 4), (50, 1000))
            }
            growth = await _growth(provider, ours, rounds, scale)
    server.close()
    return {"runs": [asdict(run) for run in runs], "memory": memory, "growth": growth}


async def _growth(provider: Provider, proxy: Proxy, rounds: int, scale: float) -> list[float]:
    """Resident MB after each of several equal loads: it must level off."""
    sizes = []
    for _ in range(rounds + 2):
        await _drive(provider, proxy, Load("growth", max(4, int(50 * scale)), 100, 0))
        sizes.append(proxy.memory() / 1024)
    return sizes


def measure(rounds: int = 3, scale: float = 1.0) -> dict[str, Any]:
    """All figures of the whole path, and how they stand to the goals: the best of `rounds` for each load and proxy."""
    figures = asyncio.run(_measure(rounds, scale))
    checks = []
    for load in LOADS:
        best = {
            proxy: {
                what: min(run[what] for run in figures["runs"] if run["load"] == load.name and run["proxy"] == proxy)
                for what in ("cpu", "p99", "busy")
            }
            for proxy in ("identity", "dsml")
        }
        ratio = best["dsml"]["cpu"] / best["identity"]["cpu"]
        checks.append({"what": f"CPU: {load.name}", "ratio": ratio, "goal": CPU_GOAL})
        if load.pace and best["dsml"]["busy"] <= BUSY:
            added = best["dsml"]["p99"] - best["identity"]["p99"]
            checks.append({"what": f"added p99, ms: {load.name}", "ratio": added, "goal": LATENCY_GOAL})
    for events, used in figures["memory"].items():
        added = used["dsml"] - used["identity"]
        checks.append({"what": f"added KB an idle stream after {events} deltas", "ratio": added, "goal": MEMORY_GOAL})
    return {**figures, "checks": checks}
