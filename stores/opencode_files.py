"""OpenCode's sessions before 1.2: a folder `storage`, in it a JSON file for each session, message and part.

All that a repair changes lies below `part`. A new folder for it is made of links to the files that stay and of those
that change; then the two folders change places in one step.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stores import files
from stores.backup import Backup, read_changes
from stores.base import InUse, Message, NotWritten, Progress, Session, Store, Unreadable, Wanted, may_hold_markup
from stores.fixing import Fixer, fixes
from stores.opencode_parts import Stored, as_object, data_folder
from stores.running import refuse_if_running

_VERSIONS: Final = (b"1", b"2")  # content of the file `migration`
_NEW: Final = ".part.dsml-new"
_TICK: Final = 0.02  # seconds; the times of files are no finer


class OpenCodeFiles(Store):
    """`path` is the folder `storage`, or the one it lies in."""

    kind = "opencode-files"

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        super().__init__(storage_in(path) or path, progress)
        self._parts = self.path / "part"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return storage_in(path) is not None

    def sessions(self) -> Iterator[Session]:
        self._check_version()
        infos = {info.stem: info for info in self.path.glob("session/*/*.json")}
        for folder in sorted((self.path / "message").iterdir()):
            info = as_object(infos[folder.name].read_bytes(), str(infos[folder.name])) if folder.name in infos else {}
            times = info.get("time")
            changed = times.get("updated") if isinstance(times, dict) else None
            since = changed / 1000 if isinstance(changed, int | float) else folder.stat().st_mtime
            yield Session(folder.name, str(info.get("title", "")), since)

    def messages(self, wanted: Wanted) -> Iterator[Message]:
        for stored in self._walk(wanted):
            yield from stored.messages()

    def _walk(self, wanted: Wanted) -> Iterator[Stored]:
        """The messages that may hold markup."""
        sessions = [session for session in self.sessions() if session in wanted]
        folders = [self.path / "message" / session.id for session in sessions]
        self.progress.begin("reading", sum(len(list(folder.iterdir())) for folder in folders))
        for session, folder in zip(sessions, folders, strict=True):
            for message in self._in_order(folder):
                self.progress.step()
                raws = {part.stem: part.read_bytes() for part in self._parts_of(message.stem)}
                if any(may_hold_markup(raw.decode(errors="replace")) for raw in raws.values()):
                    yield Stored.load(session, message.stem, message.read_bytes(), raws, str(self.path))

    def _in_order(self, folder: Path) -> list[Path]:
        def said(message: Path) -> tuple[float, str]:
            times = as_object(message.read_bytes(), str(message)).get("time")
            created = times.get("created") if isinstance(times, dict) else None
            return created if isinstance(created, int | float) else 0, message.stem

        return sorted(folder.glob("*.json"), key=said)

    def _parts_of(self, message: str) -> list[Path]:
        return list((self._parts / message).glob("*.json"))

    def rewrite(self, wanted: Wanted) -> Path:
        with self._alone(), Backup(self.path, self.kind) as backup:

            def repair(new: Path) -> int:
                fixer = Fixer()
                for stored in self._walk(wanted):
                    for fix in filter(None, map(fixer.fix, stored.messages())):
                        for change in stored.changes(fix):
                            key = f"{stored.id}/{change.id}.json"
                            backup.record(key, change.before, change.after)
                            if change.before is not None:
                                copy = backup.folder / "part" / key
                                copy.parent.mkdir(parents=True, exist_ok=True)
                                files.copy(self._parts / key, copy)
                            _put(new / key, change.after, new / stored.id / f"{change.beside}.json")
                return backup.changes

            def check(new: Path) -> None:
                store = OpenCodeFiles(self.path, self.progress)
                store._parts = new
                if any(True for _ in fixes(store.messages(wanted))):
                    raise NotWritten(f"{self.path}: the repaired store would need a repair")

            self._replace(repair, check, backup.seal)
            return backup.path

    @classmethod
    def undo(cls, backup: Path, about: dict[str, Any]) -> int:
        store = cls(Path(about["store"]))
        left = 0

        def put_back(new: Path) -> int:
            nonlocal left
            changed = 0
            for key, before, after in read_changes(backup):
                now = (new / key).read_bytes() if (new / key).exists() else None
                if now == after.encode():
                    _put(new / key, before, new / key)
                    changed += 1
                else:
                    left += now != (None if before is None else before.encode())
            return changed

        with store._alone():
            store._replace(put_back, lambda _: None, lambda: None)
        return left

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._check_version()
        with files.locked(self.path):
            refuse_if_running("opencode", lambda process: data_folder(process.environment) == self.path.parent)
            yield

    def _replace(self, edit: Callable[[Path], int], check: Callable[[Path], None], last: Callable[[], None]) -> None:
        """Put an edited copy in the place of `part`. `edit` says how many files it changed; `last` comes before."""
        new = self.path / _NEW
        _remove(new)  # of a repair that was killed
        time.sleep(_TICK)
        try:
            new.mkdir()
            begun = new.stat().st_mtime_ns
            self._link_all(new)
            changed = edit(new)
            check(new)
            if _written_since(self._parts, new, begun):
                raise InUse(f"{self.path}: it was written to meanwhile; end OpenCode first")
            if _difference(self._parts, new) != changed:
                raise NotWritten(f"{self.path}: what was written is not what was meant")
            for name in os.listdir(new):
                if (new / name).is_dir():
                    files.sync_folder(new / name)
            files.sync_folder(new)
            last()
            files.exchange(new, self._parts)
        finally:
            _remove(new)

    def _link_all(self, new: Path) -> None:
        self.progress.begin("linking", len(os.listdir(self._parts)))
        for folder in os.scandir(self._parts):
            self.progress.step()
            if not folder.is_dir(follow_symlinks=False):
                os.link(folder.path, new / folder.name)
                continue
            (new / folder.name).mkdir()
            for file in os.scandir(folder):
                os.link(file.path, new / folder.name / file.name)
            shutil.copymode(folder.path, new / folder.name)

    def _check_version(self) -> None:
        if storage_in(self.path) is None:
            raise Unreadable(f"{self.path}: not a folder of OpenCode's files")
        file = self.path / "migration"
        if not file.is_file():
            raise Unreadable(f"{file}: this file of OpenCode is missing; it tells the version of the others")
        version = file.read_bytes().strip()
        if version not in _VERSIONS:
            raise Unreadable(
                f"{file}: version {version[:20].decode(errors='replace')!r} is not known, only 1 and 2 are"
            )


def storage_in(path: Path) -> Path | None:
    """The folder `storage` that `path` is or holds."""
    for folder in (path, path / "storage"):
        if (folder / "message").is_dir() and (folder / "part").is_dir():
            return folder
    return None


def _put(target: Path, text: str | None, like: Path) -> None:
    """Write a file in the place of another or of none, or remove it. It gets the permissions of `like`."""
    mode = like.stat().st_mode
    target.unlink(missing_ok=True)
    if text is not None:
        files.write(target, text.encode())
        target.chmod(mode)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _inodes(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)} if folder.is_dir() else {}


def _folders(parts: Path, other: Path) -> set[str]:
    return {name for side in (parts, other) for name in os.listdir(side) if (side / name).is_dir()}


def _difference(old: Path, new: Path) -> int:
    """How many files are not the very same in both."""
    differ = 0
    for name in _folders(old, new):
        differ += len({file for file, _ in _inodes(old / name).items() ^ _inodes(new / name).items()})
    return differ


def _written_since(old: Path, new: Path, begun: int) -> bool:
    """Whether anything was written at `begun` or later to a folder of the old ones, or to a file that changes."""
    for name in _folders(old, new):
        changed = [old / name / file for file, _ in _inodes(old / name).items() - _inodes(new / name).items()]
        if any(path.stat().st_mtime_ns >= begun for path in (old / name, *changed)):
            return True
    return old.stat().st_mtime_ns >= begun
