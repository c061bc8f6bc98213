"""A repair that is killed or interrupted at any moment leaves the store as it was, or repaired; the next one works."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from stores import detect
from stores.base import NoProgress, Wanted
from tests.stores.stored import LEAK, MAKERS, TURNS, Turn, content

ALL = Wanted()
TIMES = 16
MANY = [*TURNS, *[Turn("user", "Hello. " * 50), Turn("assistant", LEAK)] * 5]
LEFT = (".dsml-new", ".partial")


def rewrite(path: Path) -> None:
    for store in detect.find(path, None, NoProgress()):
        store.rewrite(ALL)


def in_child(work: Callable[[], object]) -> int:
    """The number of a process that does the work and ends."""
    child = os.fork()
    if child == 0:
        try:
            with suppress(KeyboardInterrupt):
                work()
        finally:
            os._exit(0)
    return child


def whole(folder: Path) -> dict[str, Any]:
    """What clients see of the stores in a folder."""
    return {name: value for name, value in content(folder).items() if not any(left in name for left in LEFT)}


class Store:
    """A store to be killed over: as it is before and after a repair."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kept, self.folder = folder / "kept", folder / "store"
        self.kept.mkdir()
        self.path = self.folder / MAKERS[kind](self.kept, MANY).name
        self.put_back()
        self.before = whole(self.folder)
        begun = time.perf_counter()
        os.waitpid(in_child(lambda: rewrite(self.path)), 0)
        self.seconds = time.perf_counter() - begun
        self.after = whole(self.folder)
        assert self.before != self.after

    def put_back(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.kept, self.folder)

    def check(self) -> str:
        """Which of the two it is; a repair makes it the second one."""
        found = whole(self.folder)
        assert found in (self.before, self.after)
        rewrite(self.path)
        assert whole(self.folder) == self.after
        assert [path for path in self.folder.rglob("*") if any(left in path.name for left in LEFT)] == []
        return "old" if found == self.before else "new"


@pytest.fixture(params=["opencode", "opencode-files", "claude-code", "openai"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param, tmp_path)


@pytest.mark.slow
def test_killed_at_a_random_moment(store: Store) -> None:
    seen = set()
    chance = random.Random(store.path.name)
    for _ in range(TIMES):
        store.put_back()
        child = in_child(lambda: rewrite(store.path))
        time.sleep(chance.uniform(0, store.seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen.add(store.check())
    assert "old" in seen


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_ended_at_a_random_line(store: Store, by: signal.Signals) -> None:
    """By lines run instead of time: short moments are hit as often as long ones."""
    store.put_back()
    read, write = os.pipe()
    os.waitpid(in_child(lambda: os.write(write, b"%d" % lines_run(lambda: rewrite(store.path), sys.maxsize, by))), 0)
    total = int(os.read(read, 100))
    seen = set()
    chance = random.Random(store.path.name)
    for number in range(TIMES):
        store.put_back()
        # The last lines are those where it becomes the new one.
        line = total - number if number < TIMES // 2 else chance.randrange(total)
        os.waitpid(in_child(lambda line=line: lines_run(lambda: rewrite(store.path), line, by)), 0)  # type: ignore[misc]
        seen.add(store.check())
    assert seen == {"old", "new"}


def lines_run(work: Callable[[], None], until: int, by: signal.Signals) -> int:
    """How many lines of ours the work runs; at the given one this process gets a signal."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        name = frame.f_code.co_filename
        if "/stores/" not in name or name.endswith("running.py"):  # it runs as many lines as there are processes
            return None
        if event == "line":
            count += 1
            if count == until:
                os.kill(os.getpid(), by)
        return trace

    sys.settrace(trace)
    work()
    sys.settrace(None)
    return count
