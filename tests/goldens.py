"""The project's goldens, by name: every file under tests/golden that is in the golden format."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldens import store
from goldens.format import Golden

FOLDER = Path(__file__).parent / "golden"
PATHS = {str(path.relative_to(FOLDER).with_suffix("")): path for path in sorted(FOLDER.rglob("*.json"))}
GOLDENS: dict[str, Golden] = {name: store.read(path) for name, path in PATHS.items()}
WRAPPED = [name for name in GOLDENS if name.startswith("wrapped/")]

any_golden = pytest.mark.parametrize("name", GOLDENS)
