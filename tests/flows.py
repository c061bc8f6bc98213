"""A flow that goes through the addon's hooks, without a proxy around it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mitmproxy.http import Headers, HTTPFlow, Response
from mitmproxy.test.tflow import tflow

from addon import options
from addon.hooks import Dsml as Addon
from tests.e2e.wires import KINDS, PATHS, body, request, stream


def addon(**given: str) -> Addon:
    """The addon with options, as they would be written without their prefix."""
    made = Addon()
    names = {f"dsml_{name}": value for name, value in given.items()}
    made.settings = options.read({option.name: option.default for option in options.OPTIONS} | names)
    return made


def asking(wire: str, asked: Any = None, path: str = "", streamed: bool = True) -> HTTPFlow:
    """A flow with a request and no response yet."""
    flow = tflow()
    flow.request.method, flow.request.path = "POST", path or PATHS[wire]
    flow.request.content = json.dumps(request(wire, stream=streamed) if asked is None else asked).encode()
    flow.live = True
    return flow


def answered(
    wire: str,
    text: str,
    by: Addon | None = None,
    *,
    asked: Any = None,
    streamed: bool = True,
    pieces: Iterable[bytes] | None = None,
    path: str = "",
    flow: HTTPFlow | None = None,
    **headers: str,
) -> HTTPFlow:
    """The flow of a response that says `text` (or is `pieces`), after it went by `by`, an addon with the defaults."""
    by = by or addon()
    flow = flow or asking(wire, asked, path, streamed)
    by.requestheaders(flow)
    by.request(flow)
    kind = KINDS[wire] if streamed else "application/json"
    flow.response = Response(b"HTTP/1.1", 200, b"OK", Headers(), None, None, 1.0, None)
    flow.response.headers.update({"content-type": kind, **{name.replace("_", "-"): headers[name] for name in headers}})
    by.responseheaders(flow)
    said = pieces if pieces is not None else stream(wire, text) if streamed else [body(wire, text)]
    for piece in [*said, b""]:
        if callable(flow.response.stream):
            flow.response.stream(piece)
    by.response(flow)
    return flow
