"""A fuzzer over `Repairer`: answers of any markup, told by careful and by careless providers, cut anywhere.

The oracle is what holds of every answer, whatever is in it: DESIGN's rules, not what this or that shape becomes.
`DSML_FUZZ_MINUTES=30 pytest tests/test_fuzz.py -m slow` tries new examples for that long, shared by the four wires;
without it a run takes a minute and tries the same ones each time.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from dsml_core import End, Event, Parser, Policy, Repairer
from dsml_core.report import Report
from tests.careless import DAMAGE
from tests.client_view import Seen, see
from tests.leaks import BASH, LEAK, REJECTED, TOOLS, TWO, UNCLOSED, any_wire
from tests.provider_frames import WIRES, Answer, Calls, Says, body, stream
from tests.test_parser_properties import soup

MINUTES = float(os.environ.get("DSML_FUZZ_MINUTES", "0"))
SMALL = Policy(candidate_limit=64, hold_limit=150, declared_hold_limit=300)
NOTE = re.compile(r"\[removed (malformed )?(\S+ )?call\]")
SIGNS = re.compile("[<|/\\\\\uff1c\uff0f\uff5c\u2016\u951d]|" + "dsml", re.IGNORECASE)  # that can begin a tag
fixed = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))

# -- What a provider says

prose = st.sampled_from(["Go. ", "word ", "\n", " ", "\u20ac\U0001f600", "a > b", "`x`", "\u2028", "\x00", '"\\'])
fragments = st.one_of(soup, st.sampled_from([LEAK, TWO, BASH, REJECTED, UNCLOSED, "<", "`", "```\n"]), prose, prose)
markup = st.lists(fragments, max_size=4).map("".join)
texts = st.one_of(markup, markup, st.lists(prose, max_size=6).map("".join))
natives = st.builds(Calls, st.sampled_from(["bash", "read"]), st.sampled_from([["{}"], ['{"path": "x', 'y"}'], [""]]))


@st.composite
def said(draw: st.DrawFn, reasoning: bool = False) -> Says:
    """A text in any pieces."""
    text, size = draw(texts), draw(st.sampled_from([1, 3, 4, 9, 40, 2000]))
    return Says([text[at : at + size] for at in range(0, len(text), size)], reasoning)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """In the usual order: reasoning, text, calls."""
    answer: list[Says | Calls] = [draw(said(reasoning=True))] if draw(st.integers(0, 3)) == 0 else []
    answer.append(draw(said()))
    return [*answer, *draw(st.lists(natives, max_size=2))] if draw(st.integers(0, 3)) == 0 else answer


@st.composite
def mixed_answers(draw: st.DrawFn) -> Answer:
    """In any order."""
    step = st.one_of(said(), said(reasoning=True), natives)
    return draw(st.lists(step, max_size=5))


@dataclass(frozen=True)
class Setup:
    """How an answer is sent and read: all that is not the answer itself."""

    finish: str
    policy: Policy
    cuts: tuple[int, ...]
    foreign: tuple[int, ...]
    crlf: bool
    tools: Any = field(repr=False)


setups = st.builds(
    Setup,
    finish=st.sampled_from(["stop", "stop", "length", "content_filter"]),
    policy=st.sampled_from([Policy(), Policy(), SMALL, Policy(profile="strict"), Policy(calls=False)]),
    cuts=st.lists(st.integers(0, 20_000), max_size=8).map(tuple),
    foreign=st.lists(st.integers(0, 60), max_size=3).map(tuple),
    crlf=st.booleans(),
    tools=st.sampled_from([TOOLS, TOOLS, None]),
)


def foreign_frame(wire: str, number: int) -> bytes:
    """A frame that no format knows."""
    value = json.dumps({"x-gateway": number, "note": "</"})
    if wire == "ollama":
        return [f"{value}\n", f"not json {number}\n"][number % 2].encode()
    forms = [f": keep-alive {number}", f"event: x-note\ndata: {value}", f"data: not json {number}", f"id: {number}"]
    return f"{forms[number % 4]}\n\n".encode()


def frames_of(wire: str, answer: Answer, setup: Setup) -> tuple[list[bytes], list[bytes]]:
    """The frames of an answer, each with a field of its own, and the foreign ones among them."""
    frames = stream(wire, answer, setup.finish)
    frames = [frame.replace(b'{"', b'{"x-extra": %d, "' % number, 1) for number, frame in enumerate(frames)]
    foreign = [foreign_frame(wire, number) for number in range(len(setup.foreign))]
    for frame, place in zip(foreign, setup.foreign, strict=True):
        frames.insert(min(place, len(frames) - 1), frame)
    foreign = [frame for frame in frames if frame in foreign]
    if setup.crlf and wire != "ollama":
        frames, foreign = ([frame.replace(b"\n", b"\r\n") for frame in some] for some in (frames, foreign))
    return frames, foreign


def possible(answer: Answer, setup: Setup) -> tuple[Answer, Setup]:
    """What Ollama can carry: arguments that are an object; nothing is filtered."""
    answer = [Calls(step.name, ["{}"]) if isinstance(step, Calls) else step for step in answer]
    return answer, replace(setup, finish="stop") if setup.finish == "content_filter" else setup


# -- Reading it


@dataclass
class Run:
    """What became of a response."""

    out: bytes
    report: Report


def run(
    wire: str, pieces: Iterable[bytes], setup: Setup, *, streamed: bool = True, clean: bool = True, idle: int = 0
) -> Run:
    """Pass it through; `idle`: let the provider be silent behind each so many pieces."""
    repairer = Repairer(wire, stream=streamed, tools=setup.tools, policy=setup.policy)
    out = []
    for number, piece in enumerate(pieces, 1):
        out.append(repairer.feed(piece))
        limits = setup.policy
        assert repairer.held <= 2 * (limits.declared_hold_limit + limits.candidate_limit) + len(piece)
        if idle and number % idle == 0:
            out.append(repairer.flush_idle())
    out.append(repairer.close(clean))
    assert repairer.held == 0 or repairer.report.aborted
    return Run(b"".join(out), repairer.report)


def cut(data: bytes, setup: Setup) -> list[bytes]:
    places = sorted(min(place, len(data)) for place in setup.cuts)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def without(out: bytes, foreign: Sequence[bytes]) -> bytes:
    """`out` without these frames, which it must hold, in order."""
    place = 0
    for frame in foreign:
        place = out.index(frame, place)
        out = out[:place] + out[place + len(frame) :]
    return out


# -- The oracle


def told(answer: Answer, reasoning: bool) -> str:
    return "".join("".join(step.pieces) for step in answer if isinstance(step, Says) and step.reasoning == reasoning)


def check_seen(wire: str, answer: Answer, setup: Setup, seen: Seen, report: Report) -> None:
    """What the client sees of an answer: nothing lost, nothing invented, the right finish."""
    removed = Counter("".join(span.text for span in report.removed))
    came = Counter(told(answer, True) + told(answer, False))
    shown = seen.text
    if Counter(shown + seen.reasoning) + removed != came:
        shown = NOTE.sub("", shown, count=1)
    assert Counter(shown + seen.reasoning) + removed == came
    alone = len(answer) == 1 and isinstance(answer[0], Says) and not answer[0].reasoning
    if alone and setup.finish != "content_filter":
        check_order(told(answer, False), shown, report)
    called = [step for step in answer if isinstance(step, Calls)]
    assert len(seen.calls) == len(called) + len(report.calls)
    assert [name for name, _ in seen.calls] == [step.name for step in called] + [call.name for call in report.calls]
    if called or setup.finish == "content_filter" or not setup.policy.calls:
        assert report.calls == []
    if setup.finish == "content_filter" and not called:
        assert report.removed == []  # put back, at the end where prose behind it had left
    check_finish(wire, setup, seen, report)


def check_order(came: str, shown: str, report: Report) -> None:
    """The text with what was removed back in its place is what came."""
    pieces, at = [], 0
    for span in sorted(report.removed, key=lambda span: span.start):
        pieces.append(shown[: span.start - at])
        shown = shown[span.start - at :]
        pieces.append(span.text)
        at = span.end
    assert "".join(pieces) + shown == came


def check_finish(wire: str, setup: Setup, seen: Seen, report: Report) -> None:
    given = {"length": "max_output_tokens"}.get(setup.finish, setup.finish) if "resp" in wire else setup.finish
    if report.calls:
        assert seen.finish == "tool_calls"
    elif not seen.calls:
        assert seen.finish == given


def check_stream(wire: str, answer: Answer, setup: Setup) -> None:
    """A well-formed stream of it: cutting is invisible, what needs no change is not changed, the rest is right."""
    frames, foreign = frames_of(wire, answer, setup)
    data = b"".join(frames)
    whole = run(wire, [data], setup)
    assert run(wire, cut(data, setup), setup).out == whole.out
    assert run(wire, frames, setup).out == whole.out
    assert whole.report.faults == []
    if not whole.report.changed:
        assert whole.out == data
    if not SIGNS.search(told(answer, True) + told(answer, False)):
        assert not whole.report.changed
    check_told(wire, answer, setup, whole, foreign)


def check_body(wire: str, answer: Answer, setup: Setup) -> None:
    """The same as one JSON document."""
    data = body(wire, answer, setup.finish)
    whole = run(wire, [data], setup, streamed=False)
    assert run(wire, cut(data, setup), setup, streamed=False).out == whole.out
    assert whole.report.faults == []
    if not whole.report.changed:
        assert whole.out == data
    if not SIGNS.search(told(answer, True) + told(answer, False)):
        assert whole.out == data
    seen = see(wire, whole.out, stream=False)
    check_seen(wire, answer, setup, seen, whole.report)
    if setup.finish == "content_filter":
        assert whole.out == data
        return
    streamed = see(wire, run(wire, stream(wire, answer, setup.finish), setup).out)
    assert (seen.text, seen.reasoning, seen.calls, seen.finish) == (
        *(streamed.text, streamed.reasoning, streamed.calls, streamed.finish),
    )


def check_silence(wire: str, answer: Answer, setup: Setup) -> None:
    """A provider that pauses: what is let go early is neither lost nor said twice."""
    frames, foreign = frames_of(wire, answer, setup)
    idle = run(wire, frames, setup, idle=1 + len(setup.cuts))
    assert idle.report.faults == []
    check_told(wire, answer, setup, idle, foreign)


def extras(data: bytes) -> set[bytes]:
    return set(re.findall(rb'"x-extra": ?(\d+)', data))


def check_told(wire: str, answer: Answer, setup: Setup, passed: Run, foreign: Sequence[bytes]) -> None:
    """What a client makes of a stream, which it must accept; foreign frames and fields come through as they are."""
    out = without(passed.out, foreign)
    if wire in ("openai-chat", "ollama"):  # on the others a frame may go with the part that it opens, tells or closes
        assert extras(out) == extras(b"".join(frames_of(wire, answer, setup)[0]))
    if wire == "openai-responses" and setup.finish == "content_filter":
        return check_kept(wire, b"".join(stream(wire, answer)), passed)  # what is put back comes after what had left
    check_seen(wire, answer, setup, see(wire, out), passed.report)


def check_broken(wire: str, answer: Answer, setup: Setup, place: int, clean: bool) -> None:
    """A stream that ends anywhere: all text that came leaves, but for what became calls."""
    frames, _ = frames_of(wire, answer, setup)
    data = b"".join(frames)
    data = data[: place % (len(data) + 1)]
    broken = run(wire, cut(data, setup), setup, clean=clean)
    assert run(wire, [data], setup, clean=clean).out == broken.out
    assert broken.report.faults == []
    check_kept(wire, data, broken)


def check_fault(wire: str, answer: Answer, setup: Setup, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that fails at some moment."""
    frames, _ = frames_of(wire, answer, setup)
    with monkeypatch.context() as patch:
        patch.setattr("dsml_core.stream.Parser", failing(at))
        failed = run(wire, cut(b"".join(frames), setup), setup)
    assert len(failed.report.faults) <= 1
    check_kept(wire, b"".join(frames), failed)


def failing(at: int) -> type[Parser]:
    """A parser that raises at the call with this number."""
    left = iter(range(at, -1, -1))

    class Failing(Parser):
        def feed(self, text: str) -> list[Event]:
            if next(left, None) == 0:
                raise RuntimeError
            return super().feed(text)

        def close(self, end: End = End.STOP) -> list[Event]:
            if next(left, None) == 0:
                raise RuntimeError
            return super().close(end)

    return Failing


def check_careless(wire: str, answer: Answer, setup: Setup, chance: random.Random) -> None:
    """Frames that are no longer what the wire says: no fault loses a character."""
    frames, _ = frames_of(wire, answer, setup)
    for _ in range(chance.randrange(1, 4)):
        if frames:
            chance.choice(DAMAGE)(frames, chance)
    data = b"".join(frames)
    whole = run(wire, [data], setup)
    assert run(wire, cut(data, setup), setup).out == whole.out
    if not whole.report.changed or not SIGNS.search(told(answer, True) + told(answer, False)):
        assert whole.out == data
    check_kept(wire, data, whole)


def check_kept(wire: str, data: bytes, passed: Run) -> None:
    """All text of `data` is in what left or in what was removed."""
    left = words_of(wire, passed.out) + Counter("".join(span.text for span in passed.report.removed))
    assert not words_of(wire, data) - left


def words_of(wire: str, data: bytes) -> Counter[str]:
    """The characters of all deltas of a stream, whether or not it is complete."""
    found: Counter[str] = Counter()
    for line in re.split(rb"\r\n|\n|\r", data):
        try:
            value = json.loads(line.removeprefix(b"data:"))
        except (ValueError, RecursionError):
            continue
        found.update("".join(_strings(wire, value)))
    return found


def _strings(wire: str, value: Any) -> list[str]:
    try:
        if wire == "openai-chat":
            deltas = [choice["delta"] for choice in value["choices"]]
            found = [delta.get(name) for delta in deltas for name in ("content", "reasoning_content")]
        elif wire == "ollama":
            found = [value["message"].get("content"), value["message"].get("thinking")]
        elif wire == "anthropic":
            field = {"text_delta": "text", "thinking_delta": "thinking"}.get(value["delta"]["type"])
            found = [value["delta"][field]] if field else []
        else:
            known = re.fullmatch(r"response\.(output|reasoning|reasoning_summary)_text\.delta", value["type"])
            found = [value["delta"]] if known else []
    except (KeyError, TypeError, AttributeError):
        return []
    return [text for text in found if isinstance(text, str)]


# -- Running it


def fuzz(wire: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The fuzzer for one wire; each example takes one of the ways to look at an answer."""

    @given(st.booleans(), answers(), mixed_answers(), setups, st.integers(0, 5), st.integers(0, 10**6))
    def look(in_order: bool, usual: Answer, mixed: Answer, setup: Setup, way: int, number: int) -> None:
        answer = usual if in_order or way == 2 else mixed
        if wire == "ollama":
            answer, setup = possible(answer, setup)
        ways: list[Callable[[], None]] = [
            lambda: check_stream(wire, answer, setup),
            lambda: check_silence(wire, answer, setup),
            lambda: check_body(wire, answer, setup),
            lambda: check_broken(wire, answer, setup, number, clean=number % 2 == 0),
            lambda: check_fault(wire, answer, setup, number % 40, monkeypatch),
            lambda: check_careless(wire, answer, setup, random.Random(number)),
        ]
        ways[way]()

    return look


@pytest.mark.slow
@any_wire
def test_for_a_minute_or_as_long_as_told(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not MINUTES:
        settings(fixed, max_examples=1000)(fuzz(wire, monkeypatch))()
        return
    end = time.monotonic() + MINUTES * 60 / len(WIRES)
    while time.monotonic() < end:
        number = random.randrange(10**9)
        print(f"{wire}: seed {number}")  # seen where it fails
        seeded(number)(settings(fixed, derandomize=False, max_examples=200)(fuzz(wire, monkeypatch)))()
