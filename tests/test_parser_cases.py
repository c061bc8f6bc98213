"""The case tables: what becomes of each shape, however it arrives."""

import pytest

from tests.feeding import TAIL, Case, cases, cut_anywhere, feed, in_every_way

ALL = list(cases())
# Short enough to be cut in all places.
SHORT = [case for case in ALL if len(case.text) <= 100 and case.expect["text"] != case.text]


def ids(chosen: list[Case]) -> list[str]:
    return [case.id for case in chosen]


def test_ids_are_unique() -> None:
    assert len(set(ids(ALL))) == len(ALL) > 800


@pytest.mark.parametrize("case", ALL, ids=ids(ALL))
def test_case(case: Case) -> None:
    outcome = in_every_way(case.text, case.setup)
    assert outcome.named_calls == case.expect["calls"]
    assert outcome.text == case.expect["text"]
    rejected = [[name, row, removed] for name, row, _, _, removed in outcome.rejected]
    assert rejected == case.expect.get("rejected", [])


def test_the_finish_tells_of_calls() -> None:
    assert [case for case in ALL if (case.expect["finish"] == "tool_calls") != bool(case.expect["calls"])] == []


BEFORE_PROSE = [case for case in ALL if case.text and not case.at_end]


@pytest.mark.parametrize("case", BEFORE_PROSE, ids=ids(BEFORE_PROSE))
def test_prose_behind_it_changes_nothing(case: Case) -> None:
    outcome = feed(case.text + TAIL, case.setup, [len(case.text)])
    assert outcome.named_calls == case.expect["calls"]
    assert outcome.text == case.expect["text"] + TAIL


AT_THE_END = [case for case in ALL if case.at_end]


@pytest.mark.parametrize("case", AT_THE_END, ids=ids(AT_THE_END))
def test_prose_behind_it_matters(case: Case) -> None:
    outcome = feed(case.text + TAIL, case.setup)
    assert (outcome.named_calls, outcome.text) != (case.expect["calls"], case.expect["text"] + TAIL)


@pytest.mark.slow
@pytest.mark.parametrize("case", SHORT, ids=ids(SHORT))
def test_cut_in_any_two_places(case: Case) -> None:
    cut_anywhere(case.text, case.setup)


LONG = [case for case in ALL if case not in SHORT and 1 < len(case.text) < 5000]


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG, ids=ids(LONG))
def test_cut_in_many_two_places(case: Case) -> None:
    cut_anywhere(case.text, case.setup, limit=17)
