"""What all tests share."""

import pytest
from hypothesis import settings

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("full", max_examples=400, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """A run without the slow tests tries fewer examples where a test does not say how many."""
    settings.load_profile("fast" if config.getoption("markexpr") == "not slow" else "full")
