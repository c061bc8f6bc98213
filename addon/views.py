"""The content views DSML and DSML diff of mitmproxy, for requests and responses of the wires that are repaired."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import contentviews, ctx
from mitmproxy.contentviews import Contentview, Metadata
from mitmproxy.http import HTTPFlow

from addon import kept, render, render_request, story
from addon.log import printable
from dsml_core.formats import wire_of
from dsml_core.policy import Policy

NewPolicy = Callable[[], Policy]

_CHOSEN = 2.0  # above mitmproxy's own view of JSON
_COLUMNS = 80  # what the half of a browser's window has room for
_STRANGE = "This is no message of a wire that is repaired."


class _View(Contentview):
    def __init__(self, policy: NewPolicy) -> None:
        self._policy = policy

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        """Chosen by itself for a response with a decision, else by hand."""
        flow = _flow(metadata)
        return _CHOSEN if flow and metadata.http_message is flow.response and story.is_decided(flow) else 0.0

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        return printable(self._told(data, metadata))

    def _told(self, data: bytes, metadata: Metadata) -> str:
        flow = _flow(metadata)
        if flow is None:
            return _STRANGE
        if metadata.http_message is flow.request:
            wire = wire_of(flow.request.path)
            return self.request(wire, data, flow) if wire else _STRANGE
        told = story.tell(flow, self._policy(), data)
        if told is not None:
            return self.response(told)
        stream = (metadata.content_type or "") == "text/event-stream"
        return f"{_STRANGE}\n\n{render.events(data)}" if stream else _STRANGE

    def request(self, wire: str, data: bytes, flow: HTTPFlow) -> str:
        raise NotImplementedError

    def response(self, told: story.Story) -> str:
        raise NotImplementedError


class MessageView(_View):
    """The message as a person reads it."""

    name = "DSML"

    def request(self, wire: str, data: bytes, flow: HTTPFlow) -> str:
        body, asked = (
            render_request.read_request(wire, data),
            render_request.read_request(wire, kept.asked(flow) or b""),
        )
        return render_request.request(wire, body, self._policy(), asked) if body else _STRANGE

    def response(self, told: story.Story) -> str:
        return render.message(told)


class DiffView(_View):
    """What went in against what came out, side by side."""

    name = "DSML diff"

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        return 0.0

    def request(self, wire: str, data: bytes, flow: HTTPFlow) -> str:
        body, asked = (render_request.read_request(wire, side) for side in (data, kept.asked(flow) or b""))
        return render_request.request_diff(wire, body, _columns(), asked) if body else _STRANGE

    def response(self, told: story.Story) -> str:
        return render.diff(told, _columns())


def install(policy: NewPolicy) -> None:
    """Make the views known to mitmproxy; those of an earlier run of the addon give way."""
    contentviews.add(MessageView(policy))
    contentviews.add(DiffView(policy))


def _flow(metadata: Metadata) -> HTTPFlow | None:
    return metadata.flow if isinstance(metadata.flow, HTTPFlow) else None


def _columns() -> int:
    """The width of mitmproxy's terminal, where this is mitmproxy."""
    screen = getattr(getattr(ctx, "master", None), "ui", None)
    return max(_COLUMNS, screen.get_cols_rows()[0] - 2) if screen else _COLUMNS
