"""What went by in a response, kept to be looked at: in memory while it passes, then with its flow.

With a flow whose response had something to decide go, in `flow.metadata` and so through `-w` and `-r`:

- `dsml`: the record of what was decided (see `addon.live`)
- `dsml_other`: the bytes on the other side of the repair, where they differ from the body: in `repair` what the
  provider sent (its content encoding taken off), in `observe` what the client would have got
- `dsml_chunks`: the pieces in which the provider's bytes came, as two lists: milliseconds since the first, and bytes;
  none where the provider was silent and held text went out
- `dsml_asked`: the request as the client sent it, where it was changed

All but the record are compressed: a stream of small events shrinks to a few per cent, and `~meta` finds no text of a
message.
"""

from __future__ import annotations

import json
import zlib
from array import array
from typing import Any

from mitmproxy.http import HTTPFlow

from dsml_core.lane import Run

RECORD = "dsml"
OTHER = "dsml_other"
CHUNKS = "dsml_chunks"
ASKED = "dsml_asked"

_FAST = 1  # the level of compression that costs least: streams wait for it
_LIMIT = 1 << 28  # bytes that a stored part may unpack to: the file may come from anywhere


class Tape:
    """Bytes that went by; given up once they are more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.complete = limit > 0
        self._parts: list[bytes | Run] = []
        self._left = limit

    def add(self, piece: bytes) -> None:
        """Bytes that went by now."""
        if piece and self._has_room(len(piece)):
            self._parts.append(piece)

    def add_run(self, run: Run, size: int) -> None:
        """Frames of `size` bytes that went by."""
        if self._has_room(size):
            self._parts.append(run)

    def joined(self) -> bytes | None:
        """All of it, None where it was given up."""
        if not self.complete:
            return None
        return b"".join(part if isinstance(part, bytes) else part.data() for part in self._parts)

    def _has_room(self, size: int) -> bool:
        self._left -= size
        if self._left < 0:
            self.complete = False
            self._parts.clear()
        return self.complete


class Arrivals:
    """When the provider's pieces came, and the bytes in each; none where nothing came and held text went out."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._times = array("I")  # milliseconds since the first: half as much as seconds would take
        self._sizes = array("I")

    def add(self, at: float, size: int) -> None:
        """A piece of `size` bytes, at `at` seconds of time.monotonic()."""
        if self._first is None:
            self._first = at
        self._times.append(round((at - self._first) * 1000))
        self._sizes.append(size)

    def lists(self) -> tuple[list[int], list[int]]:
        """Milliseconds since the first piece, and bytes, of each piece."""
        return self._times.tolist(), self._sizes.tolist()


def keep_body(flow: HTTPFlow, client: Tape) -> None:
    """Show what the client got as the body of a streamed response."""
    body = client.joined()
    if flow.response is not None and flow.response.raw_content is None and body is not None:
        flow.response.raw_content = body


def keep_other(flow: HTTPFlow, other: Tape, provider: Tape, arrivals: Arrivals) -> None:
    """Keep what went in at the other side of the repair, and how the provider's bytes came."""
    found = other.joined()
    if found is not None and flow.response is not None and found != flow.response.get_content(strict=False):
        flow.metadata[OTHER] = zlib.compress(found, _FAST)
    if provider.complete:
        flow.metadata[CHUNKS] = zlib.compress(json.dumps(arrivals.lists()).encode(), _FAST)


def keep_asked(flow: HTTPFlow, content: bytes, limit: int) -> None:
    """Keep what the client asked, where it is at most `limit` bytes: the request was changed."""
    if len(content) <= limit:
        flow.metadata[ASKED] = zlib.compress(content, _FAST)


def asked(flow: HTTPFlow) -> bytes | None:
    """The request as the client sent it, None where it was not changed, or not kept."""
    return _unpacked(flow, ASKED)


def forget(flow: HTTPFlow) -> None:
    """Drop what was kept of an earlier response: a flow may be replayed."""
    for key in (RECORD, OTHER, CHUNKS, ASKED):
        flow.metadata.pop(key, None)


def record_of(flow: HTTPFlow) -> dict[str, Any] | None:
    """What was decided about the response, None where nothing was."""
    found = flow.metadata.get(RECORD)
    return found if isinstance(found, dict) else None


def chunks_of(flow: HTTPFlow) -> list[list[int]] | None:
    """The pieces of the provider's bytes: milliseconds and bytes of each; None where they were not kept."""
    found = _unpacked(flow, CHUNKS)
    return None if found is None else [list(piece) for piece in zip(*json.loads(found), strict=True)]


def sides(flow: HTTPFlow) -> tuple[bytes, bytes] | None:
    """What the provider sent, and what the client got (`observe`: would have got); None where no body is kept.

    Both are without content encoding.
    """
    if flow.response is None:
        return None
    body = flow.response.get_content(strict=False)
    if body is None:
        return None
    other = _unpacked(flow, OTHER)
    if other is None:
        return body, body
    record = record_of(flow) or {}
    return (body, other) if record.get("mode") == "observe" else (other, body)


def _unpacked(flow: HTTPFlow, key: str) -> bytes | None:
    found = flow.metadata.get(key)
    return zlib.decompressobj().decompress(found, _LIMIT) if isinstance(found, bytes) else None
