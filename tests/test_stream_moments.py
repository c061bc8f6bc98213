"""Repairer: what leaves when, what a report says, and what envelopes, errors and several choices do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsml_core import Policy, Repairer
from dsml_core.formats import WIRES as FORMATS
from dsml_core.formats import wire_of
from tests.client_view import events, see
from tests.leaks import BASH, LEAK, MADE, PROSE, REJECTED, TOOLS, any_wire, repaired, said
from tests.markers import BAR, MARK, live
from tests.provider_frames import WIRES, Says, body, chat_chunk, pieces, says, sse, stream

# -- prose is not delayed, and a held call does not look like silence


@any_wire
def test_each_frame_of_prose_leaves_at_once_and_as_it_came(wire: str) -> None:
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    held = 0
    for frame in stream(wire, [says("Some prose, 1 > 0, and `more` of it. " * 3)]):
        out = repairer.feed(frame)
        assert out in (frame, b"") or out.endswith(frame)
        held += out == b""
    assert held <= {"openai-responses": 2, "anthropic": 2}.get(wire, 0)  # what opens a part waits for its first text


@any_wire
def test_a_possible_opener_waits_whole_and_comes_back_as_it_was(wire: str) -> None:
    frames = stream(wire, [Says(["Hello", " a <", " b", " c"])])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    outs = [repairer.feed(frame) for frame in frames]
    waiting = next(number for number, frame in enumerate(frames) if b" a <" in frame)
    assert outs[waiting] == b""
    assert outs[waiting + 1] == frames[waiting] + frames[waiting + 1]
    assert b"".join(outs) + repairer.close() == b"".join(frames)


@any_wire
def test_each_frame_held_for_a_call_is_answered_at_once(wire: str) -> None:
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    opener = live("<{M}tool_calls>\n")
    frames = stream(wire, [Says(["Go ", opener, *pieces(LEAK[len(opener) :], 9)])])
    outs = [repairer.feed(frame) for frame in frames]
    first = next(number for number, frame in enumerate(frames) if b"tool_calls>" in frame)
    held = outs[first : first + 12]
    assert all(held)
    assert said(wire, b"".join(held)) == ""


@any_wire
def test_a_leak_that_starts_a_message_is_answered_with_signs_of_life(wire: str) -> None:
    sign = {
        "openai-chat": b'"content":""',
        "openai-responses": b"response.in_progress",
        "anthropic": b'{"type":"ping"}',
        "ollama": b'"content":""',
    }[wire]
    out, _ = repaired(wire, stream(wire, [says(LEAK, 5)]))
    assert out.count(sign) > 20
    assert see(wire, out).calls == [MADE]


@any_wire
def test_text_behind_a_mention_leaves_with_the_frame_that_settles_it(wire: str) -> None:
    mention = live("<{M}tool_calls>")
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join(repairer.feed(frame) for frame in stream(wire, [Says(["See ", mention, " in the", " docs."])]))
    assert said(wire, out) == f"See {mention} in the docs."


@pytest.mark.parametrize("choice", [0, 1])
def test_white_space_that_starts_a_part_does_not_hold_up_another(choice: int) -> None:
    repairer = Repairer("openai-chat", stream=True, tools=TOOLS)
    frames = [chat_chunk({"content": "\n"}), chat_chunk({"reasoning_content": "Hm."}, choice=choice)]
    assert [repairer.feed(frame) for frame in frames] == [b"", b"".join(frames)]


# -- an idle provider


@any_wire
def test_an_idle_provider_lets_a_possible_opener_go(wire: str) -> None:
    frames = stream(wire, [Says(["Go ", "a <", " b"])])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    at = next(number for number, frame in enumerate(frames) if b"a <" in frame)
    before = b"".join(repairer.feed(frame) for frame in frames[: at + 1])
    assert b"a <" not in before
    assert repairer.flush_idle() == frames[at]
    assert repairer.flush_idle() == b""
    rest = b"".join(repairer.feed(frame) for frame in frames[at + 1 :]) + repairer.close()
    assert before + frames[at] + rest == b"".join(frames)


@any_wire
def test_a_call_is_recovered_though_its_first_character_has_left(wire: str) -> None:
    frames = stream(wire, [Says(["<", LEAK[1:]])])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    at = next(number for number, frame in enumerate(frames) if b'"<"' in frame)
    out = b"".join(repairer.feed(frame) for frame in frames[: at + 1]) + repairer.flush_idle()
    assert said(wire, out) == "<"
    out += b"".join(repairer.feed(frame) for frame in frames[at + 1 :]) + repairer.close()
    seen = see(wire, out)
    assert (seen.text, seen.calls) == ("<", [MADE])


@pytest.mark.parametrize("begun", [2, 9, 20])
@any_wire
def test_what_has_a_sign_of_the_marker_waits_also_when_idle(wire: str, begun: int) -> None:
    frames = stream(wire, [Says(["Go. ", LEAK[:begun], LEAK[begun:]])])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join(repairer.feed(frame) + repairer.flush_idle() for frame in frames) + repairer.close()
    seen = see(wire, out)
    assert (seen.text, seen.calls) == ("Go. ", [MADE])


@any_wire
def test_an_idle_provider_does_not_break_a_call(wire: str) -> None:
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join(repairer.feed(frame) + repairer.flush_idle() for frame in stream(wire, [says("Go. " + LEAK, 40)]))
    assert see(wire, out + repairer.close()).calls == [MADE]


@any_wire
def test_white_space_that_starts_a_message_waits_also_when_idle(wire: str) -> None:
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join(repairer.feed(frame) + repairer.flush_idle() for frame in stream(wire, [Says(["\n\n", LEAK])]))
    seen = see(wire, out + repairer.close())
    assert (seen.text, seen.calls) == ("", [MADE])


# -- errors of the provider

FAILURES = {
    "openai-chat": sse({"error": {"message": "overloaded"}}),
    "openai-responses": sse({"type": "error", "message": "overloaded", "sequence_number": 99}, "error"),
    "anthropic": sse({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "error"),
    "ollama": b'{"error": "overloaded"}\n',
}


@any_wire
@pytest.mark.parametrize("text", [f"Go. {LEAK}", f"Go. {LEAK[:60]}", f"{LEAK}", "Go. <"])
def test_before_an_error_everything_held_goes_out(wire: str, text: str) -> None:
    frames = stream(wire, [says(text)])
    ends = (b"_stop", b'"stop"', b"text.done")
    end = next(number for number, frame in enumerate(frames) if any(sign in frame for sign in ends))
    out, repairer = repaired(wire, [*frames[:end], FAILURES[wire]])
    error = out.rindex(b"data:" if wire != "ollama" else b'{"error')
    before = out[:error]
    assert b"overloaded" in out[error:]
    assert said(wire, before) == text
    assert repairer.report.calls == []


# -- several choices


def test_each_choice_has_its_own_calls() -> None:
    one, two = [LEAK[at : at + 6] for at in range(0, len(LEAK), 6)], ["plain ", "text <", " b"]
    data = [chat_chunk({"role": "assistant", "content": ""}, choice=0), chat_chunk({"role": "assistant"}, choice=1)]
    for number in range(len(one)):
        data.append(chat_chunk({"content": one[number]}, choice=0))
        if number < len(two):
            data.append(chat_chunk({"content": two[number]}, choice=1))
    data += [chat_chunk({}, "stop", choice=1), chat_chunk({}, "stop", choice=0), b"data: [DONE]\n\n"]
    out, repairer = repaired("openai-chat", data)
    texts, finishes, called = {0: "", 1: ""}, {}, []
    for _, value in events(out)[:-1]:
        for choice in value["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
            called += [(choice["index"], call["function"]["name"]) for call in choice["delta"].get("tool_calls", [])]
            if choice["finish_reason"]:
                finishes[choice["index"]] = choice["finish_reason"]
    assert (texts, finishes) == ({0: "", 1: "plain text < b"}, {0: "tool_calls", 1: "stop"})
    assert called == [(0, "bash")]
    assert len(repairer.report.calls) == 1


def test_one_frame_with_everything_is_taken_apart() -> None:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": {"total_tokens": 3}}
    delta = {"role": "assistant", "reasoning_content": "Hm.", "content": "Go. " + LEAK, "extra": 1}
    choices = [
        {"index": 0, "delta": delta, "finish_reason": "stop", "logprobs": {"content": []}},
        {"index": 1, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "length"},
    ]
    out, _ = repaired("openai-chat", [sse({**head, "choices": choices})])
    said_, called, finished = [value for _, value in events(out)]
    assert said_["choices"][0]["delta"] == {**delta, "content": "Go. "}
    assert said_["choices"][0]["finish_reason"] is None and "usage" not in said_
    assert called["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "bash"
    assert finished["usage"] == {"total_tokens": 3}
    assert [choice["finish_reason"] for choice in finished["choices"]] == ["tool_calls", "length"]
    assert [choice["delta"] for choice in finished["choices"]] == [{}, {"content": "Hi"}]


def test_a_choice_of_a_whole_body_that_needs_nothing_stays() -> None:
    message = {"role": "assistant", "content": "Hi", "refusal": None}
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": LEAK}, "finish_reason": "stop"},
        {"index": 1, "message": message, "finish_reason": "stop"},
    ]
    out, _ = repaired("openai-chat", [json.dumps({"id": "x", "choices": choices}).encode()], streamed=False)
    first, second = json.loads(out)["choices"]
    assert second == choices[1]
    assert first["message"]["content"] is None
    assert first["finish_reason"] == "tool_calls"


def test_reasoning_under_two_names_is_one_text() -> None:
    data = [chat_chunk({"reasoning": piece, "reasoning_content": piece}) for piece in ("I run it. ", LEAK)]
    out, _ = repaired("openai-chat", [*data, chat_chunk({}, "stop")])
    deltas = [value["choices"][0]["delta"] for _, value in events(out)]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "I run it. "
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "I run it. "
    assert sum(len(delta.get("tool_calls", [])) for delta in deltas) == 1


def test_a_finish_that_comes_twice_is_the_same_twice() -> None:
    for text, calls, said_ in ((LEAK, 1, ""), (REJECTED, 0, "[removed malformed call]")):
        data = [chat_chunk({"role": "assistant", "content": text}), chat_chunk({}, "stop"), chat_chunk({}, "stop")]
        out, _ = repaired("openai-chat", data)
        assert out.count(b'"finish_reason":"tool_calls"') == 2 * calls
        assert out.count(b'"tool_calls":[') == calls
        assert said("openai-chat", out) == said_


# -- envelopes


def wrapped(wire: str, frame: bytes, envelope: dict[str, Any]) -> bytes:
    """A frame whose JSON stands in a gateway's envelope."""
    start, end = frame.find(b"{"), frame.rfind(b"}") + 1
    if start < 0:
        return frame
    value = json.dumps({**envelope, "data": json.loads(frame[start:end])}).encode()
    return frame[:start] + value + frame[end:]


@any_wire
@pytest.mark.parametrize("envelope", [{"success": True}, {"code": 0, "message": "ok"}])
def test_a_gateways_envelope_stays_around_each_frame(wire: str, envelope: dict[str, Any]) -> None:
    data = [wrapped(wire, frame, envelope) for frame in stream(wire, [says("Go. " + LEAK)])]
    out, _ = repaired(wire, data)
    bare = b""
    for frame in out.splitlines(keepends=True):
        start = frame.find(b"{")
        if start < 0:
            bare += frame
            continue
        value = json.loads(frame[start:])
        assert {**value, "data": None} == {**envelope, "data": None}
        bare += frame[:start] + json.dumps(value["data"]).encode() + b"\n"
    assert (see(wire, bare).text, see(wire, bare).calls) == ("Go. ", [MADE])


@any_wire
def test_a_gateways_envelope_stays_around_a_body(wire: str) -> None:
    data = wrapped(wire, body(wire, [says(LEAK)]), {"success": True, "code": 0})
    out, _ = repaired(wire, [data], streamed=False)
    value = json.loads(out)
    assert (value["success"], value["code"]) == (True, 0)
    assert see(wire, json.dumps(value["data"]).encode(), stream=False).calls == [MADE]
    plain = wrapped(wire, body(wire, [says(PROSE)]), {"success": True})
    assert repaired(wire, [plain], streamed=False)[0] == plain


# -- ids


@any_wire
def test_ids_are_the_same_for_the_same_response(wire: str) -> None:
    data = stream(wire, [says(f"<{MARK}tool_calls>{BASH}{BASH}</{MARK}tool_calls>")])
    first, second = see(wire, repaired(wire, data)[0]), see(wire, repaired(wire, data)[0])
    assert first.ids == second.ids
    assert len(first.calls) == 2
    prefix = {"openai-chat": "call_", "openai-responses": "call_", "anthropic": "toolu_", "ollama": ""}[wire]
    assert all(made.startswith(prefix) and len(made) == len(prefix) + 24 for made in first.ids)
    other = see(wire, repaired(wire, [frame.replace(b'"id": "', b'"id": "z') for frame in data])[0])
    assert not set(first.ids) & set(other.ids)


# -- what is told


@any_wire
def test_a_report_tells_what_was_done(wire: str) -> None:
    _, repairer = repaired(wire, stream(wire, [says(f"Go. {LEAK}\n{REJECTED}")]))
    report = repairer.report
    assert (report.wire, report.model) == (wire, "deepseek-test")
    assert [(call.name, call.row) for call in report.calls] == [("bash", "V1")]
    assert "".join(removed.text for removed in report.removed).count(BAR) == (LEAK + REJECTED).count(BAR)
    assert [rejected.row for rejected in report.rejected] == ["V14"]
    assert report.saw_syntax and report.changed and report.native == 0
    assert 60 < report.held <= len(LEAK + REJECTED)


@any_wire
def test_what_is_seen_and_what_is_removed_make_what_came(wire: str) -> None:
    for text in (f"Go. {LEAK}\n{REJECTED} end", f" \n{LEAK} \n", f"\n{LEAK}", LEAK):
        out, repairer = repaired(wire, stream(wire, [says(text, 3)]))
        spans = {removed.start: removed.text for removed in repairer.report.removed}
        visible, at = see(wire, out).text, 0
        rebuilt = ""
        while len(rebuilt) < len(text):
            if len(rebuilt) in spans:
                rebuilt += spans[len(rebuilt)]
            else:
                rebuilt += visible[at]
                at += 1
        assert (rebuilt, at) == (text, len(visible))


@any_wire
def test_a_refused_answer_is_reported_as_unchanged(wire: str) -> None:
    if wire == "ollama":
        return  # has no such finish
    _, repairer = repaired(wire, stream(wire, [says("Go. " + LEAK)], "content_filter"))
    assert repairer.report.removed == [] and repairer.report.calls == []


@any_wire
def test_a_quoted_echo_stays(wire: str) -> None:
    out, _ = repaired(wire, stream(wire, [says("You sent " + LEAK)]), policy=Policy(quoted=("what is " + LEAK,)))
    assert (see(wire, out).text, see(wire, out).calls) == ("You sent " + LEAK, [])


# -- wires by path


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("/v1/chat/completions", "openai-chat"),
        ("/chat/completions?a=b/messages", "openai-chat"),
        ("/v1/responses", "openai-responses"),
        ("/anthropic/v1/messages?beta=true", "anthropic"),
        ("/api/chat", "ollama"),
        ("/v1/completions", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/responses/resp_1", None),
        ("/", None),
    ],
)
def test_a_path_names_its_wire(path: str, wire: str | None) -> None:
    assert wire_of(path) == wire


def test_the_formats_are_these() -> None:
    assert tuple(FORMATS) == WIRES
    with pytest.raises(KeyError):
        Repairer("gopher", stream=True)
