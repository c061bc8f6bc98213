"""The running state of one response: its choices, their parts, and where each character of a part is.

Every character fed is in exactly one place: with the client; in a frame of the queue (its `Delta`); or its frame has
left without it. Then it is `owed` (taken out), `carry` (to be seen, not written yet) or `swallowed` (not decided).
Those three and the queue are what a fault or an abort has to send.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from dsml_core.atoms import Atom, Delta, Key
from dsml_core.events import End, Event, Removed, Text, ToolCall
from dsml_core.framing import Frame
from dsml_core.natives import NativeCall
from dsml_core.parser import Parser
from dsml_core.pieces import Pieces

LEAD_ROW = "E1"
_SIGNS = ("\uff5c", "dsml")  # of the marker, which prose hardly ever has behind a bracket


class Entry:
    """A frame on its way through. `body` is what it says, without its envelope; None where that is not for us."""

    __slots__ = ("atoms", "body", "envelope", "frame", "left")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.body: dict[str, Any] | None = None
        self.envelope: dict[str, Any] | None = None
        self.atoms: list[Atom] = []
        self.left: bytes | None = None  # what left for it, once that has


class Choice:
    """One of the answers of a response; most responses have only one."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.parts: list[Part] = []
        self.live: list[Part] = []  # those not resolved
        self.calls: list[ToolCall] = []  # recovered, not written
        self.leaks: list[ToolCall] = []  # recovered, but a native call came: they may lend it their arguments
        self.natives: dict[Key, NativeCall] = {}
        self.written = 0  # recovered calls that were
        self.refused = False
        self.finished = False

    @property
    def open(self) -> bool:
        """Something in it may still be held."""
        return bool(self.live) or not all(call.complete for call in self.natives.values())

    @property
    def changed(self) -> bool:
        """Something was taken out, or a native call put right."""
        return any(part.cuts for part in self.parts) or any(call.repaired for call in self.natives.values())


class Part:
    """A run of text with a parser of its own: a message's content, a block."""

    def __init__(self, key: Key, choice: Choice, parser: Parser, reasoning: bool) -> None:
        self.key = key
        self.choice = choice
        self.parser = parser
        self.reasoning = reasoning
        self.item: Item | None = None
        self.fields: tuple[str, ...] = ()  # the wire's names of it
        self.fed = 0
        self.said = Pieces()  # what was fed, where it is no reasoning
        self.waiting: deque[Delta] = deque()  # in the queue and not wholly decided
        self.swallowed: deque[str] = deque()
        self.carry: list[str] = []
        self.owed = Pieces()
        self.taken: list[Removed] = []  # reported once it is sure that it stays out
        self.lead: list[Removed] = []  # the white space it begins with: goes if nothing else is left
        self.cuts: list[tuple[int, str]] = []  # what was taken out, and where in the part it began
        self.opening: list[Entry] = []  # frames that open it, kept back until there is something to see
        self.begun = False  # no frame that opens it is to come
        self.started = False  # something other than white space is to be seen
        self.resolved = False  # all that came is decided, and nothing more is expected
        self._decided = 0
        self._front = 0  # decided characters of swallowed[0]
        self._ahead = 0  # characters that went out before the parser had decided

    @property
    def open(self) -> bool:
        """The client knows it."""
        return self.begun and (self.item is None or self.item.open)

    @property
    def empty(self) -> bool:
        """Removal left nothing: the part is not to be opened."""
        return self.resolved and bool(self.cuts) and not self.started

    @property
    def standing(self) -> bool:
        """A marked tag stands in what is not decided."""
        return self.parser.standing

    @property
    def removed(self) -> bool:
        """Something was taken out."""
        return bool(self.cuts)

    def feed(self, delta: Delta) -> list[Event]:
        """More text; returns what the parser says to it."""
        self.resolved = False
        self._note(delta.text)
        events = self.parser.feed(delta.text)
        length = len(delta.text)
        if self._decided == self.fed and len(events) == 1 and not self._ahead:
            event = events[0]
            if type(event) is Text and len(event.text) == length and (self.started or not event.text.isspace()):
                delta.plain = self.started and not self.carry
                delta.place = length
                self.started = True
                self.fed = self._decided = self.fed + length
                return events
        self.fed += length
        self.waiting.append(delta)
        self._apply(events)
        return events

    @property
    def holding(self) -> bool:
        """Text of it is not decided."""
        return self._decided < self.fed

    @property
    def room(self) -> int:
        """Characters that may `glide`: 0 where its text is neither all visible nor all held, or has not left."""
        if self._ahead or self.waiting or (self.carry and self.started):
            return 0
        alike = self.standing and self.parser.keeps if self.holding else self.started and not self.parser.keeps
        return self.parser.room if alike else 0

    def renew(self) -> int:
        """The room there is once note is taken of all that did."""
        self.parser.renew()
        return self.room

    def glides(self, text: str) -> bool:
        """True where `text` is all visible at once, or all held, as the text before."""
        return self.parser.passes(text)

    def glide(self, text: str) -> None:
        """The frames of text that `glides` have gone out, with it or without."""
        if self.holding:
            self.swallowed.append(text)
            self.fed += len(text)
        else:
            self.fed = self._decided = self.fed + len(text)
        self.parser.pass_by(text)
        self._note(text)

    def _note(self, text: str) -> None:
        if not self.reasoning:
            self.said.add(text)

    def close(self, end: End) -> list[Event]:
        """Have everything decided."""
        events = self.parser.close(end)
        self._apply(events)
        self.resolved = True
        return events

    def force(self) -> None:
        """Show what only might be the start of a tag; what the parser says of it later does not count.

        Not where it most likely is one: it holds a sign of the marker, or markup was taken out directly before.
        """
        start, cut = self.cuts[-1] if self.cuts else (0, "")
        if not self.parser.held or self.standing or (cut and start + len(cut) == self._decided):
            return
        undecided = self._undecided().lower()
        if any(sign in undecided for sign in _SIGNS):
            return
        held = self.fed - self._decided
        self._decide(held)
        self._ahead += held

    def _undecided(self) -> str:
        return "".join([*self.swallowed, *(delta.text[delta.place :] for delta in self.waiting)])[self._front :]

    def refuse(self, queued: int) -> str:
        """Nothing is taken out after all; `queued` characters are in the queue.

        Returns what cannot be put back, because the part is over for the client.
        """
        owed, self.taken = self.owed.take(), []
        if self.resolved and not self.open and not queued:
            return owed
        self.cuts = []
        if owed:
            self.carry.append(owed)
        self.started = self.started or bool(owed.strip())
        return ""

    @property
    def text(self) -> str:
        """All that was fed, where it is no reasoning."""
        return self.said.text

    def show(self, delta: Delta) -> str | None:
        """The text a frame leaves with, None where that is what it came with."""
        if self.empty or not (self.started or self.resolved):
            return ""
        if self.choice.refused:
            return "".join([*self.carry, delta.text]) if self.carry else None
        if not self.carry and not delta.cut and delta.place == len(delta.text):
            return None
        return "".join(self.carry + delta.kept)

    def left(self, delta: Delta) -> None:
        """The frame of a delta has left with what `show` said."""
        if delta.place < len(delta.text):
            self.waiting.popleft()
            self.swallowed.append(delta.text[delta.place :])
        if self.empty:
            self.owe_first("".join([*self.carry, *delta.kept]))
        if self.started or self.resolved:
            self.carry = []
        else:
            self.carry += delta.kept
        if not self.choice.refused:
            for text in delta.cut:
                self.owed.add(text)

    def owe_first(self, text: str) -> None:
        """What was to be seen is not, after all: `text`, which stands before all that is owed."""
        if text:
            rest = self.owed.take()
            self.owed.add(text + rest)

    def unsent(self) -> str:
        """The text whose frames have left without it."""
        return self.owed.text + "".join(self.carry) + "".join(self.swallowed)[self._front :]

    def forget(self) -> None:
        """That text was sent."""
        self.carry, self.taken, self._front = [], [], 0
        self.owed.clear()
        self.swallowed.clear()

    def visible(self, text: str) -> str:
        """What is to be seen of `text`: the whole of the part, though a provider may have trimmed it at its ends."""
        whole = len(text) == self.fed
        pieces = []
        at = 0
        for start, cut in self.cuts:
            found = start if whole else text.find(cut, at)
            if found >= at:
                pieces.append(text[at:found])
                at = found + len(cut)
        return "".join(pieces) + text[at:]

    def _apply(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ToolCall):
                continue
            ahead = min(self._ahead, len(event.text))
            self._ahead -= ahead
            if isinstance(event, Removed) and ahead < len(event.text):
                gone = replace(event, start=event.start + ahead, text=event.text[ahead:]) if ahead else event
                self.cuts.append((gone.start, gone.text))
                self.taken.append(gone)
            self._decide(len(event.text) - ahead, visible=isinstance(event, Text))

    def _decide(self, length: int, visible: bool = True) -> None:
        end = self._decided + length
        while self._decided < end:
            text = self._take(end - self._decided, visible)
            if visible and not self.started:
                self._begin(text)
            self._decided += len(text)

    def _begin(self, text: str) -> None:
        if text.isspace():
            end = self._decided + len(text)
            self.lead.append(Removed(self._decided, end, text, LEAD_ROW, "white space of a part left empty"))
        else:
            self.started = True
            self.lead.clear()

    def _take(self, length: int, visible: bool) -> str:
        """Decide up to `length` characters of the oldest piece; returns them."""
        if self.swallowed:
            text = self.swallowed[0][self._front : self._front + length]
            self._front += len(text)
            if visible:
                self.carry.append(text)
            else:
                self.owed.add(text)
            if self._front == len(self.swallowed[0]):
                self.swallowed.popleft()
                self._front = 0
            return text
        delta = self.waiting[0]
        text = delta.text[delta.place : delta.place + length]
        delta.place += len(text)
        (delta.kept if visible else delta.cut).append(text)
        if delta.place == len(delta.text):
            self.waiting.popleft()
        return text


class Item:
    """Something that holds parts and no text of its own; it stands and falls with them."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.parts: list[Part] = []
        self.opening: list[Entry] = []
        self.begun = False
        self.ended = False
        self.filled = False  # with something that is no text

    @property
    def open(self) -> bool:
        """The client knows it."""
        return self.begun

    @property
    def started(self) -> bool:
        """There is something to see in it."""
        return self.filled or any(part.started for part in self.parts)

    @property
    def resolved(self) -> bool:
        """All its parts are."""
        return self.ended and all(part.resolved for part in self.parts)

    @property
    def empty(self) -> bool:
        """Removal left none of its parts."""
        return self.ended and not self.filled and bool(self.parts) and all(part.empty for part in self.parts)

    @property
    def standing(self) -> bool:
        """A marked tag stands in one of its parts."""
        return any(part.standing for part in self.parts)

    @property
    def removed(self) -> bool:
        """Something was taken out of one of its parts."""
        return any(part.removed for part in self.parts)
