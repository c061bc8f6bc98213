"""The engine: what each atom of a response means for the parsers and for the calls, on any wire.

A frame joins the queue, its atoms are handled, and the outlet gives what may leave. A frame that waits for the parser
blocks the queue, unless a marked tag stands: then it leaves at once, without the text that is not decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dsml_core.atoms import Atom, Call, Delta, Done, Failed, Finish, Inner, Key, Native, Open, Say, Stop
from dsml_core.events import End, Event, Removed, ToolCall
from dsml_core.formats.wire import Body, Wire
from dsml_core.framing import Frame, loads
from dsml_core.lane import Lane
from dsml_core.natives import NativeCall
from dsml_core.outlet import Outlet
from dsml_core.parser import Parser
from dsml_core.parts import Choice, Entry, Item, Part
from dsml_core.prompts import note
from dsml_core.report import Report

NewParser = Callable[[bool], Parser]  # argument: is the text reasoning?
LostMarkup = Callable[[str], list[Removed]]  # the markup of a text from which no call can be recovered

RESUME_ROW = "E2"
_PARTS = 2048  # of one response: each asks all others whether they are over
_FORBIDDEN = frozenset({"R4", "R5"})  # rows that refuse a call that was written well


@dataclass(frozen=True, slots=True)
class Lost:
    """An answer that lost its call: the prose that has not left, and the markup after it that is still in the text."""

    prose: str
    leaks: tuple[Removed, ...]


class Crowded(Exception):
    """More parts than any answer has: somebody wants to keep us busy, and nothing more is looked at."""


class Rewriter:
    """Handles one response: `take` its frames and then `end`, or give all of it to `whole`.

    With `lost_markup` an answer that lost its call is kept back from its finish on, and `lost` says so.
    """

    def __init__(
        self, wire: Wire, new_parser: NewParser, report: Report, lost_markup: LostMarkup | None = None
    ) -> None:
        self.lost: Lost | None = None
        self._lost_markup = lost_markup
        self._wire = wire
        self._new_parser = new_parser
        self._report = report
        self._choices: dict[int, Choice] = {}
        self._last: Entry | None = None
        self._lane: Lane | None = None
        self.over = False  # the provider reported an error: what follows is not looked at
        self.outlet = Outlet(wire, self._choices, report)
        self._handlers: dict[type[Atom], Callable[[Any], None]] = {
            Delta: self._delta,
            Open: self._open,
            Inner: self._inner,
            Native: self._native,
            Finish: self._finish,
            Done: self._done,
            Failed: self._failed,
        }

    @property
    def held(self) -> int:
        """Characters of text that came and are not decided."""
        return sum(part.parser.held for choice in self._choices.values() for part in choice.live)

    def take(self, frame: Frame) -> None:
        """One more frame of a stream."""
        entry = Entry(frame)
        self.outlet.queue.append(entry)
        self._parse(entry)
        if entry.body is not None:
            entry.atoms = self._wire.read(entry.body)
        for atom in entry.atoms:
            self._handlers[type(atom)](atom)
        self.outlet.release()
        self._last = entry

    def lane(self) -> Lane | None:
        """The lane behind the last frame, where that was text or arguments, and left as it came or without its text."""
        entry = self._last
        if entry is None or entry.left is None or len(entry.atoms) != 1 or self.waits:
            return None
        if any(part.started for part in self.outlet.carrying):
            return None
        atom, frame = entry.atoms[0], entry.frame.raw
        if isinstance(atom, Native):
            goer: Part | NativeCall = self._choices[atom.choice].natives[atom.key]
            field, text = self._wire.ARGUMENTS, "" if atom.name or atom.ends else atom.arguments
        elif isinstance(atom, Delta) and len(atom.fields) == 1:
            goer = self._wire.parts[atom.part]
            field, text = self._wire.TEXT or atom.fields[0], atom.text
            if text.isspace() and (len(self._choices) > 1 or len(goer.choice.live) > 1):
                return None
        else:
            return None
        if not text or not goer.room or goer.holding is (entry.left == frame):
            return None
        count = self._wire.count()
        if count is not None and not goer.holding:
            return None
        if self._lane is None or not self._lane.again(frame, entry.left, goer, count):
            self._lane = Lane.behind(frame, entry.left, field, text, goer, self._wire.VARYING, count)
        return self._lane

    def settle(self, lane: Lane) -> None:
        """Take note of what went by in a lane."""
        lane.settle()
        self._wire.follow(lane.last)
        if lane.holds:
            held = [part.parser.held for choice in self._choices.values() for part in choice.live]
            self._report.held = max(self._report.held, *held)

    @property
    def waits(self) -> bool:
        """A frame waits for what comes next."""
        return bool(self.outlet.queue)

    def end(self) -> None:
        """The stream ended well."""
        entry = Entry(Frame(b"", None))
        self.outlet.queue.append(entry)
        entry.atoms = [Done(0)]
        self._done(entry.atoms[0])
        self.outlet.release()

    def idle(self) -> None:
        """Nothing came for a while: what only might be the start of a tag goes out."""
        for choice in self._choices.values():
            for call in choice.natives.values():
                call.release()
            for part in choice.live:
                part.force()
                self.outlet.carry(part)
        self.outlet.release()

    def whole(self, frame: Frame) -> None:
        """A response that is not streamed: one frame that is all of it."""
        entry = Entry(frame)
        self.outlet.queue.append(entry)
        self._parse(entry)
        if entry.body is not None:
            atoms = self._wire.read_body(entry.body)
            refused = {atom.choice for atom in atoms if isinstance(atom, Finish) and atom.end is End.REFUSAL}
            entry.atoms = [atom for atom in atoms if atom.choice not in refused]
        for atom in entry.atoms:
            self._handlers[type(atom)](atom)
        self.outlet.release_whole()

    def forward(self, frame: Frame) -> bytes:
        """A frame that is not repaired, and only gets the numbers that follow from what left before."""
        entry = Entry(frame)
        self._parse(entry)
        return self.outlet.plain(entry)

    def close_report(self) -> None:
        """Collect what the parsers know."""
        for part in self._wire.parts.values():
            self._report.removed += part.taken
            self._report.rejected += part.parser.rejected
            self._report.saw_syntax = self._report.saw_syntax or part.parser.saw_syntax
        model = self._wire.base.get("model")
        self._report.model = model if isinstance(model, str) else None

    # -- handling

    def _parse(self, entry: Entry) -> None:
        data = entry.frame.data
        if data is None:
            return
        if data.startswith("[DONE]"):
            entry.atoms = [Done(0)]
            return
        value = loads(data)
        if not isinstance(value, dict):
            return
        entry.envelope, entry.body = unwrap(value, self._wire)
        if entry.envelope is not None:
            self.outlet.envelope = entry.envelope

    def _choice(self, index: int) -> Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index)
        return choice

    def _new_part(self, atom: Delta | Open) -> Part:
        if len(self._wire.parts) >= _PARTS:
            raise Crowded
        choice = self._choice(atom.choice)
        part = Part(atom.part, choice, self._new_parser(atom.reasoning), atom.reasoning)
        choice.parts.append(part)
        choice.live.append(part)
        part.item = self._wire.items.get(atom.parent)
        if part.item is not None:
            part.item.parts.append(part)
        self._wire.parts[atom.part] = part
        return part

    def _delta(self, atom: Delta) -> None:
        part = self._wire.parts.get(atom.part)
        if part is None:
            part = self._new_part(atom)
            part.begun = True
        live = part.choice.live
        if part.resolved:
            live.append(part)
        if (len(live) > 1 or len(self._choices) > 1) and not atom.text.isspace():
            self._go_on_with(part)
        part.fields = atom.fields
        events = part.feed(atom)
        if not atom.plain:
            self._learn(part, events)

    def _go_on_with(self, part: Part) -> None:
        """A part gets text: what the others hold is decided, and white space they began with is not in its way."""
        for other in [other for other in part.choice.live if other is not part and other.parser.held]:
            self._resolve(other, End.PART)
        for choice in self._choices.values():
            for other in choice.live:
                other.started = other.started or (other is not part and bool(other.lead) and other.begun)

    def _open(self, atom: Open) -> None:
        if not atom.bare:
            self._new_part(atom)
        elif atom.parent is None:
            self._wire.items[atom.part] = Item(atom.part)
        elif atom.parent in self._wire.items:
            self._wire.items[atom.parent].filled = True

    def _inner(self, atom: Inner) -> None:
        if not atom.ends:
            return
        item = self._wire.items.get(atom.part)
        if item is not None:
            item.ended = True
        part = self._wire.parts.get(atom.part)
        if part is not None and not part.parser.held and not part.resolved:
            self._resolve(part, End.PART)

    def _native(self, atom: Native) -> None:
        choice = self._choice(atom.choice)
        for part in list(choice.live):
            self._resolve(part, End.PART if part.reasoning else End.NATIVE)
        choice.leaks += choice.calls
        choice.calls = []
        call = choice.natives.get(atom.key)
        if call is None:
            leaked = any(leak.name == atom.name for leak in choice.leaks)
            call = NativeCall(atom.name or "", leaked, lambda: self._new_parser(False))
            choice.natives[atom.key] = call
            self._report.native += 1
        call.add(atom)
        if atom.ends:
            self._complete(choice, atom.key)

    def _complete(self, choice: Choice, key: Key) -> None:
        call = choice.natives[key]
        call.finish(choice.leaks)
        if call.repaired is not None and key not in self._wire.repaired:
            self._wire.repaired[key] = call.repaired
            self._report.repaired.append(call.name)

    def _finish(self, atom: Finish) -> None:
        choice = self._choice(atom.choice)
        if atom.end is End.REFUSAL:
            choice.leaks = []
        for key in choice.natives:
            self._complete(choice, key)
        if atom.end is End.REFUSAL:
            self._refuse(choice, atom)
        for part in list(choice.live):
            self._resolve(part, End.NATIVE if choice.natives and not choice.refused else atom.end)
        self._end_items()
        repeated, choice.finished = choice.finished, True
        if choice.natives or choice.refused:
            atom.called = choice.changed and not choice.refused
        elif choice.calls or choice.written:
            atom.called = True
            for call in choice.calls:
                atom.before.append(Call(choice.index, choice.written, call))
                choice.written += 1
        elif _is_emptied(choice) and not repeated:
            atom.before.append(Say(choice.index, None, self._note(choice)))
        if not (atom.called or choice.natives or choice.refused or repeated):
            self._without_call(choice, atom)
        choice.calls = []

    def _without_call(self, choice: Choice, atom: Finish) -> None:
        """An answer ends without a call: note what is to be seen of it where it had one, or keep it back."""
        texts = [part for part in choice.parts if not part.reasoning]
        refused = [item.row in _FORBIDDEN for part in texts for item in part.parser.rejected]
        if choice.index or (refused and all(refused)):
            return
        if any(part.cuts for part in texts):
            notes = [insert.text for insert in atom.before if isinstance(insert, Say)]
            self._report.visible = "".join([*(part.visible(part.text) for part in texts), *notes])
        if self._lost_markup is not None and len(self._choices) == 1:
            self._keep_back(texts, self._lost_markup)

    def _keep_back(self, texts: list[Part], lost_markup: LostMarkup) -> None:
        found = {part: lost_markup(part.text) for part in texts}
        if not any(found.values()):
            return
        prose, leaks = "", []
        for part, removed in found.items():
            pending = self.outlet.pending(part)
            tail = removed[-1] if removed and removed[-1].end == part.fed else None
            if tail is not None and tail.start not in {start for start, _ in part.cuts}:
                leaks.append(replace(tail, row=RESUME_ROW, reason="the request was sent again"))
                seen = len(part.visible(part.text)) > len(pending)
                pending = pending[: max(0, len(pending) - len(tail.text))]
                pending = "" if pending.isspace() and not seen else pending
            prose += pending
        self.lost = Lost(prose, tuple(leaks))
        self.outlet.suspended = True

    def _refuse(self, choice: Choice, atom: Finish) -> None:
        choice.refused = True
        queued = [delta for entry in self.outlet.queue for delta in entry.atoms if isinstance(delta, Delta)]
        for part in choice.parts:
            text = part.refuse(sum(len(delta.text) for delta in queued if delta.part == part.key))
            if text:
                atom.before.append(Say(choice.index, part.key, text))
            self.outlet.carry(part)

    def _end_items(self) -> None:
        """Those whose end never came are over with the message."""
        for item in self._wire.items.values():
            item.ended = True

    def _done(self, atom: Atom) -> None:
        self._end_items()
        for choice in self._choices.values():
            if choice.finished and not choice.open:
                continue
            finish = Finish(choice.index, end=End.LENGTH)
            told = choice.finished
            self._finish(finish)
            atom.before += finish.before
            if any(isinstance(insert, Call) for insert in finish.before) or (finish.called and not told):
                atom.before.append(Stop(choice.index))

    def _failed(self, atom: Failed) -> None:
        self.over = True
        self.outlet.surrender()

    def _resolve(self, part: Part, end: End) -> None:
        self._learn(part, part.close(end))
        part.choice.live.remove(part)
        if part.empty:
            part.taken += part.lead
        part.lead = []  # gone, or shown: more text may follow a native call

    def _learn(self, part: Part, events: list[Event]) -> None:
        self._report.held = max(self._report.held, part.parser.held)
        for event in events:
            if isinstance(event, ToolCall):
                part.choice.calls.append(event)
        self.outlet.carry(part)

    def _note(self, choice: Choice) -> str:
        rejected = [item for part in choice.parts for item in part.parser.rejected if item.removed]
        if not rejected:
            return note(None)
        return note(rejected[0].name, malformed=rejected[0].row not in _FORBIDDEN)


def unwrap(value: Body, wire: Wire) -> tuple[Body | None, Body]:
    """A gateway's envelope and what it holds; None where there is none."""
    inner = value.get("data")
    if isinstance(inner, dict) and not wire.speaks(value) and wire.speaks(inner):
        return value, inner
    return None, value


def _is_emptied(choice: Choice) -> bool:
    """Removal left nothing at all to be seen."""
    texts = [part for part in choice.parts if not part.reasoning]
    if any(part.started for part in texts):
        return False
    return any(part.cuts for part in texts) or (choice.changed and not any(part.started for part in choice.parts))
