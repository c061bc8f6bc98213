"""Input made to hurt: for each, the time for five times as much of it, and the memory it takes.

tests/test_adversarial.py runs the same inputs for what does not depend on time: nothing lost, chunks do not matter.

A part of bench.py.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import bench_frames
import bench_texts as texts
from bench_texts import BAR, MARK

from dsml_core import Parser, Policy, Repairer

# Characters or bytes of the smaller input: of the kinds that are tried at full size, and of all others.
USUAL = (400_000, 50_000)
FULL = (2_000_000, 50_000)
# Whether the texts are held to their end or go out as soon as they may: each grows in a way of its own.
LIMITS = {
    "held": Policy(hold_limit=1 << 30, declared_hold_limit=1 << 30),
    "let go": Policy(hold_limit=4096, declared_hold_limit=4096),
}
GROWTH = 6.0  # for five times the input
MEMORY = 20.0  # bytes for each byte of input beyond what is held anyway
_INVOKE = f'<{MARK}invoke name="write">'
_OPEN = f'<{MARK}parameter name="content" string="true">'

UNITS: dict[str, str] = {
    "openers": "<",
    "wide openers": "\uff1c",
    "wide bars": BAR,
    "bars": "|",
    "bars and blanks": "| ",
    "bars at line starts": "\n|",
    "slashes at line starts": "\n/ ",
    "backslashes": "\\",
    "openers and bars": "<|",
    "openers and slashes": "</",
    "openers and blanks": "<  ",
    "openers and noise": f"<{BAR}\n{BAR} ",
    "mojibake": "\u951d\u6ed0\u7d94\n",
    "part of a marker": f"<{BAR}DSM",
    "markers": f"<{MARK}",
    "markers without an opener": f"\n{MARK}",
    "closing markers": f"</{MARK}",
    "closers without their end": f"</{MARK}parameter ",
    "block openers": f"<{MARK}tool_calls>",
    "invoke openers": _INVOKE,
    "parameter openers": _OPEN,
    "parameter closers": f"</{MARK}parameter>",
    "invoke closers": f"</{MARK}invoke>\n",
    "block closers": f"</{MARK}tool_calls>",
    "plain closers": "</parameter></invoke>",
    "plain openers": '<invoke name="write"><parameter name="content">',
    "end tokens": f"<{BAR}end\u2581of\u2581sentence{BAR}>",
    "thinking": "<think></think>",
    "open thinking": "<think>",
    "quotes never closed": f'<{MARK}invoke name="a',
    "quotes in quotes": '<invoke a="<invoke b=\'" c="',
    "attributes": f'<{MARK}invoke a="b" c="d" ',
    "fences": "```\n",
    "fences in fences": "````\n```\n~~~\n",
    "backticks": "`",
    "backticks and words": "`a ``b",
    "paragraphs of backticks": "`a\n\n",
    "quote marks": "> ",
    "list marks": "- 1. ",
    "open CDATA": "<![CDATA[",
    "CDATA ends": "]]>",
    "entities": "&lt;&#60;",
    "ampersands": "&",
    "elements": "<a>",
    "elements closed": "<item><a>1</a></item>",
    "brackets": "[",
    "braces": '{"a":',
    "digits": "9",
    "JSON strings": '"\\"',
    "blanks": " ",
    "lines": "\n",
    "NULs": "\0",
    "half surrogates": "\ud83d",
    "whole calls": texts.call("x"),
    "opener and many bars": "<" + BAR * 20,
    "opener and many blanks": "<" + " " * 2000,
    "nameless openers": f"<{MARK}>",
    "mentions": f"<{MARK}tool_calls> so ",
    "closers and words": f"</{MARK}invoke> so ",
    "openers of tools": f'<parameter name="write"><{MARK}parameter name="content">',
    "many attributes": f"<{MARK}invoke " + "a=b " * 200,
    "backticks and tags": f"` <{MARK}invoke> ",
    "backticks, tags and paragraphs": f"` <{MARK}invoke> \n\n",
    "quoted tags": f"> <{MARK}tool_calls>\n",
    "thought calls": "<think>" + texts.call("x"),
    "values in fences": f"{_INVOKE}{_OPEN}```\n{_OPEN}a</{MARK}parameter>",
    "open JSON strings": f'{_INVOKE}{{"a": "b</{MARK}invoke>\n',
    "values in open CDATA": f"{_INVOKE}{_OPEN}<![CDATA[x</{MARK}invoke>\n",
    "values without an end": f"{_INVOKE}{_OPEN}x</{MARK}invoke>\n",
    "plain values without an end": '<tool_calls><invoke name="write"><parameter name="x">x</invoke></tool_calls>\n',
    "calls without a name": f'<{MARK}invoke name="">\n</{MARK}invoke>\n',
    "calls in fences": f"```\n{_INVOKE}\n```\n",
}

# What stands before the units: in prose, in a value of a declared tool, between the tags, in JSON.
PLACES: dict[str, str] = {
    "in prose": "",
    "in a value": f"<{MARK}tool_calls>\n{_INVOKE}\n{_OPEN}",
    "in CDATA": f"<{MARK}tool_calls>\n{_INVOKE}\n{_OPEN}<![CDATA[",
    "in JSON": f'<{MARK}tool_calls>\n{_INVOKE}\n{{"content": "',
    "in a block": f"<{MARK}tool_calls>\n",
    "in a tag": f'<{MARK}invoke name="',
    "in code": "`",
}

WIRES = ("openai-chat", "openai-responses", "anthropic", "ollama")


@dataclass
class Row:
    """Seconds for one amount of input and for five times that; `memory`: bytes taken at most, for each byte of it."""

    what: str
    seconds: float
    more: float
    growth: float
    memory: float


def text(unit: str, place: str, length: int) -> str:
    """About `length` characters of the input with these names."""
    return PLACES[place] + UNITS[unit] * (length // len(UNITS[unit]) + 1)


def parse(pieces: Iterable[str], policy: Policy | None = None) -> int:
    """Read it all, keeping nothing; returns the number of events."""
    parser = Parser(texts.TOOLS, policy)
    return sum(len(parser.feed(piece)) for piece in pieces) + len(parser.close())


# -- The kinds that are tried at full size: what they begin with, and what is repeated

_FLAT = f'<{MARK}tool_calls>\n{_INVOKE}\n<{MARK}parameter name="content" string="false">'
KINDS: dict[str, tuple[str, str]] = {
    "openers": ("", "<"),
    "wide bars": ("", BAR),
    "bars": ("\n", "|"),
    "almost-markers": ("", f"<{BAR}DSM"),
    "nested openers": ("", PLACES["in a value"]),
    "nested openers, marked by nothing": ("", UNITS["plain openers"]),
    "fences": ("", "```\n~~~~\n"),
    "fences in a value": (PLACES["in a value"], "```\n"),
    "CDATA never closed": (PLACES["in a value"], "<![CDATA["),
    "nested JSON": (_FLAT, "["),
    "nested JSON in a body": (f"<{MARK}tool_calls>\n{_INVOKE}\n", '{"a":'),
    "a huge number": (_FLAT, "9"),
    "half surrogates": ("", "\ud83d"),
    "half surrogates in a value": (PLACES["in a value"], "\ud83d<"),
    "NULs": ("", "\0"),
    "NULs in a value": (PLACES["in a value"], "\0"),
    "whole calls": ("", texts.call("x")),
    "prose": ("", "The loader reads a < b. "),
}


def pieces(kind: str, length: int, size: int) -> Iterator[str]:
    """About `length` characters of that kind, `size` at a time, never all of them at once."""
    start, unit = KINDS[kind]
    yield from texts.deltas(start, size)
    cycle = texts.deltas(unit * size, size)
    for number in range(length // size):
        yield cycle[number % len(cycle)]


def stream(wire: str, kind: str, length: int, size: int) -> Iterator[bytes]:
    """A response of `wire` that says it; the text is not said again at the end of it, as Responses would."""
    sign = "@@@@"
    *frames, last = bench_frames.frames(wire, sign)
    at = next(number for number, frame in enumerate(frames) if sign.encode() in frame)
    head, tail = frames[at].split(json.dumps(sign).encode())
    made: dict[str, bytes] = {}
    yield from frames[:at]
    for piece in pieces(kind, length, size):
        if piece not in made:
            made[piece] = head + json.dumps(piece).encode() + tail
        yield made[piece]
    yield from (frame for frame in [*frames[at + 1 :], last] if sign.encode() not in frame)


def body(wire: str, kind: str, length: int) -> bytes:
    """The same as one JSON document."""
    said = "".join(pieces(kind, length, 64))
    return json.dumps(_BODIES[wire](said)).encode()


_BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "openai-chat": lambda said: {"choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}]},
    "openai-responses": lambda said: {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": said}]}],
    },
    "anthropic": lambda said: {
        "type": "message",
        "content": [{"type": "text", "text": said}],
        "stop_reason": "end_turn",
    },
    "ollama": lambda said: {"message": {"content": said}, "done": True, "done_reason": "stop"},
}


# -- Bytes that are no proper frames

BYTES: dict[str, Callable[[int], Iterator[bytes]]] = {
    "one line without an end": lambda size: iter([b"data: " + b"x" * size]),
    "one line, a byte a time": lambda size: (b"x" for _ in range(size)),
    "one frame of text": lambda size: iter([_chat(json.dumps("x<" * (size // 2)))]),
    "one frame of text, a byte a time": lambda size: _bytewise(_chat(json.dumps("x<" * (size // 2)))),
    "empty frames": lambda size: (b"\n\n" for _ in range(size // 4)),
    "empty frames in one piece": lambda size: iter([b"\n" * size]),
    "comments": lambda size: (b": x\n\n" for _ in range(size // 10)),
    "line ends CR": lambda size: (b"data: {}\r\r" for _ in range(size // 10)),
    "data lines of one frame": lambda size: iter([b"data: x\n" * (size // 8)]),
    "events without text": lambda size: (_chat('""') for _ in range(size // 60)),
    "nested JSON": lambda size: iter([b'data: {"choices":' + b"[" * size + b"\n\n"]),
    "nested JSON, closed": lambda size: iter([b'data: {"x":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}\n\n"]),
    "a huge number": lambda size: iter([b'data: {"choices":[{"index":' + b"9" * size + b"}]}\n\n"]),
    "huge numbers": lambda size: (b'data: {"choices":[{"index":1e%b}]}\n\n' % (b"9" * 70) for _ in range(size // 100)),
    "not UTF-8": lambda size: (b"data: \xff\xfe{}\n\n" for _ in range(size // 12)),
    "one line, not UTF-8": lambda size: iter([b"data: " + b"\xe2\x82" * (size // 2) + b"\n\n"]),
    "NULs": lambda size: iter([b"\0" * size]),
    "BOMs": lambda size: iter([b"\xef\xbb\xbf" * (size // 3)]),
}


def _chat(value: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":%b}}]}\n\n' % value.encode()


def _bytewise(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def repair(wire: str, data: Iterable[bytes], *, streamed: bool = True) -> int:
    """Pass it all through a Repairer; returns the number of bytes that came out."""
    repairer = Repairer(wire, stream=streamed, tools=texts.TOOLS)
    return sum(len(repairer.feed(piece)) for piece in data) + len(repairer.close())


# -- Measuring

Job = tuple[str, Callable[[int], int], int]  # what it is, a run for an amount, and the smaller amount


def measure(length: int, unit_length: int, only: str = "") -> dict[str, Any]:
    """The figures, and of growth and memory the three worst, to be judged.

    `length`: characters or bytes of the kinds tried at full size; `unit_length`: of all other texts.

    `only`: a word that must be in the name of what is tried.
    """
    jobs = [job for job in [*_kinds(length), *_bytes(length), *_units(unit_length)] if only in job[0]]
    if not jobs:
        raise SystemExit(f"nothing has {only!r} in its name")
    rows = [_measured(*job) for job in jobs]
    judged = [row for row in rows if row.more > 0.2]  # less says nothing of how it grows
    checks = sorted((_check("growth", row.what, row.growth, GROWTH) for row in judged), key=_ratio)[-3:]
    checks += sorted((_check("memory", row.what, row.memory, MEMORY) for row in rows), key=_ratio)[-3:]
    return {"rows": [asdict(row) for row in rows], "checks": checks}


def _check(figure: str, what: str, ratio: float, goal: float) -> dict[str, Any]:
    return {"what": f"{figure}: {what}", "ratio": ratio, "goal": goal}


def _ratio(check: dict[str, Any]) -> float:
    return float(check["ratio"])


def _kinds(length: int) -> Iterator[Job]:
    for kind in KINDS:
        for size in (64, 1):
            amount = length if size > 1 else length // 10
            yield f"parser, {kind}, pieces of {size}", partial(_parse_kind, kind, size), amount
        for wire in WIRES:
            yield f"{wire}, {kind}, frames of 64", partial(_repair_kind, wire, kind), length
            yield f"{wire}, {kind}, one body", partial(_repair_body, wire, kind), length // 10


def _bytes(length: int) -> Iterator[Job]:
    for name in BYTES:
        for wire in WIRES:
            yield f"{wire}, bytes: {name}", partial(_repair_bytes, wire, name), length


def _units(length: int) -> Iterator[Job]:
    for unit in UNITS:
        for place in PLACES:
            for limit in LIMITS:
                yield f"parser, {unit}, {place}, {limit}", partial(_parse_unit, unit, place, limit), length


def _parse_kind(kind: str, size: int, length: int) -> int:
    return parse(pieces(kind, length, size))


def _repair_kind(wire: str, kind: str, length: int) -> int:
    return repair(wire, stream(wire, kind, length, 64))


def _repair_body(wire: str, kind: str, length: int) -> int:
    return repair(wire, [body(wire, kind, length)], streamed=False)


def _repair_bytes(wire: str, name: str, length: int) -> int:
    return repair(wire, BYTES[name](length))


def _parse_unit(unit: str, place: str, limit: str, size: int) -> int:
    whole = text(unit, place, size)
    return parse((whole[at : at + 4] for at in range(0, len(whole), 4)), LIMITS[limit])


def _measured(what: str, run: Callable[[int], int], size: int) -> Row:
    """The best of three tries at most: others use the machine too, and that can only make it slower."""
    rows = [_tried(what, run, size)]
    while rows[-1].growth > GROWTH and len(rows) < 3:
        rows.append(_tried(what, run, size))
    return min(rows, key=lambda row: row.growth)


def _tried(what: str, run: Callable[[int], int], size: int) -> Row:
    """One try in a process of its own, so that its memory can be told."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_job, args=(run, size, sender))
    process.start()
    seconds, more, kilobytes = receiver.recv()
    process.join()
    return Row(what, seconds, more, more / max(seconds, 1e-3), kilobytes * 1024 / (5 * size))


def _job(run: Callable[[int], int], size: int, sender: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who waits for it is interrupted too, and says nothing
    run(size // 20)  # what is made once
    times = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for factor in (1, 5):
        start = time.process_time()
        run(size * factor)
        times.append(time.process_time() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1024 if sys.platform == "darwin" else 1
    sender.send((*times, (after - before) / unit))
