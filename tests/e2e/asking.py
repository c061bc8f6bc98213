"""One question through a proxy in this process, in front of a scripted provider; and what can be said of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from mitmproxy.http import HTTPFlow
from mitmproxy.net import encoding

from tests.e2e.client import Received, once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import PATHS, request

CHAT = "openai-chat"
CODINGS = ["gzip", "deflate", "br", "zstd"]


def run(check: Coroutine[Any, Any, None]) -> None:
    asyncio.run(check)


async def ask(confdir: Path, reply: Reply, path: str = PATHS[CHAT], asked: Any = None, **how: Any) -> Received:
    """One request through the proxy. `how`: options of the addon (`dsml_`) and of the client."""
    ours = {name: how.pop(name) for name in list(how) if name.startswith("dsml_")}
    asked = request(CHAT) if asked is None else asked
    async with provider(reply) as upstream, in_process(confdir, upstream.port, **ours) as (port, _):
        received = await once(port, path, asked, **how)
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


def encoded(coding: str, data: bytes) -> bytes:
    made = encoding.encode(data, coding or "identity")
    assert isinstance(made, bytes)
    return made


def decoded(coding: str, data: bytes) -> bytes:
    made = encoding.decode(data, coding or "identity")
    assert isinstance(made, bytes)
    return made


def seconds_between(received: Received, first: bytes, second: bytes) -> float:
    times = [next(time for time, piece in received.pieces if sought in piece) for sought in (first, second)]
    return times[1] - times[0]


class Flows:
    """An addon that keeps the flows it has seen."""

    def __init__(self) -> None:
        self.seen: list[HTTPFlow] = []

    def request(self, flow: HTTPFlow) -> None:
        self.seen.append(flow)
