"""The case tables: what becomes of each shape, however it arrives."""

import pytest

from tests.feeding import TAIL, Case, cases, cut_anywhere, feed, in_every_way

ALL = list(cases())
# Short enough to be cut in all places.
SHORT = [case for case in ALL if len(case.text) <= 70 and case.expect["text"] != case.text]


def ids(chosen: list[Case]) -> list[str]:
    return [case.id for case in chosen]


def test_ids_are_unique() -> None:
    assert len(set(ids(ALL))) == len(ALL) > 800


@pytest.mark.parametrize("case", ALL, ids=ids(ALL))
def test_case(case: Case) -> None:
    outcome = in_every_way(case.text, case.setup, pairs=1)
    assert outcome.named_calls == case.expect["calls"]
    assert outcome.text == case.expect["text"]
    rejected = [[name, row, removed] for name, row, _, _, removed in outcome.rejected]
    assert rejected == case.expect.get("rejected", [])
    if case.text:
        followed_by_prose(case)


def followed_by_prose(case: Case) -> None:
    """Prose behind it changes nothing, but where the table says that it stands at the end."""
    outcome = feed(case.text + TAIL, case.setup, [] if case.at_end else [len(case.text)])
    as_before = (outcome.named_calls, outcome.text) == (case.expect["calls"], case.expect["text"] + TAIL)
    assert as_before != case.at_end, outcome


def test_the_finish_tells_of_calls() -> None:
    assert [case for case in ALL if (case.expect["finish"] == "tool_calls") != bool(case.expect["calls"])] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", SHORT, ids=ids(SHORT))
def test_cut_in_any_two_places(case: Case) -> None:
    cut_anywhere(case.text, case.setup)


LONG = [case for case in ALL if case not in SHORT and len(case.text) > 1]


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG, ids=ids(LONG))
def test_cut_in_many_two_places(case: Case) -> None:
    cut_anywhere(case.text, case.setup, limit=8 if len(case.text) < 5000 else 5)
