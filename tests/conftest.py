"""What all tests share."""

import gc
import re
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("full", max_examples=100, deadline=None)

ALL_SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)


def without_slow(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == "not slow")


def pytest_configure(config: pytest.Config) -> None:
    """A run without the slow tests tries fewer examples where a test does not say how many."""
    settings.load_profile("fast" if without_slow(config) else "full")


def pytest_collection_finish() -> None:
    """The thousands of tests themselves are no garbage: the collector need not look at them again and again."""
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Such a run does not load modules of slow tests alone: what they import takes seconds."""
    if without_slow(config) and collection_path.suffix == ".py" and ALL_SLOW.search(collection_path.read_text()):
        return True
    return None
