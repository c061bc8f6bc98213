"""Lines of a file that cannot be read: they are told, they keep their bytes, and the others are repaired."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stores import detect
from stores.base import NoProgress, NotWritten, Unreadable, Wanted
from stores.claude_jsonl import ClaudeJsonl
from stores.fixing import fixes
from stores.jsontext import load
from tests.stores.stored import LEAK, MAKERS, QUOTED, TURNS, Turn, content, put
from tests.stores.test_repair_transcript import Out, run

BOM = codecs.BOM_UTF8
LINES = pytest.mark.parametrize("kind", ["claude-code", "openai lines", "anthropic lines"])
FILES = pytest.mark.parametrize("kind", ["claude-code", "openai", "openai lines", "anthropic", "anthropic lines"])
# What a line is that cannot be read, and what is said of it.
DAMAGED = {
    b'{"type": "assistant", "message": {"role": "assis': "damaged JSON (column 43: it ends in the middle)",
    b'{"role": "user", "content': "damaged JSON (column 18: it ends in the middle)",
    b'{"role" "user"}': "damaged JSON (column 9: Expecting ':' delimiter)",
    b'{"role": "user", "content": ""}\f': "damaged JSON (column 32: Extra data)",
    b"\0" * 9: "damaged JSON (column 1: Expecting value)",
    b'{"role": "user", "content": "\xff"}': "damaged JSON (no UTF-8 text, byte 30)",
    b"[" * 100_000 + b"1": "damaged JSON (",
    b"9" * 5000: "damaged JSON (",
    b"5": "not an entry of a session|neither a message nor a conversation",
    b'["text"]': "not an entry of a session|neither a message nor a conversation",
    b"null": "not an entry of a session|neither a message nor a conversation",
}


def with_line(kind: str, folder: Path, line: bytes, place: int) -> tuple[Path, int]:
    """A store that leaks with a damaged line in it: behind all others at -1, where it has no end; and its number."""
    path = MAKERS[kind](folder, TURNS)
    lines = path.read_bytes().splitlines()
    at = len(lines) if place < 0 else place
    lines.insert(at, line)
    path.write_bytes(b"\n".join(lines) + (b"" if place < 0 else b"\n"))
    return path, at + 1


@LINES
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_line_is_told_and_stays(line: bytes, place: int, kind: str, tmp_path: Path, capsys: Out) -> None:
    path, number = with_line(kind, tmp_path, line, place)
    before = path.read_bytes()
    status, out, err = run(capsys, path)
    assert (status, "2 messages leak, 1 call is missing" in out, err.count("\n")) == (3, True, 1)
    assert err.startswith(f"repair_transcript.py: {path}, line {number}: ")
    assert any(said in err for said in DAMAGED[line].split("|"))
    assert path.read_bytes() == before
    status, out, err = run(capsys, "--write", path)
    assert (status, "written; " in out, f"line {number}: " in err) == (3, True, True)
    backup = out.rpartition("--undo ")[2].splitlines()[0]
    added = path.read_bytes().count(b"\n") - before.count(b"\n")
    assert path.read_bytes().split(b"\n")[number - 1 + (added if place < 0 else 0)] == line
    repaired = content(tmp_path)
    status, out, _ = run(capsys, "--write", path)
    assert (status, "nothing leaks in what could be read of" in out) == (3, True)
    assert content(tmp_path) == repaired
    assert run(capsys, "--undo", backup)[0] == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "written", [b"", b'{"type": "user"', b'{"type": "user"  ', b'{"type": "user"}', b'{"type": "user" \xff']
)
def test_a_damaged_line_that_was_written_otherwise_does_not_get_in(written: bytes, tmp_path: Path) -> None:
    cut = b'{"type": "user" \xfe'
    path, _ = with_line("claude-code", tmp_path, cut, -1)

    class Careless(ClaudeJsonl):
        def rewritten(self, wanted: Wanted) -> Iterator[tuple[bytes, int]]:
            return ((written if raw == cut else raw, count) for raw, count in super().rewritten(wanted))

    before = content(tmp_path)
    with pytest.raises(NotWritten):
        Careless(path).rewrite(Wanted())
    assert content(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 1


def test_of_many_damaged_lines_the_first_is_told(tmp_path: Path, capsys: Out) -> None:
    path, number = with_line("openai lines", tmp_path, b"{\n{\n{", -1)
    assert run(capsys, path)[2] == (
        f"repair_transcript.py: {path}, line {number}: damaged JSON (column 2: it ends in the middle)"
        " (and 2 other lines); it stays as it is\n"
    )


@pytest.mark.parametrize("kind", ["claude-code", "openai lines"])
def test_what_a_damaged_line_says_may_be_quoted(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, [Turn("user", f"What is {QUOTED}?"), Turn("assistant", QUOTED)])
    lines = path.read_text().splitlines()
    assert "What is" in lines[1]
    path.write_text("\n".join([lines[0], lines[1][:-2], *lines[2:]]))
    (store,) = detect.find(path, None, NoProgress())
    assert list(fixes(store.messages(Wanted()))) == []
    path.write_text("\n".join([lines[0], *lines[2:]]))
    assert len(list(fixes(store.messages(Wanted())))) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("\n\n", "not a store this program knows"),
        ("{", "damaged JSON (column 2: it ends in the middle)"),
        ('{"messages": [{"role": "user", "content": "a"}', "damaged JSON (column 47: it ends in the middle)"),
        ('{\n  "messages": [\n    {"role" 5}\n  ]\n}', "damaged JSON (line 3, column 13: Expecting ':' delimiter)"),
        ('[\n{"role": "user", "content": "a"}\n', "damaged JSON (line 2, column 33: it ends in the middle)"),
        ("{}", ", line 1: neither a message nor a conversation"),
        ("Dear diary", "not a store this program knows"),
    ],
)
def test_a_file_that_cannot_be_read_at_all(text: str, says: str, tmp_path: Path, capsys: Out) -> None:
    path = put(tmp_path / "chat.json", text)
    status, out, err = run(capsys, "--write", path)
    assert (status, err) == (3, f"repair_transcript.py: {path}{'' if says[0] == ',' else ': '}{says}\n")
    assert out.splitlines()[-1] == "nothing was looked at"
    assert path.read_text() == text


@FILES
def test_a_byte_order_mark_stays(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    without = path.read_bytes()
    (store,) = detect.find(path, None, NoProgress())
    store.rewrite(Wanted())
    repaired = path.read_bytes()
    path.write_bytes(BOM + without)
    (store,) = detect.find(path, None, NoProgress())
    assert store.kind == kind.removesuffix(" lines")
    store.rewrite(Wanted())
    assert path.read_bytes() == BOM + repaired


def test_a_byte_order_mark_is_not_repeated(tmp_path: Path) -> None:
    """A message is added behind the one that has the mark."""
    path = tmp_path / "chat.jsonl"
    path.write_bytes(BOM + json.dumps({"role": "assistant", "content": LEAK}).encode() + b"\n")
    (store,) = detect.find(path, "openai", NoProgress())
    store.rewrite(Wanted())
    first, second = path.read_bytes().splitlines()
    assert (first[:4], json.loads(second)["role"]) == (BOM + b"{", "tool")


def test_a_byte_order_mark_may_stand_only_at_the_start() -> None:
    with pytest.raises(Unreadable):
        load(BOM + BOM + b"{}", "here")


@LINES
def test_blank_lines_stay(kind: str, tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path, TURNS)
    path.write_bytes(b"\n \n" + path.read_bytes().replace(b"\n", b"\n\n\r\n"))
    blank = sum(not line.strip() for line in path.read_bytes().splitlines())
    (store,) = detect.find(path, None, NoProgress())
    assert len(list(fixes(store.messages(Wanted())))) == 2
    store.rewrite(Wanted())
    assert path.read_bytes().startswith(b"\n \n")
    assert sum(not line.strip() for line in path.read_bytes().splitlines()) == blank
