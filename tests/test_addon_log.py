"""The lines of the log: what was decided, and never what was said."""

import pytest

from addon.log import Tally, decision
from dsml_core.events import Rejected, Removed
from dsml_core.report import Recovered, Report

SECRET = "the text of the message"


def cut(name: str | None = None) -> Removed:
    return Removed(0, 9, SECRET, "V1", "complete call", name)


def report(**what: object) -> Report:
    filled = Report("openai-chat", "deepseek-test", held=214)
    for name, value in what.items():
        assert hasattr(filled, name)
        setattr(filled, name, value)
    return filled


READ = Recovered("read_file", "V1", 180, 0)
WRITE = Recovered("write", "V9", 34, 0)
ABOUT = "(openai-chat, deepseek-test, held 214 characters, 1.5 s)"

LINES = {
    f"recovered 1 call: read_file (V1, 180 characters) {ABOUT}": report(calls=[READ], removed=[cut()], saw_syntax=True),
    f"recovered 2 calls: read_file (V1, 180 characters), write (V9, 34 characters) {ABOUT}": report(
        calls=[READ, WRITE]
    ),
    f"refused nameless (V12: no name of a tool; removed) {ABOUT}": report(
        removed=[cut("rm")], rejected=[Rejected("rm -rf", "V12", "no name of a tool", 0, 9, True)]
    ),
    f"refused nameless (V10: unclosed; still text) {ABOUT}": report(
        rejected=[Rejected(None, "V10", "unclosed", 0, 9, False)], saw_syntax=True
    ),
    f"recovered 1 call: write (V9, 34 characters); refused x (V14: no argument; removed) {ABOUT}": report(
        calls=[WRITE], rejected=[Rejected("x", "V14", "no argument", 0, 9, True)]
    ),
    f"removed markup: V1 complete call; beside 1 native call {ABOUT}": report(removed=[cut(), cut()], native=1),
    f"repaired 1 native call with leaked arguments: write; beside 2 native calls {ABOUT}": report(
        repaired=["write"], removed=[cut()], native=2
    ),
    f"candidate without a call {ABOUT}": report(saw_syntax=True),
    f"candidate without a call; broken off {ABOUT}": report(saw_syntax=True, aborted=True),
    f"passed on as it came after a fault in parser.feed {ABOUT}": report(faults=["parser.feed"]),
}


@pytest.mark.parametrize(("line", "filled"), LINES.items(), ids=range(len(LINES)))
def test_one_line_says_what_was_decided(line: str, filled: Report) -> None:
    assert decision(filled, held_seconds=1.46) == line


NOT_DONE = {
    f"observed only: would have recovered 1 call: read_file (V1, 180 characters) {ABOUT}": report(calls=[READ]),
    f"observed only: would have removed markup: V1 complete call; beside 1 native call {ABOUT}": report(
        removed=[cut()], native=1
    ),
    f"observed only: candidate without a call {ABOUT}": report(saw_syntax=True),
    f"observed only: passed on as it came after a fault in parser.feed {ABOUT}": report(faults=["parser.feed"]),
}


@pytest.mark.parametrize(("line", "filled"), NOT_DONE.items(), ids=range(len(NOT_DONE)))
def test_an_observer_says_what_it_would_have_done(line: str, filled: Report) -> None:
    assert decision(filled, observe=True, held_seconds=1.46) == line


@pytest.mark.parametrize("filled", [report(), report(native=2), report(aborted=True)])
def test_nothing_is_said_where_nothing_was_to_decide(filled: Report) -> None:
    assert decision(filled) is None


def test_a_name_cannot_write_a_line_of_its_own() -> None:
    line = decision(report(calls=[Recovered("a\n[12:00] b\x1b[31m" + "c" * 80, "V1", 9, 0)], model="m\rn"))
    assert line
    assert line.isprintable()
    assert len(line) < 150


def test_a_model_that_was_not_named() -> None:
    assert decision(Report("ollama", saw_syntax=True)) == (
        "candidate without a call (ollama, unknown model, held 0 characters, 0.0 s)"
    )


def test_the_summary() -> None:
    tally = Tally()
    assert tally.summary() == ["0 responses seen, 0 leaked, 0 calls recovered, 0 responses with a refused call"]
    for filled in LINES.values():
        tally.add(filled)
    tally.add(report(model=None))
    whole = "10 responses seen, 7 leaked, 4 calls recovered, 3 responses with a refused call"
    assert tally.summary() == [
        whole.replace("10", "11"),
        "recovered by row: V1 2, V9 2",
        "refused by row: V12 1, V10 1, V14 1",
        f"model deepseek-test: {whole}",
        "model unknown model: 1 response seen, 0 leaked, 0 calls recovered, 0 responses with a refused call",
    ]


def test_the_summary_tells_a_hundred_models_apart() -> None:
    tally = Tally()
    for number in range(250):
        tally.add(report(model=f"m{number}"))
    assert len(tally.models) == 101
    assert tally.models["other models"].seen == 150
