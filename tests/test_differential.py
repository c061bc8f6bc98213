"""Against the canonical encoder: what it writes is decoded equal, and damage to it never makes a call of its own."""

from __future__ import annotations

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
from tests.client_view import see
from tests.encoder import GRAMMARS, Encoded, Grammar, encode, pieces, speaks_for_itself
from tests.feeding import Setup, feed, in_every_way
from tests.leaks import repaired
from tests.markers import BAR, MARK, WORD
from tests.provider_frames import WIRES, Says, stream

few = settings(deadline=None, derandomize=True, database=None, max_examples=60, suppress_health_check=list(HealthCheck))
many = settings(few, max_examples=1500)

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


@pytest.mark.parametrize("wire", WIRES)
@settings(few, max_examples=25)
@given(blocks, grammars, st.integers(1, 9), st.integers(1, 400))
def test_what_was_encoded_is_decoded_on_every_wire(
    wire: str, calls: list[Encoded], grammar: Grammar, delta: int, size: int
) -> None:
    text = ("I will.\n\n" + encode(calls, grammar)).replace("\ud83d", "\U0001f600")
    data = b"".join(stream(wire, [Says([text[at : at + delta] for at in range(0, len(text), delta)])]))
    out, _ = repaired(wire, (data[at : at + size] for at in range(0, len(data), size)), tools=DECLARED)
    seen = see(wire, out)
    assert json.dumps(seen.calls).replace("\\ud83d\\ude00", "\\ud83d") == json.dumps(
        [(call.name, call.arguments) for call in calls]
    ).replace("\\ud83d\\ude00", "\\ud83d")
    assert seen.text.strip() == "I will."


# -- Damage

Tags = list[str]
NOISE = ("||", "|", BAR * 2, f" {BAR} ", "\u2016", "", "\\")


def other_marker(parts: Tags, chance: random.Random) -> None:
    """The catalogue's noise forms, one for the whole block."""
    noise = chance.choice(NOISE)
    case = chance.choice((str, str.lower, str.title))
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].replace(MARK, noise + case(WORD) + noise)


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
    *(cut_off, cut_in_tag),
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
    """As the encoder writes it: damage to its type flag makes a value a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_damage(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    """One break of a tag, among markers of any form: the calls that are left were all encoded, none of them twice."""
    chance = random.Random(seed)
    parts = pieces(calls, grammar)
    chance.choice(BREAKS)(parts, chance)
    if chance.random() < 0.6:
        other_marker(parts, chance)
    outcome = feed("I will.\n\n" + "".join(parts), Setup(tools))
    for call in outcome.named_calls:
        assert is_given(call, calls), (call, "".join(parts))


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


@few
@given(tame_calls, grammars, st.integers(0, 10**9), tool_sets)
def test_damage_makes_no_call(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    check_damage(calls, grammar, seed, tools)


@pytest.mark.slow
@settings(many, max_examples=6000)
@given(tame_calls, grammars, st.integers(0, 10**9), tool_sets)
def test_damage_makes_no_call_of_many(calls: list[Encoded], grammar: Grammar, seed: int, tools: Any) -> None:
    check_damage(calls, grammar, seed, tools)
