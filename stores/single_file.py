"""Stores that are one file: written anew beside it, checked, and put in its place."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stores import files
from stores.backup import Backup
from stores.base import InUse, NotWritten, Progress, Store, Unreadable, Wanted
from stores.fixing import fixes


class SingleFile(Store):
    """A store in one file. Its sessions are named after `stem`, that of the file unless given."""

    def __init__(self, path: Path, progress: Progress | None = None, *, stem: str | None = None) -> None:
        super().__init__(path, progress)
        self.stem = stem or path.stem

    @abstractmethod
    def records(self) -> Iterator[Any]:
        """The JSON values in the file of which some change and the others stay."""

    @abstractmethod
    def rewritten(self, wanted: Wanted) -> Iterator[tuple[bytes, int]]:
        """The new content in pieces, each with the number of records in it that changed (added ones do not count)."""

    @abstractmethod
    def kept(self, record: Any) -> Any:
        """The record without what a repair may change in it."""

    @abstractmethod
    def is_added(self, record: Any) -> bool:
        """Whether the record looks like one that a repair adds."""

    def refuse_if_in_use(self) -> None:
        """Raises `InUse` where a client can be seen to run that writes to this file."""

    def rewrite(self, wanted: Wanted) -> Path:
        with files.locked(self.path):
            self.refuse_if_in_use()
            before = files.state(self.path)
            with Backup(self.path, self.kind) as backup:
                self.progress.begin("backup", self.path.stat().st_size)
                files.copy(self.path, backup.folder / self.path.name, self.progress.step)
                with files.beside(self.path) as new:
                    changed = self._write(new, wanted)
                    self._check(new, wanted, changed)
                    if files.state(self.path) != before:
                        raise InUse(f"{self.path}: it was written to meanwhile; end the client first")
                    backup.seal(sha256=files.digest(new))
                    files.replace(new, self.path)
                return backup.path

    def _write(self, new: Path, wanted: Wanted) -> int:
        changed = 0
        with new.open("xb") as out:
            for piece, count in self.rewritten(wanted):
                out.write(piece)
                changed += count
            out.flush()
            os.fsync(out.fileno())
        return changed

    def _check(self, new: Path, wanted: Wanted, changed: int) -> None:
        """Read the new file: nothing leaks in it, and all but `changed` records are as they were."""
        store = type(self)(new, self.progress, stem=self.stem)
        try:
            clean = not any(True for _ in fixes(store.messages(wanted)))
            differ = self._difference(store)
        except Unreadable as error:
            raise NotWritten(f"{self.path}: what was written cannot be read again ({error})") from None
        if not clean or differ != changed:
            raise NotWritten(f"{self.path}: what was written is not what was meant")

    def _difference(self, other: SingleFile) -> int:
        """How many records of `other` differ where they may; -1 where they differ elsewhere."""
        found = other.records()
        differ = 0
        for record in self.records():
            new = next(found, None)
            while new is not None and not _same(self.kept(record), self.kept(new)) and self.is_added(new):
                new = next(found, None)
            if not _same(self.kept(record), self.kept(new)):
                return -1
            differ += not _same(record, new)
        return differ if all(map(self.is_added, found)) else -1

    @classmethod
    def undo(cls, backup: Path, about: dict[str, Any]) -> int:
        path = Path(about["store"])
        copy = backup / path.name
        with files.locked(path):
            cls(path).refuse_if_in_use()
            if files.digest(path) == files.digest(copy):
                return 0
            if files.digest(path) != about.get("sha256"):
                raise NotWritten(f"{path}: it changed since the repair, that would be lost; what it was is in {copy}")
            with files.beside(path) as old:
                files.copy(copy, old)
                files.replace(old, path)
        return 0


def _same(one: Any, other: Any) -> bool:
    # As text: NaN does not equal itself, and 1 equals 1.0 and true.
    return json.dumps(one) == json.dumps(other)
