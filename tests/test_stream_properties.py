"""Repairer: whatever leaks and however it is cut, every wire gives the same answer, and no character is lost."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.client_view import see
from tests.leaks import LEAK, REJECTED, TWO, UNCLOSED, any_wire, repaired
from tests.markers import BAR, MARK
from tests.provider_frames import Answer, Calls, Says, body, stream

FRAGMENTS = [
    LEAK,
    TWO,
    REJECTED,
    UNCLOSED,
    "Go. ",
    "\n",
    " ",
    "<",
    "`",
    "```\n",
    f"<{MARK}",
    f"</{MARK}invoke>",
    BAR,
    "</",
    "\u20ac",
]
NOTE = re.compile(r"\[removed (malformed )?(\w+ )?call\]")
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)
ARGUMENTS = ["{}", "", '{"command": "ls"}', '{"command": "l', f'{{"path": "x"}}</{MARK}parameter>', '{"path": "<"}']


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end]


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Reasoning, text and calls in any order, each in any pieces."""
    steps: list[Says | Calls] = []
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=4)):
        if kind == "call":
            given = draw(st.sampled_from(ARGUMENTS))
            steps.append(Calls(draw(st.sampled_from(["bash", "read"])), draw(pieces(given))))
        else:
            steps.append(Says(draw(pieces(draw(texts))), reasoning=kind == "reasoning"))
    return steps


def whole(answer: Answer) -> Answer:
    """The same in one piece each."""
    joined: list[Says | Calls] = []
    for step in answer:
        text = ["".join(step.pieces)] if step.pieces else []
        joined.append(Calls(step.name, text) if isinstance(step, Calls) else Says(text, step.reasoning))
    return joined


def valid(wire: str, answer: Answer) -> Answer:
    """Without what the wire cannot carry: Ollama's arguments are an object."""
    if wire != "ollama":
        return answer
    return [Calls(step.name, ["{}"]) if isinstance(step, Calls) else step for step in answer]


@any_wire
@given(answer=answers(), finish=st.sampled_from(["stop", "length"]), size=st.integers(1, 200))
def test_cutting_is_invisible(wire: str, answer: Answer, finish: str, size: int) -> None:
    answer = valid(wire, answer)
    data = b"".join(stream(wire, answer, finish))
    cut, repairer = repaired(wire, [data[at : at + size] for at in range(0, len(data), size)])
    expected, _ = repaired(wire, stream(wire, whole(answer), finish))
    assert see(wire, cut) == see(wire, expected)
    if not repairer.report.changed:
        assert cut == data


@any_wire
@given(text=texts, finish=st.sampled_from(["stop", "length"]))
def test_streamed_or_not_is_the_same(wire: str, text: str, finish: str) -> None:
    answer = [Says([text])] if text else []
    streamed = see(wire, repaired(wire, stream(wire, answer, finish))[0])
    told = see(wire, repaired(wire, [body(wire, answer, finish)], streamed=False)[0], stream=False)
    assert (streamed.text, streamed.calls, streamed.finish) == (told.text, told.calls, told.finish)


@any_wire
@given(text=texts, size=st.integers(1, 40))
def test_what_is_seen_and_what_is_removed_is_what_came(wire: str, text: str, size: int) -> None:
    pieces_ = [text[at : at + size] for at in range(0, len(text), size)]
    out, repairer = repaired(wire, stream(wire, [Says(pieces_)]))
    seen = see(wire, out).text
    removed = "".join(span.text for span in repairer.report.removed)
    assert Counter(NOTE.sub("", seen)) + Counter(removed) == Counter(text)
