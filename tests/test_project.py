"""What must hold of the repository as a whole, whatever its code does."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.markers import BAR, MARK, WORD

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULE_LINES = 400
FUNCTION_LINES = 50

# Everything else is the host's business: the core must run in any program, and do no input or output of its own.
# fmt: off
CORE_MAY_IMPORT = {
    "__future__", "bisect", "codecs", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum",
    "functools", "hashlib", "html", "itertools", "json", "math", "operator", "re", "regex", "string", "typing", "types",
    "unicodedata",
}
CORE_MAY_NOT_CALL = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
CORE_MAY_NOT_LOAD = {
    "mitmproxy", "asyncio", "socket", "ssl", "sqlite3", "subprocess", "threading", "http", "urllib", "pathlib",
}
# fmt: on


def files_of_the_repository() -> list[Path]:
    """Tracked files and those about to be: neither ignored nor deleted."""
    listing = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    return [path for name in listing.decode().split("\0") if name and (path := ROOT / name).is_file()]


def python_files(*folders: str) -> Iterator[Path]:
    for path in files_of_the_repository():
        if path.relative_to(ROOT).parts[0] in folders and (path.suffix == ".py" or is_script(path)):
            yield path


def is_script(path: Path) -> bool:
    return path.suffix == "" and path.read_bytes().startswith(b"#!/usr/bin/env python3\n")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- No live marker ---------------------------------------------------------------------------------------------------

# A bar of any width, or an escape's backslash, beside the word; and the full-width bar anywhere.
LIVE_MARKER = re.compile(rf"{BAR}|[|\u2016\\]\s?{WORD}|{WORD}\s?[|\u2016]", re.IGNORECASE)


def live_markers(text: str) -> list[str]:
    return [f"line {text.count(chr(10), 0, match.start()) + 1}" for match in LIVE_MARKER.finditer(text)]


LIVE = [MARK, BAR, f"|{WORD}", f"{WORD.lower()} |", f"\u2016{WORD}", f"\\{WORD}", f"{WORD}\n|"]


@pytest.mark.parametrize("live", LIVE, ids=map(ascii, LIVE))
def test_the_scan_sees_a_live_marker(live: str) -> None:
    assert set(live_markers(f"one\nsome <{live} text")) == {"line 2"}


@pytest.mark.parametrize("harmless", [f"{WORD} and BAR", rf"\uff5c{WORD}\uff5c", f"<BAR{WORD}BAR invoke>", "a | b"])
def test_the_scan_lets_other_text_pass(harmless: str) -> None:
    assert live_markers(harmless) == []


def test_no_file_holds_a_live_marker() -> None:
    files = files_of_the_repository()
    assert ROOT / "pyproject.toml" in files
    found = {name_of(path): live_markers(path.read_text(errors="replace")) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


# --- The core knows no proxy ------------------------------------------------------------------------------------------


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module).split(".")[0]


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_the_core_imports_and_calls_nothing_that_belongs_to_a_host() -> None:
    modules = list(python_files("dsml_core"))
    assert modules
    for path in modules:
        tree = ast.parse(path.read_text())
        assert set(imports(tree)) - CORE_MAY_IMPORT - {"dsml_core"} == set(), name_of(path)
        assert set(calls(tree)) & CORE_MAY_NOT_CALL == set(), name_of(path)


def test_importing_the_core_loads_nothing_that_belongs_to_a_host() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in python_files("dsml_core")]
    modules = [name.removesuffix(".__init__") for name in names]
    # What the one dependency loads for itself is not ours to judge.
    code = f"""
import sys
import regex
before = set(sys.modules)
sys.path.insert(0, {str(ROOT)!r})
for name in {modules!r}:
    __import__(name)
print(*({{name.split(".")[0] for name in set(sys.modules) - before}}))
"""
    loaded = set(subprocess.check_output([sys.executable, "-c", code], cwd="/", text=True).split())
    assert "dsml_core" in loaded
    assert loaded & CORE_MAY_NOT_LOAD == set()


# --- What is shipped --------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_core_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    version = PYPROJECT["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"dsml_core", f"dsml_core-{version}.dist-info"}
    core = {name_of(path) for path in files_of_the_repository() if path.is_relative_to(ROOT / "dsml_core")}
    assert {name for name in names if name.startswith("dsml_core/")} == core
    assert "dsml_core/py.typed" in core


def test_the_changelog_starts_with_the_version_of_the_project() -> None:
    first = re.search(r"^## (\S+) ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first and first[1] == PYPROJECT["project"]["version"]


def test_the_lock_names_only_the_public_index() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    sources = {package["name"]: package["source"] for package in packages}
    assert sources.pop(PYPROJECT["project"]["name"]) == {"editable": "."}
    assert len(sources) > 50
    assert [name for name, source in sources.items() if source != {"registry": "https://pypi.org/simple"}] == []
    files = [file for package in packages for file in [*package.get("wheels", []), package.get("sdist")] if file]
    assert len(files) > 50
    assert [file for file in files if not file["url"].startswith("https://files.pythonhosted.org/packages/")] == []


def test_the_lock_was_made_for_this_project() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (own,) = [package for package in lock["package"] if package["source"] == {"editable": "."}]
    assert own["version"] == PYPROJECT["project"]["version"]
    assert lock["requires-python"] == PYPROJECT["project"]["requires-python"]
    extras = PYPROJECT["project"]["optional-dependencies"]
    optional = [f"{name} ; extra == '{extra}'" for extra, names in extras.items() for name in names]
    wanted = {"": [*PYPROJECT["project"]["dependencies"], *optional], **PYPROJECT["dependency-groups"]}
    locked = {"": own["metadata"]["requires-dist"], **own["metadata"]["requires-dev"]}
    assert {group: as_written(entries) for group, entries in locked.items()} == {
        group: sorted(entries) for group, entries in wanted.items()
    }


def as_written(entries: list[dict[str, str]]) -> list[str]:
    marked = ((entry, f" ; {entry['marker']}" if "marker" in entry else "") for entry in entries)
    return sorted(entry["name"] + entry.get("specifier", "") + marker for entry, marker in marked)


# --- Small enough to read ---------------------------------------------------------------------------------------------


def test_modules_and_functions_are_short() -> None:
    paths = list(python_files("dsml_core", "addon", "goldens", "stores", "scripts"))
    assert ROOT / "scripts" / "run" in paths
    long = []
    for path in paths:
        text = path.read_text()
        if len(text.splitlines()) > MODULE_LINES:
            long.append(name_of(path))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > FUNCTION_LINES:
                long.append(f"{name_of(path)}: {node.name}")
    assert long == []


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
