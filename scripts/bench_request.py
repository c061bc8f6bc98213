"""The request side: what it costs to see that a history holds no leak, beside reading the request at all.

A part of bench.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import bench_texts as texts

from dsml_core.context import read_context
from dsml_core.policy import Policy
from dsml_core.request import Nudges, Strategies, prepare, sanitize

GOAL = 0.05  # the cleaning's check, to `json.loads` of the same request
PRINTED = Strategies(directive=False, sanitize=True, nudge=True)


def history(length: int) -> dict[str, Any]:
    """A session of a coding agent as a Chat Completions request, `length` characters, without a leak.

    A turn is a file that was read, some prose about it with a piece of code, and the call that follows.
    """
    said: list[dict[str, Any]] = [{"role": "user", "content": texts.prose(2_000)}]
    turns = 0
    while turns * 5_800 < length:
        arguments = json.dumps({"path": "a.tsx", "content": texts.tsx(1_500)})
        call = {"id": f"call_{turns}", "type": "function", "function": {"name": "write", "arguments": arguments}}
        said.append({"role": "tool", "tool_call_id": f"call_{turns - 1}", "content": texts.tsx(3_500)})
        said.append({"role": "assistant", "content": texts.markdown(400), "tool_calls": [call]})
        turns += 1
    return {"model": "deepseek-chat", "stream": True, "tools": texts.TOOLS, "messages": said}


def measure(length: int = 1_000_000, rounds: int = 25) -> list[dict[str, Any]]:
    """Ratios to `json.loads`, each of the smallest times: `goal` is None where none is set."""
    asked = history(length)
    content = json.dumps(asked, ensure_ascii=False)
    context = read_context("openai-chat", asked)
    policy = Policy(quoted=context.quoted)
    found = _fastest(
        {
            "loads": lambda: json.loads(content),
            "cleaning": lambda: sanitize("openai-chat", asked, context.tools, policy),
            "cleaning and nudge": lambda: prepare("openai-chat", asked, PRINTED, Nudges(), context.tools, policy),
            "context": lambda: read_context("openai-chat", asked),
        },
        rounds,
    )
    goals = {"cleaning": GOAL}
    return [
        {"what": f"request of {length} characters: {name} / json.loads", "ratio": seconds / found["loads"],
         "goal": goals.get(name)}
        for name, seconds in found.items()
        if name != "loads"
    ]  # fmt: skip


def _fastest(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """CPU seconds of each run, the smallest of its rounds; they take turns."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            found[name] = min(found[name], time.process_time() - start)
    return found
