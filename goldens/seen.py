"""A response that was seen somewhere, as a golden without an expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from addon.reading import is_stream
from dsml_core.policy import Policy
from goldens.format import Golden, Step, lasting
from goldens.request import reduce

# A response has no other header that decides anything; what any of them holds is nobody's business.
MEDIA_TYPES = ("text/event-stream", "application/x-ndjson", "application/json")


@dataclass(frozen=True, slots=True)
class Seen:
    """`golden` is the response. `emitted`: what left the repair when it was seen, None where that is not known."""

    golden: Golden
    emitted: bytes | None = None


def seen(
    wire: str,
    body: bytes,
    *,
    asked: bytes | None,
    header: str = "",
    chunks: Sequence[Sequence[int]] | None = None,
    policy: Policy | None = None,
    clean: bool = True,
) -> Golden:
    """A golden of the response `body` to the request `asked`.

    `header` is its content type. `chunks` are its pieces, as milliseconds since the first and bytes (0: it was silent
    then); where they are not known, or not those of this body, it is one piece.
    """
    media = header.partition(";")[0].strip().lower()
    media = media if media in MEDIA_TYPES else ""
    steps = _steps(body, chunks)
    return Golden(
        wire=wire,
        stream=media != "application/json" if media else is_stream(body, wire),
        steps=steps or (Step(0, body),),
        request=reduce(wire, asked),
        policy=lasting(policy or Policy()),
        content_type=media,
        clean=clean,
        recorded=bool(steps),
    )


def _steps(body: bytes, chunks: Sequence[Sequence[int]] | None) -> tuple[Step, ...]:
    """The body in its pieces, nothing where they do not make it up."""
    if not chunks or sum(size for _, size in chunks) != len(body):
        return ()
    steps = []
    at = before = 0
    for ms, size in chunks:
        steps.append(Step(max(ms - before, 0), body[at : at + size] if size else None))
        at, before = at + size, ms
    return tuple(steps)
