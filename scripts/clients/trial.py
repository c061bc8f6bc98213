"""One client, once: asked to read a note, behind the proxy, with a provider that leaks the call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import string
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from clients.catalogue import Client
from clients.install import NotInstalled, installed, program
from clients.provider import ANSWER, LeakingProvider, Ran, leaking_provider, ran
from tests.e2e.proxy import Mitmdump, mitmdump
from tests.markers import MARK

ORIGIN = "https://api.deepseek.com"
QUESTION = "What does the note say? It is in note.txt, in this folder."
SECONDS = 120


class Mode(StrEnum):
    """How the client meets the proxy."""

    OFF = "off"
    REVERSE = "reverse"
    REGULAR = "regular"


@dataclass
class Outcome:
    """`faults` is empty when all went as it should. The rest is for reading."""

    faults: list[str] = field(default_factory=list)
    seconds: float = 0
    output: str = ""
    proxy_log: str = ""
    elsewhere: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """The folders of one trial, which go when it is over, and the word that stands in the note alone."""

    folder: Path
    word: str

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def confdir(self) -> Path:
        return self.folder / "mitmproxy"


async def trial(client: Client, mode: Mode) -> Outcome:
    """Raises NotInstalled when the client could not be fetched."""
    folder = await asyncio.to_thread(installed, client)
    with tempfile.TemporaryDirectory(prefix="dsml-", ignore_cleanup_errors=True) as name:
        place = Place(Path(name).resolve(), secrets.token_hex(8))
        for made in (place.home, place.work, place.confdir):
            made.mkdir()
        (place.work / "note.txt").write_text(place.word + "\n")
        names = {"home": str(place.home), "work": str(place.work), "packages": str(folder), "question": QUESTION}
        names["program"] = str(program(client, folder)) if client.program else _node()
        arguments = {key: _filled(value, names) for key, value in client.arguments.items()}
        async with (
            leaking_provider(client, arguments) as provider,
            _proxy(mode, place, provider) as proxy,
        ):
            return await _observed(client, mode, place, names, provider, proxy)


async def _observed(
    client: Client, mode: Mode, place: Place, names: Mapping[str, str], provider: LeakingProvider, proxy: Mitmdump
) -> Outcome:
    if mode is Mode.REGULAR:
        base, through = ORIGIN, await proxy.port()
    else:
        base, through = f"http://127.0.0.1:{await proxy.port()}", provider.port
    filled = {**names, "base": base}
    environ = _environ(client, place, through) | {key: _filled(value, filled) for key, value in client.environ.items()}
    for path, content in client.files.items():
        target = Path(_filled(path, filled))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(content, filled))
    began = time.monotonic()
    status = await _run([_filled(part, filled) for part in client.command], environ, place)
    outcome = Outcome(seconds=time.monotonic() - began, output=place.output.read_text("utf-8", "replace"))
    outcome.proxy_log, outcome.elsewhere = proxy.log, provider.elsewhere
    arguments = {key: _filled(value, filled) for key, value in client.arguments.items()}
    history = [call for request in provider.main for call in ran(request)]
    if status is None:
        outcome.faults.append(f"it did not end within {SECONDS} seconds")
    elif status:
        outcome.faults.append(f"it ended with status {status}")
    if not provider.main:
        outcome.faults.append(f"no request declared the tool {client.tool}")
    elif mode is Mode.OFF:
        outcome.faults += _leaked(outcome.output, history)
    else:
        outcome.faults += _repaired(outcome.output, history, Ran(client.tool, arguments, place.word))
    return outcome


def _leaked(output: str, history: list[Ran]) -> list[str]:
    """What is wrong with a trial in which nothing was repaired."""
    faults = [] if MARK in output else ["the markup was not shown"]
    return faults + [f"it ran {call.tool}" for call in history]


def _repaired(output: str, history: list[Ran], expected: Ran) -> list[str]:
    """What is wrong with a trial in which the call should have run. The result has to contain the expected one."""
    faults = []
    if not history:
        faults.append(f"it did not run {expected.tool}")
    for call in history:
        if (call.tool, call.arguments) != (expected.tool, expected.arguments):
            faults.append(f"it ran {call.tool} with {call.arguments}")
        if expected.result not in call.result:
            faults.append(f"the result does not hold what the note says: {call.result}")
    if ANSWER not in output:
        faults.append("it did not show the answer that followed")
    if MARK in output:
        faults.append("it showed the markup")
    return faults


def _filled(text: str, names: Mapping[str, str]) -> str:
    return string.Template(text).safe_substitute(names)


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("node is not on this machine (20 or later)")
    return node


def _proxy(mode: Mode, place: Place, provider: LeakingProvider) -> AbstractAsyncContextManager[Mitmdump]:
    """In regular mode every host is the provider, so that nothing leaves this machine; it sees the host in the path."""
    if mode is Mode.OFF:
        return mitmdump(place.confdir, provider.port, "--set", "dsml_mode=off")
    if mode is Mode.REVERSE:
        return mitmdump(place.confdir, provider.port)
    everything = rf"|https?://([^/]+)/|http://127.0.0.1:{provider.port}/\1/"
    offline = ("connection_strategy=lazy", "upstream_cert=false", f"map_remote={everything}")
    options = [part for option in offline for part in ("--set", option)]
    return mitmdump(place.confdir, provider.port, *options, mode="regular")


def _environ(client: Client, place: Place, through: int) -> dict[str, str]:
    """All that the client gets from outside: what it asks of other hosts comes to `through`."""
    proxy = f"http://127.0.0.1:{through}"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "NO_PROXY": "127.0.0.1,localhost",
        client.trust: str(place.confdir / "mitmproxy-ca-cert.pem"),
    }


async def _run(command: list[str], environ: Mapping[str, str], place: Place) -> int | None:
    """The exit status, None for a client that had to be ended. Nothing of it runs on."""
    with place.output.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=place.work,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return await asyncio.wait_for(process.wait(), SECONDS)
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
