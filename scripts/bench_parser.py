"""The parser: cost of a delta, beside the stream parser of `deepseek-recipe`, where that is installed.

A part of bench.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import bench_texts as texts

from dsml_core import Parser, ToolCall

Run = Callable[[list[str]], float]  # the CPU seconds for these deltas

RIVAL = "deepseek-recipe"
GOALS = {"prose": 0.50, "tsx": 0.75, "value": 0.60, "value x5": 0.60, "tsx value": 0.75}  # ours to the rival's time
GROWTH = 5.5  # for five times the text
TOLERANT = 3.0  # per character, to the canonical path


@dataclass
class Row:
    """One text: `deltas` of four characters, microseconds a delta; `goal` is the largest `ratio` allowed."""

    text: str
    deltas: int
    ours: float
    rival: float | None = None
    ratio: float | None = None
    goal: float | None = None


@dataclass
class Check:
    """A relation between two of our own figures: `ratio` may be `goal` at most."""

    what: str
    ratio: float
    goal: float


def ours(deltas: list[str]) -> float:
    parser = Parser(texts.TOOLS)
    feed = parser.feed
    start = time.process_time()
    for delta in deltas:
        feed(delta)
    parser.close()
    return time.process_time() - start


def rival() -> Run | None:
    """The official stream parser with its Chat Completions output, None where it is not installed."""
    if importlib.util.find_spec("deepseek_recipe") is None:
        return None
    recipe: Any = importlib.import_module("deepseek_recipe")

    def run(deltas: list[str]) -> float:
        request = recipe.ConversationRequest(
            recipe.Conversation([], thinking_mode=False), recipe.ModelVersion.DeepseekV4Pro
        )
        generator = recipe.ChatCompletionRequest.chunk_generator(request, "id", "model")
        processor = recipe.StreamProcessor(generator, recipe.ParsingOptions(parse_tool_calls=True))
        processor.push(recipe.InferenceChunk.ready())
        push, text = processor.push, recipe.InferenceChunk.text
        start = time.process_time()
        for delta in deltas:
            push(text(delta))
        push(recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Stop))
        processor.finish()
        return time.process_time() - start

    return run


def workloads(length: int, count: int) -> dict[str, str]:
    """The texts by name; `length` in characters, `count` of small calls; "x5" is five times that."""
    return {
        "prose": texts.prose(length),
        "prose x5": texts.prose(5 * length),
        "chinese prose": texts.chinese(length),
        "tsx": texts.tsx(length),
        "tsx x5": texts.tsx(5 * length),
        "markdown": texts.markdown(length),
        "value": texts.call(texts.prose(length)),
        "value x5": texts.call(texts.prose(5 * length)),
        "tsx value": texts.call(texts.tsx(length)),
        "tsx value x5": texts.call(texts.tsx(5 * length)),
        "small calls /5": texts.calls(count // 5),
        "small calls": texts.calls(count),
        "value, damaged markers": texts.call(texts.prose(length), texts.NOISY),
        "value of Markdown": texts.call(texts.markdown(length)),
        "value of fences": texts.call(texts.fenced(length)),
        "small calls, damaged markers": texts.calls(count // 5, texts.NOISY),
        "small calls, wrapped (V26)": texts.wrapped_calls(count // 5),
        "small calls, quoted in fences": texts.quoted_calls(count // 5),
    }


GROWING = (
    ("prose", "prose x5"),
    ("tsx", "tsx x5"),
    ("value", "value x5"),
    ("tsx value", "tsx value x5"),
    ("small calls /5", "small calls"),
)
TOLERATED = (
    ("value, damaged markers", "value"),
    ("value of Markdown", "value"),
    ("value of fences", "value"),
    ("small calls, damaged markers", "small calls /5"),
    ("small calls, wrapped (V26)", "small calls /5"),
    ("small calls, quoted in fences", "small calls /5"),
)


def measure(length: int = 200_000, count: int = 10_000, rounds: int = 7) -> dict[str, Any]:
    """All figures, each the smallest of `rounds`; ours and the rival's take turns."""
    other = rival()
    rows, seconds, characters = [], {}, {}
    for name, text in workloads(length, count).items():
        deltas = texts.deltas(text)
        best, best_other = _race(deltas, other, rounds)
        seconds[name], characters[name] = best, len(text)
        row = Row(name, len(deltas), best / len(deltas) * 1e6, goal=GOALS.get(name))
        if best_other is not None:
            row.rival = best_other / len(deltas) * 1e6
            row.ratio = row.ours / row.rival
        rows.append(row)
    checks = [
        Check(f"growth: {small} -> {large}", seconds[large] / seconds[small], GROWTH) for small, large in GROWING
    ] + [
        Check(
            f"per character: {tolerant} / {canonical}",
            (seconds[tolerant] / characters[tolerant]) / (seconds[canonical] / characters[canonical]),
            TOLERANT,
        )
        for tolerant, canonical in TOLERATED
    ]
    return {"rows": [*map(asdict, rows)], "checks": [*map(asdict, checks)], "rival": other is not None}


def _race(deltas: list[str], other: Run | None, rounds: int) -> tuple[float, float | None]:
    times, others = [], []
    for _ in range(rounds):
        times.append(ours(deltas))
        if other is not None:
            others.append(other(deltas))
    return min(times), min(others, default=None)


def counted(text: str) -> int:
    """The calls found in `text`: a workload that gives none measures nothing."""
    parser = Parser(texts.TOOLS)
    events = [event for delta in texts.deltas(text) for event in parser.feed(delta)] + parser.close()
    return sum(isinstance(event, ToolCall) for event in events)
