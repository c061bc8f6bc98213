"""Stores broken in any way: a clear error and the store as it was, or a repair that is right for what is there."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stores import detect
from stores.base import NoProgress, StoreError, Wanted
from stores.fixing import fixes
from tests.stores.conftest import MEMORY
from tests.stores.stored import LEAK, MAKERS, TURNS, content

ALL = Wanted()
LINES = ["openai lines", "anthropic lines", "claude-code"]
FILES = [*LINES, "openai", "anthropic"]

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(LEAK),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "message", "id", "uuid", "state", "time"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name).resolve()


def holds(path: Path, within: Path) -> None:
    """Whatever is at the path: it is told, or repaired for good; never half, never with another error."""
    before = content_or_bytes(within)
    try:
        (store,) = detect.find(path, None, NoProgress())
        leaking = list(fixes(store.messages(ALL)))
        assert content_or_bytes(within) == before
        backup = store.rewrite(ALL)
    except StoreError as error:
        assert str(error)
        assert content_or_bytes(within) == before
        return
    assert list(fixes(store.messages(ALL))) == []
    assert (content_or_bytes(within) == before) is not bool(leaking)
    detect.undo(backup)
    assert content_or_bytes(within) == before


def content_or_bytes(within: Path) -> Any:
    try:
        return content(within)
    except sqlite3.DatabaseError:
        return {path.name: path.read_bytes() for path in within.iterdir() if path.suffix == ".db"}


@st.composite
def damages(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a piece of them cut, doubled, or replaced."""
    start = draw(st.integers(0, len(data)))
    end = min(len(data), start + draw(st.sampled_from([0, 1, 2, 10, 100, 10_000])))
    piece = draw(
        st.sampled_from([b"", data[start:end] * 2, b"\0", b'"', b"\n", b"{", b"}", b"]", b"\\", b"\xff", b"\xc3"])
    )
    return data[:start] + piece + data[end:]


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_bytes_of_a_file(kind: str, data: st.DataObject) -> None:
    with folder() as here:
        path = MAKERS[kind](here, TURNS)
        path.write_bytes(data.draw(damages(path.read_bytes())))
        holds(path, here)


@pytest.mark.parametrize("kind", LINES)
@given(number=st.integers(0, 40), value=jsons)
@settings(max_examples=60, deadline=None)
def test_values_of_a_file(kind: str, number: int, value: Any) -> None:
    with folder() as here:
        path = MAKERS[kind](here, TURNS)
        lines = path.read_text().splitlines()
        lines[number % len(lines)] = json.dumps(value)
        path.write_text("\n".join(lines))
        holds(path, here)


@pytest.mark.parametrize("kind", LINES)
@given(number=st.integers(0, 40), key=st.sampled_from(["role", "content", "message", "type", "uuid"]), value=jsons)
@settings(max_examples=60, deadline=None)
def test_keys_of_a_file(kind: str, number: int, key: str, value: Any) -> None:
    with folder() as here:
        path = MAKERS[kind](here, TURNS)
        lines = path.read_text().splitlines()
        at = number % len(lines)
        lines[at] = json.dumps({**json.loads(lines[at]), key: value})
        path.write_text("\n".join(lines))
        holds(path, here)


@given(place=st.integers(0, 100), value=jsons, kind=st.sampled_from(["part", "message", "session"]))
@settings(max_examples=60, deadline=None)
def test_values_of_opencode_files(place: int, value: Any, kind: str) -> None:
    with folder() as here:
        path = MAKERS["opencode-files"](here, TURNS)
        found = sorted((path / kind).rglob("*.json"))
        found[place % len(found)].write_text(json.dumps(value))
        holds(path, here)


@given(place=st.integers(0, 100), value=jsons, table=st.sampled_from(["part", "message"]))
@settings(max_examples=60, deadline=None)
def test_values_of_a_database(place: int, value: Any, table: str) -> None:
    with folder() as here:
        path = MAKERS["opencode"](here, TURNS)
        change(path, f"UPDATE {table} SET data = ? WHERE rowid = ?", json.dumps(value), place % 40)
        holds(path, here)


columns = st.sampled_from(
    [(table, column) for table in ("part", "message", "session") for column in ("id", "data", "time_created", "title")]
)


@given(
    place=st.integers(0, 40),
    value=st.one_of(st.text(max_size=3), st.integers(-5, 5), st.binary(max_size=8), st.floats()),
    where=columns,
)
@settings(max_examples=80, deadline=None)
def test_columns_of_a_database(place: int, value: Any, where: tuple[str, str]) -> None:
    table, column = where
    with folder() as here:
        path = MAKERS["opencode"](here, TURNS)
        if (column == "data") is (table == "session") or (column == "title") is not (table == "session"):
            column = "time_updated"
        change(path, f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", value, place)
        holds(path, here)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_of_a_database(data: st.DataObject) -> None:
    with folder() as here:
        path = MAKERS["opencode"](here, TURNS)
        broken = data.draw(damages(path.read_bytes()))
        shutil.rmtree(here)
        here.mkdir()
        path.write_bytes(broken)
        holds(path, here)


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement, values)
