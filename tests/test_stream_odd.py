"""Providers that do odd things, each found by the fuzzer (tests/test_fuzz.py): nothing of the answer is lost by it."""

from __future__ import annotations

import json

import pytest

from dsml_core import Repairer
from dsml_core.framing import SseFramer
from tests.client_view import events, see
from tests.leaks import LEAK, MADE, REJECTED, TOOLS, UNCLOSED, any_wire, repaired, said
from tests.markers import BAR
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
    del value["summary_index"]
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
