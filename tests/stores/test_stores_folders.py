"""What is said of folders that hold several stores, of forms that are not supported, and of what is no store."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stores import detect
from stores.base import NoProgress
from stores.unsupported import UNSUPPORTED
from tests.stores.stored import LEAK, MAKERS, TURNS, content, make_claude_code, make_opencode, put, text_block
from tests.stores.test_repair_transcript import ROOT, Out, events, run

PLAIN = [{"role": "user", "content": [text_block("Go.")]}, {"role": "assistant", "content": [text_block(LEAK)]}]
CHOOSE = "to choose, give the path of one, or this folder and --store KIND"


# --- A folder of several stores ---------------------------------------------------------------------------------------

# Which kinds lie in a folder, the kind that is asked for, the kind that is read, and how the others are called.
FOLDERS: list[tuple[list[str], str | None, str, str]] = [
    (["opencode"], None, "opencode", ""),
    (["opencode", "opencode-files"], None, "opencode", "opencode-files ({0}/storage)"),
    (["opencode", "opencode-files"], "opencode-files", "opencode-files", "opencode ({0}/opencode.db)"),
    (["opencode", "claude-code"], None, "opencode", "claude-code ({0}/9f0c2c5e-6f4e-4d53-9a53-0f5f6a4d1c11.jsonl)"),
    (["opencode", "claude-code"], "claude-code", "claude-code", "opencode ({0}/opencode.db)"),
    (
        ["claude-code", "openai", "openai lines", "anthropic"],
        None,
        "claude-code",
        "anthropic ({0}/body.json), openai ({0}/chat.json and 1 more)",
    ),
]


@pytest.mark.parametrize(("kinds", "asked", "used", "others"), FOLDERS)
def test_what_else_lies_in_a_folder_is_told(
    kinds: list[str], asked: str | None, used: str, others: str, tmp_path: Path, capsys: Out
) -> None:
    for kind in kinds:
        MAKERS[kind](tmp_path, TURNS)
    _, out, _ = run(capsys, tmp_path, "--json", *(["--store", asked] if asked else []))
    assert [event["kind"] for event in events(out) if event["event"] == "store"] == [used]
    notice = f"{tmp_path} holds other stores too: {used} is read, {others.format(tmp_path)} not; {CHOOSE}"
    assert [event["notice"] for event in events(out) if event["event"] == "notice"] == ([notice] if others else [])


def test_another_database_is_told(tmp_path: Path, capsys: Out) -> None:
    make_opencode(tmp_path, TURNS).rename(tmp_path / "old.db")
    make_opencode(tmp_path, TURNS)
    assert f"note: {tmp_path} holds other stores too: opencode is read, another database" in run(capsys, tmp_path)[1]


@pytest.mark.parametrize("asked", [None, "openai"])
def test_a_folder_of_files_that_must_be_given_by_name(asked: str | None, tmp_path: Path, capsys: Out) -> None:
    path = MAKERS["openai"](tmp_path, TURNS)
    put(tmp_path / "broken.json", "{")
    put(tmp_path / "settings.json", "{}")
    put(tmp_path / "nothing.json", "[]")
    put(tmp_path / "text.json", "Dear diary")
    _, _, err = run(capsys, tmp_path, *(["--store", asked] if asked else []))
    assert err.endswith(f"; it holds openai ({path}); {CHOOSE}\n")


def test_backups_pipes_and_links_to_nothing_are_no_stores(tmp_path: Path, capsys: Out) -> None:
    path = make_claude_code(tmp_path, TURNS)
    run(capsys, "--write", path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "nowhere")
    assert [store.path for store in detect.find(tmp_path, None, NoProgress())] == [path]
    assert run(capsys, tmp_path / "pipe.jsonl")[::2] == (
        3,
        f"repair_transcript.py: {tmp_path}/pipe.jsonl: neither a file nor a folder\n",
    )


AS_NOBODY = """
import os, sys, urllib.parse
from stores import cli, show
if os.geteuid() == 0:
    os.seteuid(65534)
sys.exit(cli.main(sys.argv[1:]))
"""


def test_what_may_not_be_read_keeps_no_other_back(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("open", "shut", "shut folder", "names alone"):
        (tmp_path / name).mkdir()
        make_claude_code(tmp_path / name, TURNS)
    shut = make_claude_code(tmp_path / "shut", TURNS)
    shut.chmod(0)
    (tmp_path / "shut folder").chmod(0)
    (tmp_path / "names alone").chmod(0o444)
    command = [sys.executable, "-c", AS_NOBODY, str(tmp_path), "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert f"{tmp_path / 'open'}/" in done.stdout
    assert "2 messages leak" in done.stdout
    assert done.stderr == f"repair_transcript.py: {tmp_path}/shut folder: Permission denied (and 2 other places)\n"
    done = subprocess.run([*command[:3], str(tmp_path / "shut folder")], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == f"repair_transcript.py: {tmp_path}/shut folder: Permission denied\n"


# --- Messages that both APIs write so ---------------------------------------------------------------------------------


def test_what_could_be_of_either_api_is_shown_and_not_written(tmp_path: Path, capsys: Out) -> None:
    path = put(tmp_path / "chat.json", json.dumps(PLAIN))
    before = content(tmp_path)
    status, out, err = run(capsys, path)
    assert (status, err) == (1, "")
    assert f"{path} (openai or anthropic)\n" in out
    assert (
        "note: nothing tells of which API these messages are; --write needs --store openai or --store anthropic" in out
    )
    assert "1 message leaks, 1 call is missing" in out
    status, out, err = run(capsys, "--write", path)
    assert (status, "1 message leaks" in out) == (3, True)
    assert err == (
        f"repair_transcript.py: {path}: nothing tells of which API these messages are; "
        "say --store openai or --store anthropic\n"
    )
    assert content(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("kind", "roles"), [("openai", ["user", "assistant", "tool"]), ("anthropic", ["user", "assistant", "user"])]
)
def test_the_api_that_is_said_is_written(kind: str, roles: list[str], tmp_path: Path, capsys: Out) -> None:
    path = put(tmp_path / "chat.json", json.dumps(PLAIN))
    assert run(capsys, "--write", "--store", kind, path)[0] == 0
    assert [message["role"] for message in json.loads(path.read_text())] == roles


OPENAI_TOOL = {"type": "function", "function": {"name": "bash"}}


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ({}, "openai or anthropic"),
        ({"model": "m", "max_tokens": 5, "tools": []}, "openai or anthropic"),
        ({"system": "Be brief."}, "anthropic"),
        ({"tools": [{"name": "bash", "input_schema": {}}]}, "anthropic"),
        ({"tools": [OPENAI_TOOL]}, "openai"),
        ({"stream_options": {"include_usage": True}}, "openai"),
        ({"tools": [OPENAI_TOOL], "system": "Be brief."}, "openai or anthropic"),
    ],
)
def test_what_stands_beside_the_messages_tells_the_api(rest: dict[str, Any], kind: str, tmp_path: Path) -> None:
    (store,) = detect.find(put(tmp_path / "body.json", json.dumps({**rest, "messages": PLAIN})), None, NoProgress())
    assert store.kind == kind


# --- What is not supported --------------------------------------------------------------------------------------------

ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LEAK}]}
CALL = {"type": "function_call", "name": "bash", "arguments": "{}", "call_id": "call_1"}
META = {"timestamp": "2026-01-31T12:00:00.000Z", "type": "session_meta", "payload": {"id": "1"}}
SAID = {"timestamp": "2026-01-31T12:00:00.000Z", "type": "response_item", "payload": ITEM}
# Values of a file, a line each.
OF_RESPONSES: list[list[Any]] = [
    [META, SAID],
    [{"id": "1", "timestamp": "2025-07-01T12:00:00.000Z", "instructions": None}, ITEM],
    [ITEM],
    [[ITEM, CALL]],
    [{"model": "m", "input": [ITEM]}],
    [{"model": "m", "input": "Hi"}],
    [{"id": "resp_1", "object": "response", "output": [CALL]}],
]


@pytest.mark.parametrize("asked", [None, "claude-code", "openai", "anthropic"])
@pytest.mark.parametrize("values", OF_RESPONSES)
def test_what_is_of_responses_is_refused_by_name(
    values: list[Any], asked: str | None, tmp_path: Path, capsys: Out
) -> None:
    path = put(tmp_path / "sessions" / "rollout-1.jsonl", "".join(json.dumps(value) + "\n" for value in values))
    for given in (path, path.parent) if asked in (None, "claude-code") else (path,):
        status, out, err = run(capsys, given, *(["--store", asked] if asked else []))
        assert (status, err) == (3, f"repair_transcript.py: {path}: {UNSUPPORTED}\n")
        assert out.splitlines()[-1] == "nothing was looked at"


def test_a_document_of_responses_is_refused_by_name(tmp_path: Path, capsys: Out) -> None:
    path = put(tmp_path / "body.json", json.dumps({"model": "m", "input": [ITEM]}, indent=2))
    assert run(capsys, path)[::2] == (3, f"repair_transcript.py: {path}: {UNSUPPORTED}\n")


# --- What cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP TABLE part", "{0}: not a database of OpenCode, or of another version: there is no table part"),
        (
            "ALTER TABLE part RENAME COLUMN data TO content",
            "{0}: a version of OpenCode that is not known: table part without data, with content",
        ),
    ],
)
def test_a_database_of_another_version_is_told(change: str, says: str, tmp_path: Path, capsys: Out) -> None:
    path = make_opencode(tmp_path, TURNS)
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
    assert run(capsys, path)[::2] == (3, f"repair_transcript.py: {says.format(path)}\n")


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (None, "this file of OpenCode is missing; it tells the version of the others"),
        ("3", "version '3' is not known, only 1 and 2 are"),
    ],
)
def test_files_of_another_version_are_told(version: str | None, says: str, tmp_path: Path, capsys: Out) -> None:
    path = MAKERS["opencode-files"](tmp_path, TURNS) / "migration"
    path.unlink()
    if version is not None:
        put(path, version)
    assert run(capsys, tmp_path)[::2] == (3, f"repair_transcript.py: {path}: {says}\n")


@pytest.mark.parametrize(
    "about", ["", "{", "5", "{}", '{"version": 1}', '{"version": 1, "kind": "openai", "store": 5}']
)
def test_a_backup_that_is_none_is_told(about: str, tmp_path: Path, capsys: Out) -> None:
    put(tmp_path / "about.json", about)
    status, _, err = run(capsys, "--undo", tmp_path)
    assert (status, err.count("\n"), err.startswith(f"repair_transcript.py: {tmp_path}: ")) == (3, 1, True)


@pytest.mark.parametrize("kind", ["opencode", "opencode-files"])
def test_a_damaged_list_of_changes_is_told(kind: str, tmp_path: Path, capsys: Out) -> None:
    run(capsys, "--write", MAKERS[kind](tmp_path, TURNS))
    repaired = content(tmp_path)
    (changes,) = tmp_path.glob("*/changes.jsonl")
    changes.write_text(changes.read_text()[:-9])
    number = changes.read_text().count("\n") + 1
    status, _, err = run(capsys, "--undo", changes.parent)
    assert (status, err) == (3, f"repair_transcript.py: {changes}, line {number}: damaged, nothing was undone\n")
    assert content(tmp_path) == repaired
