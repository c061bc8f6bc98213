"""What a path holds: goldens, flows, an HTTP archive, or the bytes of a response as they were dumped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addon.reading import guess_wire
from goldens import har
from goldens.format import FORMAT, GoldenError, loads
from goldens.seen import Seen, seen
from goldens.store import read_file

_GOLDEN = re.compile(rf'\s*{{\s*"format"\s*:\s*"{FORMAT}"')
_FLOWS = re.compile(rb"\d{1,12}:")  # a netstring, as mitmproxy writes them


@dataclass(frozen=True, slots=True)
class Source:
    """One response: where it was found, and what it is. `path` is its file where that is a golden of its own."""

    place: str
    seen: Seen
    path: Path | None = None


def sources(path: Path, wire: str | None = None) -> Iterator[Source]:
    """The responses at `path`; of a folder those of all goldens in it, by name.

    `wire` is that of dumped bytes, where their look does not tell. Raises `GoldenError`, which names file and field.
    """
    if not path.is_dir():
        yield from _file(path, wire)
        return
    files = sorted(file for file in path.rglob("*.json") if not file.name.startswith("."))
    if not files:
        raise GoldenError(f"{path}: there is no golden in this folder")
    for file in files:
        yield from _file(file, wire)


def _file(path: Path, wire: str | None) -> Iterator[Source]:
    try:
        data = read_file(path)
        if _FLOWS.match(data):
            from goldens.flows import read_flows  # mitmproxy takes a second to load

            found = read_flows(path)
        else:
            found = _from_bytes(data, wire)
        empty = True
        for place, one in found:
            empty = False
            yield Source(f"{path}, {place}" if place else str(path), one, None if place else path)
        if empty:
            raise GoldenError("holds no response that is repaired here")
    except GoldenError as error:
        raise GoldenError(f"{path}: {error}") from None


def _from_bytes(data: bytes, wire: str | None) -> Iterator[tuple[str, Seen]]:
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    value = _object(text)
    if "format" in value or (not value and _GOLDEN.match(text)):
        golden = loads(text)
        yield "", Seen(golden, golden.expected.emitted if golden.expected else None)
    elif "log" in value:
        yield from har.read_har(value)
    else:
        guessed = wire or guess_wire(data)
        if guessed is None:
            raise GoldenError("is no golden, flow file, HTTP archive or response of a known wire (--wire tells which)")
        yield "response", Seen(seen(guessed, data, asked=None))


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
