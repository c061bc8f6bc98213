"""The command line: what it prints, what it writes, its exit status."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stores import cli, show
from stores.base import INTERRUPTED, Message, Session
from stores.fixing import fixes
from stores.progress import Bar
from tests.markers import BAR, WORD
from tests.stores.stored import LEAK, MAKERS, SESSION, TURNS, Turn, content, make_opencode, put
from tests.stores.test_stores_opencode import database
from tests.test_project import live_markers

ROOT = Path(cli.__file__).resolve().parent.parent
Out = pytest.CaptureFixture[str]


def run(capsys: Out, *arguments: object) -> tuple[int, str, str]:
    status = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def events(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_a_dry_run(tmp_path: Path, capsys: Out) -> None:
    path = make_opencode(tmp_path, TURNS)
    before = content(tmp_path)
    status, out, err = run(capsys, path)
    assert (status, err) == (cli.LEAKS, "")
    bar = show.SHOWN_BAR
    assert next(line for line in out.splitlines() if line.startswith("  - ")) == f"  - <{bar}{WORD}{bar}tool_calls>"
    assert "  + [removed malformed bash call]\n" in out
    assert f'  + call bash {{"command": "ls | wc", "limit": 3}}  ({INTERRUPTED})\n' in out
    assert f"session {SESSION}  " in out
    assert "2 messages leak, 1 call is missing: T8 2, V1 2\n" in out
    assert out.endswith("nothing was written; --write repairs\n")
    assert live_markers(out) == []
    assert content(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == []


@pytest.mark.parametrize("kind", MAKERS)
def test_write_undo_write(kind: str, tmp_path: Path, capsys: Out) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    status, out, _ = run(capsys, "--write", path)
    assert status == 0
    (written,) = [line for line in out.splitlines() if line.startswith("written; --undo ")]
    backup = written.removeprefix("written; --undo ")
    repaired = content(tmp_path)
    assert repaired != before
    status, out, _ = run(capsys, "--write", path)
    sessions = "2 sessions" if kind == "anthropic lines" else "1 session"
    assert (status, out.splitlines()[-1]) == (0, f"nothing leaks in {sessions}")
    assert content(tmp_path) == repaired
    assert len([entry for entry in path.parent.iterdir() if ".dsml-backup-" in entry.name]) == 1
    assert run(capsys, "--undo", backup) == (0, f"{path}: undone\n", "")
    assert content(tmp_path) == before
    assert run(capsys, "--write", path)[0] == 0
    assert content(tmp_path) == repaired


def test_list(tmp_path: Path, capsys: Out) -> None:
    status, out, _ = run(capsys, "--list", make_opencode(tmp_path, TURNS))
    assert status == 0
    _, session, counts, total = out.splitlines()
    assert session.startswith(f"session {SESSION}  ")
    assert session.endswith("a leak")
    assert counts == "  2 messages: T8 2, V1 2"
    assert total.startswith("2 messages leak")


def test_json(tmp_path: Path, capsys: Out) -> None:
    path = make_opencode(tmp_path, TURNS)
    status, out, _ = run(capsys, "--json", path)
    assert status == cli.LEAKS
    store, first, second, total, dry = events(out)
    assert store == {"event": "store", "store": str(path), "kind": "opencode"}
    assert (
        first["texts"] == second["texts"] == [{"before": LEAK, "after": "Let me look.\n[removed malformed bash call]"}]
    )
    assert (first["session"], first["calls"][0]["name"], second["calls"]) == (SESSION, "bash", [])
    assert total == {"event": "total", "sessions": 1, "messages": 2, "calls": 1, "rows": {"V1": 2, "T8": 2}}
    assert dry == {"event": "dry-run"}
    assert live_markers(out) == []
    status, out, _ = run(capsys, "--json", "--write", path)
    assert status == 0
    (written,) = [event for event in events(out) if event["event"] == "written"]
    status, out, _ = run(capsys, "--json", "--undo", written["backup"])
    assert events(out) == [{"event": "undo", "store": str(path), "left": 0}]
    status, out, _ = run(capsys, "--json", "--list", path)
    assert [event["event"] for event in events(out)] == ["store", "session", "total"]
    status, out, _ = run(capsys, "--json", tmp_path / "nowhere")
    assert (status, [event["event"] for event in events(out)]) == (3, ["error", "total"])


def test_a_selection(tmp_path: Path, capsys: Out) -> None:
    path = make_opencode(tmp_path, TURNS)
    assert run(capsys, "--session", SESSION, path)[0] == cli.LEAKS
    assert run(capsys, "--since", "2026-01-01", path)[0] == cli.LEAKS
    status, out, _ = run(capsys, "--since", "2999-01-01T12:00", path)
    assert (status, out.splitlines()[-1]) == (0, "nothing was looked at: 1 session is not among those asked for")
    status, _, err = run(capsys, "--session", SESSION, "--session", "ses_x", path)
    assert (status, err) == (3, "repair_transcript.py: there is no session ses_x\n")


def in_use(folder: Path) -> Path:
    path = make_opencode(folder, TURNS)
    keep.append(database(path))
    keep[-1].__enter__().execute("SELECT * FROM part").fetchone()
    return path


def damaged(folder: Path) -> Path:
    return put(folder / "chat.jsonl", '{"role": "user", "content": ""}\n{')


def unknown(folder: Path) -> Path:
    return put(folder / "chat.jsonl", "Dear diary")


keep: list[Any] = []


@pytest.mark.parametrize(
    ("make", "status", "says"),
    [(in_use, 4, "in use"), (damaged, 3, "line 2: damaged"), (unknown, 3, "not a store")],
)
def test_an_error(make: Callable[[Path], Path], status: int, says: str, tmp_path: Path, capsys: Out) -> None:
    path = make(tmp_path)
    before = content(tmp_path)
    found, _, err = run(capsys, "--write", path)
    while keep:
        keep.pop().__exit__(None, None, None)
    assert (found, says in err, err.startswith("repair_transcript.py: ")) == (status, True, True)
    assert content(tmp_path) == before


def test_one_store_that_fails_keeps_no_other_back(tmp_path: Path, capsys: Out) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
    bad, good = damaged(tmp_path / "bad"), MAKERS["openai"](tmp_path / "good", TURNS)
    status, out, err = run(capsys, "--write", bad, good)
    assert (status, "damaged" in err, "written; " in out) == (3, True, True)


@pytest.mark.parametrize(
    "arguments", [[], ["--write"], ["--undo", "x", "y"], ["--write", "--list", "x"], ["--since", "soon", "x"]]
)
def test_wrong_usage(arguments: list[str], capsys: Out) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(arguments)
    assert exit.value.code == 2


LIMIT = 64 * 1024  # bytes


@contextmanager
def small_files() -> Iterator[None]:
    """The system lets no file of this process grow beyond the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_full_disk(kind: str, tmp_path: Path, capsys: Out) -> None:
    MAKERS[kind](tmp_path, [*TURNS, Turn("assistant", LEAK.replace("wc", "\u20ac" * (LIMIT // 2)))])
    (path,) = [entry for entry in tmp_path.iterdir() if not entry.name.endswith(("-wal", "-shm"))]
    before = content(tmp_path)
    with small_files():
        status, out, err = run(capsys, "--write", path)
    assert (status, "3 messages leak" in out, err.count("\n")) == (5, True, 1)
    assert content(tmp_path) == before
    assert [entry.name for entry in path.parent.iterdir() if ".dsml-" in entry.name] == []


@pytest.mark.slow
def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    path = MAKERS["openai"](tmp_path, [Turn("assistant", LEAK)] * 5000)
    command = [sys.executable, "-m", "stores", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == cli.LEAKS


@pytest.mark.slow
def test_an_interrupt_is_told(tmp_path: Path) -> None:
    path = MAKERS["openai"](tmp_path, [Turn("assistant", LEAK)] * 5000)
    before = content(tmp_path)
    command = [sys.executable, "-m", "stores", "--write", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert err == "interrupted: each store is whole, as it was or repaired with its backup beside it\n"
    assert process.returncode == 130
    assert content(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
def test_a_terminal_that_knows_few_characters(tmp_path: Path) -> None:
    path = MAKERS["openai"](tmp_path, [Turn("assistant", f"\u00fc \u20ac {LEAK}")])
    command, environ = [sys.executable, "-m", "stores", str(path)], {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (cli.LEAKS, "")
    assert "\\xfc \\u20ac Let me look." in done.stdout


def test_the_script_hands_over(tmp_path: Path) -> None:
    """Its environment is a stand-in that says what it was given."""
    scripts = [f"scripts/{name}.py" for name in ("bootstrap", "interrupt", "repair_transcript")]
    for name in (*scripts, "pyproject.toml", "uv.lock"):
        put(tmp_path / name, (ROOT / name).read_text())
    put(tmp_path / ".venv" / "bin" / "python", '#!/bin/sh\necho "$@"\n').chmod(0o755)
    stamp = "import bootstrap, json; bootstrap.STAMP.write_text(json.dumps(bootstrap._wanted_stamp()))"
    subprocess.run([sys.executable, "-c", stamp], env={"PYTHONPATH": str(tmp_path / "scripts")}, check=True)
    command = [sys.executable, str(tmp_path / "scripts" / "repair_transcript.py"), "--list", "a b"]
    said = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True)
    assert (said.stdout, said.stderr) == (f"{tmp_path}/scripts/launch.py stores --list a b\n", "")


# --- What is shown ----------------------------------------------------------------------------------------------------


def shown(before: str) -> list[str]:
    (fix,) = fixes([Message(Session("s", "", 0), "m", True, (before,))])
    return list(show.as_text(fix))


@pytest.mark.parametrize("bars", [BAR, "|", "\u2016", BAR * 2, "| ", f" {BAR}"])
def test_no_live_marker_is_shown(bars: str) -> None:
    leak = LEAK.replace(BAR, bars)
    lines = shown(f"{leak}\n")
    assert any("removed malformed" in line for line in lines)
    assert live_markers("\n".join(lines)) == []


def test_long_lines_and_long_runs_are_cut() -> None:
    lines = shown(LEAK.replace("wc", "\n".join(["wc " * 100] * 100)))
    assert len(lines) < 40
    assert max(map(len, lines)) < 200
    assert any("more lines]" in line for line in lines)


def test_control_characters_are_not_shown() -> None:
    lines = shown(f"\x1b[2J\u202e{LEAK}")
    assert not any("\x1b" in line or "\u202e" in line for line in lines)
    assert any("\\x1b" in line for line in lines)


def test_the_bar_is_drawn(capsys: Out) -> None:
    bar = Bar()
    bar.begin("reading", 10)
    bar.step(4)
    bar.say("a line")
    bar.begin("checking", 3)
    bar.step()
    bar.end()
    printed = capsys.readouterr()
    assert printed.out == "a line\n"
    assert "reading" in printed.err
    assert "checking" in printed.err
