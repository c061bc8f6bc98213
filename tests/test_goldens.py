"""The goldens of the project: each gives what it expects, wherever its bytes are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from dsml_core.formats import WIRES
from goldens import cuts, replay
from goldens.format import Golden, Outcome, Step, dumps
from tests.goldens import GOLDENS, PATHS, WRAPPED, any_golden

FEW = 3  # pairs of cuts in the fast tests
MANY = 40  # in the slow ones, of a golden too long for all of them


def expected(golden: Golden) -> Outcome:
    assert golden.expected is not None
    return golden.expected


@any_golden
def test_a_golden_gives_what_it_expects(name: str) -> None:
    golden = GOLDENS[name]
    assert replay.run(golden) == golden.expected


@any_golden
def test_a_golden_is_written_as_it_would_be_now(name: str) -> None:
    assert PATHS[name].read_text() == dumps(GOLDENS[name])
    assert GOLDENS[name].about


def gives_the_same(golden: Golden, steps: list[Step]) -> bool:
    emitted, report = replay.repair(golden, steps)
    same = replay.same_bytes(golden, emitted, expected(golden).emitted)
    return same and replay.spans(report).items() <= expected(golden).decided.items()


def sampled(golden: Golden, pairs: int) -> Iterator[list[Step]]:
    """Two cuts at places of a fixed choice, also in a response that is short enough for all of them."""
    if len(golden.received) > cuts.EXHAUSTIVE:
        yield from cuts.two_cuts(golden.steps, pairs)
    else:
        every = list(combinations(range(1, len(golden.received)), 2))
        yield from (cuts.recut(golden.steps, pair) for pair in every[:: len(every) // pairs or 1])


@any_golden
def test_small_pieces_and_two_cuts_change_nothing(name: str) -> None:
    golden = GOLDENS[name]
    assert gives_the_same(golden, cuts.pieces(golden.steps, 7)), "in pieces of seven bytes"
    for steps in sampled(golden, FEW):
        assert gives_the_same(golden, steps), steps


@pytest.mark.slow
@any_golden
def test_single_bytes_change_nothing(name: str) -> None:
    assert gives_the_same(GOLDENS[name], cuts.pieces(GOLDENS[name].steps, 1))


@pytest.mark.slow
@any_golden
def test_no_two_cuts_change_anything(name: str) -> None:
    tried = [gives_the_same(GOLDENS[name], steps) for steps in cuts.two_cuts(GOLDENS[name].steps, MANY)]
    size = len(GOLDENS[name].received)
    assert len(tried) == ((size - 1) * (size - 2) // 2 if size <= cuts.EXHAUSTIVE else MANY)
    assert all(tried)


def test_every_wire_has_goldens_of_both_kinds_and_one_small_enough_for_all_cuts() -> None:
    kinds = Counter((golden.wire, golden.stream) for golden in GOLDENS.values())
    assert set(kinds) == {(wire, stream) for wire in WIRES for stream in (True, False)}
    assert sum(len(golden.received) <= cuts.EXHAUSTIVE for golden in GOLDENS.values()) >= 4


# --- No text is lost --------------------------------------------------------------------------------------------------


def texts(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["parts"] if "text" in part]


def without(text: str, spans: list[dict[str, Any]]) -> str:
    for span in sorted(spans, key=lambda span: -int(span["start"])):
        text = text[: span["start"]] + text[span["end"] :]
    return text


ONE_TEXT = [
    name
    for name, golden in GOLDENS.items()
    if len(texts(replay.message(golden, golden.received))) == 1 and "[removed" not in dumps(golden)
]


@pytest.mark.parametrize("name", ONE_TEXT)
def test_what_is_seen_is_what_came_without_what_was_removed(name: str) -> None:
    golden = GOLDENS[name]
    (came,) = texts(replay.message(golden, golden.received))
    decided = expected(golden).decided
    if any("reasoning" in part for part in decided["message"]["parts"]) and "wrapped" not in name:
        pytest.fail("the spans of two parts cannot be told apart")
    assert "".join(texts(decided["message"])) == without(came, decided["removed"])


# --- The leaks this project began with --------------------------------------------------------------------------------


def test_there_are_nine_wrapped_tools() -> None:
    assert [name.partition("-")[0] for name in WRAPPED] == ["wrapped/edit"] * 5 + ["wrapped/shell"] * 4


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_tool_recovers(name: str) -> None:
    golden = GOLDENS[name]
    came = replay.message(golden, golden.received)
    decided = expected(golden).decided
    tool = name.removeprefix("wrapped/").partition("-")[0]
    assert came["finish"] == ["stop"]
    assert decided["message"]["finish"] == ["tool_calls"]
    assert [(call["name"], call["row"]) for call in decided["recovered"]] == [(tool, "V26")]
    (call,) = [part for part in decided["message"]["parts"] if "call" in part]
    assert call["call"] == tool
    assert set(call["arguments"]) >= {"edit": {"newString", "oldString", "path"}, "shell": {"command"}}[tool]
    assert decided["faults"] == []
    assert [part for part in came["parts"] if "reasoning" in part] == [
        part for part in decided["message"]["parts"] if "reasoning" in part
    ]


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_tool_is_the_shape_that_was_seen(name: str) -> None:
    """Late in a long context, without a wrapper or invoke, with the spaced closers of V4.1."""
    golden = GOLDENS[name]
    text = texts(replay.message(golden, golden.received))[0].replace("\uff5c", "BAR")
    assert golden.request is not None and golden.request["model"] == "deepseek-v4.1-flash"
    assert b'"prompt_tokens":1' in golden.received or b'"prompt_tokens":2' in golden.received
    assert "tool_calls>" not in text and "invoke name" not in text
    assert "BAR parameter name=" in text and "</BARDS" + "MLBAR parameter>" in text
