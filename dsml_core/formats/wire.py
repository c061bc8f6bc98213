"""What the engine asks of a wire. One object serves one response and keeps what it has seen of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

from dsml_core.atoms import Atom, Key
from dsml_core.events import End, ToolCall
from dsml_core.parts import Item, Part
from dsml_core.tools import Tools

Body = dict[str, Any]

# Why an answer ended, in the words of OpenAI, Anthropic, Ollama and of gateways before others' models. Any other may
# mean that it was left off.
_ENDS = {
    "stop": End.STOP,
    "end_turn": End.STOP,
    "stop_sequence": End.STOP,
    "pause_turn": End.STOP,
    "tool_calls": End.STOP,
    "tool_use": End.STOP,
    "function_call": End.STOP,
    "completed": End.STOP,
    "eos": End.STOP,
    "eos_token": End.STOP,
    "content_filter": End.REFUSAL,
    "refusal": End.REFUSAL,
    "safety": End.REFUSAL,
    "sensitive": End.REFUSAL,
}

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Wire:
    """A format: `read` tells what a frame says, `write` gives the frame with the engine's decisions in it.

    The bodies it returns are new objects; those it is given stay as they are, but for `number`.
    """

    NAME: ClassVar[str]
    LINES: ClassVar[bool] = False  # newline-delimited JSON, else server-sent events
    EVENTS: ClassVar[bool] = False  # each event is named after its `type`
    NUMBERED: ClassVar[bool] = False  # frames tell their place in the stream
    TEXT: ClassVar[str] = ""  # the field with the text of a delta, where it is not named after its part
    ARGUMENTS: ClassVar[str] = "arguments"  # the field with the arguments of a structured call
    VARYING: ClassVar[tuple[str, ...]] = ()  # fields that differ in frames of one kind, and say nothing of the message

    def __init__(self, tools: Tools | None) -> None:
        self.tools = tools
        self.parts: dict[Key, Part] = {}
        self.items: dict[Key, Item] = {}
        self.repaired: dict[Key, str] = {}  # arguments of native calls that were put right
        self.natives = 0  # structured calls counted, where the wire does not number them
        self.moved = False  # frames were added, dropped or left out of turn
        self.base: Body = {}  # what every frame of ours repeats: id, model and the like

    def holder(self, key: Key) -> Part | Item | None:
        """The part or item of that name, None for what is neither text nor holds text."""
        return self.parts.get(key) or self.items.get(key)

    def speaks(self, body: Body) -> bool:
        """True where `body` is this wire's own and not a gateway's envelope around it."""
        raise NotImplementedError

    def read(self, body: Body) -> list[Atom]:
        """The atoms of a streamed frame, in the order in which they would stand in frames of their own."""
        raise NotImplementedError

    def write(self, body: Body, atoms: Sequence[Atom], *, first: bool, last: bool) -> list[Body]:
        """The frame reduced to `atoms`, as decided. Where it is cut, the first or last run takes what is no atom."""
        raise NotImplementedError

    def say(self, choice: int, part: Part | None, text: str) -> list[Body]:
        """Frames that say `text`: in `part` where the client has that open, else in a part of its own."""
        raise NotImplementedError

    def call(self, choice: int, index: int, call: ToolCall) -> list[Body]:
        """Frames that make a tool call."""
        raise NotImplementedError

    def stop(self, choice: int) -> list[Body]:
        """Frames that end a message with the "tool calls" finish, where the provider sent none."""
        raise NotImplementedError

    def noop(self, choice: int) -> Body:
        """A frame that says nothing and shows that the stream lives."""
        raise NotImplementedError

    @property
    def place(self) -> tuple[Any, ...]:
        """How far the numbers of the frames are that leave; may be set back to where it was."""
        return (self.moved,)

    @place.setter
    def place(self, place: tuple[Any, ...]) -> None:
        (self.moved,) = place

    def number(self, body: Body) -> bool:
        """Count a frame that leaves and give it the numbers that follow from those before; True where they differ."""
        return False

    def follow(self, last: dict[str, bytes]) -> None:
        """Frames have left as they came, unread; `last` has the varying fields of the last one, as JSON."""

    def count(self) -> int | None:
        """The number the last frame left with, where those that follow leave with other numbers than they come with."""
        return None

    def shifted(self) -> bool:
        """True where frames that follow may not leave with the numbers they come with."""
        return self.NUMBERED and self.moved

    def read_body(self, body: Body) -> list[Atom]:
        """The atoms of a whole response; the last of each choice is its `Finish`."""
        raise NotImplementedError

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        """The whole response, as decided."""
        raise NotImplementedError


def end_of(reason: Any) -> End:
    """What a finish reason means for markup that is open."""
    return _ENDS.get(str(reason).lower(), End.LENGTH)


def make_id(prefix: str, *facts: object) -> str:
    """An id that looks like a provider's: `prefix` and 24 letters or digits, the same for the same facts."""
    number = int.from_bytes(hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).digest())
    letters = []
    for _ in range(24):
        number, digit = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[digit])
    return prefix + "".join(letters)


def dicts(value: Any) -> list[Body]:
    """The objects in a JSON array, none where it is no array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
