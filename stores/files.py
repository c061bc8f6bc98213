"""Work on files that a crash at any moment leaves whole: what is on disk is the old or the new, never a part of it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stores.base import InUse, NotWritten

BLOCK: Final = 1024 * 1024


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state(path: Path) -> tuple[int, int, int]:
    """Differs after any write to the file, or its replacement."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def copy(source: Path, target: Path, step: Callable[[int], None] = lambda _: None) -> None:
    """Copy a file and wait until it is on disk. `step` hears of the bytes copied."""
    with source.open("rb") as reader, target.open("xb") as writer:
        while block := reader.read(BLOCK):
            writer.write(block)
            step(len(block))
        os.fsync(writer.fileno())
    shutil.copystat(source, target)


def write(target: Path, data: bytes) -> None:
    """Write a new file and wait until it is on disk."""
    with target.open("xb") as writer:
        writer.write(data)
        os.fsync(writer.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(new: Path, target: Path) -> None:
    """Put a file that is on disk in the place of another, with its permissions."""
    shutil.copymode(target, new)
    owner = target.stat()
    if (owner.st_uid, owner.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        os.chown(new, owner.st_uid, owner.st_gid)
    new.replace(target)
    sync_folder(target.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps a second repair away from a file or folder; the lock goes with the process."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"{path}: another repair is at work on it") from None
        yield
    finally:
        os.close(descriptor)


_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


def exchange(one: Path, other: Path) -> None:
    """Two folders of one file system change places in one step."""
    system = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(system, "renameat2"):
        failed = system.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    elif hasattr(system, "renamex_np"):
        failed = system.renamex_np(*names, _EXCHANGE)
    else:
        ctypes.set_errno(errno.ENOSYS)
        failed = -1
    if failed:
        reason = os.strerror(ctypes.get_errno())
        raise NotWritten(f"{one.parent}: the folder cannot be replaced in one step here ({reason})")
    sync_folder(one.parent)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A name in the same folder for what will replace `path`; gone at the end unless it was moved."""
    new = path.with_name(f".{path.name}.dsml-new")
    new.unlink(missing_ok=True)  # of a repair that was killed
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)
