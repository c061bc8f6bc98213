"""A provider that leaks one tool call to a client and then, whatever comes, answers in plain text."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clients.catalogue import Client
from tests.e2e.provider import Asked, Provider, Reply
from tests.e2e.wires import KINDS, PATHS, body, stream
from tests.markers import MARK

BEFORE = "I will read the note."
ANSWER = "The note has been read."
# The provider's own prefix (/anthropic) differs from one to the next; what follows it does not.
ENDS = {wire: path.removeprefix("/anthropic") for wire, path in PATHS.items()}


@dataclass(frozen=True)
class Ran:
    """A tool call in the history that a client sends, and the result that answers it by its id."""

    tool: str
    arguments: dict[str, Any]
    result: str


class LeakingProvider(Provider):
    """`main` are the requests that declare the client's tool, `elsewhere` what was asked for that is no model API."""

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
        method, target, _ = asked.line.split(" ")
        if method != "POST" or not target.partition("?")[0].endswith(ENDS[self._client.wire]):
            self.elsewhere.append(f"{method} {target}")
            return Reply([b""], kind="text/plain", status=403 if method == "CONNECT" else 404, framing="length")
        request = json.loads(asked.body)
        text = ANSWER
        if self._client.tool in declared(request):
            text = ANSWER if self.main else self._leak
            self.main.append(request)
        if request.get("stream"):
            return Reply(stream(self._client.wire, text), KINDS[self._client.wire])
        return Reply([body(self._client.wire, text)], "application/json", framing="length")


@contextlib.asynccontextmanager
async def leaking_provider(client: Client, arguments: Mapping[str, str]) -> AsyncIterator[LeakingProvider]:
    """Serves on a free port of this machine."""
    made = LeakingProvider(client, arguments)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


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


def ran(request: Mapping[str, Any]) -> list[Ran]:
    """The tool calls in the history of a request that have a result."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    results: dict[str, str] = {}
    for message in request.get("messages") or request.get("input") or []:
        calls.update(_calls(message))
        results.update(_results(message))
    return [Ran(*calls[number], result) for number, result in results.items() if number in calls]


def _blocks(message: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if block.get("type") == kind] if isinstance(content, list) else []


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    for call in message.get("tool_calls") or []:  # Chat Completions
        yield call["id"], (call["function"]["name"], json.loads(call["function"]["arguments"]))
    if message.get("type") == "function_call":  # Responses
        yield message["call_id"], (message["name"], json.loads(message["arguments"]))
    for block in _blocks(message, "tool_use"):  # Anthropic Messages
        yield block["id"], (block["name"], block["input"])


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if message.get("role") == "tool":
        yield message["tool_call_id"], json.dumps(message["content"])
    if message.get("type") == "function_call_output":
        yield message["call_id"], json.dumps(message["output"])
    for block in _blocks(message, "tool_result"):
        yield block["tool_use_id"], json.dumps(block["content"])
