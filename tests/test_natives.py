"""Structured calls that came damaged, on every wire that can carry the damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsml_core import Repairer
from tests.client_view import events, see
from tests.leaks import BASH, LEAK, MADE, READ, TOOLS, TWO, any_wire, repaired
from tests.markers import live
from tests.provider_frames import Answer, Calls, Says, body, chat_chunk, pieces, says, sse, stream

# The arguments of an Ollama call are an object: only an empty one can be damage there. An Anthropic body is the same.
TEXT_WIRES = ("openai-chat", "openai-responses", "anthropic")
text_wire = pytest.mark.parametrize("wire", TEXT_WIRES)
MAKE = {"command": "make"}

# name of the case: text before, native calls (name, arguments), the calls the client is to get
CASES: dict[str, tuple[str, list[tuple[str, str]], list[tuple[str, Any]]]] = {
    "empty takes the leak's": (LEAK, [("bash", "")], [("bash", MAKE)]),
    "an empty object takes the leak's": (LEAK, [("bash", "{}")], [("bash", MAKE)]),
    "broken JSON takes the leak's": (LEAK, [("bash", '{"command": "ma')], [("bash", MAKE)]),
    "no object takes the leak's": (LEAK, [("bash", '"make"')], [("bash", MAKE)]),
    "valid stays": (LEAK, [("bash", '{"command": "ls"}')], [("bash", {"command": "ls"})]),
    "empty without a leak of its name stays": (LEAK, [("read", "{}")], [("read", {})]),
    "in order": (TWO + LEAK, [("bash", ""), ("bash", "{}"), ("read", "")], [MADE, MADE, ("read", {"path": "a b"})]),
    "only the damaged one takes": (
        LEAK,
        [("bash", '{"command": "ls"}'), ("bash", "")],
        [("bash", {"command": "ls"}), MADE],
    ),
    "glued closers go": (
        "",
        [("bash", live('{"command": "ls"}</{M}parameter>\n</{M}invoke>'))],
        [("bash", {"command": "ls"})],
    ),
    "glued closers go before a leak is asked": (
        LEAK,
        [("bash", live('{"command": "ls"}\n</{M}invoke>'))],
        [("bash", {"command": "ls"})],
    ),
    "closers in a value stay": (
        "",
        [("bash", json.dumps({"command": live("a</{M}parameter></{M}invoke>")}))],
        [("bash", {"command": live("a</{M}parameter></{M}invoke>")})],
    ),
    "marked parameters are read": (
        "",
        [("bash", live('<{M}parameter name="command" string="true">ls "x"</{M}parameter>'))],
        [("bash", {"command": 'ls "x"'})],
    ),
    "brackets in a value stay": (
        "",
        [("bash", '{"command": "a < b && c </p>"}')],
        [("bash", {"command": "a < b && c </p>"})],
    ),
}


@text_wire
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_native_arguments(wire: str, case: str, size: int) -> None:
    text, natives, expected = CASES[case]
    answer: Answer = [
        *([says(text, size)] if text else []),
        *(Calls(name, pieces(given, size)) for name, given in natives),
    ]
    out, repairer = repaired(wire, stream(wire, answer))
    seen = see(wire, out)
    assert (seen.text, seen.calls, seen.finish) == ("", expected, "tool_calls")
    assert repairer.report.calls == []
    changed = [name for (name, given), made in zip(natives, expected, strict=True) if not _means(given, made[1])]
    assert repairer.report.repaired == changed
    if not changed and not text:
        assert out == b"".join(stream(wire, answer))


def _means(given: str, made: Any) -> bool:
    try:
        return bool(json.loads(given) == made)
    except ValueError:
        return False


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("case", CASES)
def test_native_arguments_in_a_body(wire: str, case: str) -> None:
    text, natives, expected = CASES[case]
    answer: Answer = [says(text), *(Calls(name, [given]) for name, given in natives)]
    seen = see(wire, repaired(wire, [body(wire, answer)], streamed=False)[0], stream=False)
    assert (seen.text, seen.calls) == ("", expected)


@any_wire
def test_an_empty_object_takes_the_leaks_on_every_wire(wire: str) -> None:
    answer: Answer = [says("Go. " + LEAK), Calls("bash", ["{}"])]
    streamed = see(wire, repaired(wire, stream(wire, answer))[0])
    whole = see(wire, repaired(wire, [body(wire, answer)], streamed=False)[0], stream=False)
    assert streamed.calls == whole.calls == [MADE]
    assert streamed.text == whole.text == "Go. "


@text_wire
def test_the_ids_of_native_calls_stay(wire: str) -> None:
    answer: Answer = [says(LEAK), Calls("bash", [])]
    plain = see(wire, b"".join(stream(wire, [says("x"), Calls("bash", ["{}"])])))
    assert see(wire, repaired(wire, stream(wire, answer))[0]).ids == plain.ids


@text_wire
def test_arguments_flow_when_no_leak_of_the_name_came_before(wire: str) -> None:
    frames = stream(wire, [says(LEAK), Calls("read", pieces('{"path": "a long one"}', 3))])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    outs = [repairer.feed(frame) for frame in frames]
    at = next(number for number, frame in enumerate(frames) if b'"lon"' in frame)
    assert b'"lon"' in outs[at]


@text_wire
def test_held_arguments_do_not_look_like_silence(wire: str) -> None:
    frames = stream(wire, [says("Go. " + LEAK), Calls("bash", pieces('{"command": "make all"}', 3))])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    outs = [repairer.feed(frame) for frame in frames]
    first = next(number for number, frame in enumerate(frames) if b"bash" in frame and b"invoke" not in frame)
    assert all(outs[first : first + 6])
    assert see(wire, b"".join(outs) + repairer.close()).calls == [("bash", {"command": "make all"})]


def test_a_legacy_function_call_is_native() -> None:
    data = [
        chat_chunk({"role": "assistant", "content": "Go. " + LEAK}),
        chat_chunk({"function_call": {"name": "bash", "arguments": ""}}),
        chat_chunk({"function_call": {"arguments": "{}"}}),
        chat_chunk({}, "function_call"),
    ]
    out, repairer = repaired("openai-chat", data)
    deltas = [value["choices"][0]["delta"] for _, value in events(out)]
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert json.loads("".join(call["arguments"] for call in calls)) == MAKE
    assert not any("tool_calls" in delta for delta in deltas)
    assert b'"function_call"}]' in out.replace(b" ", b"")
    assert repairer.report.native == 1


def test_a_legacy_finish_does_not_hide_a_recovered_call() -> None:
    data = [chat_chunk({"role": "assistant", "content": "Go. " + LEAK}), chat_chunk({}, "function_call")]
    out, _ = repaired("openai-chat", data)
    chunks = [value["choices"][0] for _, value in events(out)]
    assert [call["function"]["name"] for chunk in chunks for call in chunk["delta"].get("tool_calls", [])] == ["bash"]
    assert chunks[-1]["finish_reason"] == "tool_calls"


def test_a_call_of_another_kind_is_native_too() -> None:
    """A Responses item that calls something without JSON arguments is left as it is, and the leak only stripped."""
    frames = stream("openai-responses", [says("Go. " + LEAK), Calls("bash", ["x"])])
    data = [
        frame.replace(b'"function_call"', b'"custom_tool_call"')
        .replace(b"function_call_arguments", b"custom_tool_call_input")
        .replace(b'"arguments"', b'"input"')
        for frame in frames
    ]
    out, repairer = repaired("openai-responses", data)
    values = [value for _, value in events(out)]
    (call,) = [item for item in values[-1]["response"]["output"] if item["type"] == "custom_tool_call"]
    assert (call["input"], len(values[-1]["response"]["output"])) == ("x", 2)
    assert repairer.report.repaired == []


@pytest.mark.parametrize("streamed", [True, False])
def test_a_recovered_call_of_a_custom_or_grouped_tool_has_the_form_of_its_kind(streamed: bool) -> None:
    tools = [
        {"type": "custom", "name": "bash"},
        {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
    ]
    bash = BASH.replace("command", "input")
    wire, answer = "openai-responses", [Says([live(f"<{{M}}tool_calls>{bash}{READ}</{{M}}tool_calls>")])]
    data = stream(wire, answer) if streamed else [body(wire, answer)]
    out, _ = repaired(wire, data, streamed=streamed, tools=tools)
    response = events(out)[-1][1]["response"] if streamed else json.loads(out)
    custom, grouped = response["output"]
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "bash", "make")
    assert (grouped["type"], grouped["namespace"], grouped["name"]) == ("function_call", "files", "read")


def test_a_native_call_before_the_text_counts_too() -> None:
    head = {"index": 0, "id": "n", "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}
    data = [
        chat_chunk({"role": "assistant", "content": ""}),
        chat_chunk({"tool_calls": [head]}),
        chat_chunk({"content": "Go. " + LEAK}),
        chat_chunk({}, "stop"),
        sse({"choices": [], "usage": {}}),
        b"data: [DONE]\n\n",
    ]
    seen = see("openai-chat", repaired("openai-chat", data)[0])
    assert (seen.text, seen.calls, seen.finish) == ("Go. ", [("read", {"path": "x"})], "tool_calls")
