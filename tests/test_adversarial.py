"""Input made to hurt: nothing of it is lost, cutting does not matter, what is held stays bounded, nothing runs.

That time grows with the input alone is measured by `scripts/bench.py hostile`, with the same inputs: a busy machine
tells a test nothing of it.
"""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

import bench_hostile as hostile
import bench_texts
import pytest

from dsml_core import Event, Parser, Policy, Removed, Repairer, Text, ToolCall
from tests.provider_frames import WIRES
from tests.test_fuzz import words_of

POLICY = Policy(candidate_limit=256, hold_limit=1_000, declared_hold_limit=2_000)
RUNS = {"whole calls"}  # what is meant to run
KINDS = [kind for kind in hostile.KINDS if kind not in RUNS]
SMALL, LARGE = 4_000, 10_000_000
# What takes long at full size is tried with a part of it here, and at full size by the benchmark.
LONG_TEXTS = {"almost-markers", "fences in a value", "fences", "nested openers", "nested openers, marked by nothing"}
BYTE_WISE = ("one line, a byte a time", "one frame of text, a byte a time")
MANY_PIECES = {
    *BYTE_WISE,
    *("empty frames", "empty frames in one piece"),
    *("comments", "line ends CR", "data lines of one frame", "not UTF-8", "events without text", "huge numbers"),
}


def heard(text: str, size: int, policy: Policy = POLICY) -> tuple[list[tuple[str, int, int]], str]:
    """What the parser says of a text in pieces, ranges that touch as one, and the text in what it says."""
    parser = Parser(bench_texts.TOOLS, policy)
    events: list[Event] = []
    for at in range(0, len(text), size):
        events += parser.feed(text[at : at + size])
        assert parser.held <= policy.declared_hold_limit + policy.candidate_limit + size
    events += parser.close()
    assert parser.held == 0
    ranges: list[tuple[str, int, int]] = []
    for event in events:
        kind = type(event).__name__
        if ranges and kind == "Text" and ranges[-1][0] == kind and ranges[-1][2] == event.start:
            ranges[-1] = (kind, ranges[-1][1], event.end)
        else:
            ranges.append((kind, event.start, event.end))
    return ranges, "".join(event.text for event in events if isinstance(event, Text | Removed))


# -- Texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_hurts(kind: str) -> None:
    text = "".join(hostile.pieces(kind, SMALL, 64))
    ranges, said = heard(text, len(text))
    assert said == text
    assert not [kind for kind, *_ in ranges if kind == ToolCall.__name__]
    assert heard(text, 61) == (ranges, text)


# Not meant to hurt: calls that close, also as the last thing that was thought (T18), and openers of which each closes
# the one before (T5).
MEANT = {"whole calls", "thought calls", "invoke openers", "plain closers", "parameter closers", "values in fences"}


@pytest.mark.parametrize("unit", hostile.UNITS)
def test_any_unit_in_any_place(unit: str) -> None:
    for place in hostile.PLACES:
        text = hostile.text(unit, place, 200)
        ranges, said = heard(text, len(text))
        assert said == text
        assert heard(text, 3) == (ranges, text)
        assert unit in MEANT or not [kind for kind, *_ in ranges if kind == ToolCall.__name__]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_hurts_at_full_size(kind: str) -> None:
    """What it takes beside the text is a matter of the hold limits, not of the length."""
    parser = Parser(bench_texts.TOOLS)
    limits = Policy()
    size = LARGE // 20 if kind in LONG_TEXTS else LARGE
    length = shown = 0
    for piece in hostile.pieces(kind, size, 4_096):
        length += len(piece)
        for event in parser.feed(piece):
            assert not isinstance(event, ToolCall)
            shown += len(event.text)
        assert parser.held <= limits.declared_hold_limit + limits.candidate_limit + len(piece)
    shown += sum(len(event.text) for event in parser.close() if not isinstance(event, ToolCall))
    assert shown == length >= size - 4_096


# -- Responses


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_says_it(wire: str, kind: str) -> None:
    frames = list(hostile.stream(wire, kind, 1_500, 64))
    repairer = Repairer(wire, stream=True, tools=bench_texts.TOOLS, policy=POLICY)
    out = []
    for frame in frames:
        out.append(repairer.feed(frame))
        assert repairer.held <= POLICY.declared_hold_limit + POLICY.candidate_limit + 64
    out.append(repairer.close())
    check(wire, b"".join(frames), b"".join(out), repairer)
    other = Repairer(wire, stream=True, tools=bench_texts.TOOLS, policy=POLICY)
    data = b"".join(frames)
    assert b"".join([*(other.feed(data[at : at + 97]) for at in range(0, len(data), 97)), other.close()]) == b"".join(
        out
    )


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_says_it(wire: str, kind: str) -> None:
    data = hostile.body(wire, kind, 1_500)
    repairer = Repairer(wire, stream=False, tools=bench_texts.TOOLS, policy=POLICY)
    out = b"".join([*(repairer.feed(data[at : at + 97]) for at in range(0, len(data), 97)), repairer.close()])
    check(wire, data, out, repairer)


def check(wire: str, data: bytes, out: bytes, repairer: Repairer) -> None:
    report = repairer.report
    assert (report.faults, report.calls, repairer.held) == ([], [], 0)
    if not report.changed:
        assert out == data
    left = words_of(wire, out) + Counter("".join(span.text for span in report.removed))
    assert not words_of(wire, data) - left


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", hostile.BYTES)
def test_bytes_that_are_no_frames(wire: str, name: str) -> None:
    check_bytes(wire, name, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["openai-chat", "ollama"])
@pytest.mark.parametrize("name", hostile.BYTES)
def test_bytes_that_are_no_frames_at_full_size(wire: str, name: str) -> None:
    check_bytes(wire, name, LARGE // 50 if name in MANY_PIECES else LARGE)


def check_bytes(wire: str, name: str, size: int) -> None:
    """They come out as they came in."""
    for streamed in (True, False):
        repairer = Repairer(wire, stream=streamed, tools=bench_texts.TOOLS)
        came, left = sha256(), sha256()
        for piece in hostile.BYTES[name](size):
            came.update(piece)
            left.update(repairer.feed(piece))
        left.update(repairer.close())
        assert came.digest() == left.digest()
        assert (repairer.report.faults, repairer.report.changed, repairer.held) == ([], False, 0)


# -- Memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["one line, a byte a time", "one frame of text, a byte a time", "data lines of one frame"]
)
@pytest.mark.parametrize("wire", WIRES)
def test_bytes_kept_take_little_more_than_they_are(wire: str, name: str) -> None:
    assert peak(repair(wire, hostile.BYTES[name](10_000))) < 50 * 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["empty frames", "comments", "not UTF-8", "events without text", "huge numbers"])
def test_frames_that_have_left_are_forgotten(name: str) -> None:
    assert peak(repair("openai-chat", hostile.BYTES[name](20_000))) < 40_000


def test_a_piece_of_many_frames_is_not_taken_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsml_core.stream._PIECE", 1_000)
    assert peak(repair("openai-chat", iter([b"\n" * 10_000]))) < 40 * 10_000


def repair(wire: str, data: Iterator[bytes]) -> Iterator[bytes]:
    repairer = Repairer(wire, stream=True, tools=bench_texts.TOOLS)
    for piece in data:
        yield repairer.feed(piece)
    yield repairer.close()


def peak(steps: Iterator[object]) -> int:
    """Bytes taken at most while the steps are gone through."""
    tracemalloc.start()
    try:
        for _ in steps:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_more_parts_than_any_answer_has() -> None:
    """Each part asks the others whether they are over, so there must not be any number of them."""

    def frame(index: int) -> bytes:
        choice = {"index": index, "delta": {"content": "a <"}, "finish_reason": None}
        return b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n"

    frames = [frame(index) for index in range(3_000)]
    repairer = Repairer("openai-chat", stream=True, tools=bench_texts.TOOLS)
    out = b"".join([*map(repairer.feed, frames), repairer.close()])
    assert sorted(out.split(b"\n\n")) == sorted(b"".join(frames).split(b"\n\n"))
    assert [place.partition(" ")[0] for place in repairer.report.faults] == ["Crowded"]
