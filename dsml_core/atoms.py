"""What a frame says, in words that all wires share: a format reads frames into atoms and writes them back.

The engine leaves its decisions on the atoms: `shown`, `value`, `before`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from dsml_core.events import End, ToolCall

Key = Hashable  # names one part of one response: (choice, kind), (block index,), (output index, kind, part index)


@dataclass(slots=True)
class Say:
    """Text to be written ahead of an atom, in `part` where that is open, else in a part of its own."""

    choice: int
    part: Key | None
    text: str


@dataclass(slots=True)
class Call:
    """A recovered call to be written ahead of an atom. `index` counts the calls of a choice from 0."""

    choice: int
    index: int
    call: ToolCall


@dataclass(slots=True)
class Stop:
    """A finish the provider never sent, to be written ahead of an atom."""

    choice: int


Insert = Say | Call | Stop


@dataclass(slots=True)
class Atom:
    """One piece of a frame."""

    choice: int
    before: list[Insert] = field(default_factory=list, kw_only=True)


@dataclass(slots=True)
class Delta(Atom):
    """More text of a part (of the item `parent`, where there is one).

    `fields`: where the frame has it (more than one name: the same text twice). `place`: how many characters are
    decided; `kept` and `cut` are what they became. `plain`: all of it is text, and nothing else is to be done with it.
    `shown`: the text to write, None leaves it as it came.
    """

    part: Key
    text: str
    reasoning: bool = False
    fields: tuple[str, ...] = ()
    parent: Key | None = None
    place: int = 0
    kept: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    plain: bool = False
    shown: str | None = None


@dataclass(slots=True)
class Open(Atom):
    """A part begins; `parent` is its item. `bare`: an item, or something in an item that is no text."""

    part: Key
    parent: Key | None = None
    reasoning: bool = False
    bare: bool = False


@dataclass(slots=True)
class Inner(Atom):
    """Something of a part that is no text, and goes when the part goes. `ends`: no text of it follows.

    `closes`: the part is over for the client.
    """

    part: Key
    ends: bool = False
    closes: bool = False


@dataclass(slots=True)
class Native(Atom):
    """A piece of a structured call. `name` comes with the first one; `ends`: the arguments are complete.

    `shown`: the arguments to write, None leaves them as they came.
    """

    key: Key
    name: str | None = None
    arguments: str = ""
    ends: bool = False
    shown: str | None = None


@dataclass(slots=True)
class Finish(Atom):
    """A choice is over. `called`: the client is to see the wire's "tool calls" finish."""

    end: End = End.STOP
    called: bool = False


@dataclass(slots=True)
class Done(Atom):
    """Nothing follows."""


@dataclass(slots=True)
class Failed(Atom):
    """The provider reports an error."""
