"""Sending bytes at moments for which mitmproxy has no hook: while the provider is silent, and when it breaks off.

The only way is a subclass of mitmproxy's layer for one HTTP exchange. All that is known of mitmproxy's inside is in
this file. Without it text that only might become markup waits for the provider, and what was held when the provider
broke off is lost.
"""

from __future__ import annotations

import time

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestProtocolError, ResponseData, ResponseProtocolError

from addon import exchange

_NEEDED = (
    (http, ("HttpLayer", "HttpStream")),
    (HttpStream, ("_handle_event", "handle_protocol_error", "state_stream_response_body", "state_errored")),
    (commands, ("RequestWakeup",)),
    (events, ("Wakeup",)),
)

_TOO_SOON = 0.001  # seconds; timers may fire a little early


class PushingStream(HttpStream):
    """`HttpStream` that asks the flow's pipe, when there is one, whether something should go out.

    A piece that the pipe only has to take note of goes past mitmproxy's own handling, which costs more than ours.
    """

    _timer: commands.RequestWakeup | None = None
    _passing: exchange.Pipe | None = None  # the pipe, while it may be that the next piece passes

    def handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        pipe = self._passing
        if pipe is not None:
            sent = pipe.passes(event.data) if type(event) is ResponseData else None
            if sent is not None:
                return self._sent(sent)
            self._passing = None
        return super().handle_event(event)

    def _sent(self, data: bytes) -> layer.CommandGenerator[None]:
        if data:
            yield SendHttp(ResponseData(self.stream_id, data), self.context.client)

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Wakeup) and event.command is self._timer:
            return self._idle()
        handled: layer.CommandGenerator[None] = super()._handle_event(event)
        return handled

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        handled: layer.CommandGenerator[None] = super().state_stream_response_body(event)
        pipe = self._pipe() if isinstance(event, ResponseData) else None
        return handled if pipe is None else self._watched(handled, pipe)

    def _watched(self, handled: layer.CommandGenerator[None], pipe: exchange.Pipe) -> layer.CommandGenerator[None]:
        yield from handled
        if pipe.broken and not pipe.observe:
            yield from self._break(f"content-encoding cannot be decoded: {pipe.broken}")
        elif pipe.waits:
            if self._timer is None:
                yield from self._wake_in(pipe.idle_flush)
        elif pipe.passing and self._is_plain(pipe):
            self._passing = pipe

    def _is_plain(self, pipe: exchange.Pipe) -> bool:
        """Nothing but the pipe is to see the pieces."""
        response = self.flow.response
        stored = self.context.options.store_streamed_bodies
        return response is not None and response.stream is pipe and not stored and self.debug is None

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        pipe = self._pipe()
        if pipe and isinstance(event, ResponseProtocolError) and self.client_state != self.state_errored:
            yield from self._push(pipe.abort())
        yield from super().handle_protocol_error(event)

    def _pipe(self) -> exchange.Pipe | None:
        """The pipe of the response that is being streamed now."""
        if self.server_state != self.state_stream_response_body:
            return None
        current = exchange.of(self.flow)
        return current.pipe if current else None

    def _break(self, message: str) -> layer.CommandGenerator[None]:
        """End the exchange on both sides, and not as if all were well."""
        code = ErrorCode.GENERIC_SERVER_ERROR
        yield SendHttp(RequestProtocolError(self.stream_id, message, code), self.context.server)
        yield from self.handle_protocol_error(ResponseProtocolError(self.stream_id, message, code))

    def _idle(self) -> layer.CommandGenerator[None]:
        self._timer = None
        pipe = self._pipe()
        if pipe is None or not pipe.waits:
            return
        left = pipe.fed_at + pipe.idle_flush - time.monotonic()
        if left > _TOO_SOON:
            yield from self._wake_in(left)
        else:
            yield from self._push(pipe.flush_idle())

    def _wake_in(self, seconds: float) -> layer.CommandGenerator[None]:
        self._timer = commands.RequestWakeup(seconds)
        yield self._timer

    def _push(self, data: bytes) -> layer.CommandGenerator[None]:
        if not data:
            return
        if self.context.options.store_streamed_bodies:
            self.response_body_buf += data
        yield SendHttp(ResponseData(self.stream_id, data), self.context.client)


def install() -> None:
    """Put `PushingStream` in the place of `HttpStream` for the exchanges that begin from now on.

    `AttributeError` when this mitmproxy is built otherwise; importing this module may then raise it, or `ImportError`.
    """
    for owner, names in _NEEDED:
        for name in names:
            getattr(owner, name)
    setattr(http, "HttpStream", PushingStream)  # noqa: B010


def uninstall() -> None:
    """Undo `install`, unless somebody else has taken the place since."""
    if http.HttpStream is PushingStream:
        setattr(http, "HttpStream", HttpStream)  # noqa: B010
