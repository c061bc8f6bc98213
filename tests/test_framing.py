"""Frames: every byte in exactly one, whatever the line ends and wherever the bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.framing import BodyFramer, Frame, Framer, LineFramer, SseFramer, dumps, line, loads, sse

FRAMERS: dict[str, Callable[[], Framer]] = {"sse": SseFramer, "lines": LineFramer, "body": BodyFramer}

# raw events, and what they say: (event, data, head)
EVENTS = {
    "plain": (b"data: {}\n\n", (None, "{}", b"")),
    "no space": (b"data:{}\n\n", (None, "{}", b"")),
    "two spaces": (b"data:  x\n\n", (None, " x", b"")),
    "crlf": (b"data: a\r\n\r\n", (None, "a", b"")),
    "cr": (b"data: a\r\r", (None, "a", b"")),
    "mixed ends": (b"event: e\r\ndata: a\n\r\n", ("e", "a", b"")),
    "name first": (b"event: ping\ndata: {}\n\n", ("ping", "{}", b"")),
    "name last": (b"data: {}\nevent: ping\n\n", ("ping", "{}", b"")),
    "two data lines": (b"data: a\ndata: b\n\n", (None, "a\nb", b"")),
    "empty data": (b"data\n\n", (None, "", b"")),
    "comment": (b": keep-alive\n\n", (None, None, b": keep-alive\n")),
    "comment with data": (b": hi\ndata: x\n\n", (None, "x", b": hi\n")),
    "id and retry": (b"id: 7\nretry: 10\ndata: x\n\n", (None, "x", b"id: 7\nretry: 10\n")),
    "colon in data": (b"data: a: b\n\n", (None, "a: b", b"")),
    "blank": (b"\n", (None, None, b"")),
    "not utf-8": (b"data: \xff\n\n", (None, None, b"")),
    "euro": ("data: \u20ac\n\n".encode(), (None, "\u20ac", b"")),
}


def frames(framer: Framer, *chunks: bytes) -> list[Frame]:
    found = []
    for chunk in chunks:
        found += framer.feed(chunk)
    return found + framer.close()


def told(frame: Frame) -> tuple[str | None, str | None, bytes]:
    return frame.event, frame.data, frame.head


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_says(name: str) -> None:
    raw, expected = EVENTS[name]
    (frame,) = SseFramer().feed(raw)
    assert frame.raw == raw
    assert told(frame) == expected
    assert not frame.cut


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_says_the_same_in_bytes(name: str) -> None:
    raw, expected = EVENTS[name]
    found = frames(SseFramer(), *(raw[at : at + 1] for at in range(len(raw))))
    assert b"".join(frame.raw for frame in found) == raw
    assert told(found[0]) == expected


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    (frame,) = SseFramer().feed(b"\xef\xbb\xbfdata: x\n\n")
    assert frame.data == "x"
    (frame,) = frames(BodyFramer(), b"\xef\xbb\xbf{}")
    assert frame.data == "{}"


def test_a_cr_ends_its_line_at_once_and_a_late_lf_adds_none() -> None:
    framer = SseFramer()
    (frame,) = framer.feed(b"data: a\r\r")
    assert frame.data == "a"
    (frame,) = framer.feed(b"\ndata: b\r\n\r\n")
    assert (frame.data, frame.raw) == ("b", b"\ndata: b\r\n\r\n")


def test_a_last_event_without_a_blank_line_is_delivered() -> None:
    (frame,) = frames(SseFramer(), b"data: a")
    assert (frame.data, frame.raw, frame.cut) == ("a", b"data: a", True)


def test_lines() -> None:
    found = frames(LineFramer(), b'{"a"', b': 1}\r\n\n{"b": 2}')
    assert [frame.data for frame in found] == ['{"a": 1}', None, '{"b": 2}']
    assert [frame.cut for frame in found] == [False, False, True]


@pytest.mark.parametrize("kind", FRAMERS)
@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"data: x\n\n", b"\r", b"\n", b": c\n", b"\xef\xbb\xbf"])))
def test_no_byte_is_lost_and_cutting_changes_nothing(kind: str, chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected = frames(FRAMERS[kind](), whole)
    found = frames(FRAMERS[kind](), *chunks)
    assert b"".join(frame.raw for frame in found) == whole
    assert [told(frame) for frame in found if frame.data] == [told(frame) for frame in expected if frame.data]


@pytest.mark.parametrize("kind", FRAMERS)
def test_what_is_not_complete_can_be_had(kind: str) -> None:
    framer = FRAMERS[kind]()
    complete = framer.feed(b'data: {}\n\ndata: {"a')
    assert b"".join(frame.raw for frame in complete) + framer.rest() == b'data: {}\n\ndata: {"a'


@pytest.mark.parametrize("value", [{"a": "\ud83d"}, ["\ude00"], {"k": "\u20ac\U0001f600"}, 10**30, None])
def test_json_comes_back_as_it_was(value: object) -> None:
    assert json.loads(dumps(value)) == value
    assert json.loads(sse(value, "e")[len(b"event: e\ndata: ") : -2]) == value
    assert json.loads(line(value)[:-1]) == value


@pytest.mark.parametrize("text", ["", "{", "[DONE]", "9" * 5000, "[" * 100_000])
def test_what_is_no_json_is_none(text: str) -> None:
    assert loads(text) is None


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
def test_json_is_one_line_for_any_reader_of_lines(sign: str) -> None:
    """A reader that splits as `str.splitlines` does would cut it there."""
    for written in (dumps({"a": f"x{sign}y"}), dumps(f"{sign}\ud83d"), line(sign).strip(), sse(sign).strip()):
        assert len(written.decode().splitlines()) == 1
    assert json.loads(dumps(f"x{sign}\u20ac")) == f"x{sign}\u20ac"
    assert "\u20ac".encode() in dumps(f"x{sign}\u20ac")
