"""OpenCode's two stores: their locks, versions and damage; parts of a message in their order."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stores import detect, files
from stores.backup import INFIX
from stores.base import InUse, NotWritten, Session, Unreadable, Wanted
from stores.fixing import fixes
from stores.opencode_files import OpenCodeFiles
from stores.opencode_parts import Stored
from stores.opencode_sqlite import OpenCodeSqlite
from tests.stores.stored import LEAK, SESSION, TURNS, content, make_opencode, make_opencode_files, put, rows

ALL = Wanted()


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as db:
        yield db


# --- The parts of a message -------------------------------------------------------------------------------------------


def stored(*parts: dict[str, Any], **data: Any) -> Stored:
    raws = {f"prt_{number}": json.dumps(part).encode() for number, part in enumerate(parts)}
    message = json.dumps({"role": "assistant", **data}).encode()
    return Stored.load(Session("ses_1", "", 0), "msg_1", message, raws, "here")


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def ids_after(message: Stored) -> list[str]:
    (fix,) = fixes(message.messages())
    return sorted({*message.parts, *(change.id for change in message.changes(fix))})


def test_a_call_stands_behind_the_text_it_was_found_in() -> None:
    message = stored(text(f"{LEAK}\n{LEAK}"), text("So."), text(LEAK))
    assert ids_after(message) == ["prt_0", "prt_0000", "prt_0001", "prt_1", "prt_2", "prt_2000"]


def test_the_other_keys_of_a_part_stay() -> None:
    message = stored(text(LEAK, time={"start": 1, "end": 2}, metadata={"a": "\u00fc"}))
    (fix,) = fixes(message.messages())
    changed, added = message.changes(fix)
    assert json.loads(changed.after) == {**message.parts["prt_0"], "text": fix.parts[0].text}
    assert json.loads(added.after)["state"]["time"] == {"start": 2, "end": 2}


@pytest.mark.parametrize("kind", ["reasoning", "file", "tool", "patch"])
def test_only_text_parts_are_repaired(kind: str) -> None:
    assert list(fixes(stored({"type": kind, "text": LEAK}).messages())) == []


@pytest.mark.parametrize(("finish", "leaks"), [("stop", 1), ("length", 1), ("content-filter", 0), (["x"], 1)])
def test_what_the_provider_refused_stays(finish: Any, leaks: int) -> None:
    assert len(list(fixes(stored(text(LEAK), finish=finish).messages()))) == leaks


def test_what_a_tool_gave_out_may_be_quoted() -> None:
    tool = {"type": "tool", "tool": "read", "state": {"status": "completed", "output": LEAK}}
    first, second = stored(tool), stored(text(LEAK))
    assert list(fixes([*first.messages(), *second.messages()])) == []
    assert list(fixes(second.messages()))


# --- The database -----------------------------------------------------------------------------------------------------


def test_an_open_database_is_in_use(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    with database(path) as other:
        other.execute("SELECT * FROM session").fetchall()  # idle from now on
        before = content(tmp_path)
        with pytest.raises(InUse, match="in use"):
            OpenCodeSqlite(path).rewrite(ALL)
        assert content(tmp_path) == before
        assert list(OpenCodeSqlite(path).messages(ALL))  # looking is allowed
    assert [entry for entry in tmp_path.iterdir() if INFIX in entry.name] == []


def test_nobody_gets_in_while_it_is_written(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    asked = []

    class Curious(OpenCodeSqlite):
        def _check(self, *given: Any) -> None:
            super()._check(*given)
            with database(path) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("SELECT * FROM session").fetchall()
            asked.append(True)

    Curious(path).rewrite(ALL)
    assert asked


def test_what_the_log_holds_is_read_and_kept(tmp_path: Path) -> None:
    """OpenCode ends without moving the write-ahead log into the database."""
    path = make_opencode(tmp_path, TURNS[:1])
    other = sqlite3.connect(path, isolation_level=None)
    id = "msg_22d8b5001001B4iQ3nB9xPO4"
    other.execute("INSERT INTO message VALUES (?, ?, 5, 5, ?)", (id, SESSION, '{"role":"assistant"}'))
    other.execute("INSERT INTO part VALUES ('prt_1', ?, ?, 5, 5, ?)", (id, SESSION, json.dumps(text(LEAK))))
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("opencode.db", "opencode.db-wal"):
        shutil.copy(tmp_path / name, killed / name)
    other.close()
    store = OpenCodeSqlite(killed / "opencode.db")
    assert len(list(fixes(store.messages(ALL)))) == 1
    store.rewrite(ALL)
    assert len(rows(store.path)["message"]) == 2
    assert len(rows(store.path)["part"]) == 3


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE part",
        "ALTER TABLE part ADD COLUMN kind text",
        "ALTER TABLE message RENAME COLUMN data TO content",
        "ALTER TABLE session DROP COLUMN title",
    ],
)
def test_an_unknown_version_is_told(change: str, tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    with database(path) as db:
        db.execute(change)
    before = content(tmp_path)
    for work in (lambda: list(OpenCodeSqlite(path).messages(ALL)), lambda: OpenCodeSqlite(path).rewrite(ALL)):
        with pytest.raises(Unreadable, match="version"):
            work()
    assert content(tmp_path) == before


@pytest.mark.parametrize("table", ["part", "message"])
def test_a_damaged_row_is_told(table: str, tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    with database(path) as db:
        db.execute(f"UPDATE {table} SET data = substr(data, 1, length(data) - 1)")
    before = content(tmp_path)
    with pytest.raises(Unreadable, match=f"{table} {table[:1] if table == 'm' else ''}"):
        OpenCodeSqlite(path).rewrite(ALL)
    assert content(tmp_path) == before
    assert [entry for entry in tmp_path.iterdir() if INFIX in entry.name] == []


def test_a_damaged_row_that_does_not_matter_is_left(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    with database(path) as db:
        db.execute("UPDATE part SET data = 'All done' WHERE data LIKE '%All done%'")
    OpenCodeSqlite(path).rewrite(ALL)
    assert list(fixes(OpenCodeSqlite(path).messages(ALL))) == []


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS * 40)
    with path.open("r+b") as file:
        file.seek(4096 * 30)
        file.write(os.urandom(4096 * 3))
    before = path.read_bytes()
    with pytest.raises(Unreadable, match="damaged"):
        OpenCodeSqlite(path).rewrite(ALL)
    assert path.read_bytes() == before


def test_messages_of_the_next_generation_are_told(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    assert list(OpenCodeSqlite(path).notices()) == []
    with database(path) as db:
        db.execute("CREATE TABLE session_message (id text PRIMARY KEY, type text, data text)")
        db.execute("INSERT INTO session_message VALUES ('1', 'assistant', ?)", (LEAK,))
    (notice,) = OpenCodeSqlite(path).notices()
    assert notice.startswith("not read: 1 message of OpenCode 2")


def test_what_the_client_changed_since_is_left_by_undo(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    before = rows(path)["part"]
    backup = OpenCodeSqlite(path).rewrite(ALL)
    with database(path) as db:
        changed = "UPDATE part SET data = json_set(data, '$.seen', 1) WHERE data LIKE '%interrupted, not%'"
        assert db.execute(changed).rowcount == 1
        db.execute("INSERT INTO message VALUES ('msg_9', ?, 9, 9, '{}')", (SESSION,))
        db.execute("INSERT INTO part VALUES ('prt_9', 'msg_9', ?, 9, 9, '{}')", (SESSION,))
    assert detect.undo(backup) == (path, 1)
    after = rows(path)["part"]
    assert [row for row in after if row in before] == before
    assert len(after) == len(before) + 2


def test_a_trigger_that_changes_more_is_noticed(tmp_path: Path) -> None:
    path = make_opencode(tmp_path, TURNS)
    with database(path) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON part BEGIN UPDATE session SET title = 'changed'; END")
    before = content(tmp_path)
    with pytest.raises(NotWritten, match="table session"):
        OpenCodeSqlite(path).rewrite(ALL)
    assert content(tmp_path) == before


def test_a_name_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%41"
    folder.mkdir()
    path = make_opencode(folder, TURNS)
    backup = OpenCodeSqlite(path).rewrite(ALL)
    assert list(fixes(OpenCodeSqlite(path).messages(ALL))) == []
    detect.undo(backup)
    assert list(fixes(OpenCodeSqlite(path).messages(ALL)))


# --- The files --------------------------------------------------------------------------------------------------------


@contextmanager
def process_named(name: str, folder: Path, **environment: str) -> Iterator[None]:
    """A process that looks like the client's, in a folder."""
    program = folder / "programs" / name
    program.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"], cwd=folder, env=environment) as process:
        shown = Path("/proc", str(process.pid), "cmdline")
        try:
            while (
                shown.exists() and os.fsencode(program) not in shown.read_bytes()
            ):  # it is a moment later than `Popen` that it is there
                time.sleep(0.01)
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("variable", "folder"), [("XDG_DATA_HOME", "opencode"), ("HOME", ".local/share/opencode"), ("HOME", "elsewhere")]
)
def test_the_running_client_is_noticed(variable: str, folder: str, tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path / folder, TURNS)
    before = content(path)
    with process_named("opencode", tmp_path, **{variable: str(tmp_path)}):
        if folder == "elsewhere":
            OpenCodeFiles(path).rewrite(ALL)
            return
        with pytest.raises(InUse, match="opencode is running"):
            OpenCodeFiles(path).rewrite(ALL)
    assert content(path) == before


def test_a_database_without_a_log_says_less_of_its_use(tmp_path: Path) -> None:
    (tmp_path / "opencode").mkdir()
    path = make_opencode(tmp_path / "opencode", TURNS)
    with database(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    with (
        process_named("opencode", tmp_path, XDG_DATA_HOME=str(tmp_path)),
        pytest.raises(InUse, match="opencode is running"),
    ):
        OpenCodeSqlite(path).rewrite(ALL)
    OpenCodeSqlite(path).rewrite(ALL)
    assert list(fixes(OpenCodeSqlite(path).messages(ALL))) == []


@pytest.mark.parametrize("version", ["0", "3", "", "x"])
def test_an_unknown_version_of_the_files_is_told(version: str, tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    put(path / "migration", version)
    with pytest.raises(Unreadable, match="version"):
        list(OpenCodeFiles(path).messages(ALL))
    with pytest.raises(Unreadable, match="version"):
        OpenCodeFiles(path).rewrite(ALL)


def add_space(part: Path) -> None:
    part.write_text(part.read_text() + "\n")


def add_part(part: Path) -> None:
    put(part.with_name("prt_22d8b5new.json"), "{}")


def replace_part(part: Path) -> None:
    put(part.with_suffix(".tmp"), part.read_text()).rename(part)


def add_message(part: Path) -> None:
    put(part.parent.parent / "msg_22d8b5new" / "prt_22d8b5new.json", "{}")


@pytest.mark.parametrize("write", [add_space, add_part, replace_part, add_message])
def test_a_client_that_writes_meanwhile_is_noticed(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    (leaked, *_) = [part for part in sorted(path.rglob("prt_*")) if "tool_calls" in part.read_text()]

    class Slow(OpenCodeFiles):
        def _link_all(self, new: Path) -> None:
            super()._link_all(new)
            write(leaked)
            after.update(content(path))

    after: dict[str, Any] = {}
    with pytest.raises(InUse, match="meanwhile"):
        Slow(path).rewrite(ALL)
    assert {name: value for name, value in after.items() if not name.startswith(".part")} == content(path)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    (leaked, *_) = [part for part in sorted(path.rglob("prt_*")) if "tool_calls" in part.read_text()]
    leaked.write_text(leaked.read_text() + "}")
    before = content(path)
    with pytest.raises(Unreadable, match=leaked.stem):
        OpenCodeFiles(path).rewrite(ALL)
    assert content(path) == before
    assert not (path / ".part.dsml-new").exists()


def test_what_stays_is_the_very_same_file(tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    before = {part.name: part.stat().st_ino for part in path.rglob("prt_*")}
    OpenCodeFiles(path).rewrite(ALL)
    after = {part.name: part.stat().st_ino for part in path.rglob("prt_*")}
    assert before.keys() <= after.keys()
    assert sum(inode != after[name] for name, inode in before.items()) == 2


def test_sessions_have_their_names(tmp_path: Path) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    (path / "message" / "ses_orphan").mkdir()
    named, orphan = OpenCodeFiles(path).sessions()
    assert (named.id, named.title) == (SESSION, "a leak")
    assert (orphan.id, orphan.title) == ("ses_orphan", "")


def test_a_file_system_that_cannot_exchange_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_opencode_files(tmp_path, TURNS)
    before = content(path)
    monkeypatch.setattr(files, "_EXCHANGE", 1 << 30)  # the system refuses it
    with pytest.raises(NotWritten, match="cannot be replaced"):
        OpenCodeFiles(path).rewrite(ALL)
    assert content(path) == before
    assert not (path / ".part.dsml-new").exists()
