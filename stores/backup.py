"""A backup: a folder beside the store with a copy of what it was, and a list of the changes that can be taken back.

`about.json` is written last: a folder without it is of a repair that never came to its end, and named `.partial`.
`changes.jsonl` holds `{"key", "before", "after"}` a line; what has null as `before` was added.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from stores.base import Unreadable
from stores.files import sync_folder, write

INFIX: Final = ".dsml-backup-"
_ABOUT: Final = "about.json"
_CHANGES: Final = "changes.jsonl"
_PARTIAL: Final = ".partial"
_VERSION: Final = 1

Change = tuple[str, str | None, str]


class Backup:
    """A backup that is being made; it goes away unless it is sealed. The store is locked by whoever makes one, so that
    what an earlier repair did not finish can be removed.
    """

    def __init__(self, store: Path, kind: str) -> None:
        self._store, self._kind = store, kind
        now = datetime.now(UTC)
        self._created = now.isoformat(timespec="seconds")
        stem = f"{store.name}{INFIX}{now:%Y%m%dT%H%M%SZ}"
        self.path = store.with_name(stem)
        count = 1
        while self.path.exists():
            count += 1
            self.path = store.with_name(f"{stem}-{count}")
        self.folder = self.path.with_name(self.path.name + _PARTIAL)
        for left in store.parent.glob(f"{glob.escape(store.name + INFIX)}*{_PARTIAL}"):
            shutil.rmtree(left)
        self.folder.mkdir(mode=0o700)
        self.changes = 0
        self._list = (self.folder / _CHANGES).open("x", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._list.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def record(self, key: str, before: str | None, after: str) -> None:
        """Note a change that is about to be made."""
        self._list.write(json.dumps({"key": key, "before": before, "after": after}) + "\n")
        self.changes += 1

    def seal(self, **about: Any) -> None:
        """The backup is complete and on disk; it stays from here on."""
        self._list.flush()
        os.fsync(self._list.fileno())
        facts = {"version": _VERSION, "kind": self._kind, "store": str(self._store), "created": self._created, **about}
        write(self.folder / _ABOUT, json.dumps(facts, indent=2).encode() + b"\n")
        sync_folder(self.folder)
        os.rename(self.folder, self.path)
        sync_folder(self.path.parent)


def read_about(backup: Path) -> dict[str, Any]:
    """What `seal` wrote; `Unreadable` where the folder is no complete backup."""
    try:
        about = json.loads((backup / _ABOUT).read_bytes())
    except OSError as error:
        raise Unreadable(f"{backup}: not a complete backup ({_ABOUT}: {error.strerror or error})") from None
    except ValueError as error:
        raise Unreadable(f"{backup}: not a complete backup ({_ABOUT}: {error})") from None
    if not isinstance(about, dict) or about.get("version") != _VERSION:
        raise Unreadable(f"{backup}: a backup of another version of this program")
    if not all(isinstance(about.get(fact), str) for fact in ("kind", "store")):
        raise Unreadable(f"{backup}: not a complete backup ({_ABOUT}: kind or store is missing)")
    return about


def read_changes(backup: Path) -> Iterator[Change]:
    """The changes, in the order they were made."""
    with (backup / _CHANGES).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                change = json.loads(line)
                found = change["key"], change["before"], change["after"]
            except (ValueError, KeyError, TypeError):
                raise Unreadable(f"{backup / _CHANGES}, line {number}: damaged, nothing was undone") from None
            yield found
