"""mitmproxy's flows as goldens: live, and from the files that `-w` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mitmproxy import exceptions
from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowReader

from addon import kept
from addon.story import LASTING
from dsml_core.formats import wire_of
from dsml_core.policy import Policy
from goldens.format import GoldenError
from goldens.seen import Seen, seen


def from_flow(flow: HTTPFlow) -> Seen | None:
    """The response of a flow; None where it has none of a wire we know, or its body was not kept."""
    wire = wire_of(flow.request.path) if flow.request.method == "POST" else None
    sides = kept.sides(flow)
    if wire is None or sides is None or flow.response is None or not 200 <= flow.response.status_code < 300:
        return None
    came, left = sides
    record = kept.record_of(flow) or {}
    if record.get("changed") and came == left:
        return None  # of a long response only the client's side was kept
    golden = seen(
        wire,
        came,
        asked=kept.asked(flow) or flow.request.get_content(strict=False),
        header=flow.response.headers.get("content-type", ""),
        chunks=kept.chunks_of(flow),
        policy=_policy(record),
        clean=not record.get("aborted"),
    )
    return Seen(golden, left if record.get("decisions") and record.get("outcome") != "skipped" else None)


def _policy(record: dict[str, Any]) -> Policy:
    stored = record.get("policy")
    return Policy(**stored) if isinstance(stored, dict) and set(stored) == set(LASTING) else Policy()


def read_flows(path: Path) -> Iterator[tuple[str, Seen]]:
    """The responses in a file of flows, each with the number of its flow. Raises `GoldenError`."""
    number = 0
    try:
        with path.open("rb") as file:
            for flow in FlowReader(file).stream():
                number += 1
                if isinstance(flow, HTTPFlow) and (found := from_flow(flow)) is not None:
                    yield f"flow {number}", found
    except exceptions.FlowReadException as error:
        raise GoldenError(f"cannot be read after flow {number}: {cast('Exception', error)}") from None
