"""What may be changed in a request: directive, history cleaning, nudge, resume, hoist.

Every function takes the wire's name and a decoded body and gives a body. The one given is never changed; the very same
object comes back when there was nothing to do. A body that has not the wire's shape comes back as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from dsml_core import prompts
from dsml_core.history import (
    SHAPES,
    Body,
    answers,
    append_late,
    append_system,
    append_turns,
    assistant_texts,
    last_said,
    map_assistant,
    message,
    says,
    turns,
)
from dsml_core.policy import Policy
from dsml_core.tools import Tools
from dsml_core.transcript import lost_call, may_leak, repair


@dataclass(frozen=True, slots=True)
class Strategies:
    """Which changes are on. Defaults are those of the addon's options (README)."""

    directive: bool = True
    sanitize: bool = True
    nudge: bool = True
    hoist: bool = False


class Nudges:
    """Counts how often the correction went along for each malformed message, at most `limit` times.

    A message is known by its place and its text, white space aside: the same on every wire and after a client stored
    it. The table keeps the `size` messages met last.
    """

    def __init__(self, limit: int = 3, size: int = 1024) -> None:
        self.limit = limit
        self._size = size
        self._sent: dict[str, int] = {}

    def remember(self, wire: str, body: Body, visible: str) -> None:
        """The answer to `body` lost its call on the way out: its message comes back clean, as `visible`."""
        self._count(_identity(answers(wire, body), visible), 0)

    def claim(self, wire: str, body: Body, tools: Tools | None = None, policy: Policy | None = None) -> bool:
        """True, and counted, when the correction is due: `body`, not cleaned yet, ends in a call that was lost."""
        if policy is not None and not policy.calls:
            return False
        said = last_said(wire, body)
        if said is None:
            return False
        identity = _identity(*said)
        if identity not in self._sent and not lost_call(said[1], tools, policy):
            return False
        if self._sent.get(identity, 0) >= self.limit:
            return False
        self._count(identity, 1)
        return True

    def _count(self, identity: str, more: int) -> None:
        self._sent[identity] = self._sent.pop(identity, 0) + more
        if len(self._sent) > self._size:
            del self._sent[next(iter(self._sent))]


def _identity(place: int, text: str) -> str:
    return hashlib.sha256(f"{place} {''.join(text.split())}".encode("utf-8", "replace")).hexdigest()


def in_scope(wire: str, body: Body, models: re.Pattern[str]) -> bool:
    """True for a request that declares tools and asks for a model in which `models` is found."""
    model = body.get("model")
    if not isinstance(model, str) or models.search(model) is None:
        return False
    return bool(body.get("tools") or body.get("functions")) or any(_additional_tools(wire, body))


def prepare(
    wire: str,
    body: Body,
    strategies: Strategies,
    nudges: Nudges,
    tools: Tools | None = None,
    policy: Policy | None = None,
) -> Body:
    """`body`, a request in scope, with every change that is on."""
    due = strategies.nudge and nudges.claim(wire, body, tools, policy)
    if strategies.sanitize:
        body = sanitize(wire, body, tools, policy)
    if strategies.hoist:
        body = hoist(wire, body)
    if strategies.directive:
        body = directive(wire, body)
    return nudge(wire, body) if due else body


def directive(wire: str, body: Body) -> Body:
    """Says once, at the end of the standing system text, how a tool call is written."""
    if says(wire, body, prompts.DIRECTIVE):
        return body
    return append_system(wire, body, prompts.DIRECTIVE)


def nudge(wire: str, body: Body) -> Body:
    """Says, as the last system text the wire allows, that the last call was malformed."""
    if says(wire, body, prompts.NUDGE):
        return body
    return append_late(wire, body, prompts.NUDGE)


def sanitize(wire: str, body: Body, tools: Tools | None = None, policy: Policy | None = None) -> Body:
    """Leaked markup in replayed assistant text replaced by short notes; nothing else is touched, no call is made.

    `tools` and `policy` are those of the response's parser; `policy.quoted` keeps what a model quoted. The request's
    tool choice and the limits of a stream do not count: a message is cleaned alike in every request that replays it.
    """
    if not may_leak("\n".join(assistant_texts(wire, body))):
        return body
    lasting = replace(policy or Policy(), calls=True)

    def clean(text: str) -> str:
        limit = max(len(text), lasting.hold_limit, lasting.declared_hold_limit)
        return repair(text, tools, replace(lasting, hold_limit=limit, declared_hold_limit=limit), native=True).text

    return map_assistant(wire, body, clean)


def resume(wire: str, body: Body, shown: str, channel: Literal["system", "user"] = "system") -> Body:
    """The request that goes on with an answer whose call was lost.

    `body` is the request as it was sent, `shown` the prose the client has of the answer. Then the call is asked for
    again: by a short line of the user and the correction as system text, or by the whole correction in the user's name.
    """
    said = message(wire, "assistant", shown if shown.strip() else prompts.note(None))
    if channel == "user":
        return append_turns(wire, body, said, message(wire, "user", prompts.NUDGE))
    woken = append_turns(wire, body, said, message(wire, "user", prompts.WAKE))
    if woken is body or (not SHAPES[wire].late and says(wire, body, prompts.NUDGE)):
        return woken
    return append_late(wire, woken, prompts.NUDGE)


def hoist(wire: str, body: Body) -> Body:
    """Tools that stand in `input[].additional_tools` copied to the top-level `tools`, which keeps what it has."""
    top = body.get("tools") or []
    if not isinstance(top, list):
        return body
    have = [_tool_key(tool) for tool in top]
    more = {_tool_key(tool): tool for tool in _additional_tools(wire, body)}
    new = [tool for key, tool in more.items() if key not in have]
    return {**body, "tools": [*top, *new]} if new else body


def _additional_tools(wire: str, body: Body) -> Iterator[dict[str, Any]]:
    if wire != "openai-responses":
        return
    for item in turns(wire, body) or ():
        if isinstance(item, dict):
            named = item.get("tools") if item.get("type") == "additional_tools" else item.get("additional_tools")
            yield from (tool for tool in (named if isinstance(named, list) else ()) if isinstance(tool, dict))


def _tool_key(tool: Any) -> tuple[str, str]:
    if not isinstance(tool, dict):
        return "", ""
    inner = tool.get("function")
    name = tool.get("name") or (inner.get("name") if isinstance(inner, dict) else "")
    return str(tool.get("type")), str(name)
