"""Answers: what a provider says to one request and to its repetitions, repaired as one streamed response.

An answer that lost its call keeps back its finish and the leaked text it ends in. The answer to a repetition then goes
on with the same response; where no repetition helps, what was kept back goes out after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsml_core.events import Removed
from dsml_core.formats import WIRES
from dsml_core.formats.wire import Body
from dsml_core.framing import Frame, LineFramer, SseFramer, line, loads, sse
from dsml_core.joins import JOINS
from dsml_core.policy import Policy
from dsml_core.report import Report
from dsml_core.rewriter import unwrap
from dsml_core.stream import Repairer, place


@dataclass(slots=True)
class _Kept:
    """What an answer kept back: its bytes as they would end the response, the text in them, the prose that begins it.

    `leaks` are the spans of markup in the text. `finished` is False for an answer that broke off.
    """

    data: bytes
    text: str
    prose: str = ""
    leaks: Sequence[Removed] = ()
    finished: bool = True


class Answers:
    """As a `Repairer` of a stream. After `close`, `wants_resume` says that the response has not ended.

    Then either `begin` and `feed` the next answer, or `give_up`. An answer that breaks off, but for the first, is
    closed with `clean=False` and leaves the response open too. `shown` is the text the client has so far, or gets
    ahead of the next answer. The methods do not raise.
    """

    lane = None  # all frames are read

    def __init__(self, wire: str, *, tools: Any = None, policy: Policy | None = None) -> None:
        self.report = Report(wire)
        self.wants_resume = False
        self._options = {"tools": tools, "policy": policy, "stream": True, "resumable": True, "report": self.report}
        self._wire = WIRES[wire]
        self._join = JOINS[wire]()
        self._repairer = self._new()
        self._framer = self._new_framer()
        self._kept: list[_Kept] = []
        self._told = 0  # of those, how many were followed by something of a further answer
        self._first = True
        self._envelope: Body | None = None  # a gateway's, around what it says
        self._blind = False  # after a fault of ours: what the client has seen is not known

    @property
    def held(self) -> int:
        """Characters of text that came and are not decided."""
        return self._repairer.held

    @property
    def waits(self) -> bool:
        """As `Repairer.waits`."""
        return self._repairer.waits

    @property
    def shown(self) -> str:
        return "".join([self._join.said.text, *(kept.prose for kept in self._kept[self._told :])])

    def goes_by(self, data: bytes) -> bytes | None:
        """None: what is read is fed."""
        return None

    def feed(self, data: bytes) -> bytes:
        """More bytes of the present answer; returns what may leave now."""
        return self._pass(self._repairer.feed(data))

    def flush_idle(self) -> bytes:
        """As `Repairer.flush_idle`."""
        return self._pass(self._repairer.flush_idle())

    def noop(self) -> bytes:
        """A frame that says nothing, for a client that waits for the next answer."""
        return b"" if self._blind else b"".join(self._written([self._join.noop()]))

    def close(self, clean: bool = True) -> bytes:
        """The present answer is over, or broke off; returns the last bytes that may leave before the next."""
        rest = self._repairer.close(clean)
        lost = self._repairer.lost if clean else None
        if self._blind and self._first:
            return rest + self._repairer.give_up()
        broken = not clean and not self._first
        out = b"" if broken else self._pass(rest, last=True)
        self.wants_resume = broken or self._blind or lost is not None
        if lost is not None:
            self._keep(self._repairer.give_up(), prose=lost.prose, leaks=lost.leaks)
        elif broken:
            self.report.aborted = False
            self._keep(rest, finished=False)
            if not self._kept[-1].text:
                self._kept.pop()
        elif self._kept and not self.wants_resume:
            self._settle()
        return out

    def begin(self) -> None:
        """The next answer is to come."""
        self.wants_resume = self._first = False
        self.report.resumed += 1
        self.report.visible = None
        self._repairer = self._new()
        self._framer = self._new_framer()
        self._join.next()

    def give_up(self) -> bytes:
        """No further answer is to come: returns what ends the response, all that was kept back in it."""
        self.wants_resume = False
        if (len(self._kept) == 1 and not self._told) or self._blind:
            return self._kept[0].data
        try:
            out = b"".join(self._verbatim())
        except Exception as fault:
            self.report.faults.append(place(fault))
            return b"".join(kept.data for kept in self._kept if kept.finished)
        self.report.visible = self.shown
        return out

    # -- one answer

    def _new(self) -> Repairer:
        return Repairer(self.report.wire, **self._options)

    def _new_framer(self) -> LineFramer | SseFramer:
        return LineFramer() if self._wire.LINES else SseFramer()

    def _keep(self, data: bytes, **facts: Any) -> None:
        text = []
        for frame in self._frames(data):
            body = self._read(frame)
            if body is not None:
                self._join.count(body)
                text.append(self._join.text(body))
        self._kept.append(_Kept(data, "".join(text), **facts))

    def _settle(self) -> None:
        """The answer that ended the response made good what was kept back before it."""
        self.report.removed += [span for kept in self._kept for span in kept.leaks]
        self.report.rejected = [replace(span, removed=True) for span in self.report.rejected]

    # -- one response

    def _pass(self, data: bytes, last: bool = False) -> bytes:
        """What leaves a repairer on its way to the client."""
        if self._blind:
            return data if self._first else b""
        try:
            frames = self._framer.feed(data) + (self._framer.close() if last else [])
            if self._first:
                self._watch(frames)
                return data
            return b"".join(piece for frame in frames for piece in self._joined(frame))
        except Exception as fault:
            self.report.faults.append(place(fault))
            self._blind = True
            return data if self._first else b""

    def _watch(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            body = self._read(frame)
            if body is not None:
                self._join.count(body)
                self._join.seen(body)

    def _joined(self, frame: Frame) -> Iterator[bytes]:
        """A frame of a further answer; what was open is closed ahead of the first that shows something."""
        body = self._read(frame)
        if body is None:
            yield frame.raw
            return
        self._join.count(body)
        if not self._join.silent(body):
            yield from self._turn()
        yield from self._written(self._join.joined(self._join.priced(body)))

    def _turn(self) -> Iterator[bytes]:
        if self._told == len(self._kept):
            return
        for kept in self._kept[self._told :]:
            if kept.prose:
                yield from self._written(self._join.say(kept.prose))
            kept.text = kept.text.removeprefix(kept.prose)
        self._told = len(self._kept)
        yield from self._written(self._join.closing())

    def _verbatim(self) -> Iterator[bytes]:
        """The text of all answers that were kept back, and the finish of the last that had one."""
        ending = [kept for kept in self._kept if kept.finished][-1]
        for kept in self._kept:
            if kept.text:
                yield from self._written(self._join.say(kept.text))
        self._told = len(self._kept)
        yield from self._written(self._join.closing())
        for frame in self._frames(ending.data):
            body = self._read(frame)
            if body is None:
                yield frame.raw
            else:
                yield from self._written(self._join.ending(self._join.priced(body)))

    # -- bytes

    def _frames(self, data: bytes) -> list[Frame]:
        framer = self._new_framer()
        return framer.feed(data) + framer.close()

    def _read(self, frame: Frame) -> Body | None:
        """What a frame says, without its envelope; None where that is nothing of the wire's."""
        value = loads(frame.data) if frame.data else None
        if not isinstance(value, dict):
            return None
        envelope, body = unwrap(value, self._wire(None))
        self._envelope = envelope or self._envelope
        return body if isinstance(body.get("type"), str) or not self._wire.EVENTS else None

    def _written(self, bodies: Iterable[Body]) -> Iterator[bytes]:
        for plain in bodies:
            body = self._join.numbered(plain)
            self._join.seen(body)
            value = body if self._envelope is None else {**self._envelope, "data": body}
            yield line(value) if self._wire.LINES else sse(value, body["type"] if self._wire.EVENTS else None)
