"""What the parser has decided, in text order, and the two reasons to take a decision back.

Every character is decided exactly once: as text or as removed. A deferred decision (the
reasoning rule, the strict profile) is kept until what follows confirms it or turns it to text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dsml_core.events import Event, Rejected, Removed, Text, ToolCall
from dsml_core.markdown import Quoting, settled
from dsml_core.tape import Tape

_PROSE_LIMIT = 8192  # characters of prose kept before the quoting reader takes them


@dataclass(slots=True)
class Output:
    """`done` is the offset of the first character that is not decided."""

    tape: Tape
    done: int = 0
    calls: int = 0
    deferring: bool = False
    events: list[Event] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    quoting: Quoting = field(default_factory=Quoting)
    _prose: list[str] = field(default_factory=list)
    _prose_start: int = 0
    _prose_length: int = 0
    _deferred: list[Event] = field(default_factory=list)

    @property
    def deferred_from(self) -> int | None:
        """Where the deferred decisions start, if there are any."""
        first = self._deferred[0] if self._deferred else None
        return None if first is None else first.start

    def text(self, end: int) -> None:
        """Everything up to offset `end` stays."""
        if end > self.done:
            self.visible(Text(self.done, end, self.tape.cut(self.done, end)))
            self._decided(end)

    def visible(self, event: Text) -> None:
        """Emit text; text that is more than white space turns what was deferred to text too."""
        if self._deferred:
            if event.text.isspace():
                self._deferred.append(event)
                return
            self.take_back()
        self._prose.append(event.text)
        self._prose_length += len(event.text)
        self.events.append(event)
        if self._prose_length > _PROSE_LIMIT:
            self._shorten_prose()

    def remove(self, end: int, row: str, reason: str, name: str | None = None) -> None:
        """Everything up to offset `end` is taken out."""
        if end > self.done:
            self._emit(Removed(self.done, end, self.tape.cut(self.done, end), row, reason, name))
            self._decided(end)

    def call(self, name: str, arguments: dict[str, Any], row: str, start: int, end: int) -> None:
        """Report a call; its markup was removed just before."""
        self.calls += 1
        self._emit(ToolCall(name, arguments, row, start, end))

    def reject(self, name: str | None, row: str, reason: str, start: int, end: int, removed: bool) -> None:
        """Note a span that was not made a call."""
        self.rejected.append(Rejected(name, row, reason, start, end, removed))

    def drain(self) -> list[Event]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def settle(self) -> None:
        """The text ends: deferred calls stand; in a deferred text that holds none nothing was removed."""
        if any(isinstance(event, ToolCall) for event in self._deferred):
            self.confirm()

    def confirm(self) -> None:
        """What was deferred stands."""
        for event in self._deferred:
            if isinstance(event, Removed):
                self._sync_prose(event)
            elif isinstance(event, Text):
                self._prose.append(event.text)
                self._prose_length += len(event.text)
        self.events += self._deferred
        self._deferred = []
        self.deferring = False

    def take_back(self, row: str = "T17", reason: str = "followed by more text") -> None:
        """What was deferred stays in the text, and is no call."""
        deferred, self._deferred = self._deferred, []
        for index in range(len(self.rejected) - 1, -1, -1):
            if not deferred or self.rejected[index].start < deferred[0].start:
                break
            self.rejected[index] = replace(self.rejected[index], removed=False)
        for event in deferred:
            if isinstance(event, ToolCall):
                self.calls -= 1
                self.reject(event.name, row, reason, event.start, event.end, removed=False)
            else:
                self.visible(Text(event.start, event.end, event.text))

    def read_prose(self) -> Quoting:
        """The quoting reader, after all visible text up to `done`."""
        if self._prose:
            self.quoting.read("".join(self._prose), self._prose_start)
        self._start_prose(self.done)
        return self.quoting

    def pass_by(self, text: str) -> None:
        """Text that went out while nothing was held."""
        self.tape.pass_by(text)
        self.done += len(text)
        self._prose.append(text)
        self._prose_length += len(text)
        if self._prose_length > _PROSE_LIMIT:
            self._shorten_prose()

    def _emit(self, event: Removed | ToolCall) -> None:
        if self.deferring:
            self._deferred.append(event)
            return
        if isinstance(event, Removed):
            self._sync_prose(event)
        self.events.append(event)

    def _decided(self, end: int) -> None:
        self.done = end
        self.tape.drop(end)

    def _sync_prose(self, removed: Removed) -> None:
        if self._prose:
            self.quoting.read("".join(self._prose), self._prose_start)
        self.quoting.skip(removed.text)
        self._start_prose(removed.end)

    def _start_prose(self, start: int) -> None:
        self._prose, self._prose_start, self._prose_length = [], start, 0

    def _shorten_prose(self) -> None:
        """Have the complete lines read, so that what is kept stays bounded."""
        text = "".join(self._prose)
        cut = text.rfind("\n") + 1 or settled(text)
        self.quoting.read(text[:cut], self._prose_start)
        self._prose, self._prose_start, self._prose_length = [text[cut:]], self._prose_start + cut, len(text) - cut
