"""scripts/bench.py runs, says its figures, and knows a goal that is missed. What they are is no matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench
import pytest

SCRIPT = Path(bench.__file__)


def figures(*arguments: str) -> tuple[int, Any]:
    command = [sys.executable, str(SCRIPT), *arguments, "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "what"), [("parser", "text"), ("frames", "wire"), ("request", "what"), ("proxy", "what")]
)
def test_a_part_gives_its_figures(part: str, what: str) -> None:
    status, found = figures(part)
    rows = [*found[part].get("rows", []), *found[part].get("checks", [])]
    assert rows
    assert all(row[what] if what in row else row["what"] for row in rows)
    assert (status, found["missed"]) == (0, []), "quick figures mean nothing, so they miss nothing"


def test_what_is_missed_is_told() -> None:
    checks = [{"what": "met", "ratio": 1.0, "goal": 1.0}, {"what": "no goal", "ratio": 9.0, "goal": None}]
    assert bench.missed({"checks": checks}) == []
    missed = {"what": "CPU", "ratio": 1.5, "goal": 1.1}
    row = {"text": "prose", "ratio": 0.6, "goal": 0.5}
    assert bench.missed({"rows": [row], "checks": [*checks, missed]}) == [
        "prose: 0.60, goal 0.50",
        "CPU: 1.50, goal 1.10",
    ]


@pytest.mark.parametrize(
    ("arguments", "ratio", "status", "last"),
    [
        ([], 1.5, 1, "missed  CPU: 1.50, goal 1.10"),
        ([], 1.0, 0, "all goals met"),
        (["--quick"], 1.5, 0, "quick: these figures mean nothing"),
    ],
)
def test_the_status_is_that_of_the_goals_unless_it_is_quick(
    arguments: list[str],
    ratio: float,
    status: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"checks": [{"what": "CPU", "ratio": ratio, "goal": 1.1}]}
    monkeypatch.setattr(bench, "measure", lambda *_: figures)
    assert bench.main(["request", *arguments]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last
