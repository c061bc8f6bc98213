"""What is a tag, what is none, and when that is known."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsml_core.grammar import CANDIDATE, CANONICAL, CLOSERS, OPENERS, Kind, Lexer, Miss, Tag, lex, noise_row, tags
from tests.feeding import cases
from tests.markers import BAR, EOS, MARK, WORD, live

TOOLS = frozenset({"bash"})
GBK = "\u951d\u6ed0\u7d94"  # the UTF-8 bytes of two bars, read as GBK


def the_tag(text: str) -> Tag:
    tag = lex(live(text), 0, TOOLS)
    assert isinstance(tag, Tag), tag
    return tag


KINDS = [
    ("<{M}tool_calls>", Kind.BLOCK_OPEN, "tool_calls"),
    ("</{M}tool_calls>", Kind.BLOCK_CLOSE, "tool_calls"),
    ("<{M} calls>", Kind.BLOCK_OPEN, "calls"),
    ("<{M}function_calls>", Kind.BLOCK_OPEN, "function_calls"),
    ("<{M}tool_call>", Kind.BLOCK_OPEN, "tool_call"),
    ("<{M}ToolCalls>", Kind.BLOCK_OPEN, "toolcalls"),
    ("<{M}tool-calls>", Kind.BLOCK_OPEN, "tool-calls"),
    ("<{M}_tool_calls>", Kind.BLOCK_OPEN, "tool_calls"),
    ("<{M}tool_cals>", Kind.BARE_OPEN, "tool_cals"),
    ("</{M}summary>", Kind.BARE_CLOSE, "summary"),
    ("<{M}>", Kind.BARE_OPEN, ""),
    ("</{M}>", Kind.BARE_CLOSE, ""),
    ('<{M}invoke name="x">', Kind.INVOKE_OPEN, "invoke"),
    ("<{M}invoke>", Kind.INVOKE_OPEN, "invoke"),
    ("</{M}inv>", Kind.INVOKE_CLOSE, "inv"),
    ("</{M}i>", Kind.INVOKE_CLOSE, "i"),
    ('<{M}param name="x">', Kind.PARAM_OPEN, "param"),
    ("</{M}parameter>", Kind.PARAM_CLOSE, "parameter"),
    ("</{M}p>", Kind.PARAM_CLOSE, "p"),
    ("<{M}bash>", Kind.INVOKE_OPEN, "bash"),
    ("</{M}bash>", Kind.INVOKE_CLOSE, "bash"),
    ("<tool_calls>", Kind.BLOCK_OPEN, "tool_calls"),
    ("< calls>", Kind.BLOCK_OPEN, "calls"),
    ("</function_calls>", Kind.BLOCK_CLOSE, "function_calls"),
    ("</calls>", Kind.BARE_CLOSE, "calls"),
    ("</tool_call>", Kind.BARE_CLOSE, "tool_call"),
    ('<invoke name="x">', Kind.INVOKE_OPEN, "invoke"),
    ("</invoke>", Kind.INVOKE_CLOSE, "invoke"),
    ('<parameter name="x">', Kind.PARAM_OPEN, "parameter"),
    ("</parameter>", Kind.PARAM_CLOSE, "parameter"),
    ("<function><name>bash</name>", Kind.INVOKE_OPEN, "function"),
    (EOS, Kind.END_TOKEN, ""),
    ("<|end_of_thinking|>", Kind.END_TOKEN, ""),
    (f"<{BAR}tool\u2581calls\u2581end{BAR}>", Kind.END_TOKEN, ""),
    ("</think>", Kind.END_TOKEN, "think"),
]


@pytest.mark.parametrize(("text", "kind", "name"), KINDS)
def test_kinds(text: str, kind: Kind, name: str) -> None:
    tag = the_tag(text)
    assert (tag.kind, tag.name, tag.length) == (kind, name, len(live(text)))
    assert tag.marked == (WORD in live(text))


def test_each_kind_is_an_opener_a_closer_or_a_token() -> None:
    assert {kind for _, kind, _ in KINDS} == set(Kind) == OPENERS | CLOSERS | {Kind.END_TOKEN}


MARKS = [
    *(MARK, f"{BAR}{MARK}{BAR}", f"|{WORD}|", f"\u2016{WORD}\u2016", f"{BAR}|\u2016{WORD}", WORD, f"{WORD}{BAR}"),
    *(f"\\{WORD}\\", f"{WORD.lower()}-", f"{WORD.lower()}_", f"{MARK}{WORD}{BAR}", f" {BAR} {WORD} {BAR} "),
    *(f"{MARK}\n\n", f"\u200b{MARK}\u200b", f"\u3000{MARK}\u3000", f"{MARK}r:", f"<<<{MARK}", f"{GBK}{WORD}{GBK}"),
]


@pytest.mark.parametrize("mark", MARKS, ids=map(ascii, MARKS))
def test_noise(mark: str) -> None:
    for text, kind in (
        (f"<{mark}tool_calls>", Kind.BLOCK_OPEN),
        (f'<{mark}invoke name="x">', Kind.INVOKE_OPEN),
        (f'<{mark}parameter name="x" string="true">', Kind.PARAM_OPEN),
    ):
        tag = lex(text, 0)
        assert isinstance(tag, Tag)
        assert (tag.kind, tag.marked, tag.length) == (kind, True, len(text))
        assert not tag.self_closing


CLOSING_MARKS = [mark for mark in MARKS if not mark.startswith("<")]


@pytest.mark.parametrize("mark", CLOSING_MARKS, ids=map(ascii, CLOSING_MARKS))
def test_noise_in_closers(mark: str) -> None:
    for name, kind in (("tool_calls", Kind.BLOCK_CLOSE), ("invoke", Kind.INVOKE_CLOSE)):
        for text in (f"</{mark}{name}>", f"< / {mark}{name} >", f"</{mark}{name}|>"):
            tag = lex(text, 0)
            assert isinstance(tag, Tag)
            assert (tag.kind, tag.length) == (kind, len(text))


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("<{M}tool_calls", "\n<{M}invoke name='x'>"),
        ("<{M}invoke name='x'", "\n<{M}parameter name='y'>"),
        ("</{M}invoke", "</{M}tool_calls>"),
        ("<{M}tool_calls|", "<{M}invoke name='x'>"),
        ("<{M}tool_calls|", "text"),
        ("<<<<{M}tool_calls>", ""),
    ],
)
def test_where_a_tag_without_its_bracket_ends(text: str, behind: str) -> None:
    assert the_tag(text + behind).length == len(live(text))


NONE = [
    *("<div>", "<tool_calls_log>", "<invoke>", "<invokes name='x'>", "<parameters>", "a", "<", "< b", "<|", f"<{BAR}"),
    *("<toolcalls>", "</tool>", "</function>", "<calls x='1'>", "<think>", "<|end|>", f"<x{WORD}|invoke>", "<D S M L>"),
    *(f"<{WORD.lower()}:invoke name='x'>", f"<{WORD}>", f"<{MARK}summary of='x'>", f"<{MARK}tool calls of>"),
    *(f"<{MARK}invoke and so on >", f'<{MARK}invoke\\s+name="([^"]+)">', f'<{MARK}invoke name=\\"bash\\">'),
]


@pytest.mark.parametrize("text", NONE, ids=map(ascii, NONE))
def test_no_tag(text: str) -> None:
    assert lex(text + " and more text behind it", 0, TOOLS) is Miss.NO


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ('name="bash" string="true"', {"name": "bash", "string": "true"}),
        ("NAME='bash'", {"name": "bash"}),
        ("name = bash", {"name": "bash"}),
        ("name=\u201cbash\u201d", {"name": "bash"}),
        ("name=\u2018bash\u2019", {"name": "bash"}),
        ('name=\u201cbash"', {"name": "bash"}),
        ("tool=bash", {"name": "bash"}),
        ('tool="a" name="b"', {"name": "a"}),
        ('name="a" name="b"', {"name": "a"}),
        ('name=" a b "', {"name": " a b "}),
        ('x.y="1" a-b="2" name="c"', {"x.y": "1", "a-b": "2", "name": "c"}),
        ('name="a<b"', {"name": "a<b"}),
        ('name="a>b"', {"name": "a>b"}),
        ('name=""', {"name": ""}),
        ('name="bash" {"command": 1}', {"name": "bash"}),
    ],
)
def test_attributes(text: str, attributes: dict[str, str]) -> None:
    assert the_tag(f"<{{M}}invoke {text}>").attrs == attributes


@pytest.mark.parametrize(
    ("text", "behind", "name"),
    [
        ('<{M}invoke name="bash>', "\n<{M}parameter name='x'>", "bash"),
        ('<{M}invoke name="bash', "\n<{M}parameter name='x'>", "bash"),
        ('<{M}parameter name="x>', "value</{M}parameter>", "x"),
        ('<{M}parameter name="x value', "</{M}parameter>", None),
        ('<{M}invoke name="bash\u201d>', "\n</{M}invoke>", "bash"),
    ],
)
def test_a_quote_that_never_closes(text: str, behind: str, name: str | None) -> None:
    tag = the_tag(text + behind)
    assert (live(text + behind)[: tag.length].rstrip(), tag.attrs.get("name")) == (live(text), name)


@pytest.mark.parametrize(
    ("flag", "holds"),
    [("true", False), ("FALSE", False), (" true ", False), ("ls -la", True), ("", True), ("yes", True)],
)
def test_a_value_in_the_flag(flag: str, holds: bool) -> None:
    assert the_tag(f'<{{M}}parameter name="x" string="{flag}"/>').value_in_attribute is holds


def test_self_closing() -> None:
    assert the_tag('<{M}invoke name="x"/>').self_closing
    assert the_tag('<{M}invoke name="x" / >').self_closing
    assert the_tag('<invoke name="x" />').self_closing
    assert not the_tag('<{M}invoke name="a/b">').self_closing
    assert not the_tag("<{M}invoke name=a/b>").self_closing


def test_a_declared_tool_as_the_tag() -> None:
    assert (the_tag("<{M}bash>").tool, the_tag("<{M}bash>").attrs) == ("bash", {"name": "bash"})
    assert the_tag("<{M}Bash>").kind is Kind.BARE_OPEN
    assert the_tag("<{M}edit>").kind is Kind.BARE_OPEN


def test_a_dropped_bracket() -> None:
    opener, closer = the_tag('{M}invoke name="x">'), the_tag("/{M}invoke>")
    assert (opener.kind, opener.dropped_lt) == (Kind.INVOKE_OPEN, True)
    assert (closer.kind, closer.dropped_lt) == (Kind.INVOKE_CLOSE, True)


def test_a_tag_that_is_too_long_is_none() -> None:
    short, long = (f'<{MARK}invoke name="{"x" * length}">' for length in (1000, 1010))
    assert isinstance(lex(short, 0), Tag)
    assert lex(long, 0) is Miss.NO
    assert lex(long[:1024], 0) is Miss.NOT_YET
    assert isinstance(lex(long, 0, limit=2048), Tag)


@pytest.mark.parametrize(
    ("tag", "row"),
    [
        ("<{M}invoke>", "V1"),
        ("<{B}{M}{B}invoke>", "V2"),
        (f"<|{WORD}|invoke>", "V3"),
        ("<{M} invoke>", "V4"),
        (f"<{WORD}invoke>", "N1"),
        ("<<{M}invoke>", "N1"),
        ("{M}invoke>", "N2"),
        (f"<{GBK}{WORD}{GBK}invoke>", "N3"),
        ("<invoke>", "V1"),
    ],
)
def test_the_row_of_a_marker(tag: str, row: str) -> None:
    assert noise_row(live(tag)) == row


@pytest.mark.parametrize(
    ("tag", "canonical"),
    [
        ("<{M}tool_calls>", True),
        ("</{M} calls>", True),
        ("<{B}{M}{B}function_calls>", True),
        (f'<|{WORD}|invoke name="x y">', True),
        ('<{M}parameter name="x" string="false">', True),
        ('<{M}parameter string="true" name="x">', False),
        ("<{M}tool_call>", False),
        ("<{M}  calls>", False),
        ("<{M}invoke name='x'>", False),
        ('<{M}invoke name=""/>', False),
        (f"<\u2016{WORD}\u2016tool_calls>", False),
        (f"<{WORD}tool_calls>", False),
    ],
)
def test_canonical(tag: str, canonical: bool) -> None:
    assert (CANONICAL.fullmatch(live(tag)) is not None) is canonical


# --- When it is known -------------------------------------------------------------------------------------------------

TEXTS = [live(text) for text, *_ in KINDS] + [
    live(text)
    for text in (
        '<{M}parameter name="x" string="true">',
        '<{M}invoke name="bash>\n<{M}parameter',
        '<{M}invoke name="bash {"a": 1}>',
        "<{M}tool_calls\n<{M}invoke",
        "{M}invoke name='x'>",
        f'< | {WORD} | invoke name = "x" / >',
        "<invoke name=\"x\" y='z'>",
    )
]


@pytest.mark.parametrize("text", TEXTS, ids=map(ascii, TEXTS))
@pytest.mark.parametrize("behind", ["", " ", ">", "x", f"<{MARK}", '"'], ids=ascii)
def test_an_answer_once_given_stays(text: str, behind: str) -> None:
    answers = [lex((text + behind)[:end], 0, TOOLS) for end in range(1, len(text + behind) + 1)]
    known = [answer for answer in answers if answer is not Miss.NOT_YET]
    assert all(answer == known[0] for answer in known)
    assert answers[: len(answers) - len(known)] == [Miss.NOT_YET] * (len(answers) - len(known))


SIGNS = [*"<>/=\"' \n|", BAR, MARK, WORD, "invoke", "parameter", "name=", "calls", "tool_"]
signs = st.lists(st.sampled_from(SIGNS), max_size=9).map("".join)


@settings(deadline=None, derandomize=True, max_examples=300, database=None)
@given(signs, signs)
def test_any_answer_once_given_stays(text: str, behind: str) -> None:
    first = lex("<" + text, 0, TOOLS)
    assert first in (Miss.NOT_YET, lex("<" + text + behind, 0, TOOLS))


# --- Shortcuts --------------------------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=300, database=None)
@given(signs)
def test_a_candidate_is_found_wherever_a_tag_is(text: str) -> None:
    for match in re.finditer("<", text):
        if isinstance(lex(text, match.start(), TOOLS), Tag):
            assert CANDIDATE.match(text, match.start())


def test_the_lexer_says_the_same_as_lex() -> None:
    lexer = Lexer(TOOLS, 1024)
    for case in cases():
        for match in re.finditer("[<\uff1c]", case.text[:2000]):
            found = lexer.lex(case.text, match.start())
            assert found == lex(case.text, match.start(), TOOLS)


def test_tags_of_a_text() -> None:
    text = live('a <{M}invoke name="x">b < c</{M}invoke> </p>')
    assert [(at, tag.kind) for at, tag in tags(text)] == [(2, Kind.INVOKE_OPEN), (text.index("</"), Kind.INVOKE_CLOSE)]
