"""Goldens: what comes and what leaves, byte for byte, on every wire and wherever the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from dsml_core.framing import Frame, LineFramer, SseFramer
from tests.client_view import see
from tests.goldens import GOLDENS as ALL
from tests.leaks import MADE, any_wire, repaired

GOLDENS = {
    (golden.wire, name.rpartition("/")[2]): (golden.received, golden.expected.emitted)
    for name, golden in ALL.items()
    if name.startswith("formats/") and golden.expected
}
SMALL = 800  # bytes up to which every pair of cuts is tried
NEAR = 6  # bytes between two cuts in the others

any_golden = pytest.mark.parametrize(("wire", "name"), GOLDENS)
some_golden = pytest.mark.parametrize(("wire", "name"), [key for key in GOLDENS if key[1] == "prose-leak-prose"])


def told(frames: list[Frame]) -> list[tuple[bytes, str | None, str | None]]:
    return [(frame.raw, frame.data, frame.event) for frame in frames]


def pairs(length: int) -> Iterator[tuple[int, int]]:
    """Places of two cuts."""
    if length <= SMALL:
        return combinations(range(1, length), 2)
    return ((one, two) for one in range(1, length) for two in range(one + 1, min(one + NEAR, length)))


@any_golden
def test_a_golden_comes_out_as_it_is_written_down(wire: str, name: str) -> None:
    data, expected = GOLDENS[wire, name]
    assert repaired(wire, [data])[0] == expected
    assert (data == expected) == (name == "nothing-leaked")


@any_golden
def test_a_golden_is_a_good_stream(wire: str, name: str) -> None:
    seen = see(wire, GOLDENS[wire, name][1])
    assert seen.calls == ([] if name == "nothing-leaked" else [MADE])


@pytest.mark.slow
@some_golden
def test_every_cut_of_a_golden_gives_the_same_bytes(wire: str, name: str) -> None:
    data, expected = GOLDENS[wire, name]
    for cut in range(1, len(data)):
        assert repaired(wire, [data[:cut], data[cut:]])[0] == expected


@pytest.mark.slow
@some_golden
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_two_cuts_of_a_golden_give_the_same_frames(wire: str, name: str, end: bytes) -> None:
    """Frames are all that the rest gets to see of the cuts, so the frames are compared."""
    data = GOLDENS[wire, name][0].replace(b"\n", end)
    framer = LineFramer if wire == "ollama" else SseFramer
    expected = told(framer().feed(data))
    for one, two in pairs(len(data)):
        cut = framer()
        frames = [*cut.feed(data[:one]), *cut.feed(data[one:two]), *cut.feed(data[two:])]
        if [frame.raw for frame in frames] != [raw for raw, _, _ in expected] or told(frames) != expected:
            # A CR that ends a chunk ends its line; the LF behind it comes with the next frame.
            assert end == b"\r\n" and b"\r" in (data[one - 1 : one], data[two - 1 : two])
            assert [frame.data for frame in frames if frame.data] == [text for _, text, _ in expected if text]


@pytest.mark.slow
@any_wire
def test_two_cuts_close_together_give_the_same_bytes(wire: str) -> None:
    data, expected = GOLDENS[wire, "prose-leak-prose"]
    for one in range(7, len(data), 41):
        for two in range(one + 1, min(one + 5, len(data))):
            assert repaired(wire, [data[:one], data[one:two], data[two:]])[0] == expected
