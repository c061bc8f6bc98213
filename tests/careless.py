"""What a careless provider does to the frames of a stream."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Frames = list[bytes]
ODD: list[Any] = [
    *(None, True, 5, -1, 0.5, 10**400, "", "x", [], {}, [[]], [None], {"text": 5}, {"type": "text"}, ["\ud800"])
]


def dropped(frames: Frames, chance: random.Random) -> None:
    del frames[chance.randrange(len(frames))]


def doubled(frames: Frames, chance: random.Random) -> None:
    place = chance.randrange(len(frames))
    frames.insert(place, frames[place])


def swapped(frames: Frames, chance: random.Random) -> None:
    one, two = chance.randrange(len(frames)), chance.randrange(len(frames))
    frames[one], frames[two] = frames[two], frames[one]


def flipped(frames: Frames, chance: random.Random) -> None:
    """One byte is another."""
    place = chance.randrange(len(frames))
    frame = bytearray(frames[place])
    if frame:
        frame[chance.randrange(len(frame))] = chance.choice((0xFF, 0x00, 0x80, 0x22, 0x7B, 0x5C, 0x0A, 0x0D, 0x3A))
    frames[place] = bytes(frame)


def shortened(frames: Frames, chance: random.Random) -> None:
    place = chance.randrange(len(frames))
    frames[place] = frames[place][: chance.randrange(len(frames[place]) or 1)]


def misshaped(frames: Frames, chance: random.Random) -> None:
    """A value of a frame is of another kind, or gone."""
    place = chance.randrange(len(frames))
    start, end = frames[place].find(b"{"), frames[place].rfind(b"}") + 1
    try:
        value = json.loads(frames[place][start:end])
    except ValueError:
        return
    node = value
    while isinstance(node, dict | list) and node:
        key: Any = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        if chance.random() < 0.35 or not isinstance(node[key], dict | list) or not node[key]:
            if chance.random() < 0.3:
                del node[key]
            else:
                node[key] = chance.choice(ODD)
            break
        node = node[key]
    frames[place] = frames[place][:start] + json.dumps(value).encode() + frames[place][end:]


DAMAGE: tuple[Callable[[Frames, random.Random], None], ...] = (
    *(dropped, doubled, swapped, flipped, shortened, misshaped, misshaped, misshaped),
)
