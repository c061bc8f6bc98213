"""One exchange as the addon sees it: what its request says, and the response on its way to the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from addon.coding import CorruptError, Decoder, Identity
from addon.kept import Arrivals, Tape
from dsml_core.context import Context
from dsml_core.lane import Lane
from dsml_core.report import Report

BODY_LIMIT = 32 * 1024 * 1024  # bytes of one JSON body that are kept until it is complete

Source = Callable[[bytes], bytes | Iterable[bytes]]


class Rewriter(Protocol):
    """What the core's Repairer is to the addon: decoded bytes of one response in, bytes for the client out."""

    report: Report

    @property
    def held(self) -> int:
        """Characters of text that came and are not decided."""
        ...

    @property
    def waits(self) -> bool:
        """`flush_idle` may return something."""
        ...

    @property
    def lane(self) -> Lane | None:
        """Set where `goes_by` may return something, until `feed` is called."""
        ...

    def goes_by(self, data: bytes) -> bytes | None: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self, clean: bool = True) -> bytes: ...

    def flush_idle(self) -> bytes: ...


class Collector:
    """Hands a JSON body to a rewriter in one piece, when it is complete.

    White space before the body goes out as it comes: some providers send it as a sign of life while the model
    works. A body over the limit goes out as it is.
    """

    held = 0  # a body that is not complete is not text yet
    waits = False
    lane = None

    def __init__(self, rewriter: Rewriter, limit: int = BODY_LIMIT) -> None:
        self.report = rewriter.report
        self._rewriter = rewriter
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def goes_by(self, data: bytes) -> bytes | None:
        return None

    def feed(self, data: bytes) -> bytes:
        if not self._size and not data.strip():
            return data
        self._size += len(data)
        self._pieces.append(data)
        return self._release() if self._size > self._limit else b""

    def close(self, clean: bool = True) -> bytes:
        if not clean or self._size > self._limit:
            return self._release()
        return self._rewriter.feed(self._release()) + self._rewriter.close()

    def flush_idle(self) -> bytes:
        return b""

    def _release(self) -> bytes:
        held = b"".join(self._pieces)
        self._pieces.clear()
        return held


class Pipe:
    """mitmproxy's stream callable for one response.

    Called with the bytes of the body as they arrive, and with b"" at its end; returns what the client gets. It never
    returns an empty piece, which would end a chunked response, and never raises, which would lose the piece.

    `observe` feeds the rewriter a copy and passes everything on. `source` is a callable that was there before us.
    `broken` says why the body cannot be trusted to its end: nothing more is returned, and the connection must not
    end as if all were well. `fault` is the last exception that was caught here. `held_seconds` is the longest time for
    which text was not decided.

    `client` and `other` keep what was returned and what is on the other side of the repair, up to `keep` bytes each:
    the provider's bytes, decoded; under `observe` those the rewriter made.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        decoder: Decoder,
        *,
        observe: bool = False,
        source: Source | None = None,
        idle_flush: float = 0.0,
        keep: int = 0,
    ) -> None:
        self.report = rewriter.report
        self.observe = observe
        self.idle_flush = idle_flush  # seconds
        self.fed_at = 0.0  # time.monotonic() of the last piece, 0 before the first
        self.broken: str | None = None
        self.fault: Exception | None = None
        self.held_seconds = 0.0
        self.client = Tape(keep)
        self.other = Tape(keep)
        self.arrivals = Arrivals()
        self._held_since: float | None = None
        self._rewriter = rewriter
        self._decoder = decoder
        self._source = source
        self._open = True
        self._lane: Lane | None = None
        self._came = self._went = 0  # bytes in the lane

    def passes(self, data: bytes) -> bytes | None:
        """What is to be sent on for `data`, where nothing else is to be done: then the pipe has taken note of it."""
        if self._lane is None:
            return None
        try:
            sent = self._rewriter.goes_by(data)
        except Exception as error:
            self._give_up(error)
            sent = None
        if sent is None:
            self._leave_lane()
        else:
            self._came += len(data)
            self._went += len(sent)
            self.arrivals.add(time.monotonic(), len(data))
        return data if self.observe and sent is not None else sent

    @property
    def passing(self) -> bool:
        """The next piece may be one that `passes`."""
        return self._lane is not None

    @property
    def waits(self) -> bool:
        """Something is held that could go out if the provider is silent."""
        try:
            return self._open and not self.observe and self.idle_flush > 0 and self._rewriter.waits
        except Exception as error:
            self._give_up(error)
            return False

    def __call__(self, data: bytes) -> list[bytes]:
        passed = self.passes(data)
        if passed is not None:
            return [passed] if passed else []
        self.fed_at = time.monotonic()
        arrived = [data] if self._source is None and data else self._arrived(data)
        sent = [self._advance(piece) for piece in arrived]
        if not data:
            if not self._decoder.whole:  # it broke off somewhere before the provider's own framing of it
                self.broken = self.broken or "it ends too early"
            sent.append(self._close(clean=self.broken is None))
        left = [piece for piece in (arrived if self.observe else sent) if piece]
        for piece in left:
            self.client.add(piece)
            if self.observe:
                self.arrivals.add(self.fed_at, len(piece))
        if self._open and self._source is None and isinstance(self._decoder, Identity):
            lane = self._rewriter.lane
            self._lane = None if lane is None or (self.observe and lane.holds) else lane
        return left

    @property
    def provider(self) -> Tape:
        """The bytes as they came: under `observe` in their content encoding."""
        return self.client if self.observe else self.other

    def flush_idle(self) -> bytes:
        """What may go out now that the provider is silent."""
        if self.observe or not self._open:
            return b""
        self._leave_lane()
        try:
            pushed = self._rewriter.flush_idle()
        except Exception as error:
            self._give_up(error)
            return b""
        self._time_hold()
        if pushed:
            self.arrivals.add(time.monotonic(), 0)
            self.client.add(pushed)
        return pushed

    def abort(self) -> bytes:
        """What was held when the provider broke off."""
        held = self._close(clean=False)
        if self.observe:
            return b""
        self.client.add(held)
        return held

    def _arrived(self, data: bytes) -> list[bytes]:
        if self._source is None:
            return []
        try:
            made = self._source(data)
            return [piece for piece in ([made] if isinstance(made, bytes) else made) if piece]
        except Exception as error:  # another addon's code: the piece goes on as it came
            self.fault = error
            return [data] if data else []

    def _advance(self, data: bytes) -> bytes:
        if not self._open:
            return b""
        try:
            decoded = self._decoder.feed(data)
        except CorruptError as error:
            self.broken = str(error)
            return self._feed(error.decoded) + self._close(clean=False)
        return self._feed(decoded)

    def _feed(self, decoded: bytes) -> bytes:
        try:
            made = self._rewriter.feed(decoded)
        except Exception as error:
            self._give_up(error)
            made = decoded
        self._time_hold()
        self.other.add(made if self.observe else decoded)
        if decoded and not self.observe:
            self.arrivals.add(self.fed_at, len(decoded))
        return made

    def _close(self, clean: bool = True) -> bytes:
        if not self._open:
            return b""
        self._leave_lane()
        self._open = False
        self._time_hold(over=True)
        try:
            made = self._rewriter.close(clean)
        except Exception as error:
            self._give_up(error)
            return b""
        if self.observe:
            self.other.add(made)
        return made

    def _leave_lane(self) -> None:
        lane, self._lane = self._lane, None
        runs = lane.runs() if lane is not None else None
        begun = lane.begun if lane is not None else b""
        if runs is not None:
            came, went = runs
            self.other.add_run(came, self._came - len(begun))
            self.client.add_run(went, self._went)
        self.provider.add(begun)
        self._came = self._went = 0

    def _time_hold(self, over: bool = False) -> None:
        """Note for how long text has been held, where it is no more."""
        try:
            held = self._rewriter.held
        except Exception as error:  # a figure for the log must not cost the response
            self.fault, held = error, 0
        if held and not over:
            self._held_since = self._held_since or self.fed_at
        elif self._held_since is not None:
            self.held_seconds = max(self.held_seconds, time.monotonic() - self._held_since)
            self._held_since = None

    def _give_up(self, error: Exception) -> None:
        """A Repairer that fails gives back what it held, and does not raise. This is for a failure of that promise."""
        self.fault = error
        self._rewriter = _Through(self.report)


class _Through:
    """A rewriter that has given up."""

    held = 0
    waits = False
    lane = None

    def __init__(self, report: Report) -> None:
        self.report = report

    def goes_by(self, data: bytes) -> bytes | None:
        return None

    def feed(self, data: bytes) -> bytes:
        return data

    def close(self, clean: bool = True) -> bytes:
        return b""

    def flush_idle(self) -> bytes:
        return b""


class Resumption(Protocol):
    """The repetitions of a request, after the end of a response that lost its call (see `repetition`)."""

    async def step(self) -> None: ...

    def cancel(self) -> None: ...


class Exchange:
    """What is known of one flow between its request and the end of its response."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.context = Context()
        self.resumable = False  # the request may be sent again
        self.pipe: Pipe | None = None
        self.resumption: Resumption | None = None


_ATTRIBUTE = "dsml_exchange"  # a plain attribute: flow.metadata is saved with the flow and takes JSON only


def attach(flow: object, exchange: Exchange) -> None:
    setattr(flow, _ATTRIBUTE, exchange)


def of(flow: object) -> Exchange | None:
    exchange: Exchange | None = getattr(flow, _ATTRIBUTE, None)
    return exchange


def detach(flow: object) -> Exchange | None:
    """The exchange of `flow`, which then has none."""
    exchange = of(flow)
    if exchange is not None:
        delattr(flow, _ATTRIBUTE)
    return exchange
