"""The request on its way to the provider: what is read from it, what is changed, what is kept in mind of its answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from mitmproxy.http import HTTPFlow, Request

from addon import kept
from addon.exchange import Exchange
from addon.options import Settings
from dsml_core.context import Context, read_context
from dsml_core.framing import decode
from dsml_core.history import role_of, turns
from dsml_core.policy import Policy
from dsml_core.report import Report
from dsml_core.request import Nudges, Strategies, in_scope, prepare, resume

logger = logging.getLogger("dsml")

BODY_LIMIT = 16 * 1024 * 1024  # bytes of a request body that may be changed


class RequestSide:
    """Reads and changes requests; `policy` gives the policy for a context."""

    def __init__(self, policy: Callable[[Context], Policy]) -> None:
        self._policy = policy
        self._nudges = Nudges()

    def take(self, flow: HTTPFlow, current: Exchange, settings: Settings) -> None:
        """Note what the request says, then change what the settings ask for."""
        content = flow.request.get_content(strict=False)
        if not content:
            return
        body = parsed(content)
        context = current.context = read_context(current.wire, content if body is None else body)
        if settings.mode != "repair" or not isinstance(body, dict) or len(content) > BODY_LIMIT:
            return
        if not in_scope(current.wire, body, settings.models):
            return
        self._nudges.limit = settings.nudge_limit
        wanted = Strategies(settings.directive, settings.sanitize, settings.nudge, settings.hoist_tools)
        changed = prepare(current.wire, body, wanted, self._nudges, context.tools, self._policy(context))
        if changed is not body and replace_body(flow.request, changed):
            logger.debug("dsml: %s: request changed", current.wire)
            if is_cleaned(current.wire, body, changed):
                kept.keep_asked(flow, content, settings.keep_limit)
        current.resumable = settings.resume > 0 and context.calls and body.get("n", 1) in (1, None)

    def answered(self, flow: HTTPFlow, current: Exchange, report: Report) -> None:
        """An answer has passed: a message that lost its call is remembered, for it comes back without its markup."""
        if report.visible is None or not current.context.calls:
            return
        body = parsed(flow.request.get_content(strict=False) or b"")
        if isinstance(body, dict):
            self._nudges.remember(current.wire, body, report.visible)

    def repeat(self, flow: HTTPFlow, current: Exchange, shown: str, settings: Settings) -> Request | None:
        """The request that goes on with an answer that lost its call and of which the client has the text `shown`."""
        body = parsed(flow.request.get_content(strict=False) or b"")
        if not isinstance(body, dict):
            return None
        request: Request = flow.request.copy()
        again = resume(current.wire, body, shown, settings.resume_channel)
        return request if again is not body and replace_body(request, again) else None


def is_cleaned(wire: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """True where a message of the assistant is another one now; what is not changed is the very same object."""
    same = {id(said) for said in turns(wire, before) or ()}
    return any(id(said) not in same for said in turns(wire, after) or () if role_of(said) == "assistant")


def parsed(content: bytes) -> Any:
    """The JSON value of a body in UTF-8, None for anything else."""
    text = decode(content)
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def replace_body(request: Request, body: dict[str, Any]) -> bool:
    """Send `body` instead, without a content encoding. False where it holds a number that JSON does not know."""
    try:
        try:
            data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            data = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return False
    request.headers.pop("content-encoding", None)
    request.content = data
    return True
