"""A request that is sent again while its client waits: the answers to it, one after the other, as one response."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from mitmproxy.http import HTTPFlow, Response

from addon.coding import Decoder, decoder_for
from addon.exchange import Pipe
from dsml_core.answers import Answers

logger = logging.getLogger("dsml")

ALIVE = 10.0  # seconds of silence after which the client gets a sign of life
PATIENCE = 300.0  # seconds of the provider's silence after which the answer is given up

Item = Response | bytes | str | None  # the head of a response, bytes of its body, why it broke off, its good end


_OURS = "dsml_again"  # an attribute of a flow that is a repetition


def mark(flow: HTTPFlow) -> None:
    """Note that a flow is a repetition of another: it is not repaired by itself."""
    setattr(flow, _OURS, True)


def is_ours(flow: HTTPFlow) -> bool:
    return hasattr(flow, _OURS)


class ResumablePipe(Pipe):
    """The pipe of a response that may go on with a further answer.

    Who can wait for that calls `end` in the place of the call with b"", and then, as long as `wants_resume` says so,
    `begin` and feeds the next answer, or `give_up`.
    """

    def __init__(self, answers: Answers, decoder: Decoder, **how: Any) -> None:
        super().__init__(answers, decoder, **how)
        self._answers = answers

    def __call__(self, data: bytes) -> list[bytes]:
        sent = super().__call__(data)
        if not data and self.wants_resume:
            sent.append(self.give_up())
        return [piece for piece in sent if piece]

    def end(self) -> list[bytes]:
        return super().__call__(b"")

    @property
    def wants_resume(self) -> bool:
        return self._rewriter is self._answers and self._answers.wants_resume

    @property
    def shown(self) -> str:
        """The text the client has so far."""
        return self._answers.shown

    def begin(self, decoder: Decoder) -> None:
        self._answers.begin()
        self._decoder, self._source, self._open, self.broken = decoder, None, True, None

    def noop(self) -> bytes:
        """A frame that says nothing."""
        return self._kept(self._answers.noop())

    def give_up(self) -> bytes:
        return self._kept(self._answers.give_up())

    def _kept(self, data: bytes) -> bytes:
        self.client.add(data)
        return data


class Repetition(Protocol):
    """A request under way; its answer arrives in `items`."""

    items: asyncio.Queue[Item]

    def cancel(self) -> None: ...


class Resumption:
    """Sends a request again, at most `attempts` times, until an answer ends the response.

    `send` begins a repetition for the text the client has; None where it cannot. `kind` is the content type of the
    response. After each `step` the client is to get what `take` gives; `over`: then its response ends.
    """

    def __init__(self, pipe: ResumablePipe, kind: str, attempts: int, send: Callable[[str], Repetition | None]) -> None:
        self.over = False
        self._pipe = pipe
        self._kind = kind
        self._attempts = attempts
        self._made = 0
        self._send = send
        self._repetition: Repetition | None = None
        self._out: list[bytes] = []
        self._sent_at = self._heard_at = time.monotonic()
        self._stepped = False

    def stepped(self) -> bool:
        """Whether `step` has run since this was asked last."""
        stepped, self._stepped = self._stepped, False
        return stepped

    async def step(self) -> None:
        """Wait for something to happen. Does not raise."""
        self._stepped = True
        try:
            await self._step()
        except Exception:
            logger.warning("dsml: fault while a request was sent again", exc_info=True)
            self._end(self._pipe.give_up())

    def take(self) -> bytes:
        out, self._out = b"".join(self._out), []
        if out:
            self._sent_at = time.monotonic()
        return out

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.over = True
        if self._repetition is not None:
            self._repetition.cancel()
            self._repetition = None

    async def _step(self) -> None:
        if self._repetition is None and not self._begin():
            return
        assert self._repetition is not None
        items = self._repetition.items
        try:
            self._handle(await asyncio.wait_for(items.get(), self._pipe.idle_flush or ALIVE))
        except TimeoutError:
            if items.empty():  # else it was this program that was slow
                self._bridge()
        while self._repetition is not None and not items.empty():
            self._handle(items.get_nowait())

    def _bridge(self) -> None:
        """The provider is silent."""
        self._out.append(self._pipe.flush_idle())
        if time.monotonic() - self._heard_at >= PATIENCE:
            self._failed(f"silent for {PATIENCE:.0f} seconds")
        elif time.monotonic() - self._sent_at >= ALIVE:
            self._out.append(self._pipe.noop())

    def _begin(self) -> bool:
        if self._made < self._attempts:
            self._made += 1
            self._heard_at = time.monotonic()
            self._repetition = self._send(self._pipe.shown)
            logger.info("dsml: the call was lost, the request is sent again (%d of %d)", self._made, self._attempts)
        if self._repetition is None:
            self._end(self._pipe.give_up())
        return self._repetition is not None

    def _handle(self, item: Item) -> None:
        self._heard_at = time.monotonic()
        if isinstance(item, Response):
            self._head(item)
        elif isinstance(item, str):
            self._failed(item)
        elif item is not None:
            self._out += self._pipe(item)
            if self._pipe.broken:
                self._failed(self._pipe.broken)
        else:
            self._out += self._pipe.end()
            self._repetition = None
            if not self._pipe.wants_resume:
                self._end()

    def _head(self, response: Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        decoder = decoder_for(response.headers.get("content-encoding", ""))
        if not 200 <= response.status_code < 300:
            if 400 <= response.status_code < 500:
                self._attempts = 0  # it would be refused again
            self._failed(f"status {response.status_code}")
        elif kind != self._kind or decoder is None:
            self._failed(f"content type {kind or 'missing'}")
        else:
            self._pipe.begin(decoder)

    def _failed(self, reason: str) -> None:
        logger.info("dsml: the request that was sent again failed: %s", reason)
        self._pipe.abort()
        self._pipe.broken = None
        if self._repetition is not None:
            self._repetition.cancel()
        self._repetition = None

    def _end(self, rest: bytes = b"") -> None:
        self._out.append(rest)
        self.over = True
