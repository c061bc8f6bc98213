"""How far long work is: a bar on the terminal where tqdm is there (the extra `progress`), else nothing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any, TextIO

from stores.base import NoProgress


class Output(NoProgress):
    """Prints lines, without a bar."""

    def say(self, line: str, to: TextIO | None = None) -> None:
        print(line, file=to or sys.stdout)

    def end(self) -> None:
        """The work is over."""


class Bar(Output):
    """Prints lines above a bar on the terminal."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._tqdm = tqdm
        self._bar: Any = None

    def begin(self, label: str, total: int) -> None:
        self.end()
        self._bar = self._tqdm(
            total=total, desc=label, leave=False, file=sys.stderr, unit_scale=True, dynamic_ncols=True
        )

    def step(self, steps: int = 1) -> None:
        self._bar.update(steps)

    def say(self, line: str, to: TextIO | None = None) -> None:
        self._tqdm.write(line, file=to or sys.stdout)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


def output(*, plain: bool) -> Output:
    """`plain`: without a bar in any case."""
    return Output() if plain or not sys.stderr.isatty() or find_spec("tqdm") is None else Bar()
