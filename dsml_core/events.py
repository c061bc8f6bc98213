"""What the parser says: text that stays, text that is removed, and the tool calls found in it.

Offsets are characters of the text fed to one parser, counted from its first character.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(slots=True)
class Text:
    """Visible text, `text == fed[start:end]`.

    Not to be changed once made. It is not frozen, since each delta makes one, and to make a frozen one would cost more
    than all else that is done for a delta.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Removed:
    """Markup taken out of the visible text, `text == fed[start:end]`.

    `row` names the row of docs/PATTERNS.md that decided, `reason` says it in words,
    `name` is the tool concerned where one is known.
    """

    start: int
    end: int
    text: str
    row: str
    reason: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call; it follows the `Removed` event that holds its markup."""

    name: str
    arguments: dict[str, Any]
    row: str
    start: int
    end: int


Event = Text | Removed | ToolCall


@dataclass(frozen=True, slots=True)
class Rejected:
    """A span that looked like a call and was not made one.

    `removed` tells whether its text was taken out or left where it stood.
    """

    name: str | None
    row: str
    reason: str
    start: int
    end: int
    removed: bool


class End(Enum):
    """Why a text ends: it decides what becomes of markup that is still open."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"  # content filter: all held text goes out, nothing is a call
    NATIVE = "native"  # a native tool call follows: markup residue goes, also a partial one
    PART = "part"  # another part of the message follows
    ABORT = "abort"  # the stream broke off
