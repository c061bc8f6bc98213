"""The content views: what they say of a message, and of everything else that may be stored."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from mitmproxy import contentviews
from mitmproxy.contentviews import Metadata
from mitmproxy.http import HTTPFlow

from addon import kept, story, views
from addon.reading import finish_reasons, guess_wire, is_stream, read_answer
from addon.render import explain, side_by_side
from addon.views import DiffView, MessageView
from dsml_core import prompts
from dsml_core.context import read_context
from dsml_core.policy import Policy
from tests.e2e.wires import LEAK, PATHS, body, request, stream
from tests.flows import addon, answered, asking
from tests.markers import BAR, live

CHAT = "openai-chat"
any_wire = pytest.mark.parametrize("wire", list(PATHS))
any_kind = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


def shown(flow: HTTPFlow, view: type[Any] = MessageView, of: str = "response") -> str:
    message = getattr(flow, of)
    kind = message.headers.get("content-type", "").partition(";")[0]
    told: str = view(Policy).prettify(
        message.get_content(strict=False) or b"", Metadata(flow=flow, content_type=kind, http_message=message)
    )
    return told


def explained(flow: HTTPFlow) -> list[str]:
    told = story.tell(flow, Policy())
    assert told
    return list(explain(told))


# --- A repaired response ----------------------------------------------------------------------------------------------

MESSAGE = """\
recovered 1 call: read_file (V1, 183 characters)
held 182 characters, 0.0 s
openai-chat, deepseek-test, finish: stop \u2192 tool_calls

== text ==
Look at `a < b`.
[taken out, characters 18 to 201, V1: a tool call]
\u2702 <{M}tool_calls>
\u2702 <{M}invoke name="read_file">
\u2702 <{M}parameter name="path" string="true">a.txt</{M}parameter>
\u2702 <{M}parameter name="limit">7</{M}parameter>
\u2702 </{M}invoke>
[taken out, characters 201 to 221, T8: closers at the end]
\u2702 </{M}tool_calls>

== recovered call: read_file (V1) ==
{
  "path": "a.txt",
  "limit": 7
}
"""


def test_the_message_as_a_person_reads_it() -> None:
    flow = answered(CHAT, "Look at `a < b`.\n\n" + LEAK)
    flow.metadata["dsml"]["held_seconds"] = 0.0
    assert shown(flow) == live(MESSAGE)


def test_both_sides_as_decoded_text() -> None:
    flow = answered(CHAT, "Look at `a < b`.\n\n" + LEAK)
    lines = shown(flow, DiffView).splitlines()
    assert lines[0].startswith("recovered 1 call: read_file")
    sides = [halves(line, 38) for line in lines[6:]]
    assert (
        "".join(left for left, _ in sides)
        == "== text ==Look at `a < b`." + LEAK.replace("\n", "") + "== finish: stop =="
    )
    assert [right for _, right in sides if right] == [
        "== text ==",
        "Look at `a < b`.",
        *("== tool call: read_file ==", "{", '  "path": "a.txt",', '  "limit": 7', "}"),
        "== finish: tool_calls ==",
    ]


def halves(line: str, width: int) -> tuple[str, str]:
    """The two columns of a line; a full-width bar takes two places."""
    at = used = 0
    while at < len(line) and used < width:
        used += 2 if line[at] == BAR else 1
        at += 1
    return line[:at].rstrip(), line[at + 3 :].rstrip()


@any_wire
@any_kind
def test_every_wire_reads_alike(wire: str, streamed: bool) -> None:
    flow = answered(wire, "Look.\n\n" + LEAK, streamed=streamed)
    message = shown(flow)
    assert message.splitlines()[4:7] == ["== text ==", "Look.", "[taken out, characters 7 to 190, V1: a tool call]"]
    assert message.endswith('== recovered call: read_file (V1) ==\n{\n  "path": "a.txt",\n  "limit": 7\n}\n')
    diff = shown(flow, DiffView)
    assert "== tool call: read_file ==" in diff
    assert "data:" not in message + diff
    assert explained(flow)[0] == "text, characters 7 to 190: taken as a call of read_file (row V1)"


LEAKS = {
    "one": "Look.\n\n" + LEAK,
    "two": "Look.\n\n" + LEAK + "\n\nAnd:\n\n" + LEAK.replace("a.txt", "b.txt"),
    "refused": "No.\n\n" + LEAK.replace("read_file", "rm -rf"),
    "emptied": LEAK.replace("read_file", "rm -rf"),
    "open": "Look.\n\n" + LEAK[:80],
    "quoted": f"So:\n\n```\n{LEAK}\n```\n",
    "mention": live("A `<{M}invoke>` is not a <{M}tool_calls> block."),
    "none": "a < b",
}


@pytest.mark.slow
@any_wire
@any_kind
@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS)
def test_what_is_read_again_is_what_was_decided(wire: str, streamed: bool, text: str) -> None:
    by = addon()
    flow = asking(wire)
    by.requestheaders(flow)
    by.request(flow)
    answer = flow.request.content
    assert answer
    data = b"".join(stream(wire, text)) if streamed else body(wire, text)
    context = read_context(wire, answer)
    read = read_answer(wire, data, stream=streamed, tools=context.tools)
    (passage,) = read.passages
    assert passage.text == text
    record = kept.record_of(answered(wire, text, streamed=streamed)) or {"decisions": []}
    cut = {span.start: (span.row, span.end - span.start) for span in passage.spans if span.kind == "cut"}
    removed = {one["start"]: (one["row"], one["characters"]) for one in record["decisions"] if one["removed"]}
    assert cut == removed
    recovered = [one["tool"] for one in record["decisions"] if one["decision"] == "recovered"]
    assert [call.name for call in read.calls] == recovered


def test_an_observed_response_tells_what_would_have_been_done() -> None:
    flow = answered(CHAT, LEAK, addon(mode="observe"))
    assert flow.response
    assert flow.response.content == b"".join(stream(CHAT, LEAK))
    message = shown(flow)
    assert message.startswith("observed only: would have recovered 1 call: read_file")
    assert "[would be taken out, characters 0 to 183, V1: a tool call]" in message
    assert "== call that would be recovered: read_file (V1) ==" in message
    assert "the client would have got" in shown(flow, DiffView)
    assert explained(flow)[0] == "text, characters 0 to 183: would be taken as a call of read_file (row V1)"


def test_the_note_in_the_place_of_a_message() -> None:
    message = shown(answered(CHAT, LEAK.replace("read_file", "rm -rf")))
    assert message.endswith("== in its place ==\n+ [removed malformed call]\n")


def test_a_response_whose_other_side_was_not_kept() -> None:
    data = b"".join(stream(CHAT, LEAK))
    flow = answered(CHAT, LEAK, addon(keep_limit=str(len(data) - 1)), pieces=[data])
    assert flow.response
    assert flow.response.content
    assert "what the provider sent was not kept (dsml_keep_limit)" in shown(flow)
    assert explained(flow)[0].startswith("What the provider sent was not kept")


def test_a_body_that_breaks_the_reader_is_still_shown() -> None:
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}
    data = [*stream("anthropic", "Hi")[:3], f"event: content_block_delta\ndata: {json.dumps(odd)}\n\n".encode()]
    read = read_answer("anthropic", b"".join(data), stream=True)
    assert read.unread.startswith(("TypeError", "AttributeError"))


# --- Why, span by span ------------------------------------------------------------------------------------------------


def system(text: str) -> dict[str, Any]:
    return request(CHAT, messages=[{"role": "system", "content": text}, {"role": "user", "content": "Go"}])


NATIVE = [
    {"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "x", "arguments": "{}"}}]}},
    {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
]
REASONS = {
    "text, characters 19 to 183: left as text (row G1, the echo guard): read_file: the request holds the same invoke": (
        LEAK,
        system(LEAK),
    ),
    "text, characters 4 to 207: left as text: it stands in a code fence or a block quote": (f"```\n{LEAK}\n```", None),
    "text, characters 1 to 26: left as text: it stands in inline code": (live('`<{M}invoke name="abc">`'), None),
    "text, characters 0 to 180: taken out (row V12): rm -rf: the name is no tool name": (
        LEAK.replace("read_file", "rm -rf"),
        None,
    ),
    "text, characters 0 to 183: taken out (row R5, tool_choice): read_file: the request forbids tool calls": (
        LEAK,
        request(CHAT, tool_choice="none"),
    ),
    "text, characters 0 to 203: left as text: the request declares no tools": (LEAK, request(CHAT, tools=[])),
    "No markup stands in this response.": ("a < b", None),
}


@pytest.mark.parametrize(("line", "case"), REASONS.items(), ids=[line[-24:] for line in REASONS])
def test_the_reason_for_each_span(line: str, case: tuple[str, Any]) -> None:
    text, asked = case
    flow = answered(CHAT, text, asked=asked, pieces=stream(CHAT, text))
    if flow.response and flow.response.raw_content is None:
        flow.response.raw_content = b"".join(stream(CHAT, text))  # it was not looked at, and so not kept
    assert line in explained(flow)


def test_a_leak_beside_a_native_call() -> None:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    native = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode() for choice in NATIVE]
    flow = answered(CHAT, "", pieces=[*stream(CHAT, LEAK)[:-3], *native, b"data: [DONE]\n\n"])
    assert explained(flow)[0] == (
        "text, characters 0 to 183: taken out (row V1), not run: a native call stands in the same message"
    )
    assert "== tool call: x ==\n{}" in shown(flow)
    assert "recovered call" not in shown(flow)


def test_a_refused_answer_goes_out_as_it_came() -> None:
    data = b"".join(stream(CHAT, LEAK)).replace(b'"finish_reason": "stop"', b'"finish_reason": "content_filter"')
    flow = answered(CHAT, "", pieces=[data])
    assert "taken out" not in shown(flow)
    assert "refusal" in explained(flow)[0]


def test_the_policy_is_the_one_it_was_decided_with() -> None:
    plain = live(
        '<{M}tool_calls><{M}invoke name="x"><{M}parameter name="a">1</{M}parameter></{M}invoke></{M}tool_calls>'
    )
    flow = answered(CHAT, plain, addon(undeclared="reject"))
    assert "(row R4, dsml_undeclared): x: the tool is not declared" in explained(flow)[0]


# --- Anything else that is stored -------------------------------------------------------------------------------------


@any_wire
def test_a_stored_stream_that_never_went_by_us(wire: str) -> None:
    flow = answered(wire, "", addon(mode="off"), path="/elsewhere")
    assert flow.response
    flow.response.content = b"".join(stream(wire, LEAK))
    message = shown(flow)
    assert message.startswith("not decided when it passed; this is how it reads now\n")
    assert "== call that would be recovered: read_file (V1) ==" in message
    assert "the client would have got" in shown(flow, DiffView)
    assert views.MessageView(Policy).render_priority(b"", Metadata(flow=flow, http_message=flow.response)) == 0


@pytest.mark.parametrize("view", [MessageView, DiffView])
def test_a_stream_of_no_wire_we_know(view: type[Any]) -> None:
    flow = answered(CHAT, "", addon(mode="off"))
    assert flow.response
    flow.response.content = b'event: tick\ndata: {"a":1}\n\n: bye\n\ndata: plain\n\n'
    assert shown(flow, view) == (
        'This is no message of a wire that is repaired.\n\n== event: tick ==\n{\n  "a": 1\n}\n'
        "== event: message ==\nplain\n"
    )


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"{}", b"[1]", b'{"choices": "x"}', b"data: {", b"<html>"])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "application/x-ndjson", ""])
@pytest.mark.parametrize("view", [MessageView, DiffView])
def test_no_body_makes_a_view_fail(data: bytes, kind: str, view: type[Any]) -> None:
    flow = answered(CHAT, "", addon(mode="off"))
    assert flow.response
    flow.response.headers["content-type"] = kind
    flow.response.content = flow.request.content = data
    assert shown(flow, view)
    assert shown(flow, view, "request")


STRANGE: list[Any] = [
    *(7, "x", [], {}, {"decisions": 1, "mode": []}, {"outcome": "x", "policy": {"profile": "x"}}),
    {"outcome": "x", "policy": dict.fromkeys(story.LASTING, "x")},
]


@pytest.mark.parametrize("record", STRANGE, ids=range(len(STRANGE)))
def test_metadata_that_somebody_else_wrote(record: Any) -> None:
    flow = answered(CHAT, LEAK)
    flow.metadata = {"dsml": record, "dsml_other": record, "dsml_chunks": record}
    assert shown(flow)
    assert shown(flow, DiffView)


def test_a_part_that_unpacks_to_too_much_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_LIMIT", 1000)
    flow = answered(CHAT, LEAK)
    flow.metadata["dsml_other"] = zlib.compress(b"x" * 1_000_000)
    sides = kept.sides(flow)
    assert sides
    assert len(sides[0]) == 1000


@any_wire
def test_the_wire_and_kind_of_a_body_are_seen_from_its_bytes(wire: str) -> None:
    whole, frames = body(wire, "a"), b"".join(stream(wire, "abcdefgh"))
    assert (guess_wire(whole), is_stream(whole, wire)) == (wire, False)
    assert (guess_wire(frames), is_stream(frames, wire)) == (wire, True)
    enveloped = json.dumps({"code": 0, "data": json.loads(whole)}).encode()
    assert guess_wire(enveloped) == wire


def test_finish_reasons_of_every_wire() -> None:
    assert finish_reasons({"choices": [{"finish_reason": "stop"}, 3, {"finish_reason": None}]}) == ["stop"]
    assert finish_reasons({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}) == ["end_turn"]
    assert finish_reasons({"type": "response.incomplete", "response": {"status": "incomplete"}}) == ["incomplete"]
    assert finish_reasons({"type": "response.created", "response": {"status": "in_progress"}}) == []
    assert finish_reasons({"done": True, "done_reason": "length"}) == ["length"]


# --- Requests ---------------------------------------------------------------------------------------------------------


def history(wire: str, *said: tuple[str, str]) -> dict[str, Any]:
    key = "input" if wire == "openai-responses" else "messages"
    return {**request(wire), key: [{"role": role, "content": text} for role, text in said]}


@any_wire
def test_a_request_shows_leaks_in_its_history_and_what_was_added(wire: str) -> None:
    asked = history(
        wire,
        ("system", f"Be brief.\n\n{prompts.DIRECTIVE}"),
        ("user", LEAK),
        ("assistant", "Look.\n\n" + LEAK),
        ("assistant", "So: [removed malformed edit call]"),
        ("system", prompts.NUDGE),
    )
    text = shown(asking(wire, asked), of="request")
    assert text.startswith(f"request, {wire}, deepseek-test\ntools: read_file\n")
    assert f"== 1 system ==\nBe brief.\n[added by dsml: the directive]\n+ {prompts.DIRECTIVE}\n" in text
    assert f"== 2 user ==\n{LEAK}\n" in text
    leak = (
        "== 3 assistant ==\nLook.\n[would be taken out, characters 7 to 190, V1: a tool call]\n\u2702 <{M}tool_calls>\n"
    )
    assert live(leak) in text
    note = "[added by dsml: a note in the place of leaked markup]\n+ [removed malformed edit call]\n"
    assert f"== 4 assistant ==\nSo: \n{note}" in text
    assert f"[added by dsml: the correction]\n+ {prompts.NUDGE}\n" in text


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    '== 1 assistant ==\n[call of ls]\n{\n  "a": 1\n}\n': (
        CHAT,
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": '{"a": 1}'}}]}]},
    ),
    "== 1 tool ==\nout\n": (CHAT, {"messages": [{"role": "tool", "content": "out"}]}),
    "== 1 user ==\nSee\n[image_url]\n": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url"}]}]},
    ),
    "== system ==\nBe brief.\n": ("anthropic", {"system": "Be brief.", "messages": []}),
    "== 1 assistant ==\n[call of ls]\n{}\n": (
        "anthropic",
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "ls", "input": {}}]}]},
    ),
    "== 1 user ==\nout\n": (
        "anthropic",
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "out"}]}]}
            ]
        },
    ),
    "== user ==\nHi\n": ("openai-responses", {"input": "Hi"}),
    '== 1 function_call ==\n[call of ls]\n{\n  "a": 1\n}\n': (
        "openai-responses",
        {"input": [{"type": "function_call", "name": "ls", "arguments": '{"a": 1}'}]},
    ),
    "== 1 function_call_output ==\nout\n": (
        "openai-responses",
        {"input": [{"type": "function_call_output", "output": "out"}]},
    ),
}


@pytest.mark.parametrize(("expected", "case"), OTHERS.items(), ids=range(len(OTHERS)))
def test_what_is_no_text_in_a_request(expected: str, case: tuple[str, dict[str, Any]]) -> None:
    wire, asked = case
    assert shown(asking(wire, asked), of="request").endswith(expected)


def test_a_request_that_was_not_changed() -> None:
    assert shown(asking(CHAT), DiffView, "request").startswith("No difference: the provider got what the client sent.")


def test_a_request_that_was_changed_is_shown_against_what_the_client_sent() -> None:
    flow = asking(CHAT, history(CHAT, ("assistant", "Look. [removed read_file call]"), ("user", "Go on.")))
    kept.keep_asked(
        flow, json.dumps(history(CHAT, ("assistant", "Look. " + LEAK), ("user", "Go on."))).encode(), 1 << 20
    )
    assert "[taken out, characters 6 to 189, V1: a tool call]" in shown(flow, of="request")
    lines = shown(flow, DiffView, "request").splitlines()
    assert lines[0].split() == ["the", "client", "sent", "the", "provider", "got"]
    assert any(line.endswith("* Look. [removed read_file call]") for line in lines)
    assert any(line.rstrip().endswith("Go on.") and "*" not in line for line in lines)


# --- Columns ----------------------------------------------------------------------------------------------------------


def test_two_columns() -> None:
    rows = side_by_side(
        ("one", "two"), ["same", "left", "both", *"abcdefgh"], ["same", "BOTH", *"abcdefgh", "right"], 23
    )
    assert list(rows) == [
        "one          two",
        "----------   ----------",
        "same         same",
        "left       * BOTH",
        "both       <",
        "a            a",
        "b            b",
        "c            c",
        "... 2 equal lines ...",
        "f            f",
        "g            g",
        "h            h",
        "           > right",
    ]


def test_long_lines_are_wrapped_and_wide_characters_counted() -> None:
    rows = list(side_by_side(("", ""), ["\u6f22\u5b57\u6f22", "e\u0301" * 6, "a\tb"], [], 13))[2:]
    assert rows == [
        "\u6f22\u5b57  <",
        "\u6f22    <",
        "e\u0301" * 5 + " <",
        "e\u0301     <",
        "a     <",
        "b     <",
    ]


def test_a_long_difference_is_one_block() -> None:
    left, right = [f"l{number}" for number in range(3000)], [f"r{number}" for number in range(3000)]
    rows = list(side_by_side(("", ""), ["same", *left, "end"], ["same", *right, "end"], 80))
    assert len(rows) == 2 + 1 + 3000 + 1


# --- As mitmproxy asks for them ---------------------------------------------------------------------------------------


def test_the_views_are_known_by_name_and_the_message_is_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mitmproxy.contentviews._utils.ctx.options", replace_options(), raising=False)
    views.install(Policy)
    flow = answered(CHAT, LEAK)
    flow.request.headers["content-type"] = "application/json"
    assert flow.response
    assert contentviews.prettify_message(flow.response, flow).view_name == "DSML"
    assert contentviews.prettify_message(flow.response, flow, "dsml diff").view_name == "DSML diff"
    assert contentviews.prettify_message(flow.request, flow).view_name == "JSON"
    quiet = answered(CHAT, "a < b")
    assert quiet.response
    assert contentviews.prettify_message(quiet.response, quiet).view_name == "Raw"


def replace_options() -> Any:
    from mitmproxy.options import Options

    return Options()
