"""The parser as a caller sees it: what it says when, and what it says about itself."""

import pytest

import dsml_core
from dsml_core.events import End, Removed, Text, ToolCall
from dsml_core.machine import TABLE
from dsml_core.parser import Parser, parse
from dsml_core.policy import Policy
from tests.markers import BAR, MARK, live

CALL = live(
    '<{M}tool_calls>\n<{M}invoke name="bash">\n<{M}parameter name="command" string="true">id</{M}parameter>\n'
    "</{M}invoke>\n</{M}tool_calls>"
)
INVOKE = live('<{M}invoke name="bash"><{M}parameter name="command">id</{M}parameter></{M}invoke>')
PLAIN = '<invoke name="bash"><parameter name="command">id</parameter></invoke>'


# --- Events -----------------------------------------------------------------------------------------------------------


def test_a_call_follows_the_markup_it_stood_in() -> None:
    parser = Parser(["bash"])
    start, end = 7, 7 + len(INVOKE)
    assert parser.feed(f"Right. {INVOKE}ok") + parser.close() == [
        Text(0, start, "Right. "),
        Removed(start, end, INVOKE, "V9", "a tool call", "bash"),
        ToolCall("bash", {"command": "id"}, "V9", start, end),
        Text(end, end + 2, "ok"),
    ]


def test_parse_is_feed_and_close() -> None:
    parser = Parser(["bash"])
    events = parser.feed(f"a {CALL} b") + parser.close()
    parsed = parse(f"a {CALL} b", ["bash"])
    assert parsed.text == "a  b"
    assert parsed.calls == [event for event in events if isinstance(event, ToolCall)]
    assert parsed.ranges == [event for event in events if isinstance(event, Removed)]
    assert (parsed.rejected, parsed.saw_syntax) == (parser.rejected, parser.saw_syntax) == ([], True)


def test_the_names_of_the_core() -> None:
    assert dsml_core.Parser is Parser
    assert dsml_core.parse is parse


def test_offsets_go_on_after_an_end() -> None:
    parser = Parser(["bash"])
    half = f"<{MARK}inv"
    first = parser.feed(INVOKE + half) + parser.close(End.PART)
    assert [event.start for event in first if isinstance(event, Text)] == [len(INVOKE)]
    second = parser.feed(INVOKE) + parser.close()
    begin = len(INVOKE) + len(half)
    assert [(event.start, event.end) for event in second] == [(begin, begin + len(INVOKE))] * 2


def test_an_end_forgets_what_was_open() -> None:
    parser = Parser(["bash"])
    parser.feed(INVOKE[:60])
    parser.close(End.PART)
    assert parser.feed(INVOKE[60:]) + parser.close(End.PART) == [Text(60, len(INVOKE), INVOKE[60:])]


def test_a_fence_outlasts_an_end() -> None:
    """Another part may come between two pieces of one text."""
    parser = Parser(["bash"])
    parser.feed("```\n")
    parser.close(End.PART)
    events = parser.feed(CALL) + parser.close()
    assert "".join(event.text for event in events if isinstance(event, Text)) == CALL


def test_empty_pieces_say_nothing() -> None:
    parser = Parser(["bash"])
    assert parser.feed("") == []
    parser.feed(CALL[:30])
    held = parser.held
    assert (parser.feed(""), parser.held) == ([], held)


def test_halves_of_a_character_pass() -> None:
    assert parse("a \ud83d b", ["bash"]).text == "a \ud83d b"


# --- What is held -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("words", 0),
        ("words <", 1),
        ("a < b", 0),
        (f"words <{BAR}", 2),
        (f"words <{MARK}", 7),
        (f"words <{MARK}tool_calls", 17),
        ("<parameter name=", 16),
        ("<paragraph", 0),
        ("<div", 0),
        ("`<", 1),
        (f"> said <{MARK}tool", 11),
        (f"> said <{MARK}tool_calls name=", 0),
        ("a |", 0),
    ],
)
def test_held(text: str, held: int) -> None:
    parser = Parser(["bash"])
    parser.feed(text)
    assert parser.held == held


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("words", False),
        ("words <", False),
        (f"words <{MARK}tool_calls", False),
        (f"words <{MARK}tool_calls>", True),
        (INVOKE[:60], True),
        (PLAIN[:40], False),
        ("<tool_calls>", False),
        ("<tool_calls>" + INVOKE[:60], True),
        (f"{CALL} words", False),
        (f"```\n<{MARK}tool_calls>", False),
    ],
)
def test_standing(text: str, standing: bool) -> None:
    parser = Parser(["bash"])
    parser.feed(text)
    assert parser.standing is standing


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("words < more", False),
        (PLAIN, False),
        (f"<tool_calls>{PLAIN}</tool_calls>", True),
        (f"{PLAIN}</tool_calls>", True),
        (INVOKE, True),
        (f"a </{MARK}invoke> b", True),
        (f"```\n{CALL}\n```", False),
        (f"the tag `<{MARK}tool_calls>` opens it", False),
    ],
)
def test_saw_syntax(text: str, seen: bool) -> None:
    assert parse(text, ["bash"]).saw_syntax is seen


def test_prose_leaves_with_its_piece() -> None:
    parser = Parser(["bash"])
    for piece in ("One", " and", " 1 < 2", " | so", "\n- on", "\n```\n", "x = [a/b]\n", "```\n"):
        assert "".join(event.text for event in parser.feed(piece) if isinstance(event, Text)) == piece
        assert parser.held == 0


def test_prose_behind_a_call_leaves_at_once() -> None:
    parser = Parser(["bash"])
    parser.feed(CALL)
    assert "".join(event.text for event in parser.feed(" and so") if isinstance(event, Text)) == " and so"


# --- Limits -----------------------------------------------------------------------------------------------------------


def longest(declared: bool, length: int) -> bool:
    """Whether a call with a value of that length is recovered under the default limits."""
    markup = INVOKE.replace("id</", "x" * length + "</")
    return bool(parse(markup, ["bash"] if declared else ["edit"]).calls)


def test_a_value_for_a_tool_that_is_not_declared_may_have_64_kib() -> None:
    assert longest(False, 64 * 1024 - 200)
    assert not longest(False, 64 * 1024)


def test_a_value_for_a_declared_tool_may_have_4_mib() -> None:
    assert longest(True, 4 * 1024 * 1024 - 200)
    assert not longest(True, 4 * 1024 * 1024)


def test_limits_are_options() -> None:
    tight = Policy(hold_limit=100, declared_hold_limit=150)
    markup = INVOKE.replace("id</", "x" * 40 + "</")
    assert parse(markup, ["bash"], tight).calls
    assert not parse(markup, ["edit"], tight).calls


def test_a_candidate_is_prose_after_1024_characters() -> None:
    parser = Parser(["bash"])
    parser.feed(f"<{MARK}tool_calls> ")
    while parser.held:
        parser.feed("word ")
        assert parser.held <= 1024


def test_a_call_that_is_prose_stays_whole() -> None:
    talk = "I think about this. " * 70
    call = live('<{M}tool_calls>\n<{M}invoke name="bash">\n{}\n<{M}parameter name="command" string="true">make')
    call = call.replace("{}", talk) + live('</{M}parameter>\n<{M}parameter name="a" string="true"/>\n')
    closers = live("</{M}invoke>\n</{M}tool_calls>\n")
    orphan = live('More. <{M}parameter name="x" string="true">y</{M}parameter>')
    for size in (1, 5, 5000):
        for text, seen in ((call + closers, call + closers), (call + closers + orphan, call + closers + "More. ")):
            parser = Parser(["bash"])
            events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
            events += parser.close()
            assert "".join(event.text for event in events if isinstance(event, Text)) == seen
            assert not any(isinstance(event, ToolCall) for event in events)


@pytest.mark.parametrize("end", [End.REFUSAL, End.ABORT, End.STOP])
@pytest.mark.parametrize("start", ["- ", "\r\n", " \t\n"])
def test_the_start_of_a_line_ends_inline_code_in_any_pieces(start: str, end: End) -> None:
    """A list item or a blank line ends the paragraph, so what looked like inline code is none."""
    text = live('Go.\n``<{M}invoke name=""><{M}parameter name="a" string="true">b</{M}parameter></{M}invoke>\n') + start
    seen = []
    for size in (1, 2, 3, 5, len(text)):
        parser = Parser(["bash"])
        for at in range(0, len(text), size):
            parser.feed(text[at : at + size])
        parser.close(end)
        seen.append(parser.rejected)
    assert seen.count(seen[0]) == len(seen)
    assert [span.row for span in seen[0]] == ["V14"]


@pytest.mark.parametrize("start", ["```\n", "- x", "10. x", "\n", "  > "])
def test_where_the_hold_limit_ends_inline_code_no_pieces_matter(start: str) -> None:
    """A line that starts behind the limit would end the paragraph, but that is too far to be seen."""
    call = live('``<{M}invoke name="bash"></{M}invoke>')
    for limit in range(len(call), len(call) + 12):
        text = call + "\n.....\n" + start + call
        seen = []
        for size in (1, 2, 5, len(text)):
            parser = Parser(["bash"], Policy(candidate_limit=limit, hold_limit=limit))
            events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
            events += parser.close(End.NATIVE)
            seen.append(["".join(event.text for event in events if isinstance(event, Text)), parser.rejected])
        assert seen.count(seen[0]) == len(seen)


# --- The table --------------------------------------------------------------------------------------------------------


def test_every_action_of_the_table_has_a_contract() -> None:
    assert all(action.__doc__ for action in TABLE.values())
