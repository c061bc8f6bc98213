"""Stored assistant text: what is cut, what is noted, which calls come of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.parser import parse
from dsml_core.policy import Policy
from dsml_core.transcript import lost_call, may_leak, repair

from .markers import EOS, live

EDIT = live(
    '<{M}invoke name="edit"><{M}parameter name="path" string="true">a.py</{M}parameter>'
    '<{M}parameter name="line" string="false">3</{M}parameter></{M}invoke>'
)
READ = live('<{M}invoke name="read"><{M}parameter name="path" string="true">b.py</{M}parameter></{M}invoke>')
BLOCK = live("<{M}tool_calls>") + EDIT + live("</{M}tool_calls>")
BOTH = live("<{M}tool_calls>") + EDIT + "\n" + READ + live("</{M}tool_calls>")
BARE = BLOCK.replace("><", ">\n<").replace("<", "").replace("a.py/", "a.py\n/").replace("3/", "3\n/")
ORPHAN = live('<{M}parameter name="path" string="true">a.py</{M}parameter>')
OPEN = live('<{M}tool_calls><{M}invoke name="edit"><{M}parameter name="path" string="true">a.p')
WRAPPED = live(
    '<parameter name="edit">\n<{M}parameter name="path" string="true">a.py</{M}parameter>\n'
    "</{M}invoke>\n</{M}tool_calls>"
)

# name, text, native, repaired text, names of the calls
REPAIRS = [
    ("plain", "All done.", False, "All done.", []),
    ("block", f"Now:\n{BLOCK}", False, "Now:\n[removed malformed edit call]", ["edit"]),
    ("between prose", f"Now: {BLOCK} so.", False, "Now: [removed malformed edit call] so.", ["edit"]),
    ("nothing else", BLOCK, False, "[removed malformed edit call]", ["edit"]),
    ("two calls", BOTH, False, "[removed malformed edit call] [removed malformed read call]", ["edit", "read"]),
    ("wrapped tool", f"So.\n{WRAPPED}", False, "So.\n[removed malformed edit call]", ["edit"]),
    ("no brackets", f"So.\n{BARE}", False, "So.\n[removed malformed edit call]", ["edit"]),
    ("orphan parameter", f"So.\n{ORPHAN}", False, "So.\n", []),
    ("orphan parameter alone", ORPHAN, False, "[removed malformed call]", []),
    ("beside native calls", f"Now:\n{BLOCK}", True, "Now:\n[removed malformed edit call]", []),
    ("unclosed stays", f"So. {OPEN}", False, f"So. {OPEN}", []),
    ("unclosed beside native calls goes", f"So. {OPEN}", True, "So. [removed malformed edit call]", []),
    ("fence", f"Like this:\n```\n{BLOCK}\n```\n", False, f"Like this:\n```\n{BLOCK}\n```\n", []),
    ("fence beside native calls", f"Like this:\n```\n{BLOCK}\n```\n", True, f"Like this:\n```\n{BLOCK}\n```\n", []),
    ("inline code", f"Write `{BLOCK}`.", True, f"Write `{BLOCK}`.", []),
    ("end token alone", f"Done.{EOS}", False, f"Done.{EOS}", []),
]


@pytest.mark.parametrize(("name", "text", "native", "repaired", "calls"), REPAIRS)
def test_repair(name: str, text: str, native: bool, repaired: str, calls: list[str]) -> None:
    found = repair(text, native=native)
    assert found.text == repaired
    assert [call.name for call in found.calls] == calls
    assert bool(found.removed) is (repaired != text)


@pytest.mark.parametrize(("name", "text", "native", "repaired", "calls"), REPAIRS)
def test_a_second_time_changes_nothing(name: str, text: str, native: bool, repaired: str, calls: list[str]) -> None:
    again = repair(repaired, native=native)
    assert (again.text, again.calls, again.removed) == (repaired, (), ())


def test_calls_are_those_of_the_parser() -> None:
    assert repair(BOTH).calls == tuple(parse(BOTH).calls)
    assert repair(BOTH).calls[0].arguments == {"path": "a.py", "line": 3}


@pytest.mark.parametrize("said", [OPEN, OPEN + "\nI will not write that.", ORPHAN])
def test_markup_that_the_request_quotes_was_not_lost(said: str) -> None:
    text = f"The page says:\n{said}"
    quoting = Policy(quoted=(f"<p>Look:</p>\n{said.partition(chr(10))[0]} so it ends",))
    assert repair(text, None, quoting, native=True).text == text
    assert not lost_call(text, None, quoting)
    other = Policy(quoted=(READ,))
    assert repair(text, None, other, native=True).text != text


def test_what_is_not_asked_for_stays() -> None:
    text = f"You wrote {EDIT}."
    assert repair(text, native=True).removed
    quoting = Policy(quoted=(EDIT,))
    assert repair(text, policy=quoting, native=True).text == text


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("All done.", False),
        (BLOCK, False),
        (WRAPPED, False),
        (f"So.\n{ORPHAN}", True),
        (f"So. {OPEN}", True),
        (live('<{M}tool_calls><{M}invoke name="edit {"></{M}invoke></{M}tool_calls>'), True),
        (f"Like this:\n```\n{OPEN}\n```\nOk?", False),
        (live("The tag `<{M}invoke>` opens a call."), False),
    ],
)
def test_lost_call(text: str, lost: bool) -> None:
    assert lost_call(text) is lost


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("", False),
        ("a < b and c > d", False),
        ("the dsml word", False),
        ("Vec<u8> \u2014 <b>\u00fc</b>", False),
        (BLOCK, True),
        (live("<dsml-tool-calls>"), True),
        (live("\u00fc <DsMl{B}invoke>"), True),
        (BARE, True),
        ("a | b | " + "DSML", False),
        ("<INVOKE name='x'>", True),
    ],
)
def test_may_leak(text: str, may: bool) -> None:
    assert may_leak(text) is may


PIECES = [
    *(
        live(piece)
        for piece in ("<{M}tool_calls>", "</{M}tool_calls>", "<{M} calls>", '<{M}invoke name="edit">', "</{M}invoke>")
    ),
    *(
        live(piece)
        for piece in ('<{M}parameter name="path" string="true">', "</{M}parameter>", "</{M}>", "<{M}", "{B}", "<")
    ),
    *(live(piece) for piece in ('<{B}{M}{B}invoke name="read">', "</{B}{M}{B}invoke>", "\uff1c{M}invoke name='a'>")),
    *("<tool_calls>", '<invoke name="edit">', "</invoke>", '<parameter name="edit">', "</parameter>", "</tool_calls>"),
    *(
        "prose ",
        "\n",
        "\n\n",
        " ",
        "```\n",
        "`",
        "> ",
        "x < y",
        '{"path": "a"}',
        "<think>",
        "</think>",
        EOS,
        BLOCK,
        OPEN,
    ),
]
texts = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
declared = st.sampled_from([None, ["edit", "read"]])


@given(texts, declared, st.booleans())
def test_removed_and_rest_are_what_was_given(text: str, tools: list[str] | None, native: bool) -> None:
    found = repair(text, tools, native=native)
    rest, at = "", 0
    for span in found.removed:
        assert (span.start >= at, text[span.start : span.end]) == (True, span.text)
        rest, at = rest + text[at : span.start], span.end
    rest += text[at:]
    visible = "".join(re.sub(r"\[removed malformed (?:\S+ )?call\]", "", found.text).split())
    left = iter("".join(rest.split()))
    assert all(character in left for character in visible)  # in this order, nothing added
    if not repair(rest, tools, native=native).removed:
        assert not list(left)


@given(texts, declared, st.booleans())
def test_any_repaired_text_is_repaired_for_good(text: str, tools: list[str] | None, native: bool) -> None:
    once = repair(text, tools, native=native).text
    assert repair(once, tools, native=native).text == once


@given(texts, declared)
def test_what_may_not_leak_does_not(text: str, tools: list[str] | None) -> None:
    if not may_leak(text):
        assert not parse(text, tools).ranges
