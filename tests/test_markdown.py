"""Where markup is only quoted, told from the text before it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsml_core.markdown import CodeSpan, Fences, Quote, Quoting

F = "```"
PLACES = [
    ("", Quote.NONE),
    ("words", Quote.NONE),
    ("words\n", Quote.NONE),
    # fences
    (f"{F}\n", Quote.QUOTED),
    (f"{F}xml", Quote.QUOTED),
    (f"{F}xml\ncode\n", Quote.QUOTED),
    (f"{F}xml\ncode\n{F}\n", Quote.NONE),
    (f"{F}\ncode\n{F} ", Quote.QUOTED),
    (f"{F}\ncode\n{F} \n", Quote.NONE),
    (f"{F}\ncode\n{F}py\n", Quote.QUOTED),
    (f"{F}\ncode\n`````\n", Quote.NONE),
    (f"````\ncode\n{F}\n", Quote.QUOTED),
    (f"````\n{F}\n{F}\n````\n", Quote.NONE),
    ("~~~\n", Quote.QUOTED),
    (f"~~~\n{F}\n", Quote.QUOTED),
    ("~~~ `x`\n", Quote.QUOTED),
    (f"{F} `x`\n\n", Quote.NONE),
    ("``\n\n", Quote.NONE),
    (f"   {F}\n", Quote.QUOTED),
    (f"{F}\n   {F}\n", Quote.NONE),
    (f"{F}\n    {F}\n", Quote.QUOTED),
    (f"{F}\r\ncode\r\n{F}\r\n", Quote.NONE),
    (f"words {F}\n\n", Quote.NONE),
    (f"{F}{'x' * 600}\n\n", Quote.NONE),
    # in lists and quotes
    (f"- {F}\n", Quote.QUOTED),
    (f"- {F}\n  code\n  {F}\n", Quote.NONE),
    (f"10. {F}\n    code\n    {F}\n", Quote.NONE),
    (f"- one\n\n  {F}\n", Quote.QUOTED),
    (f"> {F}\n", Quote.NONE),
    (f"> {F}\n> code\n> {F}\n", Quote.NONE),
    (f"> {F}\n> code\n\n", Quote.NONE),
    (f"> - {F}\n", Quote.NONE),
    (f"-{F}\n\n", Quote.NONE),
    # block quotes
    ("> ", Quote.QUOTED),
    (">", Quote.QUOTED),
    ("  > said ", Quote.QUOTED),
    ("> > ", Quote.QUOTED),
    ("- > ", Quote.QUOTED),
    ("> said\n", Quote.NONE),
    ("a > b ", Quote.NONE),
    # inline code
    ("`", Quote.CODE),
    ("a `b", Quote.CODE),
    ("a `b` c", Quote.NONE),
    ("a ``b` c", Quote.CODE),
    ("a ``b` c`` d", Quote.NONE),
    ("a `b``c` d", Quote.NONE),
    ("a `b\nc", Quote.CODE),
    ("a `b\n\nc", Quote.NONE),
    ("a `b\n  \nc", Quote.NONE),
    ("a `b\n# c", Quote.NONE),
    ("a `b\n- c", Quote.NONE),
    ("a `b\n1. c", Quote.NONE),
    ("a `b\n> c\n", Quote.NONE),
    ("> a `b\n> c\n", Quote.CODE),
    (f"a `b\n{F}\n{F}\n", Quote.NONE),
    ("a " + "`" * 600 + " b", Quote.NONE),
    # thinking
    ("<think>", Quote.THINK),
    ("<think>a\n\nb", Quote.THINK),
    ("<think>a</think>", Quote.NONE),
    ("<think>a<think>b</think>", Quote.NONE),
    ("</think>", Quote.NONE),
    ("`<think>`", Quote.NONE),
    (f"{F}\n<think>\n{F}\n", Quote.NONE),
    ("<think>`a", Quote.CODE),
    # not quoted
    ("    ", Quote.NONE),
    ("\t", Quote.NONE),
    ("<pre>", Quote.NONE),
    ("<!-- ", Quote.NONE),
    ('"', Quote.NONE),
]


def pieces(text: str) -> list[str]:
    """A piece may end before a sign that can begin a tag, and behind a line."""
    return re.findall(r"(?:[^\n@]|@)[^\n@]*\n?|\n", text)


@pytest.mark.parametrize(("text", "place"), PLACES, ids=[ascii(text[:40]) for text, _ in PLACES])
def test_place(text: str, place: Quote) -> None:
    quoting = Quoting()
    quoting.read(text, 0)
    assert quoting.place is place


@pytest.mark.parametrize(("text", "place"), PLACES, ids=[ascii(text[:40]) for text, _ in PLACES])
def test_place_in_pieces(text: str, place: Quote) -> None:
    quoting, at = Quoting(), 0
    for piece in pieces(text):
        quoting.read(piece, at)
        at += len(piece)
    assert quoting.place is place


soup = st.lists(
    st.sampled_from(
        [F, "````", "~~~", "`", "``", "\n", "\n\n", "> ", "- ", "1. ", "# ", " ", "@", "@ ", "<think>", "</think>"]
    ),
    max_size=14,
).map("".join)


@settings(deadline=None, derandomize=True, max_examples=300, database=None)
@given(soup)
def test_pieces_do_not_matter(text: str) -> None:
    whole, cut, at = Quoting(), Quoting(), 0
    whole.read(text, 0)
    for piece in pieces(text):
        cut.read(piece, at)
        at += len(piece)
    assert (cut.place, cut.inside, cut.run, cut.opened) == (whole.place, whole.inside, whole.run, whole.opened)


@pytest.mark.parametrize(
    ("text", "at_start"),
    [("", True), ("a\n", True), ("a\n  \t", True), ("a", False), ("a\nb ", False), ("- ", False)],
)
def test_at_line_start(text: str, at_start: bool) -> None:
    quoting = Quoting()
    quoting.read(text, 0)
    assert quoting.at_line_start is at_start


def test_a_line_in_which_markup_stood_has_begun() -> None:
    quoting = Quoting()
    quoting.skip("markup")
    assert not quoting.at_line_start
    quoting.read("\n", 6)
    assert quoting.at_line_start
    quoting.skip("markup\n")
    assert quoting.at_line_start


def test_a_run_without_partner_opens_nothing_more() -> None:
    quoting = Quoting()
    quoting.read("a ` b ", 0)
    assert quoting.run == 1
    quoting.unmatched("tag ``c`` and `` more", 6)
    quoting.read("tag ``", 6)
    assert quoting.run == 2
    quoting.read("c`` and ``", 12)
    assert quoting.run == 0


# --- Fences in a value ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "suffix", "closes"),
    [
        (f"{F}\ncode\n{F}", "", True),
        (f"{F}\ncode\n{F}  ", "", True),
        (f"{F}\ncode\n{F}]]>", "]]>", True),
        (f"{F}\ncode\n{F}]]>", "", False),
        (f"{F}\ncode", "", False),
        (f"{F}", "", False),
        (f"<![CDATA[{F}\ncode\n{F}]]>", "]]>", True),
    ],
)
def test_a_value_may_end_behind_the_closing_fence(text: str, suffix: str, closes: bool) -> None:
    fences = Fences()
    fences.advance(text)
    assert fences.inside
    assert fences.closes_here(suffix) is closes


def test_fences_are_counted() -> None:
    fences = Fences()
    fences.advance(f"{F}\na\n{F}\n~~~\nb\n~~~\n{F}\n")
    assert fences.opened == 3


# --- The end of a code span -------------------------------------------------------------------------------------------

SPANS = [
    (1, "tag` more", (True, 4)),
    (1, "tag\nnext` more", (True, 9)),
    (1, "tag `` and ` more", (True, 12)),
    (2, "tag ` and `` more", (True, 12)),
    (1, "tag\n\nnext` more", (False, 4)),
    (1, "tag\n# head` more", (False, 4)),
    (1, "tag\n- item` more", (False, 4)),
    (1, "tag\n> quote` more", (False, 4)),
    (1, f"tag\n{F}\n", (False, 4)),
    (1, "tag\n   \nnext` more", (False, 4)),
    (1, "tag and no more", (False, 15)),
    (1, "tag and no more\n", (False, 16)),
    (3, "tag\n```\n", (True, 7)),
    (3, "tag\n ``` \nmore", (True, 9)),
    (3, "tag\n```", (True, 7)),
    (3, "tag\n```xml\n", (False, 4)),
    (3, "tag\n````\n", (False, 4)),
    (2, "tag\n```\n", (False, 4)),
    (1, "tag\n\r\n`", (False, 4)),
    (1, "tag`", (True, 4)),
    (1, "tag``", (False, 5)),
    (2, "tag`", (False, 4)),
]


@pytest.mark.parametrize(("run", "text", "end"), SPANS)
def test_the_end_of_a_code_span(run: int, text: str, end: tuple[bool, int]) -> None:
    assert CodeSpan(run, 0).end(text, True) == end


@pytest.mark.parametrize(("run", "text", "end"), SPANS)
def test_the_end_of_a_code_span_that_arrives_in_pieces(run: int, text: str, end: tuple[bool, int]) -> None:
    span, gone = CodeSpan(run, 0), 0
    for length in [*range(len(text) + 1), len(text)]:
        found = span.end(text[gone:length], False)
        if not isinstance(found, int):
            assert (found[0], gone + found[1]) == end
            return
        gone += found
    found = span.end(text[gone:], True)
    assert not isinstance(found, int)
    assert (found[0], gone + found[1]) == end
