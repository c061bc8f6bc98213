"""Measures what dsml costs, as ratios within one run: the machine's own speed cancels out.

  scripts/test                                 makes .venv, if it is not there
  .venv/bin/python scripts/bench.py            the parser, beside deepseek-recipe where that is installed
  .venv/bin/python scripts/bench.py frames     one frame of each wire through the core
  .venv/bin/python scripts/bench.py request    the request side on a long history
  .venv/bin/python scripts/bench.py hostile    input made to hurt: time for five times as much of it, memory
  .venv/bin/python scripts/bench.py proxy      the whole path through mitmdump, beside an identity callable
  .venv/bin/python scripts/bench.py all        all of these

docs/PERFORMANCE.md says what the figures mean. Exit status 1: a goal is missed. With --quick no goal is looked at.
"""

from __future__ import annotations

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if importlib.util.find_spec("regex") is None:
    sys.exit("run it with .venv/bin/python; scripts/test makes that")

import bench_frames
import bench_hostile
import bench_parser
import bench_proxy
import bench_request

PARTS = ("parser", "frames", "request", "hostile", "proxy")


def measure(part: str, quick: bool, full: bool = False, only: str = "") -> dict[str, Any]:
    """The figures of one part; `quick` uses small texts and few rounds, to see that it runs.

    `full` and `only` are for the hostile part: 10 MB of each kind; only what has that in its name.
    """
    if part == "parser":
        return bench_parser.measure(4_000, 50, 1) if quick else bench_parser.measure()
    if part == "frames":
        return {"rows": bench_frames.measure(1_000, 1) if quick else bench_frames.measure()}
    if part == "request":
        return {"checks": bench_request.measure(50_000, 3) if quick else bench_request.measure()}
    if part == "hostile":
        sizes = (2_000, 500) if quick else bench_hostile.FULL if full else bench_hostile.USUAL
        return bench_hostile.measure(*sizes, only=only)
    return bench_proxy.measure(1, 0.05) if quick else bench_proxy.measure()


def missed(figures: dict[str, Any]) -> list[str]:
    """The goals that a part's figures miss, in words."""
    judged = [(row["text"], row["ratio"], row["goal"]) for row in figures.get("rows", []) if "goal" in row]
    judged += [(check["what"], check["ratio"], check["goal"]) for check in figures.get("checks", [])]
    return [
        f"{what}: {ratio:.2f}, goal {goal:.2f}"
        for what, ratio, goal in judged
        if goal is not None and ratio is not None and ratio > goal
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of equal keys as columns."""
    if not rows:
        return ""
    keys = list(rows[0])
    lines = [keys, *([_cell(row[key]) for key in keys] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(keys))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="parser", choices=(*PARTS, "all"))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="only see that it runs: small texts, few rounds, and no goal is looked at"
    )
    parser.add_argument("--full", action="store_true", help="hostile: 10 MB of each kind, not 2 MB")
    parser.add_argument("--only", default="", metavar="WORDS", help="hostile: what has these in its name")
    given = parser.parse_args(arguments)
    parts = PARTS if given.part == "all" else (given.part,)
    figures = {part: measure(part, given.quick, given.full, given.only) for part in parts}
    misses = [line for part in parts for line in missed(figures[part]) if not given.quick]
    if given.json:
        print(json.dumps({**figures, "missed": misses}, indent=1))
    else:
        for part in parts:
            print(f"== {part}")
            for name in ("rows", "runs", "checks"):
                if shown := table(figures[part].get(name, [])):
                    print(shown, end="\n\n")
        met = "quick: these figures mean nothing" if given.quick else "all goals met"
        print("\n".join(f"missed  {line}" for line in misses) or met)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
