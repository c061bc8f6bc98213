"""Answers: a response that goes on with the answer to a repetition of its request, on every wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dsml_core import Policy, Repairer
from dsml_core.answers import Answers
from dsml_core.joins import Join
from tests.client_view import Seen, see
from tests.leaks import LEAK, MADE, NATIVE, PROSE, REJECTED, TOOLS, UNCLOSED, any_size, any_wire, repaired, said
from tests.markers import BAR, live
from tests.provider_frames import WIRES, Answer, Says, body, says, sse, stream

NATIVE_MADE = ("read", {"path": "x"})

pytestmark = pytest.mark.slow


def answered(wire: str, *answers: Sequence[bytes], size: int = 10_000) -> tuple[bytes, Answers]:
    """What the client gets of these answers, each asked for only where it is wanted; `size` bytes are fed at once."""
    response = Answers(wire, tools=TOOLS)
    out = b""
    for number, frames in enumerate(answers):
        if number:
            assert response.wants_resume
            response.begin()
        data = b"".join(frames)
        out += b"".join(response.feed(data[start : start + size]) for start in range(0, len(data), size))
        out += response.close()
    if response.wants_resume:
        out += response.give_up()
    return out, response


def told(wire: str, *answers: Answer, size: int = 10_000) -> tuple[Seen, Answers]:
    out, response = answered(wire, *(stream(wire, answer) for answer in answers), size=size)
    assert response.report.faults == []
    return see(wire, out), response


def usage(wire: str, out: bytes) -> dict[str, int]:
    """The numbers a client has at the end."""
    found: dict[str, Any] = {}
    for line in out.decode().splitlines():
        if (value := line.removeprefix("data: ")).startswith("{"):
            event = json.loads(value)
            if wire == "ollama":
                found |= {key: event[key] for key in ("eval_count", "prompt_eval_count") if key in event}
            elif wire == "openai-responses":
                found |= (event.get("response") or {}).get("usage") or {}
            else:
                found |= event.get("usage") or event.get("message", {}).get("usage") or {}
    return {key: value for key, value in found.items() if isinstance(value, int)}


# -- it goes on


@any_wire
@any_size
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 13, 10_000])
def test_the_next_answer_goes_on(wire: str, size: int, step: int) -> None:
    first, second = [says(f"Look.\n\n{UNCLOSED}", size)], [says(f"Again. {LEAK}", size)]
    seen, response = told(wire, first, second, size=step)
    assert seen == Seen("Look.\n\nAgain. ", calls=[MADE], ids=seen.ids, finish="tool_calls")
    assert not response.wants_resume
    assert response.report.resumed == 1
    assert [call.name for call in response.report.calls] == ["bash"]


@any_wire
@pytest.mark.parametrize(
    ("second", "text", "calls"),
    [
        ([NATIVE], "Look. ", [NATIVE_MADE]),
        ([says("Hm.", reasoning=True), says("Now: "), NATIVE], "Look. Now: ", [NATIVE_MADE]),
        ([says("There is nothing to do.")], "Look. There is nothing to do.", []),
    ],
)
def test_whatever_the_next_answer_is(wire: str, second: Answer, text: str, calls: list[Any]) -> None:
    seen, _ = told(wire, [says("Look. " + UNCLOSED)], second)
    assert (seen.text, seen.calls, seen.finish) == (text, calls, "tool_calls" if calls else "stop")


@any_wire
@any_size
def test_without_prose_nothing_is_opened_for_the_first_answer(wire: str, size: int) -> None:
    seen, response = told(wire, [says("\n\n" + UNCLOSED, size)], [says("Again. " + LEAK, size)])
    assert (seen.text, seen.calls) == ("Again. ", [MADE])
    assert response.shown == "Again. "


@any_wire
def test_reasoning_of_both_answers_is_there(wire: str) -> None:
    first = [says("Hm. ", reasoning=True), says("Look. " + UNCLOSED)]
    seen, _ = told(wire, first, [says("So. ", reasoning=True), says(LEAK)])
    assert (seen.reasoning, seen.text, seen.calls) == ("Hm. So. ", "Look. ", [MADE])


@any_wire
def test_the_third_answer_may_be_the_one(wire: str) -> None:
    first, second = [says("One. " + UNCLOSED)], [says("Two. " + UNCLOSED)]
    seen, response = told(wire, first, second, [says("Three. " + LEAK)])
    assert (seen.text, seen.calls, seen.finish) == ("One. Two. Three. ", [MADE], "tool_calls")
    assert response.report.resumed == 2


@any_wire
def test_a_second_answer_of_markup_alone_leaves_no_trace(wire: str) -> None:
    seen, _ = told(wire, [says("One. " + UNCLOSED)], [says(UNCLOSED)], [says("Three. " + LEAK)])
    assert (seen.text, seen.calls) == ("One. Three. ", [MADE])


@any_wire
def test_what_was_removed_goes_on_too(wire: str) -> None:
    seen, response = told(wire, [says(REJECTED)], [says("Again. " + LEAK)])
    assert (seen.text, seen.calls) == ("Again. ", [MADE])
    assert response.report.visible is None


@any_wire
def test_the_leaked_tail_is_reported_as_removed(wire: str) -> None:
    _, response = told(wire, [says("Look. " + UNCLOSED)], [says(LEAK)])
    (tail,) = [span for span in response.report.removed if span.row == "E2"]
    assert (tail.start, tail.text, tail.name) == (6, UNCLOSED, "bash")
    assert [span.removed for span in response.report.rejected] == [True]


@any_wire
def test_what_is_shown_is_known_before_the_next_answer(wire: str) -> None:
    response = Answers(wire, tools=TOOLS)
    early = b"".join(response.feed(frame) for frame in stream(wire, [says("Look.\n\n" + UNCLOSED)]))
    early += response.close()
    assert response.wants_resume
    assert response.shown == "Look.\n\n"
    assert b'"finish_reason":"stop"' not in early.replace(b" ", b"")
    assert b"[DONE]" not in early


def test_prose_in_the_frame_of_the_finish_comes_before_the_next_answer() -> None:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    whole = {"index": 0, "delta": {"role": "assistant", "content": "Look. " + UNCLOSED}, "finish_reason": "stop"}
    first = [sse({**head, "choices": [whole], "usage": {"total_tokens": 2}}), b"data: [DONE]\n\n"]
    out, response = answered("openai-chat", first, stream("openai-chat", [says("Again. " + LEAK)]))
    assert response.shown == "Look. Again. "
    chunks = [json.loads(line[6:]) for line in out.decode().splitlines() if line.startswith("data: {")]
    assert {chunk["id"] for chunk in chunks} == {"c"}
    assert said("openai-chat", out) == "Look. Again. "
    assert usage("openai-chat", out)["total_tokens"] == 14


ONCE = {
    "openai-chat": [b'"role":"assistant"', b'"finish_reason":"', b'"usage"', b"[DONE]"],
    "openai-responses": [b"event:response.created", b"event:response.completed"],
    "anthropic": [b"event:message_start", b"event:message_delta", b"event:message_stop"],
    "ollama": [b'"done":true'],
}


@any_wire
def test_one_start_one_finish_one_usage(wire: str) -> None:
    once = usage(wire, answered(wire, stream(wire, [says("Look.")]))[0])
    out, _ = answered(wire, stream(wire, [says("Look. " + UNCLOSED)]), stream(wire, [says("Again. " + LEAK)]))
    assert once
    assert usage(wire, out) == {key: 2 * value for key, value in once.items()}
    bare = out.replace(b" ", b"")
    assert [bare.count(only) for only in ONCE[wire]] == [1] * len(ONCE[wire])


def test_items_with_the_same_id_get_ids_of_their_own() -> None:
    wire = "openai-responses"
    out, _ = answered(wire, stream(wire, [says("One. " + UNCLOSED)]), stream(wire, [says("Two. " + LEAK)]))
    ids = [item["id"] for item in json.loads(out.decode().split("data: ")[-1])["response"]["output"]]
    assert len(ids) == len(set(ids)) == 3
    assert see(wire, out).text == "One. Two. "


@any_wire
def test_in_an_envelope(wire: str) -> None:
    def wrapped(frames: Sequence[bytes]) -> list[bytes]:
        found = []
        for frame in frames:
            head, data, value = frame.decode().rpartition("data: ")
            if not value.strip().startswith("{"):
                found.append(frame)
                continue
            inner = json.dumps({"code": 0, "data": json.loads(value)}, ensure_ascii=False)
            found.append(f"{head}{data}{inner}{'' if wire == 'ollama' else chr(10)}\n".encode())
        return found

    first, second = stream(wire, [says("Look. " + UNCLOSED)]), stream(wire, [says("Again. " + LEAK)])
    out, _ = answered(wire, wrapped(first), wrapped(second))
    bare = []
    for line in out.decode().splitlines():
        head, data, value = line.rpartition("data: ")
        inner = json.dumps(json.loads(value)["data"], ensure_ascii=False) if value.startswith("{") else value
        bare.append(f"{head}{data}{inner}")
    seen = see(wire, "\n".join([*bare, ""]).encode())
    assert (seen.text, seen.calls) == ("Look. Again. ", [MADE])


# -- what comes back clean


@any_wire
@pytest.mark.parametrize(
    ("answer", "visible"),
    [
        ([says("Hm. " + REJECTED)], "Hm. "),
        ([says(REJECTED)], "[removed malformed call]"),
        ([says(PROSE)], None),
        ([says("Hm. " + UNCLOSED)], None),
        ([says("Hm. " + LEAK)], None),
        ([says("Hm. " + REJECTED), NATIVE], None),
    ],
)
def test_what_is_left_of_a_message_that_lost_its_call(wire: str, answer: Answer, visible: str | None) -> None:
    assert repaired(wire, stream(wire, answer))[1].report.visible == visible
    assert repaired(wire, [body(wire, answer)], streamed=False)[1].report.visible == visible


@any_wire
def test_a_call_that_was_not_wanted_is_not_lost(wire: str) -> None:
    _, repairer = repaired(wire, stream(wire, [says("Hm. " + LEAK)]), policy=Policy(calls=False))
    assert repairer.report.visible is None


# -- it does not


NOTHING_LOST: dict[str, Answer] = {
    "prose": [says(PROSE)],
    "call": [says("Look. " + LEAK)],
    "native call": [says("Look. " + UNCLOSED), NATIVE],
    "quoted": [says(f"Like so:\n```\n{UNCLOSED}\n```\n")],
    "mention": [says(live("The {M} marker, <{M}tool_calls> and what follows it."))],
    "reasoning": [says(UNCLOSED, reasoning=True), says("Done.")],
}


@any_wire
@pytest.mark.parametrize("answer", NOTHING_LOST.values(), ids=NOTHING_LOST)
def test_an_answer_that_lost_nothing_is_left_to_the_repairer(wire: str, answer: Answer) -> None:
    data = b"".join(stream(wire, answer))
    plain = Repairer(wire, stream=True, tools=TOOLS)
    out, response = answered(wire, [data])
    assert out == plain.feed(data) + plain.close()
    assert response.report.resumed == 0


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "ollama"])  # which has no such finish
def test_a_refused_answer_is_not_asked_for_again(wire: str) -> None:
    out, response = answered(wire, stream(wire, [says("Look. " + UNCLOSED)], "content_filter"))
    assert see(wire, out).text == "Look. " + UNCLOSED
    assert response.report.resumed == 0


@any_wire
@any_size
def test_without_another_answer_it_is_as_if_it_had_not_waited(wire: str, size: int) -> None:
    data = b"".join(stream(wire, [says("Look. " + UNCLOSED, size)]))
    plain = Repairer(wire, stream=True, tools=TOOLS)
    out, response = answered(wire, [data])
    assert out == plain.feed(data) + plain.close()
    assert response.report.removed == []


@any_wire
@any_size
def test_when_every_answer_is_lost_all_is_shown(wire: str, size: int) -> None:
    seen, response = told(wire, [says("One. " + UNCLOSED, size)], [says("Two. " + UNCLOSED, size)])
    assert seen == Seen("One. Two. " + UNCLOSED + UNCLOSED, finish="stop")
    assert response.report.removed == []
    assert response.report.visible == seen.text


@any_wire
def test_usage_of_lost_answers_counts(wire: str) -> None:
    alone, _ = answered(wire, stream(wire, [says("Look.")]))
    out, _ = answered(wire, *([stream(wire, [says("Look. " + UNCLOSED)])] * 3))
    assert usage(wire, out) == {key: 3 * value for key, value in usage(wire, alone).items()}


@any_wire
def test_an_answer_of_removed_markup_has_its_note_in_the_end(wire: str) -> None:
    seen, response = told(wire, [says(REJECTED)])
    assert seen.text == "[removed malformed call]" == response.report.visible


@any_wire
def test_the_first_answer_breaks_off(wire: str) -> None:
    frames = stream(wire, [says("Look. " + UNCLOSED)])[:-4]
    plain, response = Repairer(wire, stream=True, tools=TOOLS), Answers(wire, tools=TOOLS)
    data = b"".join(frames)
    assert response.feed(data) + response.close(clean=False) == plain.feed(data) + plain.close(clean=False)
    assert not response.wants_resume
    assert response.report.aborted


@any_wire
@pytest.mark.parametrize("helped", [True, False])
def test_the_second_answer_breaks_off(wire: str, helped: bool) -> None:
    response = Answers(wire, tools=TOOLS)
    out = response.feed(b"".join(stream(wire, [says("One. " + UNCLOSED)]))) + response.close()
    response.begin()
    frames = stream(wire, [says("Two. " + LEAK + "and more")])
    out += response.feed(b"".join(frames[: len(frames) * 2 // 3])) + response.close(clean=False)
    assert response.wants_resume
    if helped:
        response.begin()
        out += response.feed(b"".join(stream(wire, [says("Three. " + LEAK)]))) + response.close()
        assert see(wire, out) == Seen("One. Two. Three. ", calls=[MADE], ids=see(wire, out).ids, finish="tool_calls")
    else:
        out += response.give_up()
        seen = see(wire, out)
        assert seen.text.startswith(f"One. Two. {UNCLOSED}<{BAR}")
        assert (seen.calls, seen.finish) == ([], "stop")
    assert not response.report.aborted


@any_wire
def test_a_first_answer_without_a_finish_can_be_lost(wire: str) -> None:
    frames = stream(wire, [says("Look. " + UNCLOSED)])
    cut = frames[: -{"openai-chat": 3, "openai-responses": 1, "anthropic": 2, "ollama": 1}[wire]]
    out, _ = answered(wire, cut, stream(wire, [says("Again. " + LEAK)]))
    assert (see(wire, out).text, see(wire, out).calls) == ("Look. Again. ", [MADE])
    plain = Repairer(wire, stream=True, tools=TOOLS)
    assert answered(wire, cut)[0] == plain.feed(b"".join(cut)) + plain.close()


@pytest.mark.parametrize("wire", WIRES)
def test_a_fault_of_ours_costs_nothing(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(stream(wire, [says("Look. " + UNCLOSED)]))
    plain = Repairer(wire, stream=True, tools=TOOLS)
    expected = plain.feed(data) + plain.close()

    def fails(self: Join, body: Any) -> None:
        raise RuntimeError("no text of a message")

    response = Answers(wire, tools=TOOLS)
    out = response.feed(data) + response.close()
    monkeypatch.setattr(Join, "count", fails)
    response.begin()
    out += response.feed(b"".join(stream(wire, [says("Again. " + LEAK)]))) + response.close()
    assert response.wants_resume
    assert out + response.give_up() == expected
    assert [fault.partition(" ")[0] for fault in response.report.faults] == ["RuntimeError"]

    response = Answers(wire, tools=TOOLS)
    assert response.feed(data) + response.close() == expected
    assert not response.wants_resume


@any_wire
def test_pieces_of_any_shape_are_no_fault(wire: str) -> None:
    odd = [b": hello\n\n", b"data: 7\n\n", b"data: {}\n\n", b'data: {"type": 5}\n\n', b"7\n", b"\n"]
    first = [*odd, *stream(wire, [Says(["Look. ", UNCLOSED])])]
    _, response = answered(wire, first, [*odd, *stream(wire, [says("Again. " + LEAK)])])
    assert response.report.faults == []
