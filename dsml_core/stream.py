"""Repairer: bytes in, bytes out, for one response; the guard that fails open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dsml_core.formats import WIRES
from dsml_core.framing import BodyFramer, Frame, Framer, LineFramer, SseFramer
from dsml_core.lane import Lane
from dsml_core.parser import Parser
from dsml_core.policy import Policy
from dsml_core.report import Report
from dsml_core.rewriter import Lost, Rewriter
from dsml_core.tools import as_tools
from dsml_core.transcript import lost_markup

# Bytes whose frames are made at once: those of a longer piece could take hundreds of times its memory.
_PIECE = 64 * 1024


class Repairer:
    """Repairs one response body of `wire`, a name of `formats.WIRES` (KeyError for another).

    `stream` says whether the body is a stream (SSE or NDJSON) or one JSON document. `tools` are those of the request
    (see `as_tools`): None is unknown, an empty collection is none, and then nothing is touched. The methods do not
    raise: on a fault of ours everything held goes out, what follows passes, and `report.faults` names the place.
    `resumable`: see `lost`. `report`: where to report, if not in a new one.
    """

    def __init__(
        self,
        wire: str,
        *,
        stream: bool,
        tools: Any = None,
        policy: Policy | None = None,
        resumable: bool = False,
        report: Report | None = None,
    ) -> None:
        declared = as_tools(tools)
        self.report = report or Report(wire)
        self._stream = stream
        self._wire = WIRES[wire](declared)
        self._framer = self._new_framer()
        self._rewriter = Rewriter(
            self._wire,
            lambda reasoning: Parser(declared, policy, reasoning=reasoning),
            self.report,
            (lambda text: lost_markup(text, declared, policy)) if resumable else None,
        )
        self._passing = declared is not None and not declared
        self.lane: Lane | None = None  # the frames that may follow the last one in
        self._lane_over = False  # a piece came that it does not take

    @property
    def held(self) -> int:
        """Characters of text that came and are not decided."""
        if self._passing or (self.lane is not None and not self.lane.holds):
            return 0
        if self.lane is not None:
            self._settle(self.lane)
        return self._rewriter.held

    @property
    def waits(self) -> bool:
        """Frames came that wait for others: only then `flush_idle` may return something."""
        return self._stream and not self._passing and self.lane is None and self._rewriter.waits

    @property
    def lost(self) -> Lost | None:
        """Of a resumable answer that lost its call: its finish, and the markup it ends in, are kept back."""
        return self._rewriter.lost if self._rewriter.outlet.suspended else None

    def give_up(self) -> bytes:
        """Returns what was kept back of an answer that was lost; the last bytes after `close`."""
        self._rewriter.outlet.suspended = False
        out = self._guarded(self._rewriter.outlet.release)
        self._guarded(self._rewriter.close_report)
        return out

    def feed(self, data: bytes) -> bytes:
        """More bytes of the body, cut anywhere; returns what may leave now."""
        gone = self.goes_by(data)
        if gone is not None:
            return gone
        data = self._leave_lane() + data
        if self._passing and not self._wire.shifted():
            return self._drained() + data
        if len(data) > _PIECE:
            return b"".join([self.feed(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE)])
        frames = self._framer.feed(data)
        out = self._drained() + self._take(frames)
        if frames and not self._framer.rest():
            self._enter_lane()
        return out

    def goes_by(self, data: bytes) -> bytes | None:
        """What leaves for more bytes that need not be read, None for those that are to be fed."""
        if self.lane is None or self._lane_over:
            return None
        return self._taken(self.lane, self.lane.goes_by, data)

    def flush_idle(self) -> bytes:
        """Nothing came for a while: returns what was held only because it might be the start of a tag."""
        begun = self._leave_lane()
        if self._passing and not self._wire.shifted():
            return self._drained() + begun
        self._framer.feed(begun)
        if self._passing or not self._stream:
            return self._drained()
        return self._guarded(self._rewriter.idle)

    def close(self, clean: bool = True) -> bytes:
        """The body is over, or broke off (`clean=False`); returns the last bytes."""
        self._framer.feed(self._leave_lane())
        last = self._framer.close() if clean else []
        if clean and not (self._stream and any(frame.torn for frame in last)):
            out = self._drained() + self._take(last)
            if self._stream and not self._passing:
                out += self._guarded(self._rewriter.end)
        else:
            self.report.aborted = True
            out = self._drained() if self._passing else self._guarded(self._rewriter.outlet.surrender)
            out += b"".join(frame.raw for frame in last) + self._framer.rest()
        if self.lost is None:
            self._guarded(self._rewriter.close_report)
        return out

    def _new_framer(self) -> Framer:
        if not self._stream:
            return BodyFramer()
        return LineFramer() if self._wire.LINES else SseFramer()

    # -- frames that are not read

    def _enter_lane(self) -> None:
        if self.lane is not None or self._passing or not self._stream:
            return
        try:
            self.lane = self._rewriter.lane()
        except Exception as fault:
            self._fail(fault)

    def _leave_lane(self) -> bytes:
        """Returns the beginning of a frame that was kept in it."""
        lane, self.lane, self._lane_over = self.lane, None, False
        if lane is None:
            return b""
        begun, lane.begun = lane.begun, b""
        self._settle(lane)
        return begun

    def _taken(self, lane: Lane, take: Callable[[bytes], bytes | None], data: bytes) -> bytes | None:
        try:
            gone = take(data)
        except Exception as fault:
            self._settle(lane)
            self._fail(fault)
            gone = None
        self._lane_over = gone is None
        return gone

    def _settle(self, lane: Lane) -> None:
        try:
            self._rewriter.settle(lane)
        except Exception as fault:
            self._fail(fault)
            self._rewriter.outlet.out.append(lane.untold())

    # -- frames that are

    def _take(self, frames: Sequence[Frame]) -> bytes:
        passing = self._passing
        step = self._rewriter.take if self._stream else self._rewriter.whole
        out = []
        for number, frame in enumerate(frames):
            if number:
                self._enter_lane()
            out.append(self._take_one(step, frame))
        self._leave_lane()
        out.append(self._drained())
        if self._passing and not passing and not self._wire.shifted():
            out.append(self._framer.rest())
            self._framer = self._new_framer()
        return b"".join(out)

    def _take_one(self, step: Callable[[Frame], None], frame: Frame) -> bytes:
        gone = self._taken(self.lane, self.lane.takes, frame.raw) if self.lane is not None else None
        if gone is not None:
            return gone
        self._leave_lane()
        if self._passing:
            return self._drained() + self._forward(frame)
        return self._guarded(step, frame)

    def _guarded(self, step: Callable[..., None], *frame: Frame) -> bytes:
        """What leaves after a step of the fallible code; when it fails, all that it had not let go."""
        try:
            step(*frame)
        except Exception as fault:
            self._fail(fault)
        self._passing = self._passing or self._rewriter.over
        return self._drained()

    def _drained(self) -> bytes:
        outlet = self._rewriter.outlet
        out, outlet.out = outlet.out, []
        return b"".join(out)

    def _fail(self, fault: Exception) -> None:
        self._passing = True
        self.report.faults.append(place(fault))
        outlet = self._rewriter.outlet
        try:
            outlet.surrender()
        except Exception as second:
            self.report.faults.append(place(second))
            outlet.out += [entry.frame.raw for entry in outlet.queue]

    def _forward(self, frame: Frame) -> bytes:
        """A frame that is not looked at any more; only its numbers follow from what left before."""
        try:
            return self._rewriter.forward(frame)
        except Exception as fault:
            self.report.faults.append(place(fault))
            return frame.raw


def place(fault: Exception) -> str:
    """Type and place of an exception; its message might hold content."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(fault).__name__
    file = re.split(r"[/\\]", trace.tb_frame.f_code.co_filename)[-1]
    return f"{type(fault).__name__} at {file}:{trace.tb_lineno}"
