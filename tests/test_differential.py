"""Against the canonical encoder: what it writes is decoded equal, and damage to it never makes a call of its own."""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsml_core.policy import Policy
from dsml_core.tools import as_tools
from tests.client_view import Seen, see
from tests.encoder import GRAMMARS, Encoded, Grammar, encode, pieces, speaks_for_itself
from tests.feeding import Setup, feed, in_every_way
from tests.leaks import repaired
from tests.markers import BAR, EOS, MARK, WORD
from tests.provider_frames import WIRES, Says, body, stream

few = settings(deadline=None, derandomize=True, database=None, max_examples=20, suppress_health_check=list(HealthCheck))
many = settings(few, max_examples=350)

TOOLS = ("bash", "edit_file", "mcp__git.log", "web:search")
DECLARED = as_tools([{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS])
REQUIRED = as_tools(
    [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "required": ["path", "text"], "properties": {}},
            },
        }
        for name in TOOLS
    ]
)

# -- Values

MARKUP_LIKE = [
    *(
        "<",
        ">",
        "</",
        "<<",
        "&",
        "<!--",
        "-->",
        "]]>",
        "<br/>",
        '<a href="x">',
        "</div>",
        "<parameter>",
        "</parameter>",
    ),
    *("</invoke>", '<invoke name="bash">', '<parameter name="a" string="true">', "</tool_calls>", "<tool_calls>"),
    *(f"<{BAR}", f"{BAR}", f"{WORD}", f"</{BAR}DS", f"{MARK}", "|", "\\", "```", "```xml\n", "~~~", "`", "\n", "\n\n"),
    *(
        "<think>",
        "</think>",
        "{",
        '"',
        "'",
        "null",
        "true",
        "5",
        " ",
        "\t",
        "\r\n",
        "\0",
        "\u2028",
        "\ud83d",
        "\U0001f600",
    ),
]
words = st.one_of(st.text(max_size=12), st.sampled_from(MARKUP_LIKE))
texts = st.lists(words, max_size=8).map("".join)


def unchanged(value: str) -> bool:
    """Left out, since they are decoded to something else on purpose: hugged, fully escaped and wholly CDATA values."""
    hugged = value.startswith(("\n", "\r\n"))
    escaped = re.search(r"&(?:#|\w)", value) is not None and not re.search(r"[<>]|&(?![#\w])", value)
    return not hugged and not escaped and "<![CDATA[" not in value and speaks_for_itself(value)


strings = texts.filter(unchanged)
numbers = st.one_of(st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False))
scalars = st.one_of(st.none(), st.booleans(), numbers, strings)
keys = st.text("abcXYZ019_-. /", min_size=1, max_size=8).filter(lambda key: key == key.strip())
nested = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
values = st.one_of(strings, strings, nested).filter(
    lambda value: isinstance(value, str) or speaks_for_itself(json.dumps(value, ensure_ascii=False))
)
arguments = st.dictionaries(keys.filter(lambda key: key not in ("arguments", "input")), values, max_size=4)
encoded = st.builds(Encoded, st.sampled_from(TOOLS), arguments)
blocks = st.lists(encoded, min_size=1, max_size=4)
grammars = st.sampled_from(GRAMMARS)


def check_equal(calls: list[Encoded], grammar: Grammar) -> None:
    outcome = in_every_way("I will.\n\n" + encode(calls, grammar), Setup(DECLARED), pairs=3)
    assert [(call["name"], call["arguments"]) for call in outcome.named_calls] == [
        (call.name, call.arguments) for call in calls
    ]
    assert outcome.text == "I will.\n\n"
    assert outcome.rejected == []


@few
@given(blocks, grammars)
def test_what_was_encoded_is_decoded(calls: list[Encoded], grammar: Grammar) -> None:
    check_equal(calls, grammar)


@pytest.mark.slow
@many
@given(blocks, grammars)
def test_what_was_encoded_is_decoded_of_many(calls: list[Encoded], grammar: Grammar) -> None:
    check_equal(calls, grammar)


@few
@given(blocks, grammars)
def test_the_strict_profile_decodes_it_too(calls: list[Encoded], grammar: Grammar) -> None:
    outcome = feed("I will.\n\n" + encode(calls, grammar), Setup(DECLARED, Policy(profile="strict")))
    assert [(call["name"], call["arguments"]) for call in outcome.named_calls] == [
        (call.name, call.arguments) for call in calls
    ]


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@settings(few, max_examples=40)
@given(blocks, grammars, st.integers(1, 9), st.integers(1, 400))
def test_what_was_encoded_is_decoded_on_every_wire(
    wire: str, calls: list[Encoded], grammar: Grammar, delta: int, size: int
) -> None:
    check_equal_on(wire, calls, grammar, delta, size)


def check_equal_on(wire: str, calls: list[Encoded], grammar: Grammar, delta: int, size: int) -> None:
    """In deltas of `delta` characters and pieces of `size` bytes, and as one document."""
    text = ("I will.\n\n" + encode(calls, grammar)).replace("\ud83d", "\U0001f600")
    for seen in seen_on(wire, text, delta, size, DECLARED):
        assert json.dumps(seen.calls).replace("\\ud83d\\ude00", "\\ud83d") == json.dumps(
            [(call.name, call.arguments) for call in calls]
        ).replace("\\ud83d\\ude00", "\\ud83d")
        assert seen.text.strip() == "I will."
        assert seen.finish == ("tool_calls" if calls else "stop")


def seen_on(wire: str, text: str, delta: int, size: int, tools: Any) -> list[Seen]:
    """What a client sees of the text, streamed and as one document."""
    seen = []
    answer = [Says([text[at : at + delta] for at in range(0, len(text), delta)])]
    for streamed in (True, False):
        data = b"".join(stream(wire, answer)) if streamed else body(wire, answer)
        cut = (data[at : at + size] for at in range(0, len(data), size))
        out, _ = repaired(wire, cut, streamed=streamed, tools=tools)
        seen.append(see(wire, out, stream=streamed))
    return seen


# -- Damage

Tags = list[str]
NOISE = ("||", "|", BAR * 2, f" {BAR} ", "\u2016", "", "\\")


# What the catalogue has seen in the wild: forms that change nothing of what is meant, all over a block,


def other_marker(parts: Tags, chance: random.Random) -> None:
    """V2, V3, V4: the noise forms, one for the whole block."""
    noise = chance.choice(NOISE)
    case = chance.choice((str, str.lower, str.title))
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].replace(MARK, noise + case(WORD) + noise)


def other_wrapper(parts: Tags, chance: random.Random) -> None:
    """V5, V7, V8."""
    name = chance.choice(("calls", "tool_call", "tool_calls", "function_calls", "toolcalls"))
    for place in (1, -2):
        parts[place] = re.sub(r"\w+>$", f"{name}>", parts[place])


def no_wrapper(parts: Tags, chance: random.Random) -> None:
    """V9: none at all, or no opener."""
    parts[1] = ""
    parts[-2] = parts[-2] if chance.random() < 0.5 else ""


def spaced_attributes(parts: Tags, chance: random.Random) -> None:
    """V6."""
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].replace('="', ' = "')


def end_token(parts: Tags, chance: random.Random) -> None:
    """V21."""
    parts.append(EOS)


def prose_around(parts: Tags, chance: random.Random) -> None:
    """V18."""
    parts[0] += "Before it. "
    parts[-1] += " Behind it."


def escaped(parts: Tags, chance: random.Random) -> None:
    """V22: each value as a whole."""
    for place in _values(parts):
        if SPECIAL.search(parts[place]):
            parts[place] = html.escape(parts[place], quote=False)


def hugged(parts: Tags, chance: random.Random) -> None:
    """V23: each value on lines of its own."""
    for place in _values(parts):
        parts[place] = f"\n{parts[place]}\n"


def wrapped(parts: Tags, chance: random.Random) -> None:
    """V26: a parameter in place of each invoke."""
    for place in range(1, len(parts), 2):
        parts[place] = re.sub(r"\binvoke\b", "parameter", parts[place])


def fenced(parts: Tags, chance: random.Random) -> None:
    """V20."""
    parts[0] += "```\n"
    parts[-1] += "\n```"


FORMS: tuple[Callable[[Tags, random.Random], None], ...] = (
    *(other_marker, other_marker, other_wrapper, no_wrapper, spaced_attributes, end_token, prose_around),
    *(escaped, hugged, wrapped, fenced),
)
SPECIAL = re.compile("[<>&]")


def _values(parts: Tags) -> list[int]:
    return [place for place in range(2, len(parts) - 2, 2) if "parameter name=" in parts[place - 1]]


# and breaks of one tag.


def nameless_closer(parts: Tags, chance: random.Random) -> None:
    """V11."""
    place = _tag(parts, chance)
    parts[place] = re.sub(r"^(</.*?)\s?\w+>$", r"\1>", parts[place])


def runaway_name(parts: Tags, chance: random.Random) -> None:
    """V12: JSON in the name."""
    place = _tag(parts, chance)
    parts[place] = parts[place].replace('">', ' {\\"path\\": \\"x\\"}">', 1)


def empty_name(parts: Tags, chance: random.Random) -> None:
    """V14."""
    place = _tag(parts, chance)
    parts[place] = re.sub(r'name="[^"]*"', 'name=""', parts[place])


def no_attributes(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] = re.sub(r"(invoke|parameter) .*>", r"\1>", parts[place])


def missing_end(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] = parts[place].removesuffix(">")


def missing_bracket(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] = parts[place].removeprefix("<")


def missing_character(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    plain = [at for at in range(len(parts[place])) if parts[place][:at].count('"') % 2 == 0]  # not in a name
    at = chance.choice(plain)
    parts[place] = parts[place][:at] + parts[place][at + 1 :]


def missing_tag(parts: Tags, chance: random.Random) -> None:
    parts[_tag(parts, chance)] = ""


def doubled_tag(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] *= 2


def other_quotes(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] = parts[place].replace('"', chance.choice(("'", "", "\u201d", '\\"')))


def shortened_name(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place] = parts[place].replace("parameter", "param").replace("invoke", "inv")


def cut_off(parts: Tags, chance: random.Random) -> None:
    del parts[_tag(parts, chance) :]


def cut_in_tag(parts: Tags, chance: random.Random) -> None:
    place = _tag(parts, chance)
    parts[place:] = [parts[place][: chance.randrange(len(parts[place]))]]


def _tag(parts: Tags, chance: random.Random) -> int:
    return chance.randrange(1, len(parts), 2)


BREAKS: tuple[Callable[[Tags, random.Random], None], ...] = (
    *(missing_end, missing_bracket, missing_character, missing_tag, doubled_tag, other_quotes, shortened_name),
    *(cut_off, cut_in_tag, nameless_closer, runaway_name, empty_name, no_attributes),
)


def is_given(call: dict[str, Any], calls: list[Encoded]) -> bool:
    """True where one of the encoded calls has that name and at least those arguments, as they were written."""
    return any(
        call["name"] == clean.name
        and all(
            key in clean.arguments and written(value) == written(clean.arguments[key])
            for key, value in call["arguments"].items()
        )
        for clean in calls
    )


def written(value: Any) -> str:
    """As the encoder writes it: damage to its type flag makes a value a text. T15: an unclosed one loses a newline."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.removesuffix("\n")


def check_damage(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    """The calls that are left were all encoded."""
    text = damaged(calls, grammar, random.Random(seed))
    outcome = feed(text, Setup(tools))
    for call in outcome.named_calls:
        assert is_given(call, calls), (call, text)
    assert len(outcome.calls) <= len(calls)


def damaged(calls: list[Encoded], grammar: Grammar, chance: random.Random) -> str:
    """One break of a tag or none, among tags of any form."""
    parts = pieces(calls, grammar)
    forms = chance.sample(FORMS, chance.choice((0, 1, 1, 2)))
    if wrapped not in forms:  # nothing tells a parameter that is an invoke from one that is none, if one tag is gone
        chance.choice(BREAKS)(parts, chance)
    for form in forms:
        if len(parts) > 2:
            form(parts, chance)
    return "I will.\n\n" + "".join(parts)


tame = st.lists(st.sampled_from(["word ", "a < b", "\n", "`x`", "5", "{}", "<p>", "\U0001f600"]), max_size=4).map(
    "".join
)
tame_calls = st.lists(
    st.builds(
        Encoded,
        st.sampled_from(TOOLS),
        st.dictionaries(
            st.sampled_from(["path", "text", "line"]), tame.filter(unchanged) | st.integers(0, 9), max_size=3
        ),
    ),
    min_size=1,
    max_size=3,
)
tool_sets = st.sampled_from([DECLARED, REQUIRED, None])


@settings(few, max_examples=150)
@given(tame_calls, grammars, st.integers(0, 10**9), tool_sets)
def test_damage_makes_no_call(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    check_damage(calls, grammar, seed, tools)


@pytest.mark.slow
@settings(many, max_examples=1800)
@given(tame_calls, grammars, st.integers(0, 10**9), tool_sets)
def test_damage_makes_no_call_of_many(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    check_damage(calls, grammar, seed, tools)


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@settings(many, max_examples=80)
@given(tame_calls, grammars, st.integers(0, 10**9), st.integers(1, 30))
def test_damage_makes_no_call_on_any_wire(
    wire: str, calls: list[Encoded], grammar: Grammar, seed: int, delta: int
) -> None:
    check_damage_on(wire, calls, grammar, seed, delta)


def check_damage_on(wire: str, calls: list[Encoded], grammar: Grammar, seed: int, delta: int) -> None:
    """The wire gives the calls that the parser finds, and each of them was encoded."""
    text = damaged(calls, grammar, random.Random(seed))
    found = [(call["name"], call["arguments"]) for call in feed(text, Setup(DECLARED)).named_calls]
    for seen in seen_on(wire, text, delta, 50 * delta, DECLARED):
        assert seen.calls == found
        assert all(is_given({"name": name, "arguments": given}, calls) for name, given in seen.calls)
        assert seen.finish == ("tool_calls" if found else "stop")
