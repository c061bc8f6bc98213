"""The soak at its shortest: it runs, finds nothing wrong, and would find it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import soak
from soak_client import Answer, judge
from soak_says import Said
from soak_upstream import Fault


@pytest.mark.slow
def test_a_short_soak_finds_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--streams", "20", "--minutes", "0.1", "--faults", "0.5", "--stall", "1", "--pace", "10", "--json"]
    assert soak.main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["wrong"] == []
    assert all(figures["by fault"].values())
    assert figures["calls recovered"] > 10


SAID = Said(7, "openai-chat", False)
WHOLE = Answer(200, b"".join(SAID.frames), complete=True)
HALF = Answer(200, b"".join(SAID.frames[: SAID.frames_to(SAID.middle)]))
ALIEN = Said(8, "openai-chat", False).frames
LEAKING = Said(7, "openai-chat", True)


def test_what_is_as_it_must_be_is_not_complained_of() -> None:
    assert judge(SAID, Fault.NONE, WHOLE, strict=True) == []
    assert judge(SAID, Fault.HALF_CLOSED, HALF, strict=True) == []


@pytest.mark.parametrize(
    ("said", "fault", "answer", "complaint"),
    [
        (SAID, Fault.NONE, replace(WHOLE, complete=False), "complete: False"),
        (SAID, Fault.NONE, HALF, "text: "),
        (SAID, Fault.NONE, replace(WHOLE, body=WHOLE.body.replace(b'"index": 0', b'"index":0')), "bytes"),
        (SAID, Fault.NONE, replace(WHOLE, body=WHOLE.body[: -len(b"data: [DONE]\n\n")]), "no end"),
        (SAID, Fault.NONE, replace(WHOLE, body=ALIEN[0] + WHOLE.body), "foreign tags: ['s000008']"),
        (SAID, Fault.HALF_CLOSED, replace(HALF, complete=True), "it ended as if all were well"),
        (SAID, Fault.HALF_CLOSED, replace(HALF, body=b"".join(ALIEN[:4])), "foreign tags"),
        (SAID, Fault.HALF_CLOSED, WHOLE, "invented: calls [], finish stop"),
        (SAID, Fault.RESET_MID_HOLD, replace(HALF, body=b"".join(SAID.frames[:3])), "text: "),
        (SAID, Fault.RESET_MID_FRAME, HALF, "the frame that was cut is not there"),
        (SAID, Fault.ERROR_EVENT, replace(HALF, complete=True), "the error does not end it"),
        (SAID, Fault.HTML_500, WHOLE, "the page of the error is another one"),
        (SAID, Fault.RESET_BEFORE_HEADERS, WHOLE, "status 200, not 502"),
        (LEAKING, Fault.NONE, Answer(200, b"".join(LEAKING.frames), complete=True), "text: "),
    ],
)
def test_what_is_wrong_is_complained_of(said: Said, fault: Fault, answer: Answer, complaint: str) -> None:
    assert any(line.startswith(complaint) for line in judge(said, fault, answer, strict=True))


def test_memory_that_grows_is_seen() -> None:
    made = soak.Soak(soak.Plan(minutes=1), 0)
    made.samples = [soak.Sample(second, 100 * second, 80_000 + 200.0 * second, 9, 0) for second in range(60)]
    assert made.growth() == pytest.approx(2000)
    made.samples = made.samples[:25]
    assert made.growth() is None


def test_what_is_left_is_seen() -> None:
    before = {"tasks": {"a": 1}, "exchanges": 0, "pipes": 0, "streams": 1, "flows": 1, "files": 7}
    assert soak.left(before, {**before, "flows": 101}) == []
    after = {"tasks": {"a": 1, "b": 2}, "exchanges": 1, "pipes": 0, "streams": 1, "flows": 102, "files": 9}
    assert soak.left(before, after) == ["2 tasks 'b'", "1 exchanges", "102 flows", "9 files"]
