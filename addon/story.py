"""One flow as the views, the commands and the report tell it: its response before and after the repair."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from mitmproxy.http import HTTPFlow

from addon import kept
from addon.reading import Answer, guess_wire, is_stream, read_answer
from dsml_core.context import Context, read_context
from dsml_core.policy import Policy
from dsml_core.stream import Repairer

LASTING = tuple(field.name for field in fields(Policy) if field.name not in ("calls", "quoted"))  # not the request's


@dataclass(frozen=True, slots=True)
class Story:
    """`before` is what the provider sent, with what is taken out of it; `after` what left the repair.

    `record` is None for a response on which the addon did not decide: `after` is then what it would make of it now.
    `half`: the provider's bytes were not kept, `before` is what the client got too.
    """

    wire: str
    record: dict[str, Any] | None
    context: Context
    before: Answer
    after: Answer
    half: bool

    @property
    def happened(self) -> bool:
        """True where the client got `after`."""
        return self.record is not None and self.record.get("mode") == "repair"


def tell(flow: HTTPFlow, policy: Policy, body: bytes | None = None) -> Story | None:
    """The story of a response, None where its body is not kept or is of no wire we know.

    `policy` counts where the flow has none of its own; `body` where the flow keeps none.
    """
    came, left = kept.sides(flow) or (body, body)
    wire = guess_wire(came) if came else None
    if came is None or left is None or wire is None:
        return None
    context = read_context(wire, flow.request.get_content(strict=False))
    record = kept.record_of(flow) if is_decided(flow) else None
    policy = _policy(record, context, policy)
    stream = is_stream(came, wire)
    if record is None:
        repairer = Repairer(wire, stream=stream, tools=context.tools, policy=policy)
        left = repairer.feed(came) + repairer.close()
    before = read_answer(wire, came, stream=stream, tools=context.tools, policy=policy)
    after = read_answer(wire, left, stream=stream, tools={})
    half = record is not None and bool(record.get("changed")) and left == came
    return Story(wire, record, context, before, after, half)


def is_decided(flow: HTTPFlow) -> bool:
    """True where the response was looked at and had something to decide."""
    record = kept.record_of(flow)
    return record is not None and record.get("outcome") != "skipped"


def _policy(record: dict[str, Any] | None, context: Context, current: Policy) -> Policy:
    """The policy a response was decided with: that of its record, else `current`; and what its request says."""
    stored = (record or {}).get("policy")
    if isinstance(stored, dict) and set(stored) == set(LASTING):
        current = Policy(**stored)
    return replace(current, calls=context.calls, quoted=context.quoted)
