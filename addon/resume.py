"""Sending a request again before its response ends: all that is known of mitmproxy's inside for it.

There is no official way. The layer of one HTTP exchange is a subclass here that, at the end of a response that wants
it, lets the addon run the hook `dsml_resume` until the response is over; the client goes on waiting. The request
itself goes out as client replay sends one, through every hook and upstream proxy.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mitmproxy import ctx, hooks
from mitmproxy.addons import clientplayback
from mitmproxy.addons.clientplayback import MockServer, ReplayHandler
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.http import HTTPFlow, Request
from mitmproxy.proxy import commands, events, layer, layers, server
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import HTTPMode, HttpStream
from mitmproxy.proxy.layers.http._events import (
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.mode_specs import UpstreamMode

from addon import exchange
from addon.pushing import PushingStream
from addon.repetition import Item, ResumablePipe, Resumption, mark

_NEEDED = (
    (http, ("HttpLayer", "HttpStream")),
    (HttpStream, ("_handle_event", "state_stream_response_body")),
    (clientplayback, ("MockServer", "ReplayHandler")),
    (ReplayHandler, ("replay", "handle_hook", "server_event")),
    (events, ("HookCompleted",)),
    (hooks, ("all_hooks",)),
)


@dataclass
class DsmlResumeHook(commands.StartHook):  # type: ignore[no-untyped-call]
    flow: HTTPFlow


class ResumingStream(PushingStream):
    """`HttpStream` whose response ends when the flow's resumption is over."""

    _end: ResponseEndOfMessage | None = None
    _asking: DsmlResumeHook | None = None

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.HookCompleted) and event.command is self._asking:
            return self._asked()
        return super()._handle_event(event)

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        pipe = self._pipe()
        response = self.flow.response
        if not isinstance(event, ResponseEndOfMessage) or not isinstance(pipe, ResumablePipe):
            yield from super().state_stream_response_body(event)
        elif response is not None and response.stream is pipe and self._resumption():
            yield from self._push(b"".join(pipe.end()))
            response.stream = True  # its end has been called
            self._end = event
            yield from self._ask() if pipe.wants_resume else super().state_stream_response_body(event)
        else:
            yield from super().state_stream_response_body(event)

    def _resumption(self) -> Resumption | None:
        current = exchange.of(self.flow)
        found = current.resumption if current else None
        return found if isinstance(found, Resumption) else None

    def _ask(self) -> layer.CommandGenerator[None]:
        self._asking = DsmlResumeHook(self.flow)
        # Not True: this layer is told when the hook has run, and takes other events (the client leaves) meanwhile.
        self._asking.blocking = self  # type: ignore[assignment]
        yield self._asking

    def _asked(self) -> layer.CommandGenerator[None]:
        self._asking = None
        pipe, resumption = self._pipe(), self._resumption()
        if not isinstance(pipe, ResumablePipe) or resumption is None or self._end is None:
            return
        yield from self._push(resumption.take())
        if not resumption.stepped() or self.flow.error:  # no addon answers the hook any more; the flow was killed
            resumption.cancel()
            yield from self._push(pipe.give_up())
        if resumption.over:
            yield from super().state_stream_response_body(self._end)
        else:
            yield from self._ask()


class _Listener(MockServer):
    """Stands where the client of a repetition would be."""

    def __init__(self, flow: HTTPFlow, context: Context, items: asyncio.Queue[Item]) -> None:
        super().__init__(flow, context)
        self._items = items

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, ResponseHeaders):
            self._items.put_nowait(event.response)
        elif isinstance(event, ResponseData):
            self._items.put_nowait(event.data)
        elif isinstance(event, ResponseEndOfMessage):
            self._items.put_nowait(None)
        elif isinstance(event, ResponseProtocolError):
            self._items.put_nowait(event.message)
        elif not isinstance(event, ResponseTrailers):
            yield from super()._handle_event(event)


class Again(ReplayHandler):
    """The request of `flow` on its way to the provider once more, as `request`."""

    def __init__(self, flow: HTTPFlow, request: Request) -> None:
        self.items: asyncio.Queue[Item] = asyncio.Queue()
        repeated = _repeated(flow, request)
        client = repeated.client_conn
        client.state = ConnectionState.OPEN
        context = Context(client, ctx.options)
        context.server = Server(address=(request.host, request.port))
        context.server.via = flow.server_conn.via
        if request.scheme == "https":
            context.server.tls = True
            context.server.sni = flow.server_conn.sni or request.pretty_host
        # Not that of ReplayHandler: it goes by the first mode of the proxy, whatever mode the flow came by.
        server.ConnectionHandler.__init__(self, context)
        upstream = isinstance(client.proxy_mode, UpstreamMode)
        self.layer = layers.HttpLayer(context, HTTPMode.upstream if upstream else HTTPMode.transparent)
        self.layer.connections[client] = _Listener(repeated, context.fork(), self.items)
        self.flow = repeated
        self.done = asyncio.Event()
        self._task = asyncio.create_task(self.replay(), name="dsml: a request is sent again")

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self.flow.killable:
            self.flow.kill()  # type: ignore[no-untyped-call]
        for transport in self.transports.values():
            if transport.handler:
                transport.handler.cancel("nobody waits for it")


def _repeated(flow: HTTPFlow, request: Request) -> HTTPFlow:
    repeated: HTTPFlow = flow.copy()  # type: ignore[no-untyped-call]
    mark(repeated)
    repeated.request, repeated.response, repeated.error = request, None, None
    repeated.metadata.clear()
    repeated.is_replay = "request"
    repeated.comment = f"dsml: flow {flow.id} sent again"
    return repeated


def install() -> None:
    """Put `ResumingStream` in the place of `HttpStream` for the exchanges that begin from now on.

    `AttributeError` when this mitmproxy is built otherwise; importing this module may then raise it, or `ImportError`.
    """
    for owner, names in _NEEDED:
        for name in names:
            getattr(owner, name)
    hooks.all_hooks[DsmlResumeHook.name] = DsmlResumeHook
    setattr(http, "HttpStream", ResumingStream)  # noqa: B010


def uninstall() -> None:
    """Undo `install`, unless somebody else has taken the place since."""
    hooks.all_hooks.pop(DsmlResumeHook.name, None)
    if http.HttpStream is ResumingStream:
        setattr(http, "HttpStream", PushingStream)  # noqa: B010
