"""scripts/run and the set-up: what they decide, without running mitmdump or fetching anything (uv is a stand-in)."""

import ast
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import base_urls
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
WITH_A_NEW_PYTHON = {"launch.py", "bench.py", "soak.py", "demo.py", "options_table.py"}


ASKED = ["--listen-host", "127.0.0.1", "-s", str(SCRIPTS / "base_urls.py"), "--mode", DEEPSEEK]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ASKED),
        (["-p", "9000", "-q"], ASKED),
        (["--set", "dsml_mode=observe"], ASKED),
        (["--listen-host", "10.0.0.1"], ASKED[2:]),
        (["--set", "listen_host=10.0.0.1"], ASKED[2:]),
        (["--mode", "regular"], ASKED[:2]),
        (["--mode=regular", "-p", "9000"], ASKED[:2]),
        (["-m", "regular", "-m", "socks5@1080"], ASKED[:2]),
        (["--set", "mode=regular"], ASKED[:2]),
    ],
)
def test_run_adds_only_what_was_not_given(given: list[str], added: list[str]) -> None:
    assert RUN.plan(given) == ["-s", ADDON, *added, *given]


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("10.0.0.1", "http://10.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("", "http://127.0.0.1:9000"),
        ("::", "http://[::1]:9000"),
        ("fd00::1", "http://[fd00::1]:9000"),
    ],
)
def test_the_base_urls_are_those_of_where_it_listens(host: str, base: str) -> None:
    urls = [word for word in base_urls.base_urls(host, 9000).split() if word.startswith("http")]
    assert urls == [base, f"{base}/v1", f"{base}/anthropic"]


@pytest.mark.parametrize("given", [["--demo", "more"], ["-p", "9000", "--demo"]])
def test_the_demo_stands_alone(given: list[str]) -> None:
    with pytest.raises(SystemExit, match="--demo takes no other argument"):
        RUN.main(given)


def test_the_demo_without_dashes_is_no_filter() -> None:
    with pytest.raises(SystemExit, match="scripts/run --demo"):
        RUN.main(["demo"])


# The scripts that can be called; all other files in the folder are parts of them.
CALLED = {
    path.name: path
    for path in SCRIPTS.iterdir()
    if path.is_file() and '\nif __name__ == "__main__":\n' in path.read_text()
}


def test_the_scripts_are_known() -> None:
    assert set(CALLED) == {
        *("run", "test", "try_client", "replay.py", "repair_transcript.py", "launch.py"),
        *("bench.py", "soak.py", "demo.py", "options_table.py"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(set(CALLED) - {"replay.py", "repair_transcript.py"}))
def test_help_needs_no_set_up_and_does_nothing_else(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(CALLED[script]), "--help"]
    asked = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, timeout=30
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.lower().startswith("usage: ")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["goldens", "stores"])
def test_help_of_what_is_launched(module: str) -> None:
    text = subprocess.check_output([sys.executable, str(SCRIPTS / "launch.py"), module, "--help"], cwd="/", text=True)
    assert text.startswith("usage: ")


@pytest.mark.parametrize("script", sorted({*CALLED, "bootstrap.py", "interrupt.py"} - WITH_A_NEW_PYTHON))
def test_the_set_up_is_written_for_an_old_python(script: str) -> None:
    ast.parse((SCRIPTS / script).read_text(), feature_version=(3, 7))


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

GUARD = ast.unparse(ast.parse('import interrupt\nif __name__ == "__main__": interrupt.end_quietly()'))


@pytest.mark.parametrize("script", sorted(CALLED))
def test_a_script_is_guarded_before_it_imports_anything_else(script: str) -> None:
    body = ast.parse(CALLED[script].read_text()).body[1:]  # without what it says of itself
    if isinstance(body[0], ast.ImportFrom) and body[0].module == "__future__":
        del body[0]
    assert "\n".join(map(ast.unparse, body[:2])) == GUARD


def interrupted(*command: str) -> tuple[int, str]:
    """A Python program that is interrupted when it has said something: its status, and what it says besides."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    with subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
        return process.returncode, said + errors


WAIT = "import time; print('now', flush=True); time.sleep(30)"
START = "import bootstrap, pathlib, sys; bootstrap.PYTHON = pathlib.Path(sys.executable); "

PENDING = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("now", flush=True)
while not signal.sigpending():
    pass
"""


@pytest.mark.parametrize(
    ("program", "module", "status"),
    [
        (f"import interrupt; interrupt.end_quietly(); {WAIT}", "", 130),
        (f"import interrupt; interrupt.end_quietly()\ntry:\n  {WAIT}\nexcept KeyboardInterrupt: pass", "", 0),
        (START + "bootstrap.launch('{}')", WAIT, 130),
        (START + PENDING + "bootstrap.launch('{}')", WAIT, 130),
    ],
    ids=["in a script", "where it is handled", "in what is launched", "between the two"],
)
def test_an_interrupt_leaves_no_traceback(program: str, module: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "launched.py").write_text(module)
    assert interrupted("-c", program.format(tmp_path / "launched.py")) == (status, "")


def test_any_other_fault_has_its_traceback() -> None:
    command = [sys.executable, "-c", "import interrupt; interrupt.end_quietly(); 1 / 0"]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and "ZeroDivisionError" in done.stderr


# --- The set-up -------------------------------------------------------------------------------------------------------

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
