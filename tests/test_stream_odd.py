"""Providers that do odd things, each found by the fuzzer (tests/test_fuzz.py): nothing of the answer is lost by it."""

from __future__ import annotations

import json

import pytest

from dsml_core import Repairer
from dsml_core.framing import SseFramer
from tests.client_view import events, see
from tests.leaks import LEAK, MADE, REJECTED, TOOLS, UNCLOSED, any_wire, repaired, said
from tests.markers import BAR, live
from tests.provider_frames import Answer, Calls, Says, body, chat_chunk, says, sse, stream

DONE = b"data: [DONE]\n\n"
START = chat_chunk({"role": "assistant", "content": ""})


def late(text: str) -> list[bytes]:
    """An answer that goes on behind its finish."""
    pieces = [chat_chunk({"content": text[at : at + 9]}) for at in range(0, len(text), 9)]
    return [START, chat_chunk({"content": "Hi. "}), chat_chunk({}, "stop"), *pieces]


@pytest.mark.parametrize("end", [b"", DONE])
@pytest.mark.parametrize("text", ["more <", UNCLOSED])
def test_text_behind_the_finish_is_not_lost(text: str, end: bytes) -> None:
    out, repairer = repaired("openai-chat", [*late(text), end])
    assert said("openai-chat", out) == f"Hi. {text}"
    assert repairer.held == 0


@pytest.mark.parametrize("end", [b"", DONE])
def test_a_leak_behind_the_finish_becomes_a_call(end: bytes) -> None:
    out, repairer = repaired("openai-chat", [*late(LEAK), end])
    choices = [value["choices"][0] for _, value in events(out) if value != "[DONE]"]
    names = [call["function"]["name"] for choice in choices for call in choice["delta"].get("tool_calls", [])]
    assert names == [MADE[0]] == [call.name for call in repairer.report.calls]
    assert choices[-1]["finish_reason"] == "tool_calls"


@any_wire
def test_what_left_while_the_provider_was_silent_is_not_reported_as_removed(wire: str) -> None:
    frames = stream(wire, [Says(["Go. ", "<", LEAK[1:9], LEAK[9:]])])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join(repairer.feed(frame) + repairer.flush_idle() for frame in frames) + repairer.close()
    shown = see(wire, out).text
    assert len(shown) > len("Go. ")
    assert shown + "".join(span.text for span in repairer.report.removed) == f"Go. {LEAK}"
    assert repairer.report.removed[0].start == len(shown)


@pytest.mark.parametrize("foreign", [{"x": 1}, {"type": "gateway.cost", "x": 2}])
def test_events_without_a_number_do_not_count(foreign: dict[str, object]) -> None:
    frame = sse(foreign, "gateway")
    frames = stream("openai-responses", [says(f"Go. {LEAK} and {REJECTED}", 20)])
    for place in range(1, len(frames)):
        out, _ = repaired("openai-responses", [*frames[:place], frame, *frames[place:]])
        assert out.count(frame) == 1
        assert see("openai-responses", out.replace(frame, b"")).calls == [MADE]


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_an_index_that_is_null_stays(wire: str) -> None:
    field = "index" if wire == "anthropic" else "output_index"
    kind = "content_block_stop" if wire == "anthropic" else "response.output_text.delta"
    frames = stream(wire, [Says(["Go. "])])
    data = b"".join([*frames[:2], sse({"type": kind, field: None}, kind), *frames[2:]])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    assert repairer.feed(data) + repairer.close() == data


@pytest.mark.parametrize("text", ["", "\n ", "Go. "])
@pytest.mark.parametrize("kept", [3, 4, 6])
def test_an_item_that_never_ends_holds_nothing_back(kept: int, text: str) -> None:
    frames = stream("openai-responses", [Says([text] if text else [])])
    data = b"".join(frames[:kept]) + sse({"x": "behind"})
    out, _ = repaired("openai-responses", [data])
    assert out == data


def test_a_fault_behind_carried_text_does_not_lose_it() -> None:
    """The text behind a removed block is carried along by a frame that cannot be written."""
    frames = stream("openai-responses", [Says([f"Go. {LEAK}\n"], reasoning=True)])
    at = next(number for number, frame in enumerate(frames) if b"text.done" in frame)
    value = json.loads(frames[at].split(b"data: ")[1])
    value["text"] = 5
    frames[at] = sse(value, value["type"])
    repairer = Repairer("openai-responses", stream=True, tools=TOOLS)
    out = b"".join([*(repairer.feed(frame) for frame in frames), repairer.close()])
    assert repairer.report.faults
    deltas = [value["delta"] for _, value in events(out) if value["type"].endswith("text.delta")]
    assert sorted("".join(deltas)) == sorted(f"Go. {LEAK}\n")


def test_a_crlf_that_is_cut_ends_a_frame_all_the_same() -> None:
    raw = b"event: a\r\ndata: x\r\n\r\ndata: y\r\n\r\n: z\r\n\r\n"
    whole = [frame.raw for frame in SseFramer().feed(raw)]
    for at in range(1, len(raw)):
        framer = SseFramer()
        frames = framer.feed(raw[:at])
        assert b"".join(frame.raw for frame in frames) + framer.rest() == raw[:at]
        assert [frame.raw for frame in [*frames, *framer.feed(raw[at:]), *framer.close()]] == whole


@any_wire
def test_a_cut_crlf_changes_no_byte_of_what_leaves(wire: str) -> None:
    data = b"".join(stream(wire, [says(f"Go. {LEAK}", 30), Says([f"<{BAR}x"])])).replace(b"\n", b"\r\n")
    expected, _ = repaired(wire, [data])
    out, _ = repaired(wire, (data[at : at + 1] for at in range(len(data))))
    assert out == expected


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_a_refused_answer_keeps_the_arguments_of_its_calls(wire: str) -> None:
    data = body(wire, [says(LEAK), Calls("bash", ["{}"])], "content_filter")
    out, repairer = repaired(wire, [data], streamed=False)
    assert out == data
    assert repairer.report.repaired == []


def test_white_space_in_front_of_a_leak_comes_back_with_it() -> None:
    """The native call tells that the leak goes; the filter tells that it stays."""
    frames = stream("openai-chat", [Says(["\u2028", LEAK]), Calls("bash", [""])], "content_filter")
    out, repairer = repaired("openai-chat", frames)
    assert said("openai-chat", out) == f"\u2028{LEAK}"
    assert repairer.report.removed == []


def test_a_part_that_is_left_empty_twice_is_reported_once() -> None:
    answer: Answer = [Says(["\n", LEAK]), Calls("read", ["{}"]), Says(["Hm."], reasoning=True), Says([f"\n{LEAK}"])]
    _, repairer = repaired("openai-chat", stream("openai-chat", answer))
    removed = sorted(repairer.report.removed, key=lambda span: span.start)
    assert "".join(span.text for span in removed) == f"\n{LEAK}\n{LEAK}"


@pytest.mark.parametrize("closed", [True, False])
@any_wire
def test_few_frames_wait_for_the_end_of_an_unmarked_call(
    wire: str, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsml_core.outlet.CROWD", 20)
    call = '<invoke name="bash">\n<parameter name="command" string="true">' + "make " * 60
    text = "Go.\n" + call + ("</parameter>\n</invoke>" if closed else "")
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b""
    for frame in stream(wire, [says(text)]):
        out += repairer.feed(frame)
        assert len(repairer._rewriter.outlet.queue) <= 21
    seen = see(wire, out + repairer.close())
    assert seen.calls == ([("bash", {"command": "make " * 60})] if closed else [])
    assert seen.text == ("Go.\n" if closed else text)
    assert repairer.report.faults == []


@any_wire
def test_white_space_shown_before_a_native_call_is_not_reported_as_removed(wire: str) -> None:
    answer: Answer = [says("\n"), Calls("bash", ["{}"]), Says(list(LEAK))]
    out, repairer = repaired(wire, stream(wire, answer))
    removed = "".join(span.text for span in repairer.report.removed)
    assert sorted(see(wire, out).text + removed) == sorted("\n" + LEAK)


# -- Found by hand: what a provider may leave out, and what it says of an end


def recovered(wire: str, data: list[bytes]) -> tuple[bytes, list[str]]:
    out, repairer = repaired(wire, data)
    assert repairer.report.faults == []
    return out, [call.name for call in repairer.report.calls]


@pytest.mark.parametrize("text", [f"Hi {LEAK}", LEAK])
@pytest.mark.parametrize("ids", ["none", "other at the end", "all the same"])
def test_a_leak_runs_once_where_ids_tell_nothing(text: str, ids: str) -> None:
    frames = []
    for frame in stream("openai-responses", [says("Think.", reasoning=True), says(text)]):
        value = json.loads(frame.split(b"data: ")[1])
        items = value["response"]["output"] if value["type"] == "response.completed" else []
        for item in [*items, *([value["item"]] if "item" in value else [])]:
            if ids == "none":
                del item["id"]
            elif ids == "all the same" or items:
                item["id"] = "same" if ids == "all the same" else f"other_{item['id']}"
        frames.append(sse(value, value["type"]))
    out, names = recovered("openai-responses", frames)
    last = [value for _, value in events(out)][-1]["response"]
    assert names == ["bash"]
    assert [item["type"] for item in last["output"] if item["type"] == "function_call"] == ["function_call"]
    assert "parameter" not in json.dumps([item for item in last["output"] if item["type"] == "message"])


OPEN = live('Hi\n<parameter name="bash">\n<{M}parameter name="command" string="true">make</{M}parameter>\n')


@pytest.mark.parametrize(("finish", "calls"), [("stop", ["bash"]), ("abort", []), ("", []), ("error", []), (None, [])])
def test_only_a_stop_ends_a_wrapped_call(finish: str | None, calls: list[str]) -> None:
    ends = [] if finish is None else [chat_chunk({}, finish)]
    _, names = recovered("openai-chat", [START, chat_chunk({"content": OPEN}), *ends, DONE])
    assert names == calls


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "queued"])
def test_a_body_that_is_no_whole_answer_is_not_touched(status: str) -> None:
    data = json.loads(body("openai-responses", [says(f"Hi {LEAK}")])) | {"status": status}
    repairer = Repairer("openai-responses", stream=False, tools=TOOLS)
    raw = json.dumps(data).encode()
    assert repairer.feed(raw) + repairer.close() == raw


def test_an_error_beside_choices_is_an_error() -> None:
    error = {"error": {"code": 502}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
    data = [START, chat_chunk({"content": LEAK}), sse(error), DONE]
    out, names = recovered("openai-chat", data)
    assert names == []
    assert said("openai-chat", out) == LEAK
    assert b'"error"' in out


@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_in_chat_is_no_answer(streamed: bool) -> None:
    message = {"role": "assistant", "content": LEAK, "refusal": "no"}
    if streamed:
        data = b"".join([chat_chunk(message), chat_chunk({}, "stop"), DONE])
    else:
        data = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    repairer = Repairer("openai-chat", stream=streamed, tools=TOOLS)
    out = repairer.feed(data) + repairer.close()
    assert repairer.report.calls == []
    assert not streamed or said("openai-chat", out) == LEAK
    assert streamed or out == data


def test_a_refusal_in_responses_is_no_answer() -> None:
    data = json.loads(body("openai-responses", [says(LEAK)]))
    data["output"][0]["content"].append({"type": "refusal", "refusal": "no"})
    repairer = Repairer("openai-responses", stream=False, tools=TOOLS)
    raw = json.dumps(data).encode()
    assert repairer.feed(raw) + repairer.close() == raw


def test_messages_that_tell_no_usage() -> None:
    frames = [frame for frame in stream("anthropic", [says("Hi "), says(LEAK)]) if b"message_delta" not in frame]
    start = json.loads(frames[0].split(b"data: ")[1])
    del start["message"]["usage"]
    out, names = recovered("anthropic", [sse(start, "message_start"), *frames[1:]])
    values = [value for _, value in events(out)]
    assert names == ["bash"]
    assert [value["index"] for value in values if value["type"] == "content_block_start"] == [0, 1]
    assert [value["delta"]["stop_reason"] for value in values if value["type"] == "message_delta"] == ["tool_use"]


@pytest.mark.parametrize("last", [{}, {"message": None}])
def test_a_last_line_without_a_message(last: dict[str, None]) -> None:
    lines = [
        {"message": {"role": "assistant", "content": f"Hi {LEAK}"}, "done": False},
        {"model": "m", "created_at": "2", "done": True, "total_duration": 5} | last,
    ]
    out, names = recovered("ollama", [json.dumps(line).encode() + b"\n" for line in lines])
    assert names == ["bash"]
    assert [json.loads(line).get("total_duration") for line in out.splitlines()][-1] == 5


ODD: dict[str, list[dict[str, object]]] = {
    "openai-responses": [
        {"type": "response.foo.delta", "output_index": 0, "delta": "x"},
        {"type": "response.foo_part.added", "output_index": 0, "content_index": 7},
        {"type": "response.output_item.added", "output_index": 7, "item": None},
    ],
    "anthropic": [
        {"type": "message_delta", "usage": {"output_tokens": 1}},
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": 1}},
        {"type": "content_block_delta"},
        {"type": "content_block_start"},
    ],
}


@pytest.mark.parametrize(("wire", "odd"), [(wire, odd) for wire, values in ODD.items() for odd in values])
def test_an_odd_frame_stands_in_no_ones_way(wire: str, odd: dict[str, object]) -> None:
    frame = sse(odd, str(odd["type"]))
    frames = stream(wire, [says(f"Go. {LEAK} And on.", 20)])
    for place in range(1, len(frames) - 2):
        out, names = recovered(wire, [*frames[:place], frame, *frames[place:]])
        assert names == ["bash"]
        assert LEAK not in said(wire, out.replace(frame, b""))


def test_choices_without_a_number_are_told_apart() -> None:
    message = {"role": "assistant", "content": LEAK}
    data = {"choices": [{"message": message, "finish_reason": "stop"}, {"message": message, "finish_reason": "stop"}]}
    repairer = Repairer("openai-chat", stream=False, tools=TOOLS)
    out = json.loads(repairer.feed(json.dumps(data).encode()) + repairer.close())
    calls = [call["id"] for choice in out["choices"] for call in choice["message"]["tool_calls"]]
    assert len(calls) == len(set(calls)) == 2


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_the_finish_that_never_came_behind_native_calls(wire: str) -> None:
    frames = stream(wire, [says(f"Hi {LEAK}"), Calls("read", ['{"path": "a"}'])])
    kept = [
        frame for frame in frames if b"message_delta" not in frame and b'"finish_reason": "tool_calls"' not in frame
    ]
    assert len(kept) == len(frames) - 1
    out, _ = recovered(wire, kept)
    assert out.count(b'"finish_reason":"tool_calls"' if wire == "openai-chat" else b'"stop_reason":"tool_use"') == 1


def test_a_fault_tells_of_no_call_that_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsml_core.formats.anthropic.Anthropic._tool_use", lambda *given: 1 / 0)
    frames = stream("anthropic", [says("Hi "), says(LEAK)])
    repairer = Repairer("anthropic", stream=True, tools=TOOLS)
    out = b"".join([*map(repairer.feed, frames), repairer.close()])
    assert repairer.report.faults
    assert repairer.report.calls == []
    assert said("anthropic", out) == f"Hi {LEAK}"
    starts = [value["index"] for _, value in events(out) if value["type"] == "content_block_start"]
    assert starts == list(range(len(starts)))
