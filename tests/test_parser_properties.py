"""What holds of any text at all: soup of markup, prose without any, and documents whose meaning is known."""

import json
import string
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsml_core.events import End, Text
from dsml_core.parser import Parser
from dsml_core.policy import Policy
from tests.feeding import Setup, feed, tool_set
from tests.markers import BAR, EOS, MARK, WORD

quick = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None)
slow = settings(quick, max_examples=1000)

# --- Soup: any tag, in any order, among any junk --------------------------------------------------------------------

MARKS = [MARK, f"|{WORD}|", f"{BAR}{MARK}{BAR}", WORD, f" {BAR} {WORD} {BAR} ", f"{WORD.lower()}-", f"\\{WORD}\\"]
WRAPPERS = ["tool_calls", "calls", " calls", "function_calls", "tool_call", "toolcalls", "steps", ""]
NAMES = [' name="bash"', ' name="edit"', ' name="get_time"', ' name="launch"', ' name="x y"', ' name=""', ""]
KEYS = [' name="command"', ' name="path"', ' name="timeout"', ' name="bash"', " name=command", ""]
FLAGS = [' string="true"', ' string="false"', ' string="q"', ' string="true', ""]
ENDS = [">", ">", ">", ">", ">", "/>", "|", "|>", "", ">\n"]
JUNK = [
    *("\n", "\n\n", " ", "\r\n", "words and words", "a < b", "<", "</", "|", BAR, WORD, "`", "``", "```\n", "~~~\n"),
    *("```xml\n", "> ", "- ", "1. ", "# h\n", "<div>", "</div>", "<bash>", "&lt;", '"', "5", "\U0001f600", EOS),
    *('{"command": "id"}', '{"name": "bash", "arguments": {"command": "id"}}', "{", '{"a": "', "\\"),
    *("<think>", "</think>", "<![CDATA[", "]]>", "<function><name>bash</name>", f"\n{MARK}invoke name='bash'>"),
]


def tags(mark: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One tag in any state of repair."""
    start, end = st.sampled_from(["<"] * 6 + ["<<", "\n", ""]), st.sampled_from(ENDS)
    name, key, flag = st.sampled_from(NAMES), st.sampled_from(KEYS), st.sampled_from(FLAGS)
    invoke, parameter = st.sampled_from(["invoke", "inv", " invoke"]), st.sampled_from(["parameter", "param"])
    wrapper = st.sampled_from(WRAPPERS)
    closed = st.one_of(parameter, parameter, invoke, wrapper)
    return st.one_of(
        st.tuples(start, mark, wrapper, end).map("".join),
        st.tuples(start, mark, invoke, name, end).map("".join),
        st.tuples(start, mark, parameter, key, flag, end).map("".join),
        st.tuples(st.just("</"), mark, closed, end).map("".join),
    )


marks = st.sampled_from([*MARKS, MARK, MARK, ""])
soup = st.lists(st.one_of(tags(marks), tags(marks), st.sampled_from(JUNK)), max_size=18).map("".join)
SMALL = Policy(candidate_limit=64, hold_limit=150, declared_hold_limit=300)
setups = st.builds(
    Setup,
    st.sampled_from([tool_set("agent"), tool_set("agent"), None]),
    st.sampled_from([Policy(), Policy(), SMALL, Policy(profile="strict"), Policy(calls=False)]),
    st.booleans(),
    st.sampled_from([End.STOP] * 4 + [End.LENGTH, End.NATIVE, End.PART, End.ABORT, End.REFUSAL]),
)
cuts = st.lists(st.integers(0, 400), max_size=6)


def chunks_do_not_matter(text: str, setup: Setup, places: list[int]) -> None:
    whole = feed(text, setup)
    assert feed(text, setup, range(1, len(text))) == whole
    assert feed(text, setup, sorted(min(place, len(text)) for place in places)) == whole


@quick
@given(soup, setups, cuts)
def test_soup_in_any_pieces(text: str, setup: Setup, places: list[int]) -> None:
    chunks_do_not_matter(text, setup, places)


@pytest.mark.slow
@slow
@given(soup, setups, cuts)
def test_much_soup_in_any_pieces(text: str, setup: Setup, places: list[int]) -> None:
    chunks_do_not_matter(text, setup, places)


@quick
@given(soup, st.integers(1, 9))
def test_a_hold_is_bounded(text: str, step: int) -> None:
    parser = Parser(tool_set("agent"), SMALL)
    for start in range(0, len(text), step):
        parser.feed(text[start : start + step])
        assert parser.held <= SMALL.declared_hold_limit + SMALL.candidate_limit + step


@quick
@given(soup, setups)
def test_nothing_runs_where_no_tool_is_declared(text: str, setup: Setup) -> None:
    outcome = feed(text, replace(setup, tools=tool_set("nothing")))
    assert (outcome.text, outcome.calls) == (text, [])


@quick
@given(soup, setups)
def test_nothing_runs_where_the_request_forbids_it(text: str, setup: Setup) -> None:
    assert feed(text, replace(setup, policy=replace(setup.policy, calls=False))).calls == []


# --- Prose: nothing that could begin a tag ----------------------------------------------------------------------------

prose = st.text(st.characters(exclude_characters="<|/\\\uff1c\uff0f\u2016\u951d" + BAR, exclude_categories=["Cs"]))


@quick
@given(st.lists(prose, max_size=8), st.booleans())
def test_prose_leaves_at_once(pieces: list[str], reasoning: bool) -> None:
    parser = Parser(tool_set("agent"), reasoning=reasoning)
    for piece in filter(None, pieces):
        assert [event.text for event in parser.feed(piece) if isinstance(event, Text)] == [piece]
        assert parser.held == 0
    assert parser.close() == []


@quick
@given(st.text(st.sampled_from(string.ascii_letters + "<>/|=\"' \n\t`~{}[]()-_.:;&#\\" + BAR), max_size=300), setups)
def test_signs_without_the_word_stay(text: str, setup: Setup) -> None:
    """Neither a marked tag nor a known plain one: every character stays."""
    if not any(word in text.lower() for word in ("dsml", "tool_calls", "function_calls", "invoke", "end_of", "</")):
        outcome = feed(text, setup)
        assert (outcome.text, outcome.calls) == (text, [])


# --- Documents: what is meant is known --------------------------------------------------------------------------------

words = st.text(st.sampled_from("abcdefgh ,.;"), min_size=1).map(lambda text: f"So {text} there.")
values = st.text(st.sampled_from("abc \n\t`'\"&;<>|/\\{}[]=\u20ac" + BAR), max_size=40)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A call in one of the dialects, and the arguments it was written for."""
    mark = draw(st.sampled_from(MARKS))
    wrapper = draw(st.sampled_from(["tool_calls", "function_calls", "calls", "toolcalls"]))
    command = f"<{draw(values)}>"  # a value that neither hugs newlines nor is escaped
    flag = draw(st.sampled_from([' string="true"', " string='TRUE'", ""]))
    parameter = f'<{mark}parameter name="command"{flag}>{command}</{mark}parameter>'
    invoke = f'<{mark}invoke name="bash">\n{parameter}\n</{mark}invoke>'
    return draw(st.sampled_from([invoke, f"<{mark}{wrapper}>\n{invoke}\n</{mark}{wrapper}>"])), {"command": command}


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, str, list[dict[str, str]]]:
    """A text, what is to stay of it, and the arguments of its calls."""
    text, visible, meant = "", "", []
    for kind in draw(st.lists(st.sampled_from(["words", "call", "fence", "quote", "code", "think"]), max_size=6)):
        markup, arguments = draw(calls())
        if kind == "call":
            text += markup + "\n\n"
            visible += "\n\n"
            meant.append(arguments)
            continue
        fence = "`" * 50
        shown = {
            "words": draw(words),
            "fence": f"{fence}xml\n{markup}\n{fence}",
            "quote": "> " + markup.replace("\n", "\n> "),
            "code": f"The tag `<{MARK}tool_calls>` opens it.",
            "think": f"<think>{draw(words)}</think>",
        }[kind]
        text += shown + "\n\n"
        visible += shown + "\n\n"
    return text, visible, meant


@quick
@given(documents(), cuts)
def test_a_document_means_what_it_was_written_for(
    document: tuple[str, str, list[dict[str, str]]], places: list[int]
) -> None:
    text, visible, meant = document
    setup = Setup(tool_set("shell_only"))
    outcome = feed(text, setup, sorted(min(place, len(text)) for place in places))
    assert [json.loads(arguments) for _, arguments, *_ in outcome.calls] == meant
    assert outcome.text == visible
