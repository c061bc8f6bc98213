"""The command line of scripts/repair_transcript.py."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from stores import detect, show
from stores.base import Fix, Message, NotWritten, Session, Store, StoreError, Unreadable, Wanted
from stores.fixing import fixes
from stores.progress import Output, output
from stores.words import many

LEAKS: Final = 1
_NAME: Final = "repair_transcript.py"
_ABOUT: Final = """
Repairs tool calls that leaked into the text of stored sessions: the markup is cut, a short note stays in its place,
and the call is added as one that was interrupted. Nothing is executed. Shows what it would do, unless told --write.
Sessions of Codex and bodies of the Responses API are not supported.
"""
_STATUS: Final = """
status:
  0  nothing leaks, or nothing was changed since the date; or --write, --undo or --list did what was asked
  1  something leaks, and nothing was written
  2  wrong usage
  3  a store is not known, not supported, of another version, or damaged (maybe some lines alone); or it needs --store
  4  a store is in use
  5  writing failed; the store is as it was
The highest counts where several stores were given.
"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog=_NAME, description=_ABOUT, epilog=_STATUS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("path", nargs="*", type=Path, help="a store: OpenCode's database or folder, sessions of Claude Code, messages")
    add("--store", choices=detect.KINDS, help="take every path for a store of this kind, whatever its content")
    add("--session", action="append", default=[], metavar="ID", help="only this session; may be given several times")
    add("--since", type=_time, default=0.0, metavar="DATE", help="only sessions changed since, as 2026-01-31[T12:00]")
    add("--json", action="store_true", help="print JSON, an object a line")
    what = options.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="only list the sessions that leak, with counts by row")
    what.add_argument("--write", action="store_true", help="make a backup, then repair; the client must not run")
    what.add_argument("--undo", type=Path, metavar="BACKUP", help="take back a repair, by the backup it made")
    return options


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    options = parser()
    given = options.parse_args(arguments)
    if bool(given.path) is (given.undo is not None):
        options.error("give either paths or --undo with a backup")
    run = Run(given, output(plain=given.json))
    try:
        if given.undo is not None:
            run.guarded(given.undo, NotWritten, run.undo)
        for path in given.path:
            run.guarded(path, Unreadable, run.all_at)
        if given.path:
            run.end()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        run.status = max(run.status, NotWritten.status if given.write else LEAKS)
    finally:
        run.out.end()
    return run.status


class Run:
    """One run over all that was given; `status` is what it has come to."""

    def __init__(self, given: argparse.Namespace, out: Output) -> None:
        self.given, self.out = given, out
        self.wanted = Wanted(frozenset(given.session), given.since)
        self.status = 0
        self._unknown = set(given.session)
        self._sessions = self._others = self._messages = self._calls = 0
        self._rows: Counter[str] = Counter()

    def guarded(self, path: Path, otherwise: type[StoreError], work: Callable[[Path], None]) -> None:
        """Do the work on a path; an error is told, and counts."""
        try:
            work(path)
        except StoreError as error:
            self._fail(path, error)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(path, otherwise(_told(error, path)))

    def undo(self, backup: Path) -> None:
        store, left = detect.undo(backup)
        changed = f"; {many(left, 'change was', 'changes were')} left, as the client made others since" if left else ""
        self._tell(f"{store}: undone{changed}", "undo", store=str(store), left=left)

    def all_at(self, path: Path) -> None:
        for store in detect.find(path, self.given.store, self.out, lambda text: self._note(path, text)):
            self.guarded(store.path, Unreadable, lambda _, store=store: self._one(store))  # type: ignore[misc]

    def end(self) -> None:
        """What it has come to, in all."""
        for id in sorted(self._unknown):
            self._fail(Path(), Unreadable(f"there is no session {id}"))
        self._tell(
            self._outcome(),
            "total",
            sessions=self._sessions,
            messages=self._messages,
            calls=self._calls,
            rows=self._rows,
        )
        if self._messages and not (self.given.write or self.given.list):
            self._tell("nothing was written; --write repairs", "dry-run")

    def _outcome(self) -> str:
        if self._messages:
            leaks = many(self._messages, "message leaks", "messages leak")
            missing = many(self._calls, "call is missing", "calls are missing")
            return f"{leaks}, {missing}: {show.counts(self._rows)}"
        if self._sessions:
            read = "" if self.status == 0 else "what could be read of "
            return f"nothing leaks in {read}{many(self._sessions, 'session')}"
        others = (
            f": {many(self._others, 'session is', 'sessions are')} not among those asked for" if self._others else ""
        )
        return f"nothing was looked at{others}"

    def _one(self, store: Store) -> None:
        self._tell(f"{store.path} ({store.kind})", "store", store=str(store.path), kind=store.kind)
        for notice in store.notices():
            self._note(store.path, notice)
        self._select(store)
        before = self._messages
        (self._list if self.given.list else self._show)(store)
        if self._messages == before or self.given.list:
            return
        if not self.given.write:
            self.status = max(self.status, LEAKS)
            return
        try:
            backup = store.rewrite(self.wanted)
        except OSError as error:
            raise NotWritten(f"{_told(error, store.path)}; nothing was changed") from None
        self._tell(f"written; --undo {backup}", "written", store=str(store.path), backup=str(backup))

    def _note(self, path: Path, text: str) -> None:
        self._tell(f"note: {text}", "notice", store=str(path), notice=text)

    def _select(self, store: Store) -> None:
        """Count the sessions that were asked for, and the others."""
        asked = others = 0
        for session in store.sessions():
            self._unknown.discard(session.id)
            asked += session in self.wanted
            others += session not in self.wanted
        self._sessions += asked
        self._others += others

    def _show(self, store: Store) -> None:
        session: Session | None = None
        for fix in self._counted(store):
            if self.given.json:
                self.out.say(show.fix_as_json(str(store.path), fix))
                continue
            if fix.message.session != session:
                session = fix.message.session
                self.out.say(f"\n{show.session_line(session)}")
            for line in show.as_text(fix):
                self.out.say(line)

    def _list(self, store: Store) -> None:
        for session, of_session in groupby(self._counted(store), key=lambda fix: fix.message.session):
            messages, rows = 0, Counter[str]()
            for fix in of_session:
                messages += 1
                rows.update(fix.rows)
            facts = {"store": str(store.path), "session": session.id, "title": session.title}
            self._tell(show.listed(session, messages, rows), "session", **facts, messages=messages, rows=rows)

    def _counted(self, store: Store) -> Iterator[Fix]:
        for fix in fixes(self._read(store)):
            self._messages += 1
            self._calls += len(fix.calls)
            self._rows.update(fix.rows)
            yield fix

    def _read(self, store: Store) -> Iterator[Message]:
        """The messages; at their end what could not be read of them is told."""
        first, count = "", 0
        for message in store.messages(self.wanted):
            if message.fault:
                first, count = first or message.fault, count + 1
            yield message
        if count:
            more = f" (and {many(count - 1, 'other line')})" if count > 1 else ""
            self._fail(store.path, Unreadable(f"{first}{more}; it stays as it is"))

    def _tell(self, line: str, event: str, **facts: Any) -> None:
        self.out.say(show.as_json(event, **facts) if self.given.json else line)

    def _fail(self, path: Path, error: StoreError) -> None:
        self.status = max(self.status, error.status)
        if self.given.json:
            self.out.say(show.as_json("error", store=str(path), status=error.status, message=str(error)))
        else:
            self.out.say(f"{_NAME}: {error}", sys.stderr)


def _told(error: OSError, path: Path) -> str:
    return f"{error.filename or path}: {error.strerror or error}"


def _time(given: str) -> float:
    try:
        return datetime.fromisoformat(given).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a date: {given}") from None
