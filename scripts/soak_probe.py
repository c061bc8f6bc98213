"""An addon for mitmproxy that tells what is alive in it: `GET /soak-probe` gives JSON.

A part of soak.py.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from collections import Counter
from typing import Any

from mitmproxy import ctx
from mitmproxy.http import HTTPFlow, Response

_NUMBER = re.compile(r"[-\d.:()\[\]]+")  # a task's name holds addresses, and a number where nobody named it
PATH = "/soak-probe"
_COUNTED = {
    ("addon.exchange", "Exchange"): "exchanges",
    ("addon.exchange", "Pipe"): "pipes",
    ("addon.pushing", "PushingStream"): "streams",
    ("mitmproxy.http", "HTTPFlow"): "flows",
}


def request(flow: HTTPFlow) -> None:
    if flow.request.path == PATH:
        flow.response = Response.make(200, json.dumps(alive()), {"content-type": "application/json"})


def alive() -> dict[str, Any]:
    """How many tasks run, by name, and how many objects of one response there are; what the addon has counted."""
    start = time.perf_counter()
    gc.collect()
    kinds = Counter((type(one).__module__, type(one).__name__) for one in gc.get_objects())
    dsml: Any = ctx.master.addons.get("dsml")  # type: ignore[no-untyped-call]
    return {
        "tasks": Counter(_NUMBER.sub("", task.get_name()) for task in asyncio.all_tasks()),
        **{name: kinds[kind] for kind, name in _COUNTED.items()},
        "seen": dsml.tally.seen,
        "took": round(time.perf_counter() - start, 3),
        "calls": dsml.tally.calls,
    }
