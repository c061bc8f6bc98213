"""Where the tests of stores keep them: in memory where the system has a place for that, as every write waits for the
disk."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="stores-", dir=MEMORY if MEMORY.is_dir() else None)).resolve()
    yield folder
    shutil.rmtree(folder)
