"""The way out: the queue of frames, which of them may leave, and the bytes they leave as.

What is in the queue or noted on a part has not reached the client; what is in `out` has. One frame at a time moves
from the one to the other, so at any moment the two together are complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from dsml_core.atoms import Atom, Call, Delta, Finish, Inner, Insert, Native, Open, Say
from dsml_core.formats.wire import Body, Wire
from dsml_core.framing import Frame, dumps, line, sse
from dsml_core.natives import NativeCall
from dsml_core.parts import Choice, Entry, Part
from dsml_core.report import Recovered, Report

# Frames that wait for the end of unmarked markup, each of them a few KB. Where more do, the first leaves without its
# text, as it would behind a marked tag.
CROWD = 2048


class Outlet:
    """`queue` takes entries in order, `release` moves those that may leave into `out`."""

    def __init__(self, wire: Wire, choices: dict[int, Choice], report: Report) -> None:
        self.queue: deque[Entry] = deque()
        self.out: list[bytes] = []
        self.envelope: Body | None = None  # of the frames we make
        self._wire = wire
        self._choices = choices
        self._report = report
        self.carrying: list[Part] = []  # parts with text that no frame has taken along yet
        self._unterminated = False
        self.suspended = False  # nothing leaves: whether the answer goes on is not known

    def release(self) -> None:
        """Everything that may leave does; a frame that waits for a native call is answered with a sign of life."""
        queue = self.queue
        if self.suspended:
            return
        if len(queue) == 1 and not self.carrying and self._is_plain(queue[0]):
            entry = queue.popleft()
            entry.left = self.plain(entry)
            self.out.append(entry.left)
            return
        while queue and self._may_leave(queue[0]):
            self._leave(queue[0])
        if queue and any(isinstance(atom, Native) and self._call(atom).certain for atom in queue[0].atoms):
            self.out += self._made([self._wire.noop(queue[0].atoms[0].choice)])

    def carry(self, part: Part) -> None:
        """Remember a part that may have text to be taken along."""
        if part.carry and part not in self.carrying:
            self.carrying.append(part)

    def release_whole(self) -> None:
        """The one frame of a response that is not streamed leaves."""
        entry = self.queue[0]
        for atom in entry.atoms:
            if isinstance(atom, Delta):
                atom.shown = self._wire.parts[atom.part].show(atom)
        if entry.body is not None and self._is_touched(entry):
            self._report.changed = True
            body = self._wire.write_body(entry.body, entry.atoms)
            self._commit(entry, [dumps(body if entry.envelope is None else {**entry.envelope, "data": body})])
        else:
            self._commit(entry, [entry.frame.raw])

    def surrender(self) -> None:
        """All that has not left goes out as it came: first what was taken out and not paid for by a call."""
        self.suspended = False
        for choice in self._choices.values():
            for part in choice.parts:
                if text := part.unsent():
                    self.out += list(self._spoken(choice.index, part, text))
                    part.forget()
        while self.queue:
            self.out += self._opened(self.queue[0])
            self.out.append(self.plain(self.queue[0]))
            self.queue.popleft()

    def pending(self, part: Part) -> str:
        """The visible text of a part that has not left."""
        deltas = [atom for entry in self.queue for atom in entry.atoms if isinstance(atom, Delta)]
        queued = [delta for delta in deltas if delta.part == part.key]
        kept = ["".join(delta.kept) if delta.kept or delta.cut else delta.text for delta in queued]
        return "".join(part.carry + kept)

    # -- which may leave

    def _is_plain(self, entry: Entry) -> bool:
        """Nothing of it is for us but text that stays."""
        return all(isinstance(atom, Delta) and atom.plain for atom in entry.atoms)

    def _may_leave(self, entry: Entry) -> bool:
        return all(self._is_ready(atom) or self._may_split(atom) for atom in entry.atoms)

    def _is_ready(self, atom: Atom) -> bool:
        if isinstance(atom, Delta):
            part = self._wire.parts[atom.part]
            return atom.place == len(atom.text) and (part.started or part.resolved)
        if isinstance(atom, Open):
            opened = self._wire.holder(atom.part)
            return opened is None or opened.started or opened.resolved
        if isinstance(atom, Inner):
            inside = self._wire.holder(atom.part)
            return inside is None or inside.resolved or (inside.open and not atom.ends)
        return not (isinstance(atom, Native) and self._call(atom).holding)

    def _may_split(self, atom: Atom) -> bool:
        holder = self._wire.holder(atom.part) if isinstance(atom, Delta | Open) else None
        return holder is not None and (holder.standing or len(self.queue) > CROWD)

    def _call(self, atom: Native) -> NativeCall:
        return self._choices[atom.choice].natives[atom.key]

    # -- leaving

    def _leave(self, entry: Entry) -> None:
        for atom in entry.atoms:
            if isinstance(atom, Delta):
                atom.shown = self._wire.parts[atom.part].show(atom)
        self.out += self._carried(entry)
        pieces: list[bytes] = []
        if self._is_kept_back(entry) or self._is_dropped(entry):
            self._wire.moved = self._report.changed = True
        else:
            self.out += self._opened(entry)
            pieces += self._all_decided(entry)
        self._commit(entry, pieces)

    def _all_decided(self, entry: Entry) -> list[bytes]:
        """The numbers of frames that a fault keeps back are those of the next ones."""
        place = self._wire.place
        try:
            return list(self._decided(entry))
        except Exception:
            self._wire.place = place
            raise

    def _commit(self, entry: Entry, pieces: list[bytes]) -> None:
        self.queue.popleft()
        self.out += pieces
        entry.left = b"".join(pieces)
        for atom in entry.atoms:
            for insert in atom.before:
                if isinstance(insert, Call):
                    call = insert.call
                    self._report.calls.append(Recovered(call.name, call.row, call.end - call.start, call.start))
            if isinstance(atom, Delta):
                part = self._wire.parts[atom.part]
                part.left(atom)
                self.carry(part)
            elif isinstance(atom, Native):
                self._call(atom).sent(atom)
                self._settle(atom.choice)
            elif isinstance(atom, Finish):
                self._settle(atom.choice)

    def _settle(self, choice: int) -> None:
        """What was taken out is paid for."""
        for part in self._choices[choice].parts:
            part.owed.clear()
            self._report.removed += part.taken
            part.taken.clear()

    def _is_kept_back(self, entry: Entry) -> bool:
        """An opening frame waits on its part, while the frames behind it leave."""
        waiting = [atom for atom in entry.atoms if isinstance(atom, Open) and not self._is_ready(atom)]
        for atom in waiting:
            if (holder := self._wire.holder(atom.part)) is not None:
                holder.opening.append(entry)
        return bool(waiting)

    def _is_dropped(self, entry: Entry) -> bool:
        holders = [self._wire.holder(atom.part) for atom in entry.atoms if isinstance(atom, Delta | Open | Inner)]
        if len(holders) < len(entry.atoms) or not holders:
            return False
        if not all(holder is not None and holder.empty and not holder.open for holder in holders):
            return False
        for atom in entry.atoms:
            if isinstance(atom, Inner) and atom.closes and (holder := self._wire.holder(atom.part)) is not None:
                holder.opening.clear()
        return True

    def _is_touched(self, entry: Entry) -> bool:
        for atom in entry.atoms:
            if atom.before:
                return True
            if isinstance(atom, Delta) and atom.shown is not None:
                return True
            if isinstance(atom, Native) and atom.key in self._wire.repaired:
                return True
            if isinstance(atom, Inner) and (holder := self._wire.holder(atom.part)) is not None and holder.removed:
                return True
            if isinstance(atom, Finish) and self._choices[atom.choice].changed:
                return True
        return False

    # -- bytes

    def plain(self, entry: Entry) -> bytes:
        """The frame as it came, but for its numbers."""
        if entry.body is not None and self._wire.number(entry.body):
            return self._terminator() + self._encode(entry.body, entry.envelope, entry.frame)
        if not entry.frame.raw:
            return b""
        raw = self._terminator() + entry.frame.raw
        self._unterminated = entry.frame.cut
        return raw

    def _decided(self, entry: Entry) -> Iterable[bytes]:
        return self._rewritten(entry) if self._is_touched(entry) else [self.plain(entry)]

    def _rewritten(self, entry: Entry) -> Iterator[bytes]:
        """The frame, cut before each atom that has something to be written ahead of it."""
        runs: list[list[Atom]] = []
        for atom in entry.atoms:
            if not runs or atom.before:
                runs.append([])
            runs[-1].append(atom)
        for number, run in enumerate(runs):
            for insert in run[0].before:
                yield from self._inserted(insert)
            if entry.body is None:
                yield self.plain(entry)
                return
            bodies = self._wire.write(entry.body, run, first=number == 0, last=number == len(runs) - 1)
            if bodies == [entry.body]:
                yield self.plain(entry)
            else:
                yield from self._made(bodies, entry)

    def _inserted(self, insert: Insert) -> Iterator[bytes]:
        if isinstance(insert, Say):
            part = None if insert.part is None else self._wire.parts[insert.part]
            yield from self._spoken(insert.choice, part, insert.text)
        elif isinstance(insert, Call):
            yield from self._made(self._wire.call(insert.choice, insert.index, insert.call))
        else:
            yield from self._made(self._wire.stop(insert.choice))

    def _carried(self, entry: Entry) -> Iterator[bytes]:
        """Text whose frame has left without it, and that no frame of this entry takes along."""
        if not self.carrying:
            return
        taken = [atom.part for atom in entry.atoms if isinstance(atom, Delta)]
        for part in list(self.carrying):
            if part.started and part.key not in taken:
                yield from self._spoken(part.choice.index, part, "".join(part.carry))
                part.carry = []
            if part.empty:
                part.owe_first("".join(part.carry))
                part.carry = []
            if not part.carry:
                self.carrying.remove(part)

    def _spoken(self, choice: int, part: Part | None, text: str) -> Iterator[bytes]:
        if part is not None:
            yield from self._opening(part)
        yield from self._made(self._wire.say(choice, part, text))

    def _opening(self, part: Part) -> Iterator[bytes]:
        """The frames kept back that open a part, its item first."""
        for holder in (part.item, part):
            while holder is not None and holder.opening:
                holder.begun = True
                yield from self._decided(holder.opening.pop(0))

    def _opened(self, entry: Entry) -> Iterator[bytes]:
        """Note which parts the client gets to see opened or closed with this frame."""
        for atom in entry.atoms:
            if isinstance(atom, Delta):
                if atom.shown != "" and atom.part in self._wire.parts:
                    yield from self._opening(self._wire.parts[atom.part])
            elif isinstance(atom, Open | Inner) and (holder := self._wire.holder(atom.part)) is not None:
                holder.begun = isinstance(atom, Open) or not atom.closes

    def _made(self, bodies: Iterable[Body], entry: Entry | None = None) -> Iterator[bytes]:
        """Frames of ours; those that stand for an entry keep its head lines, on the first of them."""
        self._wire.moved = self._wire.moved or entry is None
        for body in bodies:
            self._report.changed = True
            self._wire.number(body)
            made = self._encode(body, entry.envelope if entry else self.envelope, entry.frame if entry else None)
            yield self._terminator() + made

    def _terminator(self) -> bytes:
        """What the last frame came without."""
        missing = (b"\n" if self._wire.LINES else b"\n\n") if self._unterminated else b""
        self._unterminated = False
        return missing

    def _encode(self, body: Body, envelope: Body | None, frame: Frame | None) -> bytes:
        value = body if envelope is None else {**envelope, "data": body}
        if self._wire.LINES:
            return line(value)
        event = str(body["type"]) if self._wire.EVENTS else frame.event if frame else None
        return sse(value, event, frame.head if frame else b"")
