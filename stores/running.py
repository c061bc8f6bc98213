"""Whether a client runs that may write to a store made of plain files, which carry no lock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from stores.base import InUse

_PROC: Final = Path("/proc")


def refuse_if_running(program: str, folder: Path | None = None) -> None:
    """Raises `InUse` if `program` runs for this user; with `folder`, only if it does there or nobody can tell where."""
    for pid, name, place in _processes():
        if name.removesuffix(".exe") == program and (folder is None or place in (folder, None)):
            raise InUse(f"{program} is running (process {pid}): end it first, it could write to the store meanwhile")


def _processes() -> Iterator[tuple[str, str, Path | None]]:
    """Number, name and current folder, if known, of each process of this user."""
    if not (_PROC / "self" / "comm").exists():
        listing = subprocess.run(["ps", "-xo", "pid=,comm="], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            pid, _, name = line.strip().partition(" ")
            yield pid, os.path.basename(name.strip()), None
        return
    for entry in _PROC.iterdir():
        with suppress(OSError):  # ended meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                yield entry.name, (entry / "comm").read_text().strip(), Path(os.readlink(entry / "cwd"))
