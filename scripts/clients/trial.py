"""One client, once: asked to read a note, behind the proxy, with a provider that leaks the call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import string
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clients.catalogue import Client
from clients.install import Installed
from clients.provider import LeakingProvider, leaking_provider
from clients.verdict import leaked, repaired
from tests.e2e.proxy import Mitmdump, mitmdump

ORIGIN = "https://api.deepseek.com"
QUESTION = "What does the note say? It is in note.txt, in this folder."
SECONDS = 120


class Mode(StrEnum):
    """How the client meets the proxy."""

    OFF = "off"
    REVERSE = "reverse"
    REGULAR = "regular"


@dataclass(frozen=True)
class Outcome:
    """`faults` is empty when all went as it should. The rest is for reading."""

    faults: list[str]
    seconds: float
    output: str
    proxy_log: str
    elsewhere: list[str]


class Place:
    """The folders of one trial, and the word that stands in the note and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.confdir = folder / "home", folder / "work", folder / "mitmproxy"
        self.output = folder / "output"
        self.word = secrets.token_hex(8)
        for made in (self.home, self.work, self.confdir):
            made.mkdir()
        (self.work / "note.txt").write_text(self.word + "\n")


async def trial(client: Client, installed: Installed, mode: Mode) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="dsml-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder).resolve())
        names = {
            "program": str(installed.program),
            "packages": str(installed.folder),
            "home": str(place.home),
            "work": str(place.work),
            "question": QUESTION,
        }
        arguments = {name: _filled(value, names) for name, value in client.arguments.items()}
        async with leaking_provider(client, arguments) as provider, _proxy(mode, place, provider) as proxy:
            port = await proxy.port()
            regular = mode is Mode.REGULAR
            names["base"] = ORIGIN if regular else f"http://127.0.0.1:{port}"
            began = time.monotonic()
            status = await _run(client, names, place, through=port if regular else provider.port)
            seconds = time.monotonic() - began
        output = place.output.read_text("utf-8", "replace")
        faults = _ending(status, client, provider)
        if mode is Mode.OFF:
            faults += leaked(output, provider.main)
        else:
            faults += repaired(output, provider.main, client.tool, arguments, place.word)
        return Outcome(faults, seconds, output, proxy.log, provider.elsewhere)


def _ending(status: int | None, client: Client, provider: LeakingProvider) -> list[str]:
    faults = []
    if status is None:
        faults.append(f"it did not end within {SECONDS} seconds")
    elif status:
        faults.append(f"it ended with status {status}")
    if not provider.main:
        faults.append(f"it asked nothing with a tool {client.tool}")
    return faults


def _filled(text: str, names: Mapping[str, str]) -> str:
    return string.Template(text).substitute(names)


def _proxy(mode: Mode, place: Place, provider: LeakingProvider) -> AbstractAsyncContextManager[Mitmdump]:
    """In regular mode every host is the provider, so that nothing leaves this machine; it sees the host in the path."""
    if mode is Mode.OFF:
        return mitmdump(place.confdir, provider.port, "--set", "dsml_mode=off")
    if mode is Mode.REVERSE:
        return mitmdump(place.confdir, provider.port)
    everything = rf"|https?://([^/]+)/|http://127.0.0.1:{provider.port}/\1/"
    settings = ("connection_strategy=lazy", "upstream_cert=false", f"map_remote={everything}")
    options = [part for setting in settings for part in ("--set", setting)]
    return mitmdump(place.confdir, provider.port, *options, mode="regular")


async def _run(client: Client, names: Mapping[str, str], place: Place, through: int) -> int | None:
    """The exit status; None for a client that had to be ended. Nothing of it runs on.

    What it asks of other hosts comes to the port `through`.
    """
    for name, content in client.files.items():
        path = Path(_filled(name, names))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(content, names))
    with place.output.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(_filled(part, names) for part in client.command),
            cwd=place.work,
            env=_environ(client, names, place, through),
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


def _environ(client: Client, names: Mapping[str, str], place: Place, through: int) -> dict[str, str]:
    """All that the client gets from outside."""
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
        **{name: _filled(value, names) for name, value in client.environ.items()},
    }
