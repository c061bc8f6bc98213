"""scripts/run and the set-up: what they decide, without running mitmdump or fetching anything (uv is a stand-in)."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import bootstrap
import pytest

SCRIPTS = Path(bootstrap.__file__).resolve().parent
ADDON = str(SCRIPTS.parent / "addon" / "dsml.py")
DEEPSEEK = "reverse:https://api.deepseek.com"


def load(name: str) -> ModuleType:
    loader = SourceFileLoader(f"scripts_{name}", str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


RUN = load("run")


@pytest.mark.parametrize(
    ("given", "added", "base"),
    [
        ([], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:8080"),
        (["-p", "9000"], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:9000"),
        (["-p9000", "-q"], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:9000"),
        (["--listen-port=9000"], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:9000"),
        (["--set", "listen_port=9000"], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:9000"),
        (["--listen-host", "10.0.0.1"], ["--mode", DEEPSEEK], "http://10.0.0.1:8080"),
        (["--set", "listen_host=10.0.0.1"], ["--mode", DEEPSEEK], "http://10.0.0.1:8080"),
        (["--mode", "regular"], ["--listen-host", "127.0.0.1"], None),
        (["--mode=regular", "-p", "9000"], ["--listen-host", "127.0.0.1"], None),
        (["-m", "regular", "-m", "socks5@1080"], ["--listen-host", "127.0.0.1"], None),
        (["--set", "mode=regular"], ["--listen-host", "127.0.0.1"], None),
        (["--set", "dsml_mode=observe"], ["--listen-host", "127.0.0.1", "--mode", DEEPSEEK], "http://127.0.0.1:8080"),
    ],
)
def test_run_adds_only_what_was_not_given(given: list[str], added: list[str], base: str | None) -> None:
    arguments, message = RUN.plan(given)
    assert arguments == ["-s", ADDON, *added, *given]
    urls = [word for word in message.split() if word.startswith("http")]
    assert urls == ([base, f"{base}/v1", f"{base}/anthropic"] if base else [])


@pytest.mark.parametrize("given", [["--demo", "more"], ["-p", "9000", "--demo"]])
def test_the_demo_stands_alone(given: list[str]) -> None:
    with pytest.raises(SystemExit, match="--demo takes no other argument"):
        RUN.main(given)


def test_the_demo_without_dashes_is_no_filter() -> None:
    with pytest.raises(SystemExit, match="scripts/run --demo"):
        RUN.main(["demo"])


@pytest.mark.parametrize("script", ["run", "test"])
def test_help_needs_no_set_up(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / script), "--help"]
    text = subprocess.check_output(command, cwd=tmp_path, env={**os.environ, "PATH": "/nowhere"}, text=True)
    assert text.startswith(f"Usage: scripts/{script} ")


@pytest.mark.parametrize("script", ["bootstrap.py", "repair_transcript.py", "run", "test"])
def test_the_set_up_is_written_for_an_old_python(script: str) -> None:
    ast.parse((SCRIPTS / script).read_text(), feature_version=(3, 7))


PIPS: list[dict[str, Any]] = [
    {"filename": "pip-20.3-py2.py3-none-any.whl", "requires-python": None},
    {"filename": "pip-24.0-py3-none-any.whl", "requires-python": ">=3.7"},
    {"filename": "pip-9.0.1-py2.py3-none-any.whl", "requires-python": ""},
    {"filename": "pip-26.0-py3-none-any.whl", "requires-python": ">=3.10", "yanked": "broken"},
    {"filename": "pip-25.2-py3-none-any.whl", "requires-python": ">=3.9", "yanked": False},
    {"filename": "pip-27.0b1-py3-none-any.whl", "requires-python": ">=3.10"},
    {"filename": "pip-27.0.tar.gz", "requires-python": ">=3.10"},
]


@pytest.mark.parametrize(
    ("version", "chosen"),
    [((3, 13), "pip-25.2-"), ((3, 9), "pip-25.2-"), ((3, 8), "pip-24.0-"), ((3, 6), "pip-20.3-")],
)
def test_the_newest_pip_that_runs_is_taken(version: tuple[int, int], chosen: str) -> None:
    assert bootstrap._newest_pip(PIPS, version)["filename"].startswith(chosen)


def test_no_pip_that_runs_is_an_error() -> None:
    with pytest.raises(ValueError):
        bootstrap._newest_pip(PIPS[1:2], (3, 6))


# Takes a while, so that two at once would overlap; makes what a real one would make, as far as the set-up looks at it.
UV = f"""#!/bin/sh
case "$*" in
  --version) echo uv 1.0;;
  sync*) echo "$@" >> calls; sleep 0.3; [ ! -e broken ] || exit 3
    mkdir -p .venv/bin; ln -sf "{sys.executable}" .venv/bin/python;;
esac
"""


class Project:
    """A folder with the set-up and the files it reads, and nothing else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "scripts").mkdir(parents=True)
        for name in ("scripts/bootstrap.py", "pyproject.toml", "uv.lock"):
            shutil.copy(SCRIPTS.parent / name, root / name)
        (root / "path").mkdir()
        (root / "path" / "uv").write_text(UV)
        (root / "path" / "uv").chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "import bootstrap; bootstrap.ensure()"]
        path = f"{self.root / 'path'}:/usr/bin:/bin"
        environment = {"PATH": path, "PYTHONPATH": str(self.root / "scripts"), "HOME": str(self.root)}
        return subprocess.Popen(command, cwd="/", env=environment, stderr=subprocess.PIPE, text=True)

    def ensure(self) -> tuple[int, str]:
        process = self.start()
        _, errors = process.communicate()
        return process.returncode, errors

    def syncs(self) -> int:
        return (self.root / "calls").read_text().count("sync --frozen ")


@pytest.mark.slow
def test_set_up_runs_once_and_again_when_the_lock_changed(tmp_path: Path) -> None:
    project = Project(tmp_path / "a b")
    assert project.ensure()[0] == 0
    assert project.ensure() == (0, "")
    assert project.syncs() == 1
    with (project.root / "uv.lock").open("a") as lock:
        lock.write("# changed\n")
    assert project.ensure()[0] == 0
    assert project.syncs() == 2


@pytest.mark.slow
def test_set_up_by_several_at_once_runs_once(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    processes = [project.start() for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert project.syncs() == 1
    for process in processes:
        process.communicate()


@pytest.mark.slow
def test_set_up_that_failed_is_not_taken_for_done(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    (project.root / "broken").touch()
    status, errors = project.ensure()
    assert status == 1
    assert "setting up .venv failed" in errors
    (project.root / "broken").unlink()
    assert project.ensure()[0] == 0
    assert project.syncs() == 2


@pytest.mark.slow
def test_an_environment_that_was_copied_here_is_made_anew(tmp_path: Path) -> None:
    project = Project(tmp_path / "old")
    assert project.ensure()[0] == 0
    (project.root / ".venv" / "of the old place").touch()
    project.root = project.root.rename(tmp_path / "new")
    assert project.ensure()[0] == 0
    assert project.syncs() == 2
    assert not (project.root / ".venv" / "of the old place").exists()
