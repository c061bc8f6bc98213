"""Where turns and system text stand on each wire."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dsml_core import history

S = {"role": "system", "content": "sys"}
U = {"role": "user", "content": "go"}
A = {"role": "assistant", "content": "done"}
ITEM_U = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
ITEM_DEV = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "dev"}]}
ITEM_LATE = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "NEW"}]}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
MORE_TOOLS = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "read"}]}
CACHED = {"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}
BLOCK = {"type": "text", "text": "NEW"}

APPEND_SYSTEM: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("text", "openai-chat", {"messages": [S, U]}, {"messages": [{**S, "content": "sys\n\nNEW"}, U]}),
    ("none", "openai-chat", {"messages": [U]}, {"messages": [{"role": "system", "content": "NEW"}, U]}),
    (
        "developer",
        "openai-chat",
        {"messages": [{"role": "developer", "content": "dev"}, U]},
        {"messages": [{"role": "developer", "content": "dev\n\nNEW"}, U]},
    ),
    (
        "parts",
        "openai-chat",
        {"messages": [{"role": "system", "content": [CACHED]}, U]},
        {"messages": [{"role": "system", "content": [CACHED, BLOCK]}, U]},
    ),
    (
        "a late system message moves, so it is not the one",
        "openai-chat",
        {"messages": [U, S]},
        {"messages": [{"role": "system", "content": "NEW"}, U, S]},
    ),
    ("empty", "ollama", {"messages": [{**S, "content": ""}]}, {"messages": [{**S, "content": "NEW"}]}),
    ("text", "ollama", {"messages": [S, U]}, {"messages": [{**S, "content": "sys\n\nNEW"}, U]}),
    (
        "instructions",
        "openai-responses",
        {"instructions": "i", "input": "go"},
        {"instructions": "i\n\nNEW", "input": "go"},
    ),
    ("none, text", "openai-responses", {"input": "go"}, {"instructions": "NEW", "input": "go"}),
    ("none, items", "openai-responses", {"input": [ITEM_U]}, {"instructions": "NEW", "input": [ITEM_U]}),
    (
        "developer item",
        "openai-responses",
        {"instructions": None, "input": [MORE_TOOLS, ITEM_DEV, ITEM_U]},
        {
            "instructions": None,
            "input": [
                MORE_TOOLS,
                {**ITEM_DEV, "content": [*ITEM_DEV["content"], {"type": "input_text", "text": "NEW"}]},
                ITEM_U,
            ],
        },
    ),
    ("none", "anthropic", {"messages": [U]}, {"messages": [U], "system": [BLOCK]}),
    ("text", "anthropic", {"system": "sys"}, {"system": [{"type": "text", "text": "sys"}, BLOCK]}),
    ("blocks", "anthropic", {"system": [CACHED]}, {"system": [CACHED, BLOCK]}),
]


@pytest.mark.parametrize(("name", "wire", "body", "expected"), APPEND_SYSTEM)
def test_append_system(name: str, wire: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    found = history.append_system(wire, body, "NEW")
    assert found == expected
    assert body == before
    assert history.says(wire, found, "NEW")
    assert not history.says(wire, body, "NEW")


@pytest.mark.parametrize(
    ("wire", "body", "expected"),
    [
        ("openai-chat", {"messages": [S, U]}, {"messages": [S, U, {"role": "system", "content": "NEW"}]}),
        ("ollama", {"messages": [S, U]}, {"messages": [S, U, {"role": "system", "content": "NEW"}]}),
        (
            "openai-responses",
            {"instructions": "i", "input": [ITEM_U]},
            {"instructions": "i", "input": [ITEM_U, ITEM_LATE]},
        ),
        ("openai-responses", {"input": "go"}, {"input": [ITEM_U, ITEM_LATE]}),
        ("anthropic", {"system": [CACHED], "messages": [U]}, {"system": [CACHED, BLOCK], "messages": [U]}),
    ],
)
def test_append_late(wire: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert history.append_late(wire, body, "NEW") == expected


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
ITEM_A = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}


@pytest.mark.parametrize(
    ("wire", "turns", "said"),
    [
        ("openai-chat", [S, U, A], "done"),
        ("openai-chat", [S, U, A, U, U, S], "done"),
        ("openai-chat", [S, U], None),
        ("openai-chat", [], None),
        ("openai-chat", [U, {**A, "content": None, "tool_calls": [CALL]}], None),
        ("openai-chat", [U, {**A, "function_call": CALL["function"]}, U], None),
        ("openai-chat", [U, {**A, "tool_calls": []}, U], "done"),
        ("openai-chat", [U, {**A, "tool_calls": [CALL]}, {"role": "tool", "content": "x"}], None),
        ("openai-chat", [U, {**A, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, U], "ab"),
        ("ollama", [U, {**A, "thinking": "hm"}, U], "done"),
        (
            "anthropic",
            [U, {**A, "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]}, U],
            "a",
        ),
        ("anthropic", [U, {**A, "content": [{"type": "text", "text": "a"}, USE]}], None),
        ("anthropic", [U, A, RESULT], None),
        ("openai-responses", [ITEM_U, ITEM_A], "done"),
        ("openai-responses", [ITEM_U, REASONING, ITEM_A, ITEM_DEV, MORE_TOOLS, ITEM_U], "done"),
        ("openai-responses", [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}], "done"),
        ("openai-responses", [ITEM_U, ITEM_A, ITEM_CALL], None),
        (
            "openai-responses",
            [ITEM_U, ITEM_A, ITEM_CALL, {"type": "function_call_output", "call_id": "c1", "output": ""}],
            None,
        ),
        ("openai-chat", [U, A, 5], None),
    ],
)
def test_last_said(wire: str, turns: list[Any], said: str | None) -> None:
    found = history.last_said(wire, {history.SHAPES[wire].turns: turns})
    assert found == (None if said is None else (0, said))


def test_places_count_assistant_messages() -> None:
    body = {"messages": [S, U, A, {"role": "tool", "content": "x"}, {**A, "content": "more"}, U]}
    assert history.last_said("openai-chat", body) == (1, "more")
    assert history.answers("openai-chat", {"messages": body["messages"][:4]}) == 1


@pytest.mark.parametrize("wire", history.SHAPES)
def test_map_assistant_keeps_the_object_when_nothing_changes(wire: str) -> None:
    body = {history.SHAPES[wire].turns: [U, A, ITEM_A, {**A, "content": [{"type": "text", "text": "t"}]}]}
    assert history.map_assistant(wire, body, lambda text: text) is body


def test_map_assistant_touches_only_assistant_text() -> None:
    mixed = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, USE],
    }
    body = {"model": "m", "messages": [U, A, mixed, RESULT]}
    seen: list[str] = []

    def change(text: str) -> str:
        seen.append(text)
        return "A" if text == "a" else text

    found = history.map_assistant("anthropic", body, change)
    assert seen == ["done", "a"]
    assert found["messages"][2] == {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A"}, USE],
    }
    assert found["messages"][1] is A
    assert mixed["content"][1] == {"type": "text", "text": "a"}
