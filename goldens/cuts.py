"""Other pieces of the same bytes: chunking is invisible, so a golden must give the same in all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise

from goldens.format import Step

EXHAUSTIVE = 400  # bytes up to which every pair of cuts is tried
SAMPLES = 200  # pairs that are tried of a longer response
SEED = 20260

# Where a cut is most likely to matter: inside a character, at a line's end, beside an angle bracket.
_TENDER = re.compile(rb"[\x80-\xbf]|[\r\n<]|(?<=[\r\n<])")


def recut(steps: Sequence[Step], places: Iterable[int]) -> list[Step]:
    """The same bytes, cut at `places` (offsets in bytes), without pauses; the idle moments stay where they are."""
    body = b"".join(step.data or b"" for step in steps)
    idle: list[int] = []
    offset = 0
    for step in steps:
        if step.data is None:
            idle.append(offset)
        else:
            offset += len(step.data)
    made = []
    for start, end in pairwise(sorted({0, len(body), *places, *idle})):
        made += [Step(0, None)] * idle.count(start)
        made.append(Step(0, body[start:end]))
    return made + [Step(0, None)] * idle.count(len(body))


def pieces(steps: Sequence[Step], size: int) -> list[Step]:
    """The same bytes in pieces of `size` bytes."""
    return recut(steps, range(size, sum(len(step.data or b"") for step in steps), size))


def two_cuts(steps: Sequence[Step], samples: int = SAMPLES) -> Iterator[list[Step]]:
    """The same bytes with two cuts: everywhere in a response of up to EXHAUSTIVE bytes, else `samples` pairs of a
    fixed choice, half of the cuts at tender places."""
    body = b"".join(step.data or b"" for step in steps)
    if len(body) <= EXHAUSTIVE:
        for pair in combinations(range(1, len(body)), 2):
            yield recut(steps, pair)
        return
    chosen = random.Random(SEED)
    tender = [found.start() for found in _TENDER.finditer(body)] or [1]
    for _ in range(samples):
        yield recut(steps, (chosen.choice(tender), chosen.randrange(1, len(body))))
