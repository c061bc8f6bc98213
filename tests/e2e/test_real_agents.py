"""Real agents from npm, run only when asked for; how they are judged, always."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from clients.__main__ import seen
from clients.catalogue import CLIENTS, Client
from clients.install import install
from clients.provider import ANSWER, markup
from clients.trial import Mode, trial
from clients.verdict import leaked, repaired

ASKED = "DSML_REAL_AGENTS"
ARGUMENTS = {"path": "note.txt"}
MARKUP = markup("read", ARGUMENTS)
CHAT: list[dict[str, Any]] = [
    {"tool_calls": [{"id": "c", "function": {"name": "read", "arguments": json.dumps(ARGUMENTS)}}]},
    {"role": "tool", "tool_call_id": "c", "content": "1: word"},
]
RESPONSES: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "c", "name": "read", "arguments": json.dumps(ARGUMENTS)},
    {"type": "function_call_output", "call_id": "c", "output": "word"},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"content": [{"type": "tool_use", "id": "c", "name": "read", "input": ARGUMENTS}]},
    {"content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "word"}]}]},
]


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get(ASKED) != "1", reason=f"fetches over 1 GB from npm; set {ASKED}=1 to run it")
@pytest.mark.parametrize("mode", [*Mode])
@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
def test_a_real_agent(client: Client, mode: Mode) -> None:
    outcome = asyncio.run(trial(client, install(client), mode))
    assert not outcome.faults, seen(outcome)


def judged(history: list[dict[str, Any]], output: str = ANSWER, key: str = "messages") -> list[str]:
    return repaired(output, [{key: []}, {key: history}], "read", ARGUMENTS, "word")


@pytest.mark.parametrize(
    ("history", "key"),
    [(CHAT, "messages"), (RESPONSES, "input"), (ANTHROPIC, "messages")],
    ids=["chat", "responses", "anthropic"],
)
def test_a_call_with_its_result_is_found_on_every_wire(history: list[dict[str, Any]], key: str) -> None:
    assert judged(history, key=key) == []
    assert leaked(MARKUP, [{key: history}]) == ["it ran read"]


def test_a_custom_tool_is_found() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "code"}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "word"}
    assert repaired(ANSWER, [{"input": [call, result]}], "exec", {"input": "code"}, "word") == []


@pytest.mark.parametrize(
    ("history", "output", "fault"),
    [
        ([], ANSWER, "it did not run read"),
        (CHAT[:1], ANSWER, "it did not run read"),
        ([CHAT[0], {**CHAT[1], "tool_call_id": "d"}], ANSWER, "it did not run read"),
        (
            [CHAT[0], {**CHAT[1], "content": "no such file"}],
            ANSWER,
            'the result is not what the note says: "no such file"',
        ),
        (CHAT, "", "it did not show the answer that followed"),
        (CHAT, MARKUP + ANSWER, "it showed the markup"),
    ],
)
def test_what_a_repaired_trial_must_not_be(history: list[dict[str, Any]], output: str, fault: str) -> None:
    assert judged(history, output) == [fault]


def test_a_call_that_was_not_leaked_is_a_fault() -> None:
    assert repaired(ANSWER, [{"messages": CHAT}], "read", {"path": "b"}, "word") == [f"it ran read with {ARGUMENTS}"]


def test_without_repair_the_markup_has_to_be_seen() -> None:
    assert leaked(MARKUP, [{"messages": []}]) == []
    assert leaked(ANSWER, [{"messages": []}]) == ["the markup was not shown"]
