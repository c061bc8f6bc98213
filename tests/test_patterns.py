"""docs/PATTERNS.md is complete: each row has a test that exists, and nothing in the code cites a row that does not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.feeding import cases

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "PATTERNS.md").read_text()
GRAMMAR = ROOT / "dsml_core" / "grammar.py"
ID = re.compile(r"\b[VNWTIXBGQRSED]\d{1,2}\b")
ROW = re.compile(r"^\| ([VNWTIXBGQRSED]\d{1,2}) \|.*\| ([^|]*) \|$", re.MULTILINE)
ROWS = {row: re.findall("`([^`]+)`", tests) for row, tests in ROW.findall(PAGE)}
CASES = {case.id: case for case in cases()}


def cited() -> Iterator[tuple[str, str]]:
    """File and row for each row that the code names."""
    for folder in ("dsml_core", "addon", "stores", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for row in set(ID.findall(path.read_text())):
                yield str(path.relative_to(ROOT)), row


def patterns() -> Iterator[tuple[str, str]]:
    """Name and source, comments above included, of each constant of the grammar that is a pattern or part of one."""
    lines = GRAMMAR.read_text().splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not is_pattern(node.value):
            continue
        first = node.lineno - 1
        while lines[first - 1].startswith("#"):
            first -= 1
        assert node.end_lineno is not None
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        yield ast.unparse(target), "\n".join(lines[first : node.end_lineno])


def is_pattern(value: ast.expr | None) -> bool:
    """A string, or something that compiles one."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("compile", "join")
    if isinstance(value, ast.Tuple):
        return any(is_pattern(element) for element in value.elts)
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def test_the_page_is_read_right() -> None:
    assert [f"V{number}" for number in range(1, 27)] == [row for row in ROWS if row[0] == "V"]
    assert len(ROW.findall(PAGE)) == len(ROWS) > 80
    assert all(row in ROWS for row in re.findall(r"^\| ([A-Z]\d{1,2}) \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_a_test_that_exists(row: str) -> None:
    assert ROWS[row]
    for test in ROWS[row]:
        path, found, function = test.partition("::")
        if found:
            assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), test
        else:
            assert row in CASES[test].rows, test


def test_each_case_shows_rows_that_exist() -> None:
    assert {name: case.rows for name, case in CASES.items() if not case.rows or not set(case.rows) <= set(ROWS)} == {}


def test_what_the_text_of_the_page_names_exists() -> None:
    assert set(ID.findall(PAGE)) - {"V3", "V4"} <= set(ROWS)
    _, _, below = PAGE.partition("## What was left to decide")
    prose, _, _ = below.partition("## Coverage")
    named = set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", prose))
    assert len(named) > 10
    assert named <= set(CASES)


def test_the_coverage_names_every_source_of_a_row() -> None:
    _, _, tables = PAGE.partition("## Coverage by source")
    parts = dict(re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", tables, re.MULTILINE))
    assert list(parts) == ["The reference catalogue", "ds2api", "Seen in the wild"]
    for source, part in zip(("catalogue", "ds2api", "wild"), parts.values(), strict=True):
        of_source = {
            row for row in ROWS if re.search(rf"^\| {row} \|.*\| [^|]*\b{source}\b[^|]* \|", PAGE, re.MULTILINE)
        }
        assert of_source - set(ID.findall(part)) == set(), source


def test_the_code_cites_rows_that_exist() -> None:
    found = list(cited())
    assert {row for _, row in found} > {"V1", "V26", "N1", "T16", "B1", "G1", "S3"}
    assert [(path, row) for path, row in found if row not in ROWS] == []


PATTERNS = dict(patterns())


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_of_the_grammar_cites_a_row(name: str) -> None:
    assert set(ID.findall(PATTERNS[name])) & set(ROWS), PATTERNS[name]


def test_all_patterns_are_looked_at() -> None:
    compiled = re.findall(r"^(\w+)(?:: Final)? = (?:re|regex)\.compile", GRAMMAR.read_text(), re.MULTILINE)
    assert len(compiled) > 5
    assert set(compiled) <= set(PATTERNS)
