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
from hypothesis import given, settings
from hypothesis import strategies as st

from stores import detect
from stores.base import NoProgress, StoreError, Wanted
from stores.fixing import fixes
from tests.stores.conftest import MEMORY
from tests.stores.stored import LEAK, MAKERS, TURNS, content

pytestmark = pytest.mark.slow
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
        assert as_it_was(within, before)
        backup = store.rewrite(ALL)
    except StoreError as error:
        assert str(error)
        assert as_it_was(within, before)
        return
    assert list(fixes(store.messages(ALL))) == []
    assert as_it_was(within, before) is not bool(leaking)
    detect.undo(backup)
    assert as_it_was(within, before)


def as_it_was(within: Path, before: Any) -> bool:
    # Without the difference: it would be a whole database.
    return bool(content_or_bytes(within) == before)


def content_or_bytes(within: Path) -> Any:
    try:
        return content(within)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return {path.name: path.read_bytes() for path in within.iterdir() if path.suffix == ".db"}


PIECES = [b"", b"\0", b'"', b"\n", b"{", b"}", b"]", b"\\", b"\xff", b"\xc3", None]
places = st.floats(0, 1)
lengths = st.sampled_from([0, 1, 2, 10, 100, 10_000])
pieces = st.sampled_from(PIECES)


def damage(path: Path, place: float, length: int, piece: bytes | None) -> bytes:
    """The bytes of a file with some of them replaced; None doubles them."""
    data = path.read_bytes()
    start = int(place * len(data))
    cut = data[start : start + length]
    return data[:start] + (cut * 2 if piece is None else piece) + data[start + length :]


@pytest.mark.parametrize("kind", FILES)
@given(place=places, length=lengths, piece=pieces)
@settings(max_examples=60, deadline=None)
def test_bytes_of_a_file(kind: str, place: float, length: int, piece: bytes | None) -> None:
    with folder() as here:
        path = MAKERS[kind](here, TURNS)
        path.write_bytes(damage(path, place, length, piece))
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


@given(place=places, length=lengths, piece=pieces)
@settings(max_examples=60, deadline=None)
def test_bytes_of_a_database(place: float, length: int, piece: bytes | None) -> None:
    with folder() as here:
        path = MAKERS["opencode"](here, TURNS)
        broken = damage(path, place, length, piece)
        shutil.rmtree(here)
        here.mkdir()
        path.write_bytes(broken)
        holds(path, here)


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement, values)
