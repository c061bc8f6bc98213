"""The commands of the addon, for mitmproxy's prompt and mitmweb's command bar."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

import mitmproxy.types
from mitmproxy import command, exceptions, flow
from mitmproxy.http import HTTPFlow

from addon import kept, log, render, report, story
from addon.log import Tally
from addon.options import Settings
from dsml_core.context import Context
from dsml_core.formats import wire_of
from dsml_core.policy import Policy

logger = logging.getLogger("dsml")


class Session(Protocol):
    """What the commands ask of the addon."""

    tally: Tally
    settings: Settings

    def policy(self, context: Context) -> Policy: ...

    def flows(self) -> list[HTTPFlow]: ...


class Commands:
    """An addon that has only commands."""

    name = "dsml_commands"

    def __init__(self, session: Session) -> None:
        self._session = session

    @command.command("dsml.stats")  # type: ignore[untyped-decorator]
    def stats(self) -> Sequence[str]:
        """What was seen, recovered and refused since the addon was loaded, by row and by model."""
        return self._session.tally.summary()

    @command.command("dsml.explain")  # type: ignore[untyped-decorator]
    def explain(self, flows: Sequence[flow.Flow]) -> Sequence[str]:
        """Why each span of a response that looks like markup was or was not taken as a call."""
        policy = self._session.policy(Context())
        return [log.printable(line) for one in flows for line in explained(one, policy)] or ["No flow is selected."]

    @command.command("dsml.report")  # type: ignore[untyped-decorator]
    def report(self, path: mitmproxy.types.Path) -> None:
        """Write a web page about the decisions of this session; texts are redacted unless dsml_log_content is on."""
        session = self._session
        try:
            where = report.place(path)
            report.save(where, session.flows(), session.policy(Context()), session.settings.log_content)
        except OSError as error:
            raise exceptions.CommandError(f"cannot write to {log.printable(path)}: {error.strerror}") from None
        logger.log(logging.INFO, "dsml: wrote %s", where)


def explained(one: flow.Flow, policy: Policy) -> Iterator[str]:
    """Lines about one flow; the first names it."""
    if not isinstance(one, HTTPFlow):
        yield "No HTTP flow: not looked at."
        return
    path = one.request.path.partition("?")[0]
    yield f"{one.request.method} {path}"
    record = kept.record_of(one)
    if record is not None:
        yield str(record.get("line"))
    elif one.request.method != "POST" or wire_of(path) is None:
        yield "Not looked at: this asks for no wire that is repaired."
    elif one.response is None:
        yield "There is no response yet."
    else:
        yield "Nothing was decided when it passed; this is how it reads now."
    told = story.tell(one, policy)
    if told is not None:
        yield from render.explain(told)
    elif story.is_decided(one):
        yield "The body was not kept (dsml_keep_limit). What is known of it:"
        yield from map(_decision, (record or {}).get("decisions", ()))
    else:
        yield "There is no body of a wire that is repaired."


def _decision(decision: dict[str, object]) -> str:
    facts = [str(decision[key]) for key in ("decision", "tool", "row", "reason") if decision.get(key)]
    start, length = decision.get("start"), decision.get("characters")
    return ", ".join(facts) + (f", {length} characters from {start}" if length else "")
