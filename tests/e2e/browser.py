"""A headless Chromium, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_SECONDS = 30.0


def find() -> str | None:
    """The program of a browser, None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = json.loads(await self._socket.receive_str(timeout=_SECONDS))
            if answer.get("id") == number:
                assert "result" in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and what its user prefers."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, address: str) -> None:
        await self.send("Page.navigate", url=address)
        await self.until("document.readyState == 'complete'")

    async def evaluate(self, expression: str) -> Any:
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until the expression is true; its value."""
        deadline = asyncio.get_running_loop().time() + _SECONDS
        while not (value := await self.evaluate(expression)):
            assert asyncio.get_running_loop().time() < deadline, f"never {expression}:\n{await self.text()}"
            await asyncio.sleep(0.05)
        return value

    async def click(self, text: str, among: str = "*") -> None:
        """Click the innermost element of `among` (a selector) that shows exactly `text`."""
        found = f"[...document.querySelectorAll({among!r})].filter(one => one.textContent.trim() == {text!r}).pop()"
        await self.until(f"!!{found}")
        await self.evaluate(f"{found}.click()")

    async def text(self) -> str:
        return str(await self.evaluate("document.body.innerText"))

    async def screenshot(self, path: Path) -> None:
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A page of a browser whose profile is in `folder`."""
    program = find()
    assert program
    process = await asyncio.create_subprocess_exec(
        *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        host = await asyncio.wait_for(_listening(process), _SECONDS)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{host}/json/list") as listed:
                targets = await listed.json()
            address = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    said = ""
    while line := (await process.stderr.readline()).decode("utf-8", "replace"):
        said += line
        if found := re.search(r"DevTools listening on ws://([^/]+)/", line):
            return found[1]
    raise AssertionError(f"the browser did not start:\n{said}")
