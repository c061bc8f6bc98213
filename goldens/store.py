"""Goldens on disk: a file is there whole or not at all, and only its owner can read it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from goldens.format import Golden, GoldenError, dumps, loads

LARGEST = 1 << 28  # bytes of a file that is read


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises `GoldenError` with the reason, without the path."""
    try:
        if path.stat().st_size > LARGEST:
            raise GoldenError(f"is larger than {LARGEST} bytes")
        return path.read_bytes()
    except OSError as error:
        raise GoldenError(error.strerror or str(error)) from None


def read(path: Path) -> Golden:
    """The golden in a file. Raises `GoldenError`, which names the file and the field."""
    try:
        return loads(read_file(path).decode())
    except (GoldenError, UnicodeDecodeError) as error:
        raise GoldenError(f"{path}: {error}") from None


def prepare(folder: Path) -> None:
    """Make sure that goldens can be written into `folder`, making it if need be. Raises `OSError`."""
    with _naming(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = _Draft(folder)
        os.close(draft.descriptor)
        draft.drop()


def write(folder: Path, name: str, golden: Golden) -> bool:
    """Put a golden into `folder`; False where there is one of that name already, which stays.

    `name` is the name of a file, without a folder (else `ValueError`). Raises `OSError`.
    """
    if name != os.path.basename(name) or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not the name of a file")
    if (folder / name).exists():
        return False
    try:
        _put(folder / name, golden)
    except FileExistsError:  # somebody else was faster
        return False
    return True


def overwrite(path: Path, golden: Golden) -> None:
    """Put a golden in the place of a file, whole or not at all; the mode stays as it was. Raises `OSError`."""
    _put(path, golden, path.stat().st_mode)


def _put(path: Path, golden: Golden, mode: int = 0o600) -> None:
    with _naming(path.parent):
        draft = _Draft(path.parent)
        try:
            with os.fdopen(draft.descriptor, "wb") as file:
                file.write(dumps(golden).encode())
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
                os.fsync(file.fileno())
                draft.become(path)
        finally:
            draft.drop()


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Errors name the folder: a file without a name would have none, and nobody knows the other."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


class _Draft:
    """A file in a folder that has no name yet, where the system can do that: a crash then leaves nothing behind.

    Elsewhere, and for the moment in which it takes the place of another, it has one that begins with a dot and ends in
    `.tmp`; such a file is never read as a golden.
    """

    def __init__(self, folder: Path) -> None:
        self._path: Path | None = None
        try:
            self.descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
        except (AttributeError, OSError):
            self._path = folder / f".{secrets.token_hex(8)}.tmp"
            self.descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

    def become(self, path: Path) -> None:
        if self._path is None:
            if not path.exists():
                _link(self.descriptor, path)
                return
            self._path = path.parent / f".{secrets.token_hex(8)}.tmp"
            _link(self.descriptor, self._path)
        os.replace(self._path, path)
        self._path = None

    def drop(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _link(descriptor: int, path: Path) -> None:
    """Give an open file a name. Only with a folder's descriptor does `os.link` follow the link in /proc."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder)
    finally:
        os.close(folder)
