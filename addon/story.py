"""One flow as the views, the commands and the report tell it: its response before and after the repair."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from mitmproxy.http import HTTPFlow

from addon import kept
from addon.reading import Answer, guess_wire, is_stream, read_answer
from dsml_core.context import Context, read_context
from dsml_core.formats import wire_of
from dsml_core.policy import Policy
from dsml_core.stream import Repairer


@dataclass(frozen=True, slots=True)
class Story:
    """`before` is what the provider sent, with what is taken out of it; `after` what left the repair.

    `record` is None for a response that this addon did not decide on: `after` is then what it would make of it now.
    """

    wire: str
    record: dict[str, Any] | None
    context: Context
    before: Answer
    after: Answer

    @property
    def happened(self) -> bool:
        """True where the client got `after`."""
        return self.record is not None and self.record.get("mode") == "repair"


def tell(flow: HTTPFlow, policy: Policy, body: bytes | None = None) -> Story | None:
    """The story of a response, None where its body is not kept or is none of a wire we know.

    `policy` counts where the flow has none of its own. `body`: what is shown, where it is not the flow's.
    """
    kept_sides = kept.sides(flow)
    came, left = (body, body) if body is not None and kept_sides is None else kept_sides or (None, None)
    if came is None or left is None:
        return None
    wire = (wire_of(flow.request.path) if looks_known(came) else None) or guess_wire(came)
    if wire is None:
        return None
    context = read_context(wire, flow.request.get_content(strict=False))
    record = kept.record_of(flow)
    decided = record is not None and record.get("outcome") != "skipped"
    policy = policy_of(record, context, policy)
    stream = is_stream(came, wire)
    if not decided:
        repairer = Repairer(wire, stream=stream, tools=context.tools, policy=policy)
        left = repairer.feed(came) + repairer.close()
    before = read_answer(wire, came, stream=stream, tools=context.tools, policy=policy)
    after = read_answer(wire, left, stream=is_stream(left, wire), tools={})
    return Story(wire, record, context, before, after)


def looks_known(body: bytes) -> bool:
    return guess_wire(body) is not None


def policy_of(record: dict[str, Any] | None, context: Context, current: Policy) -> Policy:
    """The policy a response was decided with: that of its record, else `current`, and what its request says."""
    stored = (record or {}).get("policy")
    names = {field.name for field in fields(Policy)} - {"calls", "quoted"}
    if isinstance(stored, dict) and set(stored) == names:
        current = Policy(**stored)
    return replace(current, calls=context.calls, quoted=context.quoted)
