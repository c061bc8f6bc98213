"""The changes to a request, on every wire."""

from __future__ import annotations

import copy
import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core import history, prompts
from dsml_core.context import read_context
from dsml_core.policy import Policy
from dsml_core.request import (
    Nudges,
    Strategies,
    directive,
    hoist,
    in_scope,
    nudge,
    prepare,
    resume,
    sanitize,
)

from .markers import live

WIRES = sorted(history.SHAPES)
LEAK = live(
    '<{M}tool_calls><{M}invoke name="edit"><{M}parameter name="path" string="true">a.py</{M}parameter>'
    "</{M}invoke></{M}tool_calls>"
)
LOST = live('<{M}parameter name="path" string="true">a.py</{M}parameter></{M}invoke>')
OPEN = live('<{M}tool_calls><{M}invoke name="edit"><{M}parameter name="path" string="true">a.p')
NOTE = "[removed malformed edit call]"
TOOL = {"name": "edit", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
MODELS = re.compile("deepseek", re.I)


def body_of(wire: str, *said: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A request of the wire with these turns, `(role, text)` each."""
    roles = {"user": "user", "assistant": "assistant"}
    turns = [history.message(wire, roles[role], text) for role, text in said]  # type: ignore[arg-type]
    return {"model": "deepseek-v4", "tools": [TOOL], history.SHAPES[wire].turns: turns, **more}


def answers_of(wire: str, body: dict[str, Any]) -> list[str]:
    found = history.turns(wire, body) or []
    return ["".join(history.texts(said)) for said in found if history.role_of(said) == "assistant"]


def frozen(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


# directive


@pytest.mark.parametrize("wire", WIRES)
def test_directive_once_and_always_the_same(wire: str) -> None:
    body = body_of(wire, ("user", "go"))
    before = frozen(body)
    first, again = directive(wire, body), directive(wire, copy.deepcopy(body))
    assert frozen(first) == frozen(again)
    assert frozen(body) == before
    assert json.dumps(first).count(json.dumps(prompts.DIRECTIVE)[1:-1]) == 1
    assert directive(wire, first) is first
    assert history.turns(wire, first)[-1:] == history.turns(wire, body)  # type: ignore[index]


@pytest.mark.parametrize("wire", WIRES)
def test_directive_leaves_the_prefix_of_a_growing_history(wire: str) -> None:
    short = directive(wire, body_of(wire, ("user", "go")))
    grown = directive(wire, body_of(wire, ("user", "go"), ("assistant", "ok"), ("user", "more")))
    key = history.SHAPES[wire].turns
    assert grown[key][: len(short[key])] == short[key]
    assert {k: v for k, v in grown.items() if k != key} == {k: v for k, v in short.items() if k != key}


def test_directive_on_anthropic_is_a_block_without_cache_control() -> None:
    system = [{"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}]
    found = directive("anthropic", body_of("anthropic", ("user", "go"), system=system))
    assert found["system"] == [*system, {"type": "text", "text": prompts.DIRECTIVE}]


# sanitize


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("said", "cleaned"),
    [
        (f"Now:\n{LEAK}", f"Now:\n{NOTE}"),
        (LEAK, NOTE),
        (f"Now:\n{LOST}", "Now:\n"),
        (LOST, "[removed malformed call]"),
        (f"Now:\n{OPEN}", f"Now:\n{NOTE}"),
    ],
)
def test_sanitize(wire: str, said: str, cleaned: str) -> None:
    body = body_of(wire, ("user", LEAK.replace("a.py", "other")), ("assistant", said), ("user", "go on"))
    before = frozen(body)
    found = sanitize(wire, body)
    assert answers_of(wire, found) == [cleaned]
    assert frozen(body) == before
    assert frozen(sanitize(wire, copy.deepcopy(body))) == frozen(found)
    assert sanitize(wire, found) is found
    key = history.SHAPES[wire].turns
    assert [found[key][0], found[key][2]] == [body[key][0], body[key][2]]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "said", ["Done.", f"Like this:\n```\n{LEAK}\n```", f"Write `{LEAK}`.", live("The {M} marker.")]
)
def test_sanitize_leaves_alone(wire: str, said: str) -> None:
    body = body_of(wire, ("user", LEAK), ("assistant", said), ("user", LEAK))
    assert sanitize(wire, body) is body


@pytest.mark.parametrize("wire", WIRES)
def test_sanitize_keeps_what_the_model_quotes(wire: str) -> None:
    body = body_of(wire, ("user", f"Repeat {LEAK}"), ("assistant", LEAK))
    assert sanitize(wire, body, policy=Policy(quoted=read_context(wire, body).quoted)) is body


def test_sanitize_cuts_a_write_larger_than_a_stream_may_hold() -> None:
    body = body_of("openai-chat", ("assistant", f"Now: {OPEN}{'x' * 100_000}"))
    assert answers_of("openai-chat", sanitize("openai-chat", body)) == [f"Now: {NOTE}"]


def test_sanitize_is_the_same_whatever_the_tool_choice() -> None:
    body = body_of("openai-chat", ("assistant", f"Now: {LEAK}"))
    assert sanitize("openai-chat", body, policy=Policy(calls=False)) == sanitize("openai-chat", body)


NATIVE: list[tuple[str, dict[str, Any]]] = [
    ("openai-chat", {"role": "tool", "tool_call_id": "c", "content": LEAK}),
    ("openai-chat", {"role": "system", "content": LEAK}),
    ("openai-chat", {"role": "assistant", "content": None, "reasoning_content": LEAK}),
    (
        "openai-chat",
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "edit", "arguments": LEAK}}],
        },
    ),
    ("ollama", {"role": "assistant", "content": "", "thinking": LEAK}),
    ("anthropic", {"role": "assistant", "content": [{"type": "thinking", "thinking": LEAK, "signature": "s"}]}),
    (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "edit", "input": {"path": LEAK}}]},
    ),
    ("anthropic", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": LEAK}]}),
    ("openai-responses", {"type": "reasoning", "summary": [{"type": "summary_text", "text": LEAK}]}),
    ("openai-responses", {"type": "function_call", "call_id": "c", "name": "edit", "arguments": LEAK}),
    ("openai-responses", {"type": "function_call_output", "call_id": "c", "output": LEAK}),
    ("openai-responses", {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": LEAK}]}),
]


@pytest.mark.parametrize(("wire", "turn"), NATIVE)
def test_sanitize_touches_assistant_text_alone(wire: str, turn: dict[str, Any]) -> None:
    body = {"model": "m", history.SHAPES[wire].turns: [turn]}
    assert sanitize(wire, body) is body


def test_sanitize_keeps_the_other_blocks_of_a_message() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    use = {"type": "tool_use", "id": "t", "name": "edit", "input": {}}
    text = {"type": "text", "text": LEAK, "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "assistant", "content": [thinking, text, use]}]}
    content = sanitize("anthropic", body)["messages"][0]["content"]
    assert content == [thinking, {**text, "text": NOTE}, use]


# nudge


@pytest.mark.parametrize("wire", WIRES)
def test_nudge_goes_along_to_its_limit(wire: str) -> None:
    nudges = Nudges(limit=2)
    body = body_of(wire, ("user", "go"), ("assistant", f"Now:\n{LOST}"), ("user", "go on"))
    assert [nudges.claim(wire, body) for _ in range(4)] == [True, True, False, False]
    later = body_of(wire, ("assistant", "ok"), ("assistant", f"Now:\n{LOST}"), ("user", "go on"))
    assert nudges.claim(wire, later)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "said",
    [
        [("user", "go")],
        [("user", LOST)],
        [("assistant", "Done."), ("user", "go")],
        [("assistant", LEAK), ("user", "go")],
        [("assistant", LOST), ("user", "go"), ("assistant", "Done.")],
        [("assistant", f"```\n{LOST}\n```"), ("user", "go")],
    ],
)
def test_nudge_not_due(wire: str, said: list[tuple[str, str]]) -> None:
    assert not Nudges().claim(wire, body_of(wire, *said))


@pytest.mark.parametrize("wire", WIRES)
def test_nudge_remembers_what_was_stripped_on_the_way_out(wire: str) -> None:
    nudges = Nudges(limit=1)
    asked = body_of(wire, ("user", "go"))
    nudges.remember(wire, asked, "Now:\n\n")
    assert not nudges.claim(wire, asked)
    back = body_of(wire, ("user", "go"), ("assistant", "Now:"), ("user", "go on"))
    assert [nudges.claim(wire, back), nudges.claim(wire, back)] == [True, False]
    assert not nudges.claim(wire, body_of(wire, ("assistant", "ok"), ("assistant", "Now:")))


def test_nudge_table_is_bounded_and_forgets_the_oldest() -> None:
    nudges = Nudges(limit=1, size=2)
    wire, asked = "openai-chat", body_of("openai-chat")
    for visible in ("one", "two", "three", "two"):
        nudges.remember(wire, asked, visible)
    nudges.remember(wire, asked, "four")
    due = [
        visible
        for visible in ("one", "two", "three", "four")
        if nudges.claim(wire, body_of(wire, ("assistant", visible)))
    ]
    assert due == ["two", "four"]


def test_nudge_never_where_it_may_not() -> None:
    body = body_of("openai-chat", ("assistant", LOST))
    assert not Nudges(limit=0).claim("openai-chat", body)
    assert not Nudges().claim("openai-chat", body, policy=Policy(calls=False))


@pytest.mark.parametrize("wire", WIRES)
def test_nudge_is_the_last_system_text(wire: str) -> None:
    body = directive(
        wire, body_of(wire, ("user", "go"), system="sys") if wire == "anthropic" else body_of(wire, ("user", "go"))
    )
    found = nudge(wire, body)
    if wire == "anthropic":
        assert found["system"][-1] == {"type": "text", "text": prompts.NUDGE}
        assert found["messages"] == body["messages"]
    else:
        assert found[history.SHAPES[wire].turns] == [
            *body[history.SHAPES[wire].turns],
            history.message(wire, "system", prompts.NUDGE),
        ]
    assert nudge(wire, found) is found


# resume


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("shown", "replayed"), [("Now I edit.", "Now I edit."), (" \n", "[removed malformed call]")])
def test_resume(wire: str, shown: str, replayed: str) -> None:
    body = body_of(wire, ("user", "go"), stream=True)
    before = frozen(body)
    asked = history.message(wire, "user", "go")
    said = history.message(wire, "assistant", replayed)
    key = history.SHAPES[wire].turns
    by_system = resume(wire, body, shown)
    turns = [asked, said, history.message(wire, "user", prompts.WAKE)]
    if wire == "anthropic":
        assert by_system["system"] == [{"type": "text", "text": prompts.NUDGE}]
    else:
        turns.append(history.message(wire, "system", prompts.NUDGE))
    assert by_system[key] == turns
    by_user = resume(wire, body, shown, "user")
    assert by_user == {**body, key: [asked, said, history.message(wire, "user", prompts.NUDGE)]}
    assert frozen(body) == before


def test_resume_of_an_input_that_is_one_string() -> None:
    found = resume("openai-responses", {"model": "m", "input": "go"}, "So.", "user")
    assert [history.role_of(item) for item in found["input"]] == ["user", "assistant", "user"]
    assert found["input"][1]["content"] == [{"type": "output_text", "text": "So."}]


def test_resume_corrects_once_where_system_text_stands_at_the_top() -> None:
    nudged = nudge("anthropic", body_of("anthropic", ("user", "go")))
    assert resume("anthropic", nudged, "So.")["system"] == nudged["system"]


# hoist and scope


READ, GREP, SEARCH = (
    {"type": "function", "name": "read", "parameters": {}},
    {"type": "function", "name": "grep", "parameters": {}},
    {"type": "web_search"},
)


@pytest.mark.parametrize(
    ("item", "top", "tools"),
    [
        ({"type": "additional_tools", "role": "developer", "tools": [READ, SEARCH]}, [GREP], [GREP, READ, SEARCH]),
        ({"type": "message", "role": "user", "content": "x", "additional_tools": [READ]}, None, [READ]),
        ({"type": "additional_tools", "tools": [READ, {**READ, "strict": True}]}, [], [{**READ, "strict": True}]),
    ],
)
def test_hoist(item: dict[str, Any], top: Any, tools: list[Any]) -> None:
    body = {"model": "m", "tools": top, "input": [item]}
    assert hoist("openai-responses", body) == {**body, "tools": tools}
    assert body["tools"] is top


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (
            "openai-responses",
            {"tools": [READ], "input": [{"type": "additional_tools", "tools": [{**READ, "strict": True}]}]},
        ),
        ("openai-responses", {"tools": "x", "input": [{"type": "additional_tools", "tools": [READ]}]}),
        ("openai-responses", {"input": [{"type": "additional_tools", "tools": {"a": 1}}, 5, None]}),
        ("openai-chat", {"messages": [{"role": "user", "additional_tools": [READ]}]}),
    ],
)
def test_nothing_to_hoist(wire: str, body: dict[str, Any]) -> None:
    assert hoist(wire, body) is body


@pytest.mark.parametrize(
    ("wire", "body", "inside"),
    [
        ("openai-chat", {"model": "deepseek-v4", "tools": [READ]}, True),
        ("openai-chat", {"model": "vendor/DeepSeek-V4.1", "tools": [READ]}, True),
        ("openai-chat", {"model": "deepseek-v4", "functions": [READ]}, True),
        ("openai-chat", {"model": "deepseek-v4", "tools": []}, False),
        ("openai-chat", {"model": "deepseek-v4"}, False),
        ("openai-chat", {"model": "other", "tools": [READ]}, False),
        ("openai-chat", {"model": 5, "tools": [READ]}, False),
        ("openai-chat", {"tools": [READ]}, False),
        ("openai-responses", {"model": "deepseek-v4", "input": [{"type": "additional_tools", "tools": [READ]}]}, True),
        ("openai-chat", {"model": "deepseek-v4", "messages": [{"type": "additional_tools", "tools": [READ]}]}, False),
    ],
)
def test_in_scope(wire: str, body: dict[str, Any], inside: bool) -> None:
    assert in_scope(wire, body, MODELS) is inside


# together


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("switches", list(itertools.product([False, True], repeat=4)))
def test_every_combination(wire: str, switches: tuple[bool, bool, bool, bool]) -> None:
    strategies = Strategies(*switches)
    body = body_of(wire, ("user", "go"), ("assistant", f"Now: {LOST}"), ("user", "go on"))
    if wire == "openai-responses":
        body["input"].insert(0, {"type": "additional_tools", "tools": [READ]})
    found = prepare(wire, body, strategies, Nudges())
    if not any((*switches[:3], switches[3] and wire == "openai-responses")):
        assert found is body
    assert history.says(wire, found, prompts.DIRECTIVE) is strategies.directive
    assert history.says(wire, found, prompts.NUDGE) is strategies.nudge
    assert answers_of(wire, found) == ["Now: " if strategies.sanitize else f"Now: {LOST}"]
    assert (READ in found["tools"]) is (strategies.hoist and wire == "openai-responses")
    assert prepare(wire, found, strategies, Nudges(limit=0)) is found


def test_all_on_changes_nothing_but_the_directive_when_there_is_no_leak() -> None:
    for wire in WIRES:
        body = body_of(wire, ("user", "go"), ("assistant", "Done."), ("user", "more"))
        assert prepare(wire, body, Strategies(hoist=True), Nudges()) == directive(wire, body)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([LEAK, LOST, "system", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tools", "additional_tools", "tool_calls", "name", "function"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(WIRES),
    st.dictionaries(
        st.sampled_from(["model", "messages", "input", "system", "instructions", "tools", "functions"]), json_values
    ),
    st.text(max_size=4),
)
def test_any_body_is_survived_and_never_changed(wire: str, body: dict[str, Any], shown: str) -> None:
    before = frozen(body)
    in_scope(wire, body, MODELS)
    found = prepare(wire, body, Strategies(hoist=True), Nudges())
    json.dumps(resume(wire, found, shown))
    json.dumps(resume(wire, found, shown, "user"))
    assert frozen(body) == before
    if frozen(found) == before:
        assert found is body
