"""What a request says about its response, on every wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.context import Context, read_context
from dsml_core.tools import Tool
from tests.markers import live

WIRES = ("openai-chat", "openai-responses", "anthropic", "ollama")
LEAK = live('<{M}invoke name="bash">')


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_that_cannot_be_read_is_unknown(wire: str) -> None:
    body: Any
    for body in (None, 5, [], "", "{", b"\xff\xfe{", "[" * 100_000, "[]"):
        assert read_context(wire, body) == Context(tools=None)


@pytest.mark.parametrize("wire", WIRES)
def test_no_tools_are_none_and_malformed_ones_unknown(wire: str) -> None:
    body: Any
    for body in ({}, {"tools": []}, {"tools": None}, {"functions": []}, {"tools": [{"type": "web_search"}]}):
        assert read_context(wire, body).tools == {}
    assert read_context(wire, {"tools": {"name": "bash"}}).tools is None


@pytest.mark.parametrize("wire", WIRES)
def test_tools_and_functions(wire: str) -> None:
    body = {"tools": [{"function": {"name": "bash"}}, {"name": "read"}], "functions": [{"name": "write"}]}
    for form in (body, json.dumps(body), json.dumps(body).encode()):
        tools = read_context(wire, form).tools
        assert tools is not None
        assert list(tools) == ["bash", "read", "write"]


def test_tools_in_the_input_of_responses() -> None:
    body = {
        "tools": [],
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "shell"}]},
            {
                "type": "message",
                "role": "user",
                "content": "hi",
                "additional_tools": [{"type": "function", "name": "x"}],
            },
            {
                "type": "tool_search_output",
                "tools": [{"type": "namespace", "name": "geo", "tools": [{"type": "function", "name": "find"}]}],
            },
        ],
    }
    tools = read_context("openai-responses", body).tools
    assert tools == {"shell": Tool("shell"), "x": Tool("x"), "find": Tool("find", namespace="geo")}
    assert read_context("openai-chat", body).tools == {}


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ({}, True),
        ({"tool_choice": "auto"}, True),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "none"}}}, True),
        ({"tool_choice": "none"}, False),
        ({"tool_choice": {"type": "none"}}, False),
        ({"function_call": "none"}, False),
        ({"function_call": {"name": "none"}}, True),
    ],
)
def test_tool_choice(body: dict[str, Any], calls: bool) -> None:
    assert read_context("openai-chat", body).calls is calls


def test_model_and_stream() -> None:
    assert read_context("openai-chat", {"model": "deepseek-v4", "stream": True}) == Context(
        {}, True, (), "deepseek-v4", True
    )
    assert read_context("openai-chat", {"model": 5}).model is None
    assert not read_context("openai-chat", {"stream": "yes"}).stream
    assert not read_context("anthropic", {}).stream
    assert read_context("ollama", {}).stream
    assert not read_context("ollama", {"stream": False}).stream


def text(words: str) -> str:
    return f"{words} {LEAK}"


@pytest.mark.parametrize(
    ("wire", "body", "quoted"),
    [
        (
            "openai-chat",
            {
                "messages": [
                    {"role": "system", "content": text("system")},
                    {"role": "developer", "content": text("developer")},
                    {"role": "user", "content": [{"type": "text", "text": text("user")}, {"type": "image_url"}]},
                    {"role": "assistant", "content": text("assistant"), "tool_calls": [{"x": text("call")}]},
                    {"role": "tool", "content": text("tool")},
                    {"role": "function", "name": "f", "content": text("function")},
                    {"role": "user", "content": "no markup here"},
                ]
            },
            ["system", "developer", "user", "tool", "function"],
        ),
        (
            "anthropic",
            {
                "system": [{"type": "text", "text": text("system")}],
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "content": [{"type": "text", "text": text("result")}]},
                            {"type": "tool_result", "content": text("plain")},
                            {"type": "document", "source": {"type": "text", "data": text("document")}},
                            {"type": "image", "source": {"type": "base64", "data": text("image")}},
                            {"type": "text", "text": text("user")},
                        ],
                    },
                    {"role": "assistant", "content": [{"type": "text", "text": text("assistant")}]},
                ],
            },
            ["system", "result", "plain", "document", "user"],
        ),
        ("anthropic", {"system": text("system")}, ["system"]),
        (
            "openai-responses",
            {
                "instructions": text("instructions"),
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text("user")}]},
                    {"role": "user", "content": text("easy")},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text("own")}]},
                    {"type": "function_call", "name": "f", "arguments": text("own")},
                    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text("own")}]},
                    {"type": "function_call_output", "output": text("output")},
                    {"type": "function_call_output", "output": [{"type": "input_text", "text": text("list")}]},
                    {"type": "custom_tool_call_output", "output": text("custom")},
                ],
            },
            ["instructions", "user", "easy", "output", "list", "custom"],
        ),
        ("openai-responses", {"input": text("plain")}, ["plain"]),
        (
            "ollama",
            {"messages": [{"role": "tool", "content": text("tool")}, {"role": "assistant", "content": text("own")}]},
            ["tool"],
        ),
    ],
)
def test_quoted_texts(wire: str, body: dict[str, Any], quoted: list[str]) -> None:
    assert list(read_context(wire, body).quoted) == [text(words) for words in quoted]


@pytest.mark.parametrize("words", ["dsml", "DSML", "d\u017fML", "an <invoke", "&lt;INVOKE", "\\u003cinvoke"])
def test_what_may_hold_markup_is_quoted(words: str) -> None:
    assert read_context("openai-chat", {"messages": [{"role": "user", "content": words}]}).quoted == (words,)


REQUEST = ("messages", "input", "system", "instructions", "tools", "functions", "tool_choice", "stream", "model")
MESSAGE = ("role", "type", "content", "text", "output", "source", "name")
keys = st.sampled_from([*REQUEST, *MESSAGE])
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["assistant", "none", "dsml"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=15,
)


@given(st.sampled_from(WIRES), garbage)
def test_garbage_is_no_exception(wire: str, body: Any) -> None:
    context = read_context(wire, body)
    assert read_context(wire, json.dumps(body)) == (Context() if isinstance(body, str) else context)
