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
ABOUT = "(openai-chat, deepseek-test, held 214 characters)"

LINES = {
    f"recovered 1 call: read_file (V1, 180 characters) {ABOUT}": report(calls=[READ], removed=[cut()], saw_syntax=True),
    f"recovered 2 calls: read_file (V1, 180 characters), write (V9, 34 characters) {ABOUT}": report(
        calls=[READ, WRITE]
    ),
    f"refused rm -rf (V12: no name of a tool; removed) {ABOUT}": report(
        removed=[cut("rm")], rejected=[Rejected("rm -rf", "V12", "no name of a tool", 0, 9, True)]
    ),
    f"refused nameless (V10: unclosed; still text) {ABOUT}": report(
        rejected=[Rejected(None, "V10", "unclosed", 0, 9, False)], saw_syntax=True
    ),
    f"recovered 1 call: write (V9, 34 characters); refused x (V14: no argument; removed) {ABOUT}": report(
        calls=[WRITE], rejected=[Rejected("x", "V14", "no argument", 0, 9, True)]
    ),
    f"removed markup: V1 complete call; beside 1 native call {ABOUT}": report(removed=[cut(), cut()], native=1),
    f"gave the leaked arguments to 1 native call: write; beside 2 native calls {ABOUT}": report(
        repaired=["write"], removed=[cut()], native=2
    ),
    f"candidate without a call {ABOUT}": report(saw_syntax=True),
    f"candidate without a call; broken off {ABOUT}": report(saw_syntax=True, aborted=True),
    f"passed on as it came after a fault in parser.feed {ABOUT}": report(faults=["parser.feed"]),
}


@pytest.mark.parametrize(("line", "filled"), LINES.items(), ids=range(len(LINES)))
def test_one_line_says_what_was_decided(line: str, filled: Report) -> None:
    assert decision(filled) == line
    assert decision(filled, observe=True) == f"observed only: {line}"


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
        "candidate without a call (ollama, unknown model, held 0 characters)"
    )


def test_the_summary() -> None:
    tally = Tally()
    assert tally.summary() == "0 responses seen, 0 leaked, 0 calls recovered, 0 responses with a refused call"
    for filled in LINES.values():
        tally.add(filled)
    assert tally.summary() == "10 responses seen, 7 leaked, 4 calls recovered, 3 responses with a refused call"
