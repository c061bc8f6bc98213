"""What holds of every store: what is found, what is written, how it is taken back, and that nothing else changes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stores import detect, files
from stores.backup import INFIX
from stores.base import INTERRUPTED, Fix, InUse, NoProgress, Store, Unreadable, Wanted
from stores.fixing import fixes
from tests.stores.stored import ARGUMENTS, FENCED, LEAK, MAKERS, OPEN, QUOTED, REPAIRED, TURNS, Turn, content, put, said

ALL = Wanted()
KINDS = pytest.mark.parametrize("kind", MAKERS)


def store_at(path: Path) -> Store:
    (store,) = detect.find(path, None, NoProgress())
    return store


def found(path: Path) -> list[Fix]:
    return list(fixes(store_at(path).messages(ALL)))


@KINDS
def test_a_store_is_told_by_its_content(kind: str, tmp_path: Path) -> None:
    assert store_at(MAKERS[kind](tmp_path, TURNS)).kind == kind.removesuffix(" lines")


@KINDS
def test_what_leaks_is_found_and_nothing_changes(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    first, second = found(path)
    assert [part.text for part in first.parts] == [REPAIRED] == [part.text for part in second.parts]
    assert [(call.name, call.arguments) for call in first.calls] == [("bash", ARGUMENTS)]
    assert second.calls == []  # it stands beside a native call
    assert content(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir() if INFIX in entry.name] == []


@KINDS
def test_what_leaks_is_repaired_once(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    store_at(path).rewrite(ALL)
    repaired = content(tmp_path)
    assert found(path) == []
    store_at(path).rewrite(ALL)
    assert content(tmp_path) == repaired


@KINDS
def test_what_stands_there_afterwards(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    store_at(path).rewrite(ALL)
    assert said(path) == [
        ("text", REPAIRED),
        ("call", ("bash", ARGUMENTS, INTERRUPTED)),
        ("text", REPAIRED),
        ("call", ("bash", {"command": "echo x"}, "x")),
        ("text", f"You wrote {QUOTED}."),
        ("text", FENCED),
        ("text", OPEN),
        ("text", "All done."),
    ]


@KINDS
def test_only_what_leaked_changes(kind: str, tmp_path: Path) -> None:
    """With a native call in each message no call is added: then it is as if nothing had ever leaked."""
    turns = [Turn(turn.role, turn.text, turn.role == "assistant") for turn in TURNS if turn.text != OPEN]
    (tmp_path / "leaked").mkdir()
    store_at(MAKERS[kind](tmp_path / "leaked", turns)).rewrite(ALL)
    (tmp_path / "clean").mkdir()
    clean = [Turn(turn.role, REPAIRED if turn.text == LEAK else turn.text, turn.call) for turn in turns]
    MAKERS[kind](tmp_path / "clean", clean)
    assert content(tmp_path / "leaked") == content(tmp_path / "clean")


@KINDS
def test_a_repair_can_be_taken_back(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    backup = store_at(path).rewrite(ALL)
    assert content(tmp_path) != before
    assert detect.undo(backup) == (path, 0)
    assert content(tmp_path) == before
    assert detect.undo(backup) == (path, 0)
    assert content(tmp_path) == before


@KINDS
def test_the_backup_holds_what_was(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    backup = store_at(path).rewrite(ALL)
    assert backup.parent == path.parent
    assert backup.name.startswith(path.name + INFIX)
    kept = content(backup)
    kept = {name: value for name, value in kept.items() if name not in ("about.json", "changes.jsonl")}
    assert kept
    if kind == "opencode-files":
        kept = {f"storage/{name}": value for name, value in kept.items()}
    assert kept.items() <= before.items()


@KINDS
def test_ids_are_the_same_whenever_it_is_done(kind: str, tmp_path: Path) -> None:
    results = []
    for name in ("one", "two"):
        folder = tmp_path / name / "same"
        folder.mkdir(parents=True)
        store_at(MAKERS[kind](folder, TURNS)).rewrite(ALL)
        results.append(content(folder))
    assert results[0] == results[1]


@KINDS
def test_only_wanted_sessions_change(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    store = store_at(path)
    changed = max(session.changed for session in store.sessions())
    for other in (Wanted(frozenset(["other"])), Wanted(since=changed + 1)):
        assert list(store.messages(other)) == []
        store.rewrite(other)
        assert content(tmp_path) == before
    (session, *_) = store.sessions()
    store.rewrite(Wanted(frozenset([session.id]), since=changed - 1))
    assert found(path) == []


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "opencode"])  # its lock is the database's own
def test_two_at_once_is_refused(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    before = content(tmp_path)
    with files.locked(path), pytest.raises(InUse, match="another repair"):
        store_at(path).rewrite(ALL)
    assert content(tmp_path) == before


@KINDS
def test_leaks_in_several_messages_in_a_row(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, [Turn("user", "Go."), *[Turn("assistant", LEAK)] * 3])
    assert len(found(path)) == 3
    store_at(path).rewrite(ALL)
    assert said(path) == [("text", REPAIRED), ("call", ("bash", ARGUMENTS, INTERRUPTED))] * 3
    assert found(path) == []


@KINDS
def test_several_calls_in_one_text(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, [Turn("user", "Go."), Turn("assistant", f"{LEAK}\n\n{LEAK}")])
    before = content(tmp_path)
    backup = store_at(path).rewrite(ALL)
    assert said(path) == [
        ("text", f"{REPAIRED}\n\n{REPAIRED}"),
        *[("call", ("bash", ARGUMENTS, INTERRUPTED))] * 2,
    ]
    assert found(path) == []
    detect.undo(backup)
    assert content(tmp_path) == before


@KINDS
def test_a_text_may_leak_again(kind: str, tmp_path: Path) -> None:
    """As if a later version of the parser found more in it: the calls that were added count as none of the model's."""
    path = MAKERS[kind](tmp_path, [Turn("user", "Go."), Turn("assistant", LEAK)])
    store_at(path).rewrite(ALL)
    if path.suffix == ".db":
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE part SET data = replace(data, ?, ?)", (encoded(REPAIRED, False), encoded(LEAK, False)))
    else:
        for file in [path] if path.is_file() else path.rglob("*.json"):
            for ascii_only in (False, True):
                file.write_text(file.read_text().replace(encoded(REPAIRED, ascii_only), encoded(LEAK, ascii_only)))
    assert len(found(path)) == 1
    store_at(path).rewrite(ALL)
    assert said(path) == [("text", REPAIRED), *[("call", ("bash", ARGUMENTS, INTERRUPTED))] * 2]
    assert found(path) == []


def encoded(text: str, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)


@KINDS
def test_a_store_without_leaks(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, [Turn("user", "Hi."), Turn("assistant", "Hi.")])
    assert found(path) == []


@KINDS
def test_the_permissions_stay(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    every = [file for file in tmp_path.rglob("*") if file.is_file()]
    for file in every:
        file.chmod(0o640)
    store_at(path).rewrite(ALL)
    modes = {
        file.stat().st_mode & 0o777 for file in every if file.exists() and not file.name.endswith(("-shm", "-wal"))
    }
    assert modes == {0o640}


def test_a_backup_of_another_version_is_refused(tmp_path: Path) -> None:
    for about in ('{"version": 99}', "[]", "{", '{"version": 1, "kind": "another", "store": "/x"}'):
        put(tmp_path / "about.json", about)
        with pytest.raises(Unreadable):
            detect.undo(tmp_path)
    with pytest.raises(Unreadable):
        detect.undo(tmp_path / "nowhere")


def test_what_a_killed_repair_left_is_removed(tmp_path: Path) -> None:
    path = MAKERS["openai"](tmp_path, TURNS)
    left = tmp_path / f"{path.name}{INFIX}20260101T000000Z.partial"
    left.mkdir()
    put(tmp_path / f".{path.name}.dsml-new", "half")
    store_at(path).rewrite(ALL)
    assert not left.exists()
    assert sorted(entry.suffix for entry in tmp_path.iterdir() if not entry.is_dir()) == [".json"]


@pytest.mark.parametrize("text", ["", "hello", "[1]", "{}", '{"messages": 5}', '{"a": 1}\n{"b": 2}'])
def test_a_file_that_is_no_store_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        for store in detect.find(put(tmp_path / "file", text), None, NoProgress()):
            list(store.messages(ALL))


def test_a_folder_that_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no store"):
        store_at(tmp_path)
    with pytest.raises(Unreadable, match="there is nothing"):
        store_at(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["opencode", "openai"])
def test_a_folder_is_no_file(kind: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="a folder"):
        list(detect.find(tmp_path, kind, NoProgress()))


def test_a_folder_of_sessions(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        MAKERS["claude-code"](tmp_path / name, TURNS).rename(tmp_path / name / f"{name}.jsonl")
    put(tmp_path / "one" / "notes.jsonl", "{}\n")
    stores = list(detect.find(tmp_path, None, NoProgress()))
    assert [store.path.stem for store in stores] == ["one", "two"]
    stores[0].rewrite(ALL)
    assert len(list(detect.find(tmp_path, None, NoProgress()))) == 2  # the backup is no session


def test_links_to_a_store_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = MAKERS["openai"](tmp_path / "real", TURNS)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    store_at(link).rewrite(ALL)
    assert link.is_symlink()
    assert found(path) == []
