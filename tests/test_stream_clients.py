"""Repaired streams in the official clients' own stream parsers: they put together what the strict client sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest

from tests.client_view import Seen, see
from tests.leaks import LEAK, NATIVE, REJECTED, TWO, any_wire, repaired
from tests.provider_frames import Answer, Calls, says, stream

pytestmark = pytest.mark.slow

ANSWERS: dict[str, tuple[Answer, str]] = {
    "two calls and prose": ([says(f"Go. {TWO} on")], "stop"),
    "a call alone": ([says("\n" + LEAK)], "stop"),
    "after reasoning": ([says("Hm.", reasoning=True), says(LEAK)], "stop"),
    "in reasoning": ([says("Hm. " + LEAK, reasoning=True)], "stop"),
    "native": ([says(LEAK), NATIVE, NATIVE], "stop"),
    "native repaired": ([says("Go. " + LEAK), Calls("bash", ["{}"]), NATIVE], "stop"),
    "a note": ([says(REJECTED)], "stop"),
    "length": ([says("Go. " + LEAK)], "length"),
    "dropped between parts": ([says("One. ", 4, reasoning=True), says(LEAK), says("Two.", reasoning=True)], "stop"),
}


def chat(out: bytes) -> Seen:
    with openai_client(out) as client, client.chat.completions.stream(model="m", messages=[]) as events:
        (choice,) = events.get_final_completion().choices
    calls = choice.message.tool_calls or []
    reasoning = (choice.message.model_extra or {}).get("reasoning_content") or ""
    made = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    return Seen(choice.message.content or "", reasoning, made, [call.id for call in calls], choice.finish_reason)


def responses(out: bytes) -> Seen:
    with openai_client(out) as client, client.responses.stream(model="m", input="x") as events:
        response: Any = events.get_final_response()
    seen = Seen(text=response.output_text, finish="stop" if response.status == "completed" else response.status)
    for item in response.output:
        if item.type == "function_call":
            seen.calls.append((item.name, json.loads(item.arguments)))
            seen.ids.append(item.call_id)
        elif item.type == "reasoning":
            seen.reasoning += "".join(part.text for part in item.summary)
    seen.finish = "tool_calls" if seen.calls and seen.finish == "stop" else seen.finish
    return seen


def messages(out: bytes) -> Seen:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=EVENTS, content=out))
    http = httpx2.Client(transport=transport)
    client = anthropic.Anthropic(api_key="k", http_client=http)
    with client, client.messages.stream(model="m", max_tokens=9, messages=[]) as events:
        message: Any = events.get_final_message()
    finish = {"end_turn": "stop", "tool_use": "tool_calls"}.get(message.stop_reason)
    text = "".join(block.text for block in message.content if block.type == "text")
    reasoning = "".join(block.thinking for block in message.content if block.type == "thinking")
    calls = [block for block in message.content if block.type == "tool_use"]
    return Seen(text, reasoning, [(call.name, call.input) for call in calls], [call.id for call in calls], finish)


def chat_lines(out: bytes) -> Seen:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=out))
    seen = Seen()
    for part in ollama.Client(transport=transport).chat(model="m", messages=[], stream=True):
        seen.text += part.message.content or ""
        seen.reasoning += part.message.thinking or ""
        seen.calls += [(call.function.name, dict(call.function.arguments)) for call in part.message.tool_calls or []]
        seen.finish = part.done_reason
    seen.finish = "tool_calls" if seen.calls else seen.finish
    return seen


EVENTS = {"content-type": "text/event-stream"}
CLIENTS: dict[str, Callable[[bytes], Seen]] = {
    "openai-chat": chat,
    "openai-responses": responses,
    "anthropic": messages,
    "ollama": chat_lines,
}


def openai_client(out: bytes) -> openai.OpenAI:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=EVENTS, content=out))
    return openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=transport))


@any_wire
@pytest.mark.parametrize("name", ANSWERS)
def test_an_official_client_puts_together_what_is_there(wire: str, name: str) -> None:
    answer, finish = ANSWERS[name]
    out, repairer = repaired(wire, stream(wire, answer, finish))
    assert repairer.report.changed
    assert CLIENTS[wire](out) == see(wire, out)
