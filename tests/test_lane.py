"""The fast lane: frames that are not read give what they would have given, and are kept as they were."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.coding import Identity
from addon.exchange import Pipe
from dsml_core import Repairer
from dsml_core.lane import Lane
from tests.client_view import see
from tests.leaks import BASH, LEAK, PROSE, TOOLS, any_wire, repaired, said
from tests.markers import BAR, MARK, live
from tests.provider_frames import WIRES, Answer, Calls, Says, pieces, says, stream

TALK = 'Some "prose", C:\\dir,\n\ttwo lines and a </p> of it; a | b, 1 < 2, \u20ac\U0001f600 and </done>. '
NATIVE = json.dumps({"path": "a/b", "text": "<div>" + TALK * 3})


def opened(text: str) -> str:
    return live(f'<{{M}}tool_calls>\n<{{M}}invoke name="bash">\n<{{M}}parameter name="command" string="true">{text}')


def long_call(text: str) -> str:
    return opened(text) + live("</{M}parameter>\n</{M}invoke>\n</{M}tool_calls>")


ANSWERS: dict[str, Answer] = {
    "prose": [says(TALK * 12)],
    "a leak": [says(TALK * 3 + LEAK)],
    "a leak in between": [says(f"{TALK}{LEAK}{TALK * 3}")],
    "a long value": [says("\n" + long_call(TALK * 6))],
    "a long value behind prose": [says(TALK * 2 + long_call(TALK * 6) + TALK)],
    "a long value without an end": [says("Go. " + opened(TALK * 6))],
    "two long values": [says(long_call(TALK * 4) + "\n" + long_call(TALK * 4))],
    "a long value in reasoning": [says(TALK + long_call(TALK * 4), reasoning=True)],
    "reasoning": [says(TALK * 3, reasoning=True), says(TALK * 3 + LEAK)],
    "native": [says(TALK), Calls("read", pieces(NATIVE))],
    "a leak, then native": [says(TALK + LEAK), Calls("bash", pieces(NATIVE))],
    "native with markup": [
        says(TALK),
        Calls("read", pieces('{"path": "' + TALK.replace('"', "") + '"}' + f"</{MARK}invoke>")),
    ],
    "two native": [Calls("read", pieces(NATIVE)), Calls("bash", pieces(NATIVE))],
}
LONG = [name for name in ANSWERS if "long" in name]
# an arguments object cannot be damaged on a wire where it is no text
POSSIBLE = [(wire, name) for wire in WIRES for name in ANSWERS if (wire, name) != ("ollama", "native with markup")]


def numbered(wire: str, frames: list[bytes]) -> list[bytes]:
    """The frames as providers write them that tell the time, or count, in each."""
    made = []
    for number, frame in enumerate(frames):
        at = f"2026-01-01T00:00:{number / 1000:09.6f}Z".encode()
        frame = frame.replace(b'"sequence_number": 0', b'"sequence_number": %d' % number)
        made.append(frame.replace(b"2026-01-01T00:00:00Z", at))
    return made


def slowly(wire: str, frames: list[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, Repairer]:
    """The same without a lane."""
    with monkeypatch.context() as patch:
        patch.setattr("dsml_core.rewriter.Rewriter.lane", lambda rewriter: None)
        return repaired(wire, frames)


@pytest.mark.parametrize(("wire", "answer"), POSSIBLE)
def test_it_makes_no_difference(wire: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = numbered(wire, stream(wire, ANSWERS[answer]))
    expected, slow = slowly(wire, frames, monkeypatch)
    for size in (1, 3):
        together = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
        out, quick = repaired(wire, together)
        assert out == expected
        assert quick.report == slow.report


@pytest.mark.parametrize(("wire", "answer"), [case for case in POSSIBLE if case[1] in LONG])
def test_what_is_held_is_told_at_any_moment(wire: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = numbered(wire, stream(wire, ANSWERS[answer]))
    quick, slow = (Repairer(wire, stream=True, tools=TOOLS) for _ in range(2))
    for frame in frames:
        sent = quick.feed(frame)
        with monkeypatch.context() as patch:
            patch.setattr("dsml_core.rewriter.Rewriter.lane", lambda rewriter: None)
            assert slow.feed(frame) == sent
        assert quick.held == slow.held
    assert quick.close() == slow.close()


@pytest.mark.parametrize(("wire", "answer"), [case for case in POSSIBLE if case[1] in LONG])
@pytest.mark.parametrize("clean", [True, False])
def test_an_answer_cut_in_a_hold_loses_nothing(
    wire: str, answer: str, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = numbered(wire, stream(wire, ANSWERS[answer]))
    for end in range(10, len(frames), 31):
        repairer = Repairer(wire, stream=True, tools=TOOLS)
        out = b"".join([*map(repairer.feed, frames[:end]), repairer.close(clean)])
        with monkeypatch.context() as patch:
            patch.setattr("dsml_core.rewriter.Rewriter.lane", lambda rewriter: None)
            slow = Repairer(wire, stream=True, tools=TOOLS)
            assert out == b"".join([*map(slow.feed, frames[:end]), slow.close(clean)])
        assert repairer.report == slow.report


@any_wire
def test_frames_of_a_held_value_go_by_in_it(wire: str) -> None:
    frames = numbered(wire, stream(wire, [says("Go. " + long_call(TALK * 20))]))
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    gone = 0
    for frame in frames:
        lane = repairer.lane
        taken = repairer.goes_by(frame)
        assert taken is None or lane is not None
        gone += taken is not None and lane is not None and lane.holds
        if taken is None:
            repairer.feed(frame)
    assert gone > 0.4 * len(frames)
    repairer.close()
    assert [call.name for call in repairer.report.calls] == ["bash"]


@any_wire
def test_most_frames_go_by_in_it(wire: str) -> None:
    frames = numbered(wire, stream(wire, [says(PROSE * 40), Calls("read", pieces(json.dumps({"path": PROSE * 40})))]))
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    gone = 0
    for frame in frames:
        lane = repairer.lane
        taken = lane is not None and lane.takes(frame) is not None
        gone += taken
        if not taken:
            repairer.feed(frame)
    assert gone > 0.4 * len(frames)
    repairer.close()


@dataclass
class Listener:
    """What a lane tells."""

    room: int = 10_000
    told: list[str] = field(default_factory=list)

    def renew(self) -> int:
        return self.room

    def glides(self, text: str) -> bool:
        return "<" not in text

    def glide(self, text: str) -> None:
        self.told.append(text)


def frame(text: Any, number: int = 0) -> bytes:
    return b'{"n": %d, "text":%b, "z":"2026"}\n' % (
        number,
        text if isinstance(text, bytes) else json.dumps(text).encode(),
    )


def lane(listener: Listener, varying: tuple[str, ...] = ()) -> Lane:
    made = Lane.behind(frame("first"), frame("first"), "text", "first", listener, varying)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "taken",
    [
        frame("more"),
        frame('a "quote", \\ and\nlines\t'),
        frame("a|b /c"),
        frame('"\u00e9\u20ac"'.encode()),
        frame("more") + frame("and") + frame("more\n"),
    ],
)
def test_what_it_takes(taken: bytes) -> None:
    listener = Listener()
    made = lane(listener)
    assert made.takes(taken) == taken
    runs = made.runs()
    assert runs is not None
    assert [run.data() for run in runs] == [taken, taken]
    made.settle()
    assert listener.told == ["".join(json.loads(line)["text"] for line in taken.decode().splitlines())]
    assert made.again(frame("more"), frame("more"), listener)
    assert made.runs() is None


@pytest.mark.parametrize(
    "left",
    [
        b"",
        frame(""),
        frame("a <"),
        frame("more")[:-1],
        frame("more") + b"\n",
        frame("more", 1),
        frame("\ud83d"),
        frame(b'"\\u0041"'),
        frame(b'"\\x"'),
        frame(b'"\xff"'),
        frame(b'"a", "text":"b"'),
        frame("a") + frame("b </t"),
        frame("a") + frame("b", 1),
        frame("x" * 10_001),
    ],
)
def test_what_it_does_not_take(left: bytes) -> None:
    listener = Listener()
    made = lane(listener)
    assert made.takes(left) is None
    made.settle()
    assert listener.told == []


def test_values_that_vary_are_kept_and_the_last_is_known() -> None:
    listener = Listener()
    made = lane(listener, ("n", "z"))
    data = [frame("one", 1), frame("two", 22), frame("three", 0).replace(b"2026", b"2027")]
    assert [made.takes(piece) for piece in data] == data
    for other in (b"04", b"-4", b"4" * 20, b'"\xe2\x80\xa8"'):
        assert made.takes(frame("four", 4).replace(b'"n": 4', b'"n": ' + other)) is None
    runs = made.runs()
    assert runs is not None
    assert runs[0].data() == b"".join(data)
    made.settle()
    assert (made.last["n"], made.last["z"], listener.told) == (b"0", b'"2027"', ["onetwothree"])


@pytest.mark.parametrize("varying", [(), ("n", "z")])
@pytest.mark.parametrize("number", [1, 9, 10, 11, 25])
def test_where_there_is_no_room_left_it_makes_some(number: int, varying: tuple[str, ...]) -> None:
    listener = Listener(room=20)
    made = lane(listener, varying)
    data = [frame("ab", at if varying else 0) for at in range(number)]
    assert [made.takes(piece) for piece in data] == data
    assert len(listener.told) == (number - 1) // 10
    runs = made.runs()
    assert runs is not None
    assert runs[0].data() == b"".join(data)
    made.settle()
    assert "".join(listener.told) == "ab" * number
    assert made.last.get("n") == (b"%d" % (number - 1) if varying else None)
    assert made.takes(frame("x" * 21)) is None


def test_frames_that_are_held_leave_with_numbers_of_their_own() -> None:
    left = b'{"n":%d}\n'
    made = Lane.behind(frame("first", 7), left % 3, "text", "first", Listener(), ("n",), 3)
    assert made is not None
    data = [frame("one", 8), frame("two", 20)]
    assert [made.takes(piece) for piece in data] == [left % 4, left % 5]
    assert made.takes(frame("a <", 21)) is None
    runs = made.runs()
    assert runs is not None
    assert [run.data() for run in runs] == [b"".join(data), left % 4 + left % 5]
    made.settle()
    assert made.last == {"n": b"5"}
    assert made.again(frame("x", 22), left % 6, Listener(), 6) is False  # another part
    assert Lane.behind(frame("first", 7), left % 4, "text", "first", Listener(), ("n",), 3) is None
    assert Lane.behind(frame("first", 7), left % 3, "text", "first", Listener(), (), 3) is None


@pytest.mark.parametrize(
    ("first", "name"),
    [(frame(b'"a", "text":"b"'), "text"), (frame("other"), "text"), (frame("first"), "z2"), (b'{"text":5}', "text")],
)
def test_a_text_whose_place_is_not_plain_has_no_lane(first: bytes, name: str) -> None:
    assert Lane.behind(first, first, name, "first", Listener(), ()) is None


def faults(wire: str, at: int, monkeypatch: pytest.MonkeyPatch, method: str) -> Iterator[None]:
    count = 0
    real = getattr(Lane, method)

    def failing(self: Lane, *given: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise RuntimeError("of the lane")
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Lane, method, failing)
        yield


@pytest.mark.parametrize("at", [1, 2, 9])
@pytest.mark.parametrize("method", ["takes", "settle", "again", "tell", "_hush"])
@any_wire
def test_a_fault_in_a_hold_costs_no_text(wire: str, method: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TALK + long_call(TALK * 3) + TALK
    frames = numbered(wire, stream(wire, [says(text)]))
    for _ in faults(wire, at, monkeypatch, method):
        repairer = Repairer(wire, stream=True, tools=TOOLS)
        out = b"".join([*map(repairer.feed, frames), repairer.close()])
        if repairer.report.faults:
            assert said(wire, out) == text
        pipe = Pipe(Repairer(wire, stream=True, tools=TOOLS), Identity())
        sent = b"".join(piece for data in [*frames, b""] for piece in pipe(data))
        assert said(wire, sent) == (text if pipe.report.faults else TALK + TALK)


@pytest.mark.parametrize("at", [1, 2, 9])
@pytest.mark.parametrize("method", ["takes", "settle", "again"])
@any_wire
def test_a_fault_in_it_costs_no_byte(wire: str, method: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = numbered(wire, stream(wire, [says(TALK * 12)]))
    for _ in faults(wire, at, monkeypatch, method):
        repairer = Repairer(wire, stream=True, tools=TOOLS)
        out = b"".join([*map(repairer.feed, frames), repairer.close()])
        assert out == b"".join(frames)
        assert [place.partition(" ")[0] for place in repairer.report.faults] == ["RuntimeError"]
        pipe = Pipe(Repairer(wire, stream=True, tools=TOOLS), Identity())
        assert b"".join(piece for data in [*frames, b""] for piece in pipe(data)) == b"".join(frames)


@pytest.mark.slow
@pytest.mark.parametrize(("wire", "answer"), POSSIBLE)
@pytest.mark.parametrize("observe", [False, True])
def test_what_went_by_is_kept_as_it_was(wire: str, answer: str, observe: bool) -> None:
    frames = numbered(wire, stream(wire, ANSWERS[answer]))
    expected, _ = repaired(wire, frames)
    pipe = Pipe(Repairer(wire, stream=True, tools=TOOLS), Identity(), keep=1 << 20, observe=observe)
    sent = [piece for data in [*frames, b""] for piece in pipe(data)]
    ours = b"".join(sent)
    assert (pipe.client.joined(), pipe.other.joined()) == (ours, expected if observe else b"".join(frames))
    assert ours == (b"".join(frames) if observe else expected)
    assert pipe.arrivals.lists()[1] == list(map(len, frames))


def cut(frames: list[bytes], seed: int) -> list[bytes]:
    """The same bytes in pieces cut anywhere: most frames whole, some in two, three, or with others."""
    random_ = random.Random(seed)
    body = b"".join(frames)
    ends = {len(b"".join(frames[:number])) for number in range(len(frames)) if random_.random() < 0.8}
    ends |= {random_.randrange(1, len(body)) for _ in range(len(frames) // 3)}
    places = [0, *sorted(ends - {0}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.parametrize(("wire", "answer"), POSSIBLE)
@pytest.mark.parametrize("clean", [True, False])
def test_frames_cut_anywhere(wire: str, answer: str, clean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = (Repairer(wire, stream=True, tools=TOOLS) for _ in range(2))
    for piece in cut(numbered(wire, stream(wire, ANSWERS[answer])), int(clean)):
        sent = quick.feed(piece)
        with monkeypatch.context() as patch:
            patch.setattr("dsml_core.rewriter.Rewriter.lane", lambda rewriter: None)
            assert slow.feed(piece) == sent
        assert quick.held == slow.held
    assert quick.close(clean) == slow.close(clean)
    assert quick.report == slow.report


@pytest.mark.slow
@pytest.mark.parametrize(("wire", "answer"), POSSIBLE)
@pytest.mark.parametrize("observe", [False, True])
def test_cut_frames_that_went_by_are_kept(wire: str, answer: str, observe: bool) -> None:
    frames = cut(numbered(wire, stream(wire, ANSWERS[answer])), 2)
    expected, _ = repaired(wire, frames)
    pipe = Pipe(Repairer(wire, stream=True, tools=TOOLS), Identity(), keep=1 << 20, observe=observe)
    sent = []
    for data in frames:
        passed = pipe.passes(data) if pipe.passing else None
        sent += [passed] if passed is not None else pipe(data)
    sent += pipe(b"")
    came, ours = b"".join(frames), b"".join(sent)
    assert (pipe.client.joined(), pipe.other.joined()) == (ours, expected if observe else came)
    assert ours == (came if observe else expected)
    assert sum(pipe.arrivals.lists()[1]) == len(came)
    assert all(sent) or not observe


@any_wire
def test_a_frame_cut_in_two_goes_by_in_it(wire: str) -> None:
    frames = numbered(wire, stream(wire, [says("Plain words. " * 20)]))
    repairer = Repairer(wire, stream=True, tools=TOOLS)
    for frame in frames[:20]:
        repairer.feed(frame)
    assert repairer.goes_by(frames[20][:9]) == b""
    assert repairer.goes_by(frames[20][9:] + frames[21][:7]) == frames[20]
    assert repairer.goes_by(frames[21][7:]) == frames[21]


texts = st.lists(st.sampled_from([*'ab \n"\\<>|/`', "</", "```", BAR, MARK, BASH, "\u20ac", "\U0001f600"]), max_size=40)


@given(texts, st.sampled_from(WIRES), st.integers(0, 10**9))
def test_any_text_in_any_pieces(parts: list[str], wire: str, seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(parts)
    cuts = sorted(chance.randrange(len(text) + 1) for _ in range(len(text) // 3))
    deltas = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end]
    whole, split = (numbered(wire, stream(wire, [Says(["Go. ", *said])])) for said in ([text] if text else [], deltas))
    once, by_frame = repaired(wire, [b"".join(split)])[0], repaired(wire, split)[0]
    assert once == by_frame
    assert see(wire, by_frame).calls == see(wire, repaired(wire, whole)[0]).calls
