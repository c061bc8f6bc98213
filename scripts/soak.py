"""Many streams at once through a real mitmdump with the addon, some of them with a fault; each is checked.

  scripts/test                                   makes .venv, if it is not there
  .venv/bin/python scripts/soak.py               200 streams at once, every tenth with a fault, for five minutes
  .venv/bin/python scripts/soak.py --streams 20 --minutes 0.2 --faults 0.5 --stall 1 --pace 20

The streams go over all four wires. Each says its own number over and over, in its prose, in its call and in its
frames, so a byte in the wrong stream is seen. A healthy stream must arrive exactly: its bytes where nothing leaks, else
its text and its call. One with a fault must hold nothing foreign, no call and no finish that was not there. The faults
are those of soak_upstream.py, in turn.

Also wrong: memory that goes on growing after the warm-up (the first third; the addon keeps the last hundred exchanges
on purpose); tasks, exchanges or open files left at the end; an exception in the log. Linux only: memory and open files
are read from /proc. Exit status 1: something is wrong.
"""

from __future__ import annotations

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import soak_probe
from bench_proxy import ADDON, Proxy
from soak_client import ask, judge, said_for
from soak_says import PATHS
from soak_upstream import LEAKY, Fault, Upstream, upstream

GROWTH_GOAL = 1024.0  # KB of memory per 1,000 streams: less than any object of one response would take
ENOUGH = 1000  # streams after the warm-up, for memory to be judged
_MITMDUMP = "from mitmproxy.tools.main import mitmdump; mitmdump()"
BAD_LOG = re.compile(r"crashed|Traceback|fault in|never retrieved|Unhandled|Task was destroyed|Exception")
_SHOWN = 20  # complaints
_SETTLE = 15.0  # seconds for what is under way to end


@dataclass
class Plan:
    """`streams` at once for `minutes`, a share of `faults` of them; `stall` seconds; `pace` ms between events."""

    streams: int = 200
    minutes: float = 5.0
    faults: float = 0.1
    stall: float = 30.0
    pace: float = 100.0
    seed: int = 1


@dataclass
class Sample:
    """What the proxy uses after so many streams: KB, after what is garbage was collected; files; open exchanges."""

    second: float
    finished: int
    memory: float
    files: int
    exchanges: int


@dataclass
class Soak:
    plan: Plan
    port: int
    finished: int = 0
    calls: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    excused: list[str] = field(default_factory=list)  # what only a busy machine excuses: see `judge`
    pause: float = 0.0  # the longest in which neither the provider nor a client did anything, seconds
    wrong: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    async def run(self, proxy: Proxy) -> None:
        """All streams, and samples of what the proxy uses meanwhile."""
        end = time.monotonic() + self.plan.minutes * 60
        numbers, faults = itertools.count(1), itertools.cycle(fault for fault in Fault if fault is not Fault.NONE)
        chance = random.Random(self.plan.seed)

        async def client(delay: float) -> None:
            await asyncio.sleep(delay)
            while time.monotonic() < end:
                fault = next(faults) if chance.random() < self.plan.faults else Fault.NONE
                await self._one(next(numbers), fault)

        watching = [asyncio.create_task(self._sample(proxy)), asyncio.create_task(self._watch_pauses())]
        # They begin one after the other, over the time that a stream takes, and then stay apart.
        spread = min(self.plan.minutes * 10, 65 * self.plan.pace / 1000) / self.plan.streams
        await asyncio.gather(*(client(number * spread) for number in range(self.plan.streams)))
        for task in watching:
            task.cancel()

    async def _one(self, number: int, fault: Fault) -> None:
        wire = list(PATHS)[number % len(PATHS)]
        said = said_for(number, wire, fault, number % 3 > 0)
        brief = min(5.0, self.plan.stall + 1)  # seconds of what a client does or waits for
        try:
            answer = await asyncio.wait_for(
                ask(self.port, said, fault, patience=brief, slow=brief), self.plan.stall + 120
            )
        except Exception as error:
            found = [repr(error)]
        else:
            found = judge(said, fault, answer)
            if not found:
                self.excused += judge(said, fault, answer, strict=True)
        self.finished += 1
        self.counts[fault] += 1
        self.wrong += [f"stream {number}, {wire}, {fault}: {complaint}" for complaint in found]
        self.calls += said.leaks and fault in (Fault.NONE, Fault.STALL, *LEAKY[1:])

    async def _watch_pauses(self) -> None:
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(0.05)
            self.pause = max(self.pause, time.monotonic() - asleep - 0.05)

    async def _sample(self, proxy: Proxy) -> None:
        start = time.monotonic()
        while True:
            found = await asyncio.to_thread(probe, proxy.port)
            used = proxy.memory(), _files(proxy), found["exchanges"]
            self.samples.append(Sample(time.monotonic() - start, self.finished, *used))
            await asyncio.sleep(self.plan.minutes * 2)

    def growth(self) -> float | None:
        """KB per 1,000 streams after the warm-up: the slope of a line through the samples. None where there are few."""
        warm = [sample for sample in self.samples if sample.second > self.plan.minutes * 20]
        if not warm or warm[-1].finished - warm[0].finished < ENOUGH:
            return None
        mean_x = sum(sample.finished for sample in warm) / len(warm)
        mean_y = sum(sample.memory for sample in warm) / len(warm)
        above = sum((sample.finished - mean_x) * (sample.memory - mean_y) for sample in warm)
        return above / sum((sample.finished - mean_x) ** 2 for sample in warm) * 1000


def probe(port: int) -> dict[str, Any]:
    """What is alive in the proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", soak_probe.PATH)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    return found


async def _settled(proxy: Proxy, before: dict[str, Any]) -> dict[str, Any]:
    """What is alive when all streams are over and their last timers have fired; `before` is empty at the start."""
    end = time.monotonic() + _SETTLE
    while True:
        found = await asyncio.to_thread(probe, proxy.port)
        await asyncio.sleep(0.5)  # the connection of the probe itself is no more
        found["files"] = _files(proxy)
        if not before or not left(before, found) or time.monotonic() > end:
            return found


def left(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is there at the end and was not at the start. Flows are kept to be looked at, a hundred at most."""
    names = sorted({*before["tasks"], *after["tasks"]})
    tasks = [f"{after['tasks'].get(name, 0)} tasks {name!r}" for name in names if _more(before, after, name)]
    kept = {"flows": 100}
    counted = ("exchanges", "pipes", "streams", "flows", "files")
    return tasks + [f"{after[name]} {name}" for name in counted if after[name] > before[name] + kept.get(name, 0)]


def _more(before: dict[str, Any], after: dict[str, Any], name: str) -> bool:
    return bool(after["tasks"].get(name, 0) > before["tasks"].get(name, 0))


@contextlib.asynccontextmanager
async def _mitmdump(provider: int, folder: Path) -> AsyncIterator[Proxy]:
    """A mitmdump with the addon and the probe; it logs to `folder`/log."""
    log = folder / "log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-c", _MITMDUMP, "-s", str(ADDON), "-s", str(Path(soak_probe.__file__).resolve())),
            *("--mode", f"reverse:http://127.0.0.1:{provider}", "--listen-host", "127.0.0.1", "-p", "0"),
            *("--set", f"confdir={folder}", "--set", "flow_detail=0"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
        )
    try:
        for _ in range(300):
            if found := re.search(r"listening at [^\n]*:(\d+)", log.read_text()):
                break
            if process.returncode is not None:
                break
            await asyncio.sleep(0.1)
        if not found:
            raise SystemExit("mitmdump did not start: " + log.read_text()[-2000:])
        yield Proxy("dsml", process.pid, int(found[1]))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def measure(plan: Plan) -> dict[str, Any]:
    """All figures; `wrong` says what is not as it must be."""
    for wire in PATHS:  # what takes long to make is made before
        assert said_for(0, wire, Fault.SLOW_CLIENT, False).frames
    with tempfile.TemporaryDirectory(prefix="dsml-soak-") as name:
        async with upstream(plan.pace / 1000, plan.stall) as provider:
            async with _mitmdump(provider.port, Path(name)) as proxy:
                before = await _settled(proxy, {})
                soak, cpu, start = Soak(plan, proxy.port), proxy.cpu(), time.monotonic()
                await soak.run(proxy)
                cpu, seconds = proxy.cpu() - cpu, time.monotonic() - start
                after, most = await _settled(proxy, before), _most_memory(proxy)
            log = (Path(name) / "log").read_text(errors="replace")
        return _figures(soak, provider, before, after, {"cpu": cpu / seconds, "seconds": seconds, "most": most}, log)


def _files(proxy: Proxy) -> int:
    return len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))


def _most_memory(proxy: Proxy) -> float:
    """The most resident KB there have been."""
    return float(re.findall(r"VmHWM:\s*(\d+)", Path(f"/proc/{proxy.pid}/status").read_text())[0])


def _figures(
    soak: Soak,
    provider: Upstream,
    before: dict[str, Any],
    after: dict[str, Any],
    used: dict[str, float],
    log: str,
) -> dict[str, Any]:
    growth, wrong = soak.growth(), list(soak.wrong)
    wrong += [f"left at the end: {what}" for what in left(before, after)]
    if growth is not None and growth > GROWTH_GOAL:
        wrong.append(f"memory grows by {growth:.0f} KB per 1,000 streams; the goal is {GROWTH_GOAL:.0f}")
    if after["calls"] != soak.calls:
        wrong.append(f"{after['calls']} calls were recovered; {soak.calls} were due")
    if max(sample.exchanges for sample in soak.samples) > soak.plan.streams:
        wrong.append("more exchanges were open than streams")
    wrong += [f"log: {line}" for line in log.splitlines() if BAD_LOG.search(line)]
    return {
        "plan": asdict(soak.plan),
        "streams": soak.finished,
        "by fault": {str(fault): soak.counts[fault] for fault in Fault},
        "calls recovered": after["calls"],
        "excused by a busy machine": len(soak.excused),
        "longest pause of clients and provider, s": round(soak.pause, 2),
        "longest wait of the provider, s": round(provider.longest, 1),
        "seconds": round(used["seconds"], 1),
        "share of a core": round(used["cpu"], 2),
        "memory, MB": _memory(soak.samples),
        "growth, KB per 1,000 streams": None if growth is None else round(growth),
        "most memory, MB": round(used["most"] / 1024, 1),
        "most open exchanges": max(sample.exchanges for sample in soak.samples),
        "most open files": max(sample.files for sample in soak.samples),
        "left at the end": {**after, "tasks": sum(after["tasks"].values())},
        "at the start": {**before, "tasks": sum(before["tasks"].values())},
        "wrong": wrong,
    }


def _memory(samples: list[Sample]) -> list[list[float]]:
    """Streams so far and MB, at eleven moments."""
    places = [round(part * (len(samples) - 1) / 10) for part in range(11)]
    return [[samples[place].finished, round(samples[place].memory / 1024, 1)] for place in places]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    plan = Plan()
    parser.add_argument("--streams", type=int, default=plan.streams, help="streams at once")
    parser.add_argument("--minutes", type=float, default=plan.minutes, help="for how long new ones begin")
    parser.add_argument("--faults", type=float, default=plan.faults, help="the share of streams with a fault")
    parser.add_argument("--stall", type=float, default=plan.stall, help="seconds of silence of a stalled provider")
    parser.add_argument("--pace", type=float, default=plan.pace, help="milliseconds between two events of a stream")
    parser.add_argument("--seed", type=int, default=plan.seed, help="of the choice of streams with a fault")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    figures = asyncio.run(measure(Plan(**given)))
    wrong = figures["wrong"]
    if as_json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            if name != "wrong":
                print(f"{name}: {value}")
        print("\n".join(f"wrong  {line}" for line in wrong[:_SHOWN]) or "all is right")
        if len(wrong) > _SHOWN:
            print(f"and {len(wrong) - _SHOWN} more")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
