"""The golden format, its files, and scripts/replay.py."""

from __future__ import annotations

import base64
import http.client
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mitmproxy.io import FlowWriter

from dsml_core.formats import WIRES
from goldens import cli, cuts, making, replay, request, show, store
from goldens.format import Golden, GoldenError, Outcome, Step, dumps, escape, loads
from goldens.seen import seen
from goldens.serve import Provider
from goldens.sources import sources
from tests.e2e.wires import CALL, LEAK, PATHS, body, stream
from tests.e2e.wires import request as asked_of
from tests.flows import answered
from tests.goldens import FOLDER, GOLDENS
from tests.markers import BAR, MARK, WORD

CHAT = "openai-chat"
SMALL = "small/openai-chat"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_text(dumps(GOLDENS[SMALL]))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Status and output, standard error behind the rest."""
    status = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


# --- The format -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_golden_of_any_wire_goes_round(wire: str, streamed: bool, tmp_path: Path) -> None:
    frames = stream(wire, "So. " + LEAK) if streamed else [body(wire, "So. " + LEAK)]
    chunks = [[number * 10, len(frame)] for number, frame in enumerate(frames)]
    asked = json.dumps(asked_of(wire)).encode()
    header = "application/json" if not streamed else ""
    made = making.make(seen(wire, b"".join(frames), asked=asked, chunks=chunks, header=header))
    assert store.write(tmp_path, "a.json", made)
    again = store.read(tmp_path / "a.json")
    assert again == made
    assert again.recorded and [step.ms for step in again.steps] == [0, *[10] * (len(frames) - 1)]
    assert replay.run(again) == again.expected
    assert [call["name"] for call in replay.run(again).decided["recovered"]] == [CALL[0]]


def test_bytes_that_are_no_text_go_round() -> None:
    data = bytes(range(256)) + BAR.encode() + "\U0001f600".encode()
    steps = tuple(Step(number, data[number : number + 1]) for number in range(len(data)))
    made = Golden(CHAT, True, steps, expected=Outcome(data[::-1], {}))
    assert loads(dumps(made)) == made
    assert dumps(made).isascii()


LIVE = [
    MARK,
    f"<{MARK}tool_calls>",
    f"||{WORD}||",
    f"| {WORD} |",
    f"<{WORD.lower()}|x>",
    f"</ {WORD}>",
    f"\\{WORD}\\",
    f"\\\\ {WORD}",
    f"\u2016{WORD}\u2016",
]


@pytest.mark.parametrize("text", LIVE, ids=map(ascii, LIVE))
def test_a_file_holds_no_live_marker(text: str) -> None:
    made = Golden(CHAT, True, (Step(0, text.encode()),), about=text, request={"x": [text]})
    written = dumps(made)
    assert loads(written) == made
    word = written.lower().index(WORD.lower())
    assert not set(written[max(word - 2, 0) : word + 6]) & {BAR, "|", "<", "\u2016"}
    assert f"\\{WORD}".lower() not in written.lower()


def test_escapes_change_nothing_else() -> None:
    text = json.dumps({"a": "x | y \\ <z>", "b": ["|", WORD, "|"]})
    assert escape(text) == text


def test_a_chunk_is_one_line_and_a_repeated_line_is_written_once() -> None:
    frames = stream(CHAT, LEAK)
    made = making.make(Golden(CHAT, True, tuple(Step(0, frame) for frame in frames)), redact=False)
    lines = dumps(made).splitlines()
    assert sum(line.startswith('   {"ms": 0, "data": "data: {') for line in lines) == len(frames) - 1
    assert any('{"times": ' in line for line in lines)


BROKEN: list[tuple[str, Any, str]] = [
    ("format", "other", "format: must be 'dsml-golden'"),
    ("version", 2, "version: 2 is not known here, only 1 is"),
    ("wire", "telex", "wire: 'telex' is none of openai-chat, "),
    ("wire", 7, "wire: must be a string"),
    ("redacted", "yes", "redacted: must be true or false"),
    ("request", [], "request: must be an object or null"),
    ("policy", {"profile": "loose"}, "policy.profile: 'loose' is none of relaxed, strict"),
    ("policy", {"hold_limit": -1}, "policy.hold_limit: must be a whole number"),
    ("policy", {"colour": 1}, "policy.colour: is not a field of this format"),
    ("extra", 1, "extra: is not a field of this format"),
    ("response", None, "response: must be an object"),
    ("response.stream", 1, "response.stream: must be true or false"),
    ("response.end", "soon", "response.end: 'soon' is none of clean, aborted"),
    ("response.boundaries", None, "response.boundaries: must be a string"),
    ("response.chunks", {}, "response.chunks: must be a list"),
    ("response.chunks.1", "x", "response.chunks[1]: must be an object"),
    ("response.chunks.1.ms", 1.5, "response.chunks[1].ms: must be a whole number"),
    ("response.chunks.1.ms", True, "response.chunks[1].ms: must be a whole number"),
    ("response.chunks.1.data", 1, "response.chunks[1].data: must be a string"),
    ("response.chunks.1.data", "\ud83d", "response.chunks[1].data: holds half a surrogate pair"),
    ("response.chunks.1.idle", False, "response.chunks[1].idle: must be true, or absent"),
    ("response.chunks.1.kind", 1, "response.chunks[1].kind: is not a field of this format"),
    ("emitted", "x", "emitted: must be a list or null"),
    ("emitted", [1], "emitted[0]: must be an object"),
    ("emitted", [{"times": 1 << 40, "data": "x"}], "emitted[0].times: is too large"),
    ("decided", None, "decided: must be an object"),
]


@pytest.mark.parametrize(("place", "value", "message"), BROKEN)
def test_a_broken_golden_says_which_field(
    place: str, value: Any, message: str, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(golden.read_text())
    *above, last = place.split(".")
    target = whole
    for step in above:
        target = target[int(step)] if step.isdigit() else target[step]
    target[int(last) if last.isdigit() else last] = value
    golden.write_text(json.dumps(whole))
    status, said = run(capsys, golden)
    assert status == 2
    assert said.startswith(f"{golden}: {message}")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("field", ["wire", "response", "policy", "decided"])
def test_a_missing_field_is_named(field: str, golden: Path) -> None:
    whole = json.loads(golden.read_text())
    del whole[field]
    with pytest.raises(GoldenError, match=f"{field}: is missing"):
        loads(json.dumps(whole))


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert store.write(tmp_path, "a.json", GOLDENS[SMALL])
    store.overwrite(tmp_path / "a.json", GOLDENS[SMALL])
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    (tmp_path / "a.json").chmod(0o644)
    store.overwrite(tmp_path / "a.json", GOLDENS[SMALL])
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("with_names", [True, False])
def test_where_a_file_cannot_be_without_a_name_it_has_a_hidden_one(
    with_names: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    assert store.write(tmp_path, "a.json", GOLDENS[SMALL])
    assert not store.write(tmp_path, "a.json", GOLDENS["small/ollama"])
    assert store.read(tmp_path / "a.json") == GOLDENS[SMALL]
    if with_names:
        store.overwrite(tmp_path / "a.json", GOLDENS["small/ollama"])
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../a.json", "/tmp/a.json", "b/a.json", "", ".", ".."])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(ValueError, match="not the name of a file"):
        store.write(folder, name, GOLDENS[SMALL])
    assert list(tmp_path.rglob("*.json")) == []


def test_the_name_of_a_golden_holds_nothing_of_the_message() -> None:
    leak = LEAK.replace("read_file", "../../etc/passwd").replace("a.txt", "/etc/passwd")
    data = b"".join(stream(CHAT, leak)).replace(b"chatcmpl-1", b"../../x").replace(b"deepseek-test", b"/../y")
    made = making.make(seen(CHAT, data, asked=None), redact=False)
    name = making.file_name(made).removeprefix("openai-chat-").removesuffix(".json")
    row, digest = name.split("-")
    assert row.isalnum() and len(digest) == 12 and int(digest, 16) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("anonymous", [True, False])
def test_a_full_disk_is_said_and_leaves_nothing(anonymous: bool, tmp_path: Path) -> None:
    """A limit to the size of files looks the same to the program as a disk without room."""
    folder = tmp_path / "goldens"
    code = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
if not {anonymous}:
    del os.O_TMPFILE
from goldens.cli import main
sys.exit(main(["--from", {str(FOLDER / "wrapped" / "edit-1.json")!r}, "--to", {str(folder)!r}]))
"""
    environ = {**os.environ, "PYTHONPATH": str(FOLDER.parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{folder}: File too large\n"
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, said = run(capsys, "--from", FOLDER / f"{SMALL}.json", "--to", tmp_path / "file" / "sub")
    assert status == 2
    assert said.startswith(f"{tmp_path / 'file' / 'sub'}: Not a directory")


# --- Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_a_reduced_request_says_the_same(wire: str) -> None:
    from dsml_core.context import read_context

    turns = "input" if wire == "openai-responses" else "messages"
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Quoted: " + LEAK},
        {"role": "assistant", "content": LEAK},
    ]
    whole = {**asked_of(wire), turns: said, "tool_choice": "auto", "temperature": 1, "user": "me", "metadata": {}}
    reduced = request.reduce(wire, json.dumps(whole).encode())
    assert reduced is not None
    assert set(reduced) == {"model", "stream", "tools", "tool_choice", turns}
    assert reduced[turns] == [{"role": "user", "content": "Quoted: " + LEAK}]
    assert "Read a file" not in json.dumps(reduced)
    one, two = read_context(wire, whole), read_context(wire, reduced)
    assert one.quoted == two.quoted and one.calls == two.calls and one.tools and two.tools
    for name, tool in one.tools.items():
        assert two.tools[name].required == tool.required
        assert {key: two.tools[name].schema(key).type for key in tool.properties} == {  # type: ignore[union-attr]
            key: tool.schema(key).type  # type: ignore[union-attr]
            for key in tool.properties
        }


@pytest.mark.parametrize("asked", [None, b"", b"{", b"[]", b"\xff"])
def test_a_request_that_cannot_be_read_stays_unknown(asked: bytes | None) -> None:
    assert request.reduce(CHAT, asked) is None


def test_schemas_keep_what_decides_and_names() -> None:
    schema = {
        "$defs": {"p": {"type": "string", "description": "x"}},
        "properties": {"description": {"$ref": "#/$defs/p"}, "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "required": ["n"],
        "title": "x",
    }
    tools = [{"type": "function", "function": {"name": "f", "description": "x", "parameters": schema}}, {"type": "web"}]
    reduced = request.reduce(CHAT, json.dumps({"tools": tools}).encode())
    assert reduced is not None
    assert reduced["tools"][0]["function"]["parameters"] == {
        "required": ["n"],
        "properties": schema["properties"],
        "$defs": {"p": {"type": "string"}},
    }
    assert set(request.names(reduced)) == {"f", "p", "description", "n"}


# --- The command line -------------------------------------------------------------------------------------------------


def test_it_shows_what_changed(capsys: pytest.CaptureFixture[str], golden: Path) -> None:
    status, said = run(capsys, golden)
    assert status == 0
    assert f"== {golden}\nrecovered ls (V9), 84 characters from 0\n" in said
    assert "removed" not in said  # it is the same span
    for line in ("-text", "-finish stop", "+call ls", '+  "p": "\u00e9"', "+finish tool_calls"):
        assert f"\n{line}\n" in said
    assert BAR not in said and said.endswith("1 replayed\n")


def test_it_says_that_nothing_changed(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, FOLDER / "untouched" / "prose.json")
    assert (status, said.splitlines()[1:]) == (0, ["not a byte was changed", "1 replayed"])


def test_check_says_nothing_of_what_is_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, "--check", FOLDER / "small", FOLDER / "grammars")
    assert (status, said) == (0, "8 replayed, 0 wrong\n")


def spoil(path: Path) -> None:
    path.write_text(path.read_text().replace('"row": "V9"', '"row": "V8"'))


def test_check_shows_a_difference_and_update_accepts_it(capsys: pytest.CaptureFixture[str], golden: Path) -> None:
    right = golden.read_text()
    spoil(golden)
    status, said = run(capsys, "--check", golden)
    assert status == 1
    assert '-  "recovered": [{"name": "ls", "row": "V8", ' in said
    assert '+  "recovered": [{"name": "ls", "row": "V9", ' in said
    assert said.endswith("1 replayed, 1 wrong\n")
    shown, text = run(capsys, golden)
    assert shown == 0 and "--check shows the difference" in text
    status, said = run(capsys, "--update", golden)
    assert (status, golden.read_text()) == (0, right)
    assert '+  "recovered": [{"name": "ls", "row": "V9", ' in said
    assert run(capsys, "--check", golden) == (0, "1 replayed, 0 wrong\n")


def test_update_touches_nothing_that_is_as_expected(capsys: pytest.CaptureFixture[str], golden: Path) -> None:
    before = golden.stat()
    assert run(capsys, "--update", golden) == (0, "1 replayed\n")
    assert golden.stat().st_ino == before.st_ino


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_other_chunks_give_the_same(size: int, capsys: pytest.CaptureFixture[str], golden: Path) -> None:
    assert run(capsys, "--check", "--chunks", size, golden) == (0, "1 replayed, 0 wrong\n")


@pytest.mark.slow
def test_exhaustive_means_any_two_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--check", "--chunks", "exhaustive", FOLDER / "moments" / "crlf.json")[0] == 0


def test_a_difference_between_chunks_is_shown(
    capsys: pytest.CaptureFixture[str], golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = replay.run

    def fickle(one: Golden, steps: Any = None) -> Outcome:
        outcome = sound(one, steps)
        return outcome if steps is None else Outcome(outcome.emitted + b"!", outcome.decided)

    monkeypatch.setattr(replay, "run", fickle)
    status, said = run(capsys, "--check", "--chunks", 100, golden)
    assert status == 1
    assert "Cut into pieces of 100, 100, 54 bytes it gives something else:" in said


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x", "--from", "y", "--to", "z"],
        ["--from", "y"],
        ["x", "--to", "y"],
        ["x", "--check", "--update"],
        ["x", "--check", "--serve", "0"],
        ["x", "--chunks", "0"],
        ["x", "--chunks", "all"],
        ["x", "--serve", "70000"],
        ["x", "--wire", "telex"],
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: scripts/replay.py" in capsys.readouterr().err


@pytest.mark.slow
def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    root = FOLDER.parent.parent
    command = [sys.executable, str(root / "scripts" / "launch.py"), "goldens", "--check", str(FOLDER / "small")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 replayed, 0 wrong\n", "")
    assert os.access(root / "scripts" / "replay.py", os.X_OK)


# --- Sources ----------------------------------------------------------------------------------------------------------


def har(data: bytes, *, method: str = "POST", **content: Any) -> dict[str, Any]:
    said = {"mimeType": "text/event-stream", "text": data.decode(), **content}
    asked = {"method": method, "url": "https://api.example/v1/chat/completions?x=1"}
    asked["postData"] = {"text": json.dumps(asked_of(CHAT))}  # type: ignore[assignment]
    return {"log": {"entries": [{"request": asked, "response": {"status": 200, "content": said}}]}}


def test_an_archive_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = b"".join(stream(CHAT, "\u00e9 " + LEAK))
    for name, archive in (
        ("a.har", har(data)),
        ("b.har", har(data, text=base64.b64encode(data).decode(), encoding="base64")),
    ):
        (tmp_path / name).write_text(json.dumps(archive))
        (source,) = sources(tmp_path / name)
        assert source.seen.golden.received == data
        assert source.seen.golden.request is not None and not source.seen.golden.recorded
        status, said = run(capsys, tmp_path / name)
        assert status == 0
        assert said.startswith(f"== {tmp_path / name}, log.entries[0]\nrecovered read_file (V1), ")


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        ({"log": {}}, "log.entries: must be a list"),
        ({"log": {"entries": [{}]}}, "log.entries[0].request.method: must be a string"),
        (har(b"", text=7), "log.entries[0].text: must be a string"),
        (har(b"x", encoding="base64"), "log.entries[0].response.content.text: is no base64"),
        (har(b"", method="GET"), "holds no response that is repaired here"),
    ],
)
def test_a_broken_archive_says_which_field(
    archive: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.har"
    path.write_text(json.dumps(archive))
    status, said = run(capsys, path)
    assert (status, said) == (2, f"{path}: {message}\n")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [True, False])
def test_dumped_bytes_are_read(wire: str, streamed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"".join(stream(wire, LEAK)) if streamed else body(wire, LEAK))
    status, said = run(capsys, path)
    assert status == 0
    assert "recovered read_file (V1)" in said


def test_what_has_no_expectation_cannot_be_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "dump.sse"
    path.write_bytes(b"".join(stream(CHAT, LEAK)))
    for option in ("--check", "--update"):
        status, said = run(capsys, option, path)
        assert status == 2
        assert said == f"{path}, response: nothing is expected of it; make a golden with --from\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"Lorem ipsum", "is no golden, flow file, HTTP archive or response of a known wire"),
        (b"", "is no golden, flow file"),
        (b"\x00\xff\xfe", "is no golden, flow file"),
        (b"12:abc", "cannot be read after flow 0"),
        (b'{"format": "dsml-golden", "version": 1, "wi', "damaged or only half written: Unterminated string"),
        (b'{"format": "dsml-golden"}', "version: None is not known here"),
    ],
)
def test_a_foreign_file_is_named(data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    status, said = run(capsys, path)
    assert status == 2
    assert said.startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path / "x") == (2, f"{tmp_path / 'x'}: No such file or directory\n")
    assert run(capsys, tmp_path) == (2, f"{tmp_path}: there is no golden in this folder\n")


def test_the_wire_of_dumped_bytes_can_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x"
    path.write_bytes(b": nothing but comments\n\n")
    assert run(capsys, path)[0] == 2
    assert run(capsys, path, "--wire", CHAT)[0] == 0


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    """A file of three flows: one that leaked, one that did not, one that is none of ours."""
    path = tmp_path / "saved.flow"
    with path.open("wb") as file:
        writer = FlowWriter(file)  # type: ignore[no-untyped-call]
        for flow in (answered(CHAT, "Look. " + LEAK), answered(CHAT, "Fine."), answered(CHAT, LEAK, path="/other")):
            writer.add(flow)
    return path


def test_flows_are_replayed(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, flows)
    assert status == 0
    assert f"== {flows}, flow 1\nrecovered read_file (V1)" in said
    assert f"== {flows}, flow 2\nnot a byte was changed\n" in said
    assert said.endswith("2 replayed\n")


def test_goldens_are_made_of_flows(flows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "goldens"
    status, said = run(capsys, "--from", flows, "--to", folder)
    (path,) = folder.iterdir()
    assert (status, said) == (
        0,
        f"{flows}, flow 1: {path}: recovers read_file (V1)\n{flows}, flow 2: nothing leaked\n",
    )
    made = store.read(path)
    assert made.redacted and made.recorded
    assert [len(step.data or b"") for step in made.steps] == [len(frame) for frame in stream(CHAT, "Look. " + LEAK)]
    assert run(capsys, "--check", folder) == (0, "1 replayed, 0 wrong\n")
    assert "was there already" in run(capsys, "--from", flows, "--to", folder)[1]


def test_what_is_one_chunk_only_because_nobody_knows_better_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.har").write_text(json.dumps(har(b"".join(stream(CHAT, LEAK)))))
    status, said = run(capsys, "--from", tmp_path / "a.har", "--to", tmp_path / "g", "--no-redact")
    assert status == 0
    assert said.endswith("recovers read_file (V1); the pieces it arrived in are not known, it is one chunk\n")
    (made,) = (store.read(path) for path in (tmp_path / "g").iterdir())
    assert not made.redacted and not made.recorded and len(made.steps) == 1


def test_a_response_that_is_refused_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leak = LEAK.replace('name="limit">7', 'name="limit" string="false">12e10')
    (tmp_path / "dump").write_bytes(b"".join(stream(CHAT, leak)))
    status, said = run(capsys, "--from", tmp_path / "dump", "--to", tmp_path / "g")
    assert status == 1
    assert said.startswith(f"{tmp_path / 'dump'}, response: not kept: redaction would change what is decided")
    assert list((tmp_path / "g").iterdir()) == []


# --- Cuts -------------------------------------------------------------------------------------------------------------


def test_a_cut_keeps_bytes_and_idle_moments() -> None:
    steps = [Step(1, b"ab"), Step(2, None), Step(3, b"cde"), Step(4, None)]
    assert cuts.recut(steps, [1, 4]) == [
        Step(0, b"a"),
        Step(0, b"b"),
        Step(0, None),
        Step(0, b"cd"),
        Step(0, b"e"),
        Step(0, None),
    ]
    assert [step.data for step in cuts.pieces([Step(0, b"abcde")], 2)] == [b"ab", b"cd", b"e"]


def test_all_pairs_of_a_short_one_and_the_same_choice_of_a_long_one() -> None:
    short, long = [Step(0, b"x" * 40)], [Step(0, b"x" * 401)]
    pairs = [tuple(len(step.data or b"") for step in steps) for steps in cuts.two_cuts(short)]
    assert len(set(pairs)) == len(pairs) == 39 * 38 // 2
    assert len(list(cuts.two_cuts(long))) == cuts.SAMPLES
    assert list(cuts.two_cuts(long)) == list(cuts.two_cuts(long))


def test_nothing_live_is_printed() -> None:
    shown = show.tame(f"<{MARK}x> | {WORD} | a | b \x1b[31m \u2016{WORD}\u2016 {WORD.lower()}|x")
    assert BAR not in shown and "\u2016" not in shown and "\x1b" not in shown
    assert f"| {WORD}" not in shown and f"{WORD} |" not in shown and f"{WORD.lower()}|" not in shown
    assert " a | b " in shown


# --- The provider -----------------------------------------------------------------------------------------------------


@pytest.fixture
def serving() -> Iterator[Any]:
    started: list[Provider] = []

    def serve(*goldens: Golden) -> int:
        provider = Provider(goldens, 0)
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        started.append(provider)
        return provider.port

    yield serve
    for provider in started:
        provider.shutdown()
        provider.server_close()


def ask(port: int, path: str, method: str = "POST") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, b"{}" if method == "POST" else None)
    return connection.getresponse()


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["stream", "body"])
def test_a_golden_is_served_as_it_came(wire: str, kind: str, serving: Any) -> None:
    golden = GOLDENS[f"wires/{wire}-{kind}"]
    got = ask(serving(golden), PATHS[wire])
    assert (got.status, got.headers["content-type"]) == (200, golden.content_type)
    assert got.read() == golden.received


@pytest.mark.slow
def test_the_pieces_come_one_by_one_at_their_time(serving: Any) -> None:
    steps = (Step(0, b"data: 1\n"), Step(200, b"\n"), Step(0, None), Step(300, b"data: 2\n\n"))
    got = ask(serving(Golden(CHAT, True, steps)), PATHS[CHAT])
    began = time.monotonic()
    times = []
    for size in (8, 1, 9):
        assert len(got.read(size)) == size
        times.append(time.monotonic() - began)
    assert times[0] < 0.15 <= times[1] < 0.45 <= times[2]


def test_several_take_turns_by_wire(serving: Any) -> None:
    one, two, other = (GOLDENS[f"wires/{name}-body"] for name in (CHAT, "anthropic", "ollama"))
    again = replace(one, steps=(Step(0, b"{}"),))
    port = serving(one, again, two, other)
    assert [ask(port, PATHS[CHAT]).read() for _ in range(3)] == [one.received, b"{}", one.received]
    assert ask(port, PATHS["anthropic"]).read() == two.received


def test_one_that_broke_off_breaks_off(serving: Any) -> None:
    golden = GOLDENS["moments/aborted"]
    with pytest.raises(http.client.IncompleteRead) as broken:
        ask(serving(golden), PATHS[CHAT]).read()
    assert broken.value.partial == golden.received


def test_it_tells_its_models_and_refuses_the_rest(serving: Any) -> None:
    port = serving(GOLDENS[f"wires/{CHAT}-body"])
    assert json.loads(ask(port, "/v1/models", "GET").read())["data"] == [{"id": "deepseek-chat", "object": "model"}]
    assert json.loads(ask(port, "/api/tags", "GET").read())["models"][0]["name"] == "deepseek-chat"
    assert ask(port, "/", "GET").status == 404
    refused = ask(port, PATHS["anthropic"])
    assert (refused.status, "there is no golden for anthropic" in refused.read().decode()) == (404, True)


def test_a_port_that_is_taken_is_said(serving: Any, capsys: pytest.CaptureFixture[str], golden: Path) -> None:
    port = serving(GOLDENS[SMALL])
    status, said = run(capsys, golden, "--serve", port)
    assert status == 2
    assert f"port {port}: Address already in use" in said


@pytest.mark.slow
def test_serve_says_where_and_ends_when_it_is_interrupted(golden: Path) -> None:
    root = FOLDER.parent.parent
    command = [sys.executable, "-u", "-m", "goldens", "--serve", "0", str(golden)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("serving 1 on http://127.0.0.1:")
        port = int(line.split(":")[2].split()[0])
        assert ask(port, PATHS[CHAT]).read() == GOLDENS[SMALL].received
        process.send_signal(2)
        assert process.wait(10) == 0
