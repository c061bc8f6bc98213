"""A leak on every wire, streamed and not, as the official client of that wire sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import CALL, KINDS, LEAK, MODEL, body, request, stream

pytestmark = pytest.mark.slow


@dataclass
class Seen:
    """What a client made of a response: its text, its calls, the reason it ended, and the ids of the calls."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    ids: list[str] = field(default_factory=list)


def openai_client(port: int) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0)


async def chat(port: int, streamed: bool) -> Seen:
    asked: dict[str, Any] = request("openai-chat", stream=streamed)
    async with openai_client(port) as client:
        if streamed:
            del asked["stream"]
            async with client.chat.completions.stream(**asked) as events:
                completion: Any = await events.get_final_completion()
        else:
            completion = await client.chat.completions.create(**asked)
    (choice,) = completion.choices
    calls = choice.message.tool_calls or []
    made = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    assert completion.usage.total_tokens == 12
    return Seen(choice.message.content or "", made, choice.finish_reason, [call.id for call in calls])


async def responses(port: int, streamed: bool) -> Seen:
    asked: dict[str, Any] = request("openai-responses", stream=streamed)
    async with openai_client(port) as client:
        if streamed:
            del asked["stream"]
            async with client.responses.stream(**asked) as events:
                seen = [event async for event in events]
                response: Any = await events.get_final_response()
            deltas = [event.delta for event in seen if event.type == "response.output_text.delta"]
            assert "".join(deltas) == response.output_text
            assert [event.sequence_number for event in seen] == list(range(len(seen)))
        else:
            response = await client.responses.create(**asked)
    calls = [item for item in response.output if item.type == "function_call"]
    made = [(call.name, json.loads(call.arguments)) for call in calls]
    return Seen(response.output_text, made, response.status, [call.call_id for call in calls])


async def messages(port: int, streamed: bool) -> Seen:
    asked: dict[str, Any] = {**request("anthropic"), "max_tokens": 99}
    del asked["stream"]
    base = f"http://127.0.0.1:{port}/anthropic"
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        if streamed:
            async with client.messages.stream(**asked) as events:
                message: Any = await events.get_final_message()
        else:
            message = await client.messages.create(**asked)
    calls = [block for block in message.content if block.type == "tool_use"]
    text = "".join(block.text for block in message.content if block.type == "text")
    made = [(call.name, call.input) for call in calls]
    return Seen(text, made, message.stop_reason, [call.id for call in calls])


async def ollama_chat(port: int, streamed: bool) -> Seen:
    client: Any = ollama.AsyncClient(host=f"http://127.0.0.1:{port}")
    async with contextlib.aclosing(client._client):  # the client itself cannot be closed in every version
        answer: Any = await client.chat(**request("ollama", stream=streamed))
        parts = [part async for part in answer] if streamed else [answer]
    seen = Seen()
    for part in parts:
        seen.text += part.message.content or ""
        for call in part.message.tool_calls or []:
            seen.calls.append((call.function.name, dict(call.function.arguments)))
        seen.finish = part.done_reason or seen.finish
    return seen


Ask = Callable[[int, bool], Awaitable[Seen]]
CLIENTS: dict[str, tuple[Ask, str]] = {
    "openai-chat": (chat, "tool_calls"),
    "openai-responses": (responses, "completed"),
    "anthropic": (messages, "tool_use"),
    "ollama": (ollama_chat, "stop"),
}


async def seen_by_client(wire: str, text: str, streamed: bool, confdir: Path) -> Seen:
    if streamed:
        reply = Reply(stream(wire, text), KINDS[wire])
    else:
        reply = Reply([body(wire, text)], "application/json", framing="length")
    async with provider(reply) as upstream, in_process(confdir, upstream.port) as (port, _):
        return await asyncio.wait_for(CLIENTS[wire][0](port, streamed), 20)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", CLIENTS)
def test_the_client_gets_the_call(wire: str, streamed: bool, confdir: Path) -> None:
    seen = asyncio.run(seen_by_client(wire, "I will read it.\n\n" + LEAK, streamed, confdir))
    assert seen.calls == [CALL]
    assert seen.text.strip() == "I will read it."
    assert seen.finish == CLIENTS[wire][1]
    assert all(seen.ids)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", CLIENTS)
def test_two_calls_and_no_text(wire: str, streamed: bool, confdir: Path) -> None:
    seen = asyncio.run(seen_by_client(wire, LEAK + "\n" + LEAK, streamed, confdir))
    assert seen.calls == [CALL, CALL]
    assert seen.text.strip() == ""
    assert len(set(seen.ids)) == len(seen.ids)


def test_the_model_is_what_the_provider_says(confdir: Path) -> None:
    async def check() -> str:
        async with (
            provider(Reply(stream("openai-chat", LEAK))) as upstream,
            in_process(confdir, upstream.port) as (port, _),
            openai_client(port) as client,
        ):
            chunks: Any = await client.chat.completions.create(**request("openai-chat"))
            return "".join({chunk.model async for chunk in chunks})

    assert asyncio.run(check()) == MODEL
