"""A provider that leaks one tool call to a client and answers everything after it in plain text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from clients.catalogue import Client
from tests.e2e.provider import Asked, Provider, Reply, listening
from tests.e2e.wires import KINDS, body, stream
from tests.markers import MARK

BEFORE = "I will read the note."
ANSWER = "The note has been read."
ENDS = {"openai-chat": "/chat/completions", "openai-responses": "/responses", "anthropic": "/v1/messages"}


class LeakingProvider(Provider):
    """`main` are the requests that declare the client's tool, `elsewhere` what was asked for besides the model API."""

    def __init__(self, client: Client, arguments: Mapping[str, str]) -> None:
        super().__init__(Reply(()))
        self._client = client
        self._leak = f"{BEFORE}\n\n{markup(client.tool, arguments)}"
        self.main: list[dict[str, Any]] = []
        self.elsewhere: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.reply = self._choose(self.asked[-1])
        return await super()._answer(reader, writer)

    def _choose(self, asked: Asked) -> Reply:
        wire = self._client.wire
        method, target, _ = asked.line.split(" ")
        if method != "POST" or not target.partition("?")[0].endswith(ENDS[wire]):
            self.elsewhere.append(f"{method} {target}")
            return Reply([b""], "text/plain", status=403 if method == "CONNECT" else 404, framing="length")
        request = json.loads(asked.body)
        text = ANSWER
        if self._client.tool in declared(request):
            text = ANSWER if self.main else self._leak
            self.main.append(request)
        if request.get("stream"):
            return Reply(stream(wire, text), KINDS[wire])
        return Reply([body(wire, text)], "application/json", framing="length")


def leaking_provider(client: Client, arguments: Mapping[str, str]) -> AbstractAsyncContextManager[LeakingProvider]:
    """On a free port of this machine."""
    return listening(LeakingProvider(client, arguments))


def markup(tool: str, arguments: Mapping[str, str]) -> str:
    """The call as DeepSeek V4 writes it."""
    lines = [
        f'<{MARK}parameter name="{name}" string="true">{value}</{MARK}parameter>' for name, value in arguments.items()
    ]
    call = [f'<{MARK}invoke name="{tool}">', *lines, f"</{MARK}invoke>"]
    return "\n".join([f"<{MARK}tool_calls>", *call, f"</{MARK}tool_calls>"])


def declared(request: Mapping[str, Any]) -> set[str]:
    """The names of the tools a request declares, on any wire."""
    return {tool.get("name") or tool.get("function", {}).get("name", "") for tool in request.get("tools") or []}
