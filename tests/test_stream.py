"""Repairer: what the client sees of a leak, on every wire, streamed and whole."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core import Policy, Repairer
from tests.client_view import Seen, see
from tests.leaks import (
    LEAK,
    MADE,
    NATIVE,
    PROSE,
    REJECTED,
    TOOLS,
    TWO,
    UNCLOSED,
    any_size,
    any_wire,
    both,
    repaired,
    said,
)
from tests.provider_frames import WIRES, Answer, Says, body, says, stream

# -- rule 1: nothing changes unless something leaked


@any_wire
@given(text=st.text(alphabet="ab <>|`\n\u20ac\ud83d/=\"'", max_size=60), size=st.integers(1, 9), seed=st.randoms())
def test_what_leaks_nothing_leaves_as_it_came(wire: str, text: str, size: int, seed: Any) -> None:
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    data = b"".join(stream(wire, [says(text, 3, reasoning=True), says(text, size), NATIVE, says(text, size)]))
    cuts = sorted(seed.randrange(len(data)) for _ in range(6))
    out, repairer = repaired(wire, [data[start:end] for start, end in pairwise([0, *cuts, len(data)])])
    assert out == data
    assert not repairer.report.changed


@any_wire
def test_a_whole_body_without_a_leak_leaves_as_it_came(wire: str) -> None:
    data = body(wire, [says(PROSE, reasoning=True), says(PROSE), NATIVE])
    assert repaired(wire, [data], streamed=False)[0] == data


@any_wire
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_line_ends_of_the_provider_stay(wire: str, end: bytes) -> None:
    if wire == "ollama" and end == b"\r":
        return  # no line end there
    data = b"".join(stream(wire, [says(PROSE)])).replace(b"\n", end)
    assert repaired(wire, [data])[0] == data


@any_wire
def test_a_response_to_a_request_without_tools_is_not_touched(wire: str) -> None:
    data = stream(wire, [says(LEAK)])
    assert repaired(wire, data, tools=[])[0] == b"".join(data)
    whole = body(wire, [says(LEAK)])
    assert repaired(wire, [whole], tools=[], streamed=False)[0] == whole


@any_wire
@pytest.mark.parametrize("data", [b"", b"not json\n\n", b"data: 5\n\n", b"data: {}\n\n", b"[1]\n", b'{"a": 1}\n\xff'])
def test_what_is_not_of_the_wire_passes(wire: str, data: bytes) -> None:
    assert repaired(wire, [data])[0] == data
    assert repaired(wire, [data], streamed=False)[0] == data


# -- the repair itself


@any_wire
@any_size
def test_a_leak_becomes_a_call(wire: str, size: int) -> None:
    seen = both(wire, [says("Running it.\n\n" + LEAK, size)])
    assert (seen.text.strip(), seen.calls, seen.finish) == ("Running it.", [MADE], "tool_calls")


@any_wire
@any_size
def test_calls_come_in_order_and_prose_around_them_stays(wire: str, size: int) -> None:
    seen = both(wire, [says(f"One.{TWO}Two.{LEAK}Three.", size)])
    assert seen.text == "One.Two.Three."
    assert seen.calls == [MADE, ("read", {"path": "a b"}), MADE]


@pytest.mark.slow
@any_wire
def test_every_third_cut_of_the_bytes_gives_the_same(wire: str) -> None:
    data = b"".join(stream(wire, [says(f"A \u20ac {LEAK} B", 30)]))
    expected = see(wire, repaired(wire, [data])[0])
    assert expected.calls == [MADE]
    for cut in range(1, len(data), 3):
        assert see(wire, repaired(wire, [data[:cut], data[cut:]])[0]) == expected
    assert see(wire, repaired(wire, [data[at : at + 1] for at in range(len(data))])[0]) == expected


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "ollama"])
def test_a_leak_in_a_stream_with_other_line_ends(wire: str, end: bytes) -> None:
    data = b"".join(stream(wire, [says(LEAK)])).replace(b"\n", end)
    out, _ = repaired(wire, [data])
    assert see(wire, out.replace(end, b"\n")).calls == [MADE]


@any_wire
@pytest.mark.parametrize("space", ["", "\n\n", " "])
@any_size
def test_a_part_that_is_left_empty_is_not_opened(wire: str, size: int, space: str) -> None:
    answer = [says(space + LEAK + space, size)]
    out, _ = repaired(wire, stream(wire, answer))
    seen = see(wire, out)
    assert (seen.text, seen.calls) == ("", [MADE])
    if wire == "anthropic":
        assert b'"type":"text"' not in out and b'"type": "text"' not in out
    if wire == "openai-responses":
        assert b"output_item.added" in out and b'"type":"message"' not in out and b'"type": "message"' not in out


@any_wire
def test_white_space_around_prose_stays_where_it_was(wire: str) -> None:
    seen = both(wire, [says(f"\n Hi \n{LEAK}\n")])
    assert seen.text == "\n Hi \n\n"


@any_wire
def test_a_leak_that_ends_the_reasoning_is_recovered(wire: str) -> None:
    seen = both(wire, [says("I run it. " + LEAK, reasoning=True)])
    assert (seen.reasoning, seen.calls, seen.finish) == ("I run it. ", [MADE], "tool_calls")


@any_wire
def test_a_leak_in_reasoning_that_an_answer_follows_stays(wire: str) -> None:
    answer = [says("I might: " + LEAK, reasoning=True), says("Done.")]
    assert both(wire, answer) == Seen("Done.", "I might: " + LEAK, finish="stop")


@any_wire
def test_reasoning_is_settled_by_the_call_in_the_answer(wire: str) -> None:
    seen = both(wire, [says("Hm. " + LEAK, reasoning=True), says("So: " + LEAK)])
    assert (seen.reasoning, seen.text, seen.calls) == ("Hm. " + LEAK, "So: ", [MADE])


@any_wire
def test_a_leak_without_reasoning_left(wire: str) -> None:
    seen = both(wire, [says(LEAK, reasoning=True)])
    assert (seen.reasoning, seen.text, seen.calls) == ("", "", [MADE])


@any_wire
def test_markup_that_never_closes_stays(wire: str) -> None:
    data = stream(wire, [says("Go. " + UNCLOSED)])
    assert see(wire, repaired(wire, data)[0]) == Seen("Go. " + UNCLOSED, finish="stop")
    whole = body(wire, [says("Go. " + UNCLOSED)])
    assert repaired(wire, [whole], streamed=False)[0] == whole


@any_wire
def test_an_orphan_of_two_surrogates_survives(wire: str) -> None:
    data = b"".join(stream(wire, [Says(["X" + "Y", LEAK])])).replace(b"XY", rb"\ud83d")
    out, _ = repaired(wire, [data])
    assert rb'"\ud83d"' in out
    assert see(wire, out).calls == [MADE]


# -- native calls


@any_wire
@any_size
def test_a_leak_beside_a_native_call_is_only_stripped(wire: str, size: int) -> None:
    seen = both(wire, [says("Go. " + LEAK, size), NATIVE])
    assert (seen.text, seen.calls, seen.finish) == ("Go. ", [("read", {"path": "x"})], "tool_calls")


@any_wire
def test_before_a_native_call_a_part_that_is_left_empty_is_not_opened(wire: str) -> None:
    seen = both(wire, [says("\n" + LEAK), NATIVE, NATIVE])
    assert (seen.text, len(seen.calls)) == ("", 2)


@any_wire
def test_before_a_native_call_the_residue_goes(wire: str) -> None:
    assert both(wire, [says("Go. " + UNCLOSED), NATIVE]).text == "Go. "


@any_wire
def test_a_finish_that_denies_its_native_call_is_put_right(wire: str) -> None:
    assert both(wire, [says("Go. " + LEAK), NATIVE], "length").finish in ("tool_calls", "length")
    if wire in ("openai-chat", "anthropic"):
        assert both(wire, [says("Go. " + LEAK), NATIVE], "length").finish == "tool_calls"


# -- how it ends


@any_wire
def test_a_call_is_made_though_the_length_ran_out(wire: str) -> None:
    seen = both(wire, [says("Go. " + LEAK)], "length")
    assert (seen.calls, seen.finish) == ([MADE], "tool_calls")


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "ollama"])
@pytest.mark.parametrize("text", [LEAK, "Go. " + LEAK, f"Go. {LEAK} more", "\n" + LEAK + UNCLOSED])
@any_size
def test_a_refused_answer_stays_as_it_is(wire: str, text: str, size: int) -> None:
    out, _ = repaired(wire, stream(wire, [says(text, size)], "content_filter"))
    seen = see(wire, out)
    assert (sorted(seen.text), seen.calls, seen.finish) == (sorted(text), [], "content_filter")
    whole = body(wire, [says(text)], "content_filter")
    assert repaired(wire, [whole], streamed=False)[0] == whole


@pytest.mark.parametrize("wire", ["openai-chat", "ollama"])
@pytest.mark.parametrize("reason", ["content_filter", "refusal", "safety", "SAFETY", "sensitive"])
def test_gateways_have_other_words_for_it(wire: str, reason: str) -> None:
    out, _ = repaired(wire, stream(wire, [says("Go. " + LEAK)], reason))
    assert (sorted(see(wire, out).text), see(wire, out).calls) == (sorted("Go. " + LEAK), [])
    whole = body(wire, [says(LEAK)], reason)
    assert repaired(wire, [whole], streamed=False)[0] == whole


@any_wire
@any_size
def test_a_note_stands_where_nothing_would_be_left(wire: str, size: int) -> None:
    assert both(wire, [says(REJECTED, size)]) == Seen("[removed malformed call]", finish="stop")
    assert both(wire, [says("Hm." + REJECTED, size)]).text == "Hm."


@any_wire
def test_the_note_tells_a_call_that_was_not_allowed(wire: str) -> None:
    seen = both(wire, [says(LEAK)], policy=Policy(calls=False))
    assert (seen.text, seen.calls, seen.finish) == ("[removed bash call]", [], "stop")


def without_finish(wire: str, answer: Answer) -> list[bytes]:
    """The frames of a stream that ends before its finish."""
    last = {"openai-chat": 3, "openai-responses": 1, "anthropic": 2, "ollama": 1}[wire]
    return stream(wire, answer)[:-last]


@any_wire
def test_an_end_without_a_finish_gets_one_when_calls_were_made(wire: str) -> None:
    out, _ = repaired(wire, without_finish(wire, [says("Go. " + LEAK)]))
    if wire == "openai-chat":
        assert out.endswith(b'"finish_reason":"tool_calls"}]}\n\n')
        out += b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n'
    seen = see(wire, out)
    assert (seen.text, seen.calls, seen.finish) == ("Go. ", [MADE], "tool_calls")


@any_wire
def test_an_end_without_a_finish_stays_one_when_there_is_no_call(wire: str) -> None:
    data = without_finish(wire, [says("Go. <")])
    assert repaired(wire, data)[0] == b"".join(data)


def test_done_without_a_finish_gets_one_before_it() -> None:
    data = [*without_finish("openai-chat", [says(LEAK)]), b"data: [DONE]\n\n"]
    out, _ = repaired("openai-chat", data)
    assert out.count(b"[DONE]") == 1
    assert out.endswith(b'"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n')


@any_wire
def test_a_last_frame_without_its_end_is_ended_before_what_we_add(wire: str) -> None:
    *frames, last = without_finish(wire, [says("Go. " + LEAK + " x", 10_000)])
    out, _ = repaired(wire, [*frames, last.rstrip(b"\n")])
    if wire != "openai-chat":
        assert see(wire, out).calls == [MADE]
    assert b"}\n\ndata:" in out or b"}\n\nevent:" in out or b'}\n{"' in out


@any_wire
@any_size
def test_a_stream_that_breaks_off_gives_back_what_was_held(wire: str, size: int) -> None:
    text = f"Go. {LEAK} then {UNCLOSED}"
    frames = without_finish(wire, [says(text, size)])
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    out = b"".join([repairer.feed(frame) for frame in frames] + [repairer.feed(b"data: {")])
    out += repairer.close(clean=False)
    assert sorted(said(wire, out)) == sorted(text)
    assert out.endswith(b"data: {")
    assert repairer.report.aborted and repairer.report.calls == []
