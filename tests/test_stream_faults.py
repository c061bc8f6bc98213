"""A fault of ours, at any moment, costs the client nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dsml_core import End, Event, Parser, Repairer, stream
from tests.client_view import events
from tests.leaks import BASH, LEAK, NATIVE, TOOLS, UNCLOSED, any_wire, said
from tests.provider_frames import Answer, Calls, Says, body, says
from tests.provider_frames import stream as frames_of

ANSWERS: dict[str, Answer] = {
    "prose": [says("Some a < b prose. ")],
    "a leak": [says("Go. " + LEAK, 12)],
    "a leak first": [says("\n" + LEAK, 12)],
    "a leak, then prose": [says(f"Go. {LEAK} and on", 12)],
    "two leaks": [says(f"{LEAK}; {LEAK}", 30)],
    "not closed": [says("Go. " + UNCLOSED, 12)],
    "reasoning": [says("Hm. " + LEAK, 30, reasoning=True), says(f"Go. {BASH}", 30)],
    "a native call": [says("Go. " + LEAK, 30), NATIVE],
    "a native call to be repaired": [says(LEAK, 30), Calls("bash", ["{", "}"])],
    "two parts": [says(LEAK, 30), says("More. ", 30), says("Last " + LEAK, 30)],
}


class Fault(Exception):
    """What the parsers of these tests raise."""


class Faulty(Parser):
    """A parser that fails at the call with number `at`, counted over all parsers of a response."""

    at = 0
    count = 0

    def feed(self, text: str) -> list[Event]:
        self._tick()
        return super().feed(text)

    def close(self, end: End = End.STOP) -> list[Event]:
        self._tick()
        return super().close(end)

    def _tick(self) -> None:
        Faulty.count += 1
        if Faulty.count == Faulty.at:
            raise Fault("text of the message")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "Parser", Faulty)


def runs(wire: str, data: list[bytes], streamed: bool = True) -> Iterator[tuple[bytes, Repairer]]:
    """The output for a fault at the first call of a parser, at the second, and so on until none is left."""
    Faulty.at = 0
    while True:
        Faulty.at, Faulty.count = Faulty.at + 1, 0
        repairer = Repairer(wire, stream=streamed, tools=TOOLS)
        out = b"".join([*(repairer.feed(piece) for piece in data), repairer.close()])
        if Faulty.count < Faulty.at:
            return
        assert len(repairer.report.faults) == 1
        assert repairer.report.faults[0].startswith("Fault at test_stream_faults.py:")
        yield out, repairer


@any_wire
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.usefixtures("faulty")
def test_no_character_is_lost(wire: str, name: str) -> None:
    answer = ANSWERS[name]
    text = "".join("".join(step.pieces) for step in answer if isinstance(step, Says) and not step.reasoning)
    count = 0
    for out, _ in runs(wire, frames_of(wire, answer)):
        count += 1
        written = said(wire, out)
        if any(isinstance(step, Calls) for step in answer):
            assert set("Go. ") & set(written) or "Go. " not in text
        else:
            assert sorted(written) == sorted(text)
        check(wire, out)
    assert count >= len(answer)


def check(wire: str, out: bytes) -> None:
    """What a client of a stream cannot do without."""
    if wire == "ollama":
        assert [json.loads(line)["done"] for line in out.decode().splitlines()][-1] is True
        return
    values: list[Any] = [value for _, value in events(out)]
    if wire == "openai-chat":
        assert values[-1] == "[DONE]"
    elif wire == "openai-responses":
        assert [value["sequence_number"] for value in values] == list(range(len(values)))
        added = [value["output_index"] for value in values if value["type"] == "response.output_item.added"]
        assert added == list(range(len(added)))
    else:
        _check_blocks(values)


def _check_blocks(values: list[Any]) -> None:
    blocks, current = 0, None
    for value in values:
        if value["type"] == "content_block_start":
            assert (value["index"], current) == (blocks, None)
            blocks, current = blocks + 1, value["index"]
        elif value["type"] == "content_block_delta":
            assert value["index"] == current
        elif value["type"] == "content_block_stop":
            assert value["index"] == current
            current = None
    assert values[-1] == {"type": "message_stop"}


@any_wire
@pytest.mark.usefixtures("faulty")
def test_after_a_fault_the_bytes_pass(wire: str) -> None:
    data = frames_of(wire, [says("Some prose. " * 3)])
    for out, _ in runs(wire, data):
        assert out == b"".join(data)


@any_wire
@pytest.mark.usefixtures("faulty")
def test_a_body_leaves_as_it_came(wire: str) -> None:
    whole = body(wire, [says("Hm. " + LEAK, reasoning=True), says("Go. " + LEAK), NATIVE])
    assert [out for out, _ in runs(wire, [whole], streamed=False)] == [whole] * (Faulty.at - 1)
    assert Faulty.at > 2


@pytest.mark.slow
@any_wire
@pytest.mark.usefixtures("faulty")
def test_a_fault_in_the_middle_of_a_chunk_of_many_frames(wire: str) -> None:
    data = b"".join(frames_of(wire, [says("Go. " + LEAK)]))
    for at in range(0, len(data), 501):
        for out, _ in runs(wire, [data[:at], data[at:]]):
            assert sorted(said(wire, out)) == sorted("Go. " + LEAK)


@any_wire
def test_a_fault_outside_the_parser(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise Fault

    repairer = Repairer(wire, stream=True, tools=TOOLS)
    frames = frames_of(wire, [says("Go. " + LEAK)])
    out = b"".join(repairer.feed(frame) for frame in frames[:-8])
    for name in ("write", "say", "number"):
        monkeypatch.setattr(type(repairer._wire), name, fail)
    out += b"".join(repairer.feed(frame) for frame in frames[-8:]) + repairer.close()
    assert frames[-1] in out
    assert repairer.report.faults


@any_wire
@pytest.mark.usefixtures("faulty")
def test_a_fault_while_idle(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsml_core.parts import Part

    def fail(_: Part) -> None:
        raise Fault

    frames = frames_of(wire, [Says(["Go. ", "a <", " b"])])
    at = next(number for number, frame in enumerate(frames) if b"a <" in frame)
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    Faulty.at = 0
    out = b"".join(repairer.feed(frame) for frame in frames[: at + 1])
    monkeypatch.setattr(Part, "force", fail)
    out += repairer.flush_idle() + repairer.flush_idle()
    out += b"".join(repairer.feed(frame) for frame in frames[at + 1 :]) + repairer.close()
    assert out == b"".join(frames)
