"""Input made to hurt: for each, the time for five times as much of it, and the memory it takes.

The tests run the same inputs, small, for what does not depend on time: nothing lost, chunks do not matter.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import bench_frames
import bench_texts as texts
from bench_texts import BAR, MARK

from dsml_core import Parser, Repairer

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

SIZES = {"whole": 1 << 62, "4 characters": 4, "1 character": 1}


@dataclass
class Row:
    """Seconds for `characters` and for five times that; `memory`: bytes taken at most, for each byte of input."""

    what: str
    seconds: float
    more: float
    growth: float
    memory: float


def text(unit: str, place: str, length: int) -> str:
    """About `length` characters of the input with these names."""
    return PLACES[place] + UNITS[unit] * (length // len(UNITS[unit]) + 1)


def parse(pieces: Iterable[str]) -> int:
    """Read it all, keeping nothing; returns the number of events."""
    parser = Parser(texts.TOOLS)
    return sum(len(parser.feed(piece)) for piece in pieces) + len(parser.close())


# -- bytes


def _chat(value: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":%b}}]}\n\n' % value.encode()


STREAMS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "one line without an end": lambda size: iter([b"data: " + b"x" * size]),
    "one line, a byte a time": lambda size: (b"x" for _ in range(size)),
    "one frame of text": lambda size: iter([_chat(json.dumps("x<" * (size // 2)))]),
    "one frame, a byte a time": lambda size: _bytewise(_chat(json.dumps("ab" * (size // 2)))),
    "empty frames": lambda size: (b"\n\n" for _ in range(size // 2)),
    "empty frames in one piece": lambda size: iter([b"\n" * size]),
    "comments": lambda size: (b": x\n\n" for _ in range(size // 5)),
    "line ends CR": lambda size: (b"data: {}\r\r" for _ in range(size // 10)),
    "data lines": lambda size: iter([b"data: x\n" * (size // 8)]),
    "empty text": lambda size: (_chat('""') for _ in range(size // 60)),
    "deep JSON": lambda size: iter([b'data: {"choices":' + b"[" * size + b"\n\n"]),
    "huge number": lambda size: iter([b'data: {"choices":[{"index":' + b"9" * size + b"}]}\n\n"]),
    "half surrogates": lambda size: (_chat('"\\ud83d"') for _ in range(size // 64)),
    "not UTF-8": lambda size: (b"data: \xff\xfe{}\n\n" for _ in range(size // 12)),
    "NULs": lambda size: iter([b"\0" * size]),
    "text held": lambda size: iter(bench_frames.frames("openai-chat", texts.call("ab" * (size // 120)))),
    "openers": lambda size: iter(bench_frames.frames("openai-chat", "<" * (size // 60))),
}


def _bytewise(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def repair(pieces: Iterable[bytes]) -> int:
    """Pass it all through a Repairer; returns the number of bytes that came out."""
    repairer = Repairer("openai-chat", stream=True, tools=texts.TOOLS)
    return sum(len(repairer.feed(piece)) for piece in pieces) + len(repairer.close())


# -- measuring


def measure(length: int = 2_000_000, unit_length: int = 200_000) -> list[dict[str, Any]]:
    """The rows. `length`: characters or bytes of the smaller input; `unit_length`: the same outside of prose."""
    jobs: list[tuple[str, Callable[[int], int], int]] = []
    for unit in UNITS:
        jobs += [
            (f"{unit}, {place}", partial(_parse_unit, unit, place), length if place == "in prose" else unit_length)
            for place in PLACES
        ]
    for name, make in STREAMS.items():
        jobs.append((f"stream: {name}", partial(_repair_stream, make), length))
    return [asdict(_measured(*job)) for job in jobs]


def _repair_stream(make: Callable[[int], Iterable[bytes]], size: int) -> int:
    return repair(make(size))


def _parse_unit(unit: str, place: str, size: int) -> int:
    whole = text(unit, place, size)
    return parse(whole[at : at + 4] for at in range(0, len(whole), 4))


def _measured(what: str, run: Callable[[int], int], size: int) -> Row:
    """One job in a process of its own, so that its memory can be told."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_job, args=(run, size, sender))
    process.start()
    seconds, more, kilobytes = receiver.recv()
    process.join()
    return Row(what, seconds, more, more / max(seconds, 1e-3), kilobytes * 1024 / (5 * size))


def _job(run: Callable[[int], int], size: int, sender: Any) -> None:
    times = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for factor in (1, 5):
        start = time.process_time()
        run(size * factor)
        times.append(time.process_time() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1024 if sys.platform == "darwin" else 1
    sender.send((*times, (after - before) / unit))
