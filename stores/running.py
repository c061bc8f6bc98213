"""Whether a client runs that may write to a store made of plain files, which carry no lock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stores.base import InUse

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this user: its current folder and its environment."""

    id: str
    name: str
    folder: Path
    environment: Mapping[str, str]


def refuse_if_running(program: str, concerns: Callable[[Process], bool]) -> None:
    """Raises `InUse` if `program` runs and `concerns` us, or where nobody can tell whether it does."""
    for process in _processes():
        if process.name.removesuffix(".exe") == program and concerns(process):
            raise InUse(f"{program} is running (process {process.id}): end it first, it could write to the store")
    if not _PROC.joinpath("self", "comm").exists() and program in _names():
        raise InUse(f"{program} is running: end it first, it could write to the store")


def _processes() -> Iterator[Process]:
    """Nothing where the system shows its processes in no file system."""
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if entry.stat().st_uid != os.getuid():
                continue
            variables = os.fsdecode(entry.joinpath("environ").read_bytes()).split("\0")
            environment = {name: value for name, _, value in (variable.partition("=") for variable in variables)}
            name = entry.joinpath("comm").read_text().strip()
            yield Process(entry.name, name, Path(os.readlink(entry / "cwd")), environment)


def _names() -> set[str]:
    listing = subprocess.run(["ps", "-xo", "comm="], capture_output=True, text=True, check=True).stdout
    return {os.path.basename(line.strip()) for line in listing.splitlines()}
