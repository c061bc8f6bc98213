"""OpenCode's database since 1.2: tables `session`, `message` and `part`, the content as JSON in `data`.

It stays in WAL mode when OpenCode has ended, so that the -wal file tells nothing; a lock on the database does: any
process that has it open holds one, and ours is exclusive.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from stores.backup import Backup, read_changes
from stores.base import InUse, Message, NotWritten, Session, Store, Unreadable, Wanted
from stores.fixing import Fixer, fixes
from stores.opencode_parts import Stored, data_folder
from stores.running import refuse_if_running
from stores.words import many

_HEADER: Final = b"SQLite format 3\0"
_COLUMNS: Final = {
    "message": {"id", "session_id", "time_created", "time_updated", "data"},
    "part": {"id", "message_id", "session_id", "time_created", "time_updated", "data"},
}
_SESSION: Final = {"id", "title", "time_created", "time_updated"}
_MARKED: Final = "({0} LIKE '%dsml%' OR {0} LIKE '%invoke%')"
_PAGES: Final = 4096  # a step of the backup


class OpenCodeSqlite(Store):
    kind = "opencode"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER

    def sessions(self) -> Iterator[Session]:
        with self._reading() as db:
            yield from _sessions(db)

    def messages(self, wanted: Wanted) -> Iterator[Message]:
        with self._reading() as db:
            for stored in self._walk(db, wanted):
                yield from stored.messages()

    def notices(self) -> Iterator[str]:
        with self._reading() as db:
            if {"type", "data"} <= _columns(db, "session_message"):
                query = f"SELECT count(*) FROM session_message WHERE type = 'assistant' AND {_MARKED.format('data')}"
                ((count,),) = db.execute(query)
                if count:
                    yield f"not read: {many(count, 'message')} of OpenCode 2 that may hold markup (session_message)"

    def rewrite(self, wanted: Wanted) -> Path:
        with _alone(self.path) as db:
            _refuse_damaged(db, self.path, Unreadable)
            with Backup(self.path, self.kind) as backup:
                copy = backup.folder / self.path.name
                self._copy(db, copy)
                db.execute("ATTACH ? AS before", (f"{copy.as_uri()}?mode=ro&immutable=1",))
                db.execute("BEGIN IMMEDIATE")
                added = self._repair(db, wanted, backup)
                self._check(db, wanted, backup.changes, added)
                backup.seal()
                db.execute("COMMIT")
                return backup.path

    @classmethod
    def undo(cls, backup: Path, about: dict[str, Any]) -> int:
        path, left = Path(about["store"]), 0
        with _alone(path) as db:
            db.execute("BEGIN IMMEDIATE")
            for id, before, after in read_changes(backup):
                found = db.execute("SELECT data FROM part WHERE id = ?", (id,)).fetchone()
                now = found and found[0]
                if now == before:
                    continue
                if now != after:
                    left += 1
                elif before is None:
                    db.execute("DELETE FROM part WHERE id = ?", (id,))
                else:
                    db.execute("UPDATE part SET data = ? WHERE id = ?", (before, id))
            _refuse_damaged(db, path, NotWritten)
            db.execute("COMMIT")
        return left

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with _errors(self.path, Unreadable), closing(_connect(self.path, "ro")) as db:
            _check_schema(db, self.path)
            yield db

    def _walk(self, db: sqlite3.Connection, wanted: Wanted) -> Iterator[Stored]:
        """The messages that may hold markup."""
        sessions = [session for session in _sessions(db) if session in wanted]
        count = "SELECT count(*) FROM part WHERE session_id = ?"
        self.progress.begin("reading", sum(db.execute(count, (session.id,)).fetchone()[0] for session in sessions))
        for session in sessions:
            for id in self._marked(db, session):
                ((raw,),) = db.execute("SELECT CAST(data AS BLOB) FROM message WHERE id = ?", (id,))
                raws = dict(db.execute("SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ?", (id,)))
                yield Stored.load(session, id, raw, raws, str(self.path))

    def _marked(self, db: sqlite3.Connection, session: Session) -> list[str]:
        """The messages of a session that may hold markup, in the order in which they were said."""
        query = f"""
            SELECT m.id, {_MARKED.format("p.data")} FROM part p JOIN message m ON m.id = p.message_id
            WHERE p.session_id = ? ORDER BY m.time_created, m.id, p.id"""
        found: dict[str, None] = {}
        for id, marked in db.execute(query, (session.id,)):
            self.progress.step()
            if marked:
                found[id] = None
        return list(found)

    def _copy(self, db: sqlite3.Connection, target: Path) -> None:
        ((pages,),) = db.execute("PRAGMA page_count")
        self.progress.begin("backup", pages)
        with closing(sqlite3.connect(target)) as copy:
            db.backup(copy, pages=_PAGES, progress=lambda *_: self.progress.step(_PAGES))
        with target.open("rb") as file:
            os.fsync(file.fileno())

    def _repair(self, db: sqlite3.Connection, wanted: Wanted, backup: Backup) -> int:
        """Writes the repaired parts; how many new ones there are."""
        fixer, added = Fixer(), 0
        for stored in self._walk(db, wanted):
            for fix in filter(None, map(fixer.fix, stored.messages())):
                for change in stored.changes(fix):
                    backup.record(change.id, change.before, change.after)
                    if change.before is None:
                        db.execute(_INSERT, (change.id, change.after, change.beside))
                        added += 1
                    else:
                        db.execute("UPDATE part SET data = ? WHERE id = ?", (change.after, change.id))
        return added

    def _check(self, db: sqlite3.Connection, wanted: Wanted, changed: int, added: int) -> None:
        """The database is whole, and but for the repaired parts, which do not leak any more, what it was."""
        _refuse_damaged(db, self.path, NotWritten)
        tables = db.execute("SELECT name FROM before.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        names = [name for (name,) in tables]
        self.progress.begin("checking", len(names))
        for name in names:
            if _difference(db, name) != ((changed, added) if name == "part" else (0, 0)):
                raise NotWritten(f"{self.path}: table {name} is not what it should be")
            self.progress.step()
        if any(True for _ in fixes(message for stored in self._walk(db, wanted) for message in stored.messages())):
            raise NotWritten(f"{self.path}: the repaired database would need a repair")


_INSERT: Final = """
    INSERT INTO part (id, data, message_id, session_id, time_created, time_updated)
    SELECT ?, ?, message_id, session_id, time_created, time_updated FROM part WHERE id = ?"""


def _difference(db: sqlite3.Connection, table: str) -> tuple[int, int]:
    """How many rows are new or other than before, and how many more there are."""
    columns = sorted(_columns(db, table))
    mine, theirs = (", ".join(f'{side}."{column}"' for column in columns) for side in ("m", "b"))
    query = f"""
        SELECT count(*) FROM main."{table}" m LEFT JOIN before."{table}" b ON m.rowid = b.rowid
        WHERE ({mine}) IS NOT ({theirs})"""
    more = f'SELECT (SELECT count(*) FROM main."{table}") - (SELECT count(*) FROM before."{table}")'
    return db.execute(query).fetchone()[0], db.execute(more).fetchone()[0]


def _sessions(db: sqlite3.Connection) -> Iterator[Session]:
    for id, title, changed in db.execute("SELECT id, title, time_updated FROM session ORDER BY time_created, id"):
        yield Session(str(id), str(title), changed / 1000 if isinstance(changed, int | float) else 0.0)


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f'PRAGMA main.table_info("{table}")')}


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    for table, known in {**_COLUMNS, "session": _SESSION}.items():
        there = _columns(db, table)
        if not there:
            raise Unreadable(f"{path}: not a database of OpenCode, or of another version: there is no table {table}")
        missing, other = known - there, there - known if table in _COLUMNS else set()
        if missing or other:
            words = [f"without {name}" for name in sorted(missing)] + [f"with {name}" for name in sorted(other)]
            raise Unreadable(f"{path}: a version of OpenCode that is not known: table {table} {', '.join(words)}")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=0)


@contextmanager
def _alone(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection beside which there is no other, as long as it is open."""
    with _errors(path, NotWritten), closing(_connect(path, "rw")) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
        _check_schema(db, path)
        if db.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            # In other modes an idle connection holds no lock.
            refuse_if_running("opencode", lambda process: data_folder(process.environment) == path.parent)
        yield db


def _refuse_damaged(db: sqlite3.Connection, path: Path, kind: type[Unreadable | NotWritten]) -> None:
    ((found,), *_) = db.execute("PRAGMA main.integrity_check(1)").fetchall()
    if found != "ok":
        raise kind(f"{path}: the database is damaged ({found})")


@contextmanager
def _errors(path: Path, otherwise: type[Unreadable | NotWritten]) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except UnicodeDecodeError as error:  # a name in the schema
        raise Unreadable(f"{path}: the database is damaged ({error})") from None
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None) or 0
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise InUse(f"{path}: the database is in use; end OpenCode first") from None
        if code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise Unreadable(f"{path}: the database is damaged ({error})") from None
        raise otherwise(f"{path}: {error}") from None
