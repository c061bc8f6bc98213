"""What a client did, read from the requests it sent and from what it showed, and whether that was right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clients.provider import ANSWER
from tests.markers import MARK


@dataclass(frozen=True)
class Ran:
    """A tool call in the history that a client sends, and the result that answers it by its id (as JSON)."""

    tool: str
    arguments: dict[str, Any]
    result: str


def ran(request: Mapping[str, Any]) -> list[Ran]:
    """The tool calls with a result in the history of a request, on any wire."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    results: dict[str, str] = {}
    for message in request.get("messages") or request.get("input") or []:
        calls.update(_calls(message))
        results.update(_results(message))
    return [Ran(*calls[number], result) for number, result in results.items() if number in calls]


def leaked(output: str, requests: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with a trial in which nothing was to be repaired."""
    faults = [] if MARK in output else ["the markup was not shown"]
    return faults + [f"it ran {call.tool}" for request in requests for call in ran(request)]


def repaired(
    output: str, requests: Iterable[Mapping[str, Any]], tool: str, arguments: Mapping[str, Any], word: str
) -> list[str]:
    """What is wrong with a trial in which the call was to run, with a result that holds the word."""
    calls = [call for request in requests for call in ran(request)]
    faults = [] if calls else [f"it did not run {tool}"]
    for call in calls:
        if (call.tool, call.arguments) != (tool, arguments):
            faults.append(f"it ran {call.tool} with {call.arguments}")
        if word not in call.result:
            faults.append(f"the result is not what the note says: {call.result}")
    if ANSWER not in output:
        faults.append("it did not show the answer that followed")
    if MARK in output:
        faults.append("it showed the markup")
    return faults


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    for call in message.get("tool_calls") or []:  # Chat Completions
        yield call["id"], (call["function"]["name"], json.loads(call["function"]["arguments"]))
    if message.get("type") == "function_call":  # Responses
        yield message["call_id"], (message["name"], json.loads(message["arguments"]))
    elif message.get("type") == "custom_tool_call":
        yield message["call_id"], (message["name"], {"input": message["input"]})
    for block in _blocks(message, "tool_use"):  # Anthropic Messages
        yield block["id"], (block["name"], block["input"])


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if message.get("role") == "tool":
        yield message["tool_call_id"], json.dumps(message["content"])
    if message.get("type") in ("function_call_output", "custom_tool_call_output"):
        yield message["call_id"], json.dumps(message["output"])
    for block in _blocks(message, "tool_result"):
        yield block["tool_use_id"], json.dumps(block["content"])


def _blocks(message: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if block.get("type") == kind] if isinstance(content, list) else []
