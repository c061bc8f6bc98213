"""A question put by the official client of each wire, streamed, and what the client makes of the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import ollama
import openai


@dataclass
class Answer:
    """`tokens` is the number of output tokens as the client has it in the end."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    tokens: int = 0


async def ask(wire: str, port: int, asked: dict[str, Any]) -> Answer:
    return await asyncio.wait_for(_CLIENTS[wire](port, asked), 20)


async def _chat(port: int, asked: dict[str, Any]) -> Answer:
    async with (
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0) as client,
        client.chat.completions.stream(**_without_stream(asked)) as events,
    ):
        completion: Any = await events.get_final_completion()
    (choice,) = completion.choices
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]
    return Answer(choice.message.content or "", calls, choice.finish_reason, completion.usage.completion_tokens)


async def _responses(port: int, asked: dict[str, Any]) -> Answer:
    async with (
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0) as client,
        client.responses.stream(**_without_stream(asked)) as events,
    ):
        response: Any = await events.get_final_response()
    calls = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    finish = "tool_calls" if calls else "stop"
    return Answer(response.output_text, calls, finish, response.usage.output_tokens)


async def _messages(port: int, asked: dict[str, Any]) -> Answer:
    base = f"http://127.0.0.1:{port}/anthropic"
    async with (
        anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client,
        client.messages.stream(max_tokens=99, **_without_stream(asked)) as events,
    ):
        message: Any = await events.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    finish = {"tool_use": "tool_calls", "end_turn": "stop"}[message.stop_reason]
    return Answer(text, calls, finish, message.usage.output_tokens)


async def _ollama(port: int, asked: dict[str, Any]) -> Answer:
    client: Any = ollama.AsyncClient(host=f"http://127.0.0.1:{port}")
    answer = Answer()
    async with contextlib.aclosing(client._client):  # the client itself cannot be closed in every version
        async for part in await client.chat(**asked):
            answer.text += part.message.content or ""
            for call in part.message.tool_calls or []:
                answer.calls.append((call.function.name, dict(call.function.arguments)))
            answer.finish = part.done_reason or answer.finish
            answer.tokens = part.eval_count or answer.tokens
    answer.finish = "tool_calls" if answer.calls else answer.finish
    return answer


def _without_stream(asked: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != "stream"}


_CLIENTS: dict[str, Callable[[int, dict[str, Any]], Awaitable[Answer]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
    "ollama": _ollama,
}
