"""mitmproxy with the addon: in this process, or as a real mitmdump."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from addon.hooks import Dsml

ROOT = Path(__file__).resolve().parents[2]
ADDON = ROOT / "addon" / "dsml.py"


class Started:
    """An addon that tells when the proxy has started, with all its addons; to end it earlier would skip their end."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def running(self) -> None:
        self.event.set()


@contextlib.asynccontextmanager
async def in_process(
    confdir: Path,
    upstream: int,
    *,
    before: Sequence[object] = (),
    after: Sequence[object] = (),
    mode: str = "",
    mitm: dict[str, object] | None = None,
    **ours: str,
) -> AsyncIterator[tuple[int, Dsml]]:
    """The port of a proxy in front of `upstream`, and the addon in it, between the addons `before` and `after`."""
    made: Any = Options(  # Any: mitmproxy declares few of its types
        mode=[mode or f"reverse:http://127.0.0.1:{upstream}"],
        listen_host="127.0.0.1",
        listen_port=0,
        confdir=str(confdir),
    )
    master: Any = DumpMaster(made, with_termlog=False, with_dumper=False)
    dsml, started = Dsml(), Started()
    master.addons.add(*before, dsml, *after, started)
    made.update(**(mitm or {}), **ours)
    running = asyncio.create_task(master.run())
    server = master.addons.get("proxyserver")
    assert isinstance(server, Proxyserver)
    await started.event.wait()
    try:
        yield server.listen_addrs()[0][1], dsml
    finally:
        master.shutdown()
        await running


class Mitmdump:
    """A running mitmdump. `log` is what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout
        while data := await self.process.stdout.read(4096):
            self.log += data.decode("utf-8", "replace")

    async def says(self, pattern: str, seconds: float = 20) -> re.Match[str]:
        """Wait until the log matches."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not (found := re.search(pattern, self.log)):
            assert asyncio.get_running_loop().time() < deadline, f"no {pattern!r} in:\n{self.log}"
            await asyncio.sleep(0.02)
        return found

    async def port(self) -> int:
        return int((await self.says(r"listening at [^\n]*:(\d+)"))[1])

    async def ends(self, seconds: float = 20) -> int:
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await self._reading
        return code

    async def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        return await self.ends()


@contextlib.asynccontextmanager
async def mitmdump(
    confdir: Path,
    upstream: int,
    *arguments: str,
    script: str | Path = ADDON,
    cwd: Path = ROOT,
    environ: dict[str, str] | None = None,
    mode: str = "",
    tool: str = "mitmdump",
) -> AsyncIterator[Mitmdump]:
    """A real mitmdump (or another `tool`) in front of `upstream`, in its own process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-u", "-c", f"from mitmproxy.tools.main import {tool}; {tool}()", "-s", str(script)),
        *("--mode", mode or f"reverse:http://127.0.0.1:{upstream}", "--listen-host", "127.0.0.1", "-p", "0"),
        *("--set", f"confdir={confdir}", *arguments),
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    running = Mitmdump(process)
    try:
        yield running
    finally:
        await running.stop()
