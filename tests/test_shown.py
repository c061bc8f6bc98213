"""What others chose, where it is shown: no text of a message in a log, nothing that steers a terminal in any view."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions
from mitmproxy.contentviews import Metadata
from mitmproxy.flow import Error
from mitmproxy.http import HTTPFlow

from addon import live, log, report
from addon.commands import Commands
from addon.views import DiffView, MessageView
from dsml_core import prompts
from dsml_core.policy import Policy
from tests.e2e.wires import LEAK, request, stream
from tests.flows import addon, answered, asking

CHAT = "openai-chat"
ENTERED = LEAK.replace("read_file", "bash&quot;, &quot;command&quot;: &quot;mysql -phunter2")
STEERING = "\x1b[31m\x07\x00\x85\x9b31m\u061c\u200b\u200f\u2028\u2029\u202e\u2066\ufeff\U000e0041"
views = pytest.mark.parametrize("view", [MessageView, DiffView])


def seen(flow: HTTPFlow, view: type[Any], of: str = "response") -> str:
    message = getattr(flow, of)
    told: str = view(Policy).prettify(message.get_content(strict=False), Metadata(flow=flow, http_message=message))
    return told


def explained(flow: HTTPFlow) -> list[str]:
    return list(Commands(addon()).explain([flow]))


# --- The text that ran into a name ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["off", "on"])
def test_what_ran_into_a_name_is_in_no_log(content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    by = addon(log=str(tmp_path / "log"), log_content=content)
    by._open_files()
    with caplog.at_level("DEBUG"):
        flow = answered(CHAT, f"No.\n\n{ENTERED}", by)
    assert flow.comment == "dsml: refused nameless (V12: the name is no tool name; removed)"
    assert "refused nameless (V12" in caplog.text
    lines = (tmp_path / "log").read_text()
    assert [json.loads(line)["tool"] for line in lines.splitlines() if '"V12"' in line] == [None]
    assert ("hunter2" in lines) == (content == "on")
    for told in (flow.comment, caplog.text, str(flow.metadata["dsml"]), report.page([flow], Policy())):
        assert "hunter2" not in told and "mysql" not in told


def test_a_refused_name_of_other_rows_is_shown_where_it_is_a_word() -> None:
    assert log.tool_name("mcp:fs/read.file-2") == "mcp:fs/read.file-2"
    assert [log.tool_name(name) for name in (None, "", "a b", 'a"', "a\n")] == [None] * 5
    assert [log.tool_name(name, ["a b"]) for name in ("a b", "a  b", "c")] == ["a b", None, "c"]


@pytest.mark.parametrize("name", ["read a file", "lire\u00a0un fichier", "a\x9bb\u202ec"])
def test_a_declared_name_that_is_no_word_is_shown_where_its_call_is_refused(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = request(CHAT)
    asked["tools"][0]["function"]["name"] = name
    with caplog.at_level("INFO", "dsml"):
        flow = answered(CHAT, f"A\n\n{LEAK.replace('read_file', name)[:120]}", asked=asked)
    assert [made["tool"] for made in flow.metadata["dsml"]["decisions"]] == [name]
    shown = log.shown(name)
    assert f"dsml: refused {shown} (V15: not closed; still text)" in caplog.text
    assert f"<td>{name}</td>" in report.page([flow], Policy())
    assert flow.metadata["dsml"]["line"].isprintable()


# --- What steers a terminal -------------------------------------------------------------------------------------------


def unsteered(text: str) -> bool:
    return not set(text) & {character for character in STEERING if not character.isprintable()}


def test_what_stays_and_what_does_not() -> None:
    kept = "a\tb\n\u3000\u6f22\u00a0\u200d\u200c\U0001f600"
    assert log.printable(kept + STEERING + "\ud800") == f"{kept}?[31m????31m{'?' * 10}"
    assert log.shown("a\nb\u3000" + "c" * 99, 9) == "a?b?cccc\u2026"


@views
@pytest.mark.parametrize("place", ["text", "model", "finish", "tool", "argument"])
def test_nothing_in_an_answer_steers_a_terminal(place: str, view: type[Any]) -> None:
    evil = f"A{STEERING}\r\nB"
    name = f"x{STEERING}"
    swaps = {"model": ('"deepseek-test"', evil), "finish": ('"finish_reason": "stop"', evil)}
    text = f"Hi {STEERING}" if place == "text" else "Hi"
    leak = LEAK.replace("read_file", name) if place == "tool" else LEAK
    leak = leak.replace("a.txt", f"\x7f{STEERING}") if place == "argument" else leak
    pieces = stream(CHAT, f"{text}\n\n{leak}")
    if place in swaps:
        old, new = swaps[place]
        key = old.partition(": ")[0] + ": " if ": " in old else ""
        pieces = [piece.replace(old.encode(), (key + json.dumps(new)).encode()) for piece in pieces]
    flow = answered(CHAT, "", pieces=pieces)
    assert flow.metadata["dsml"]["decisions"]
    for told in (seen(flow, view), *explained(flow), flow.comment, flow.metadata["dsml"]["line"]):
        assert unsteered(told), ascii(told)
        assert "\r" not in told
        assert not any(line == "B" for line in told.split("\n"))


@views
def test_nothing_in_a_request_steers_a_terminal(view: type[Any]) -> None:
    call = {"function": {"name": f"x{STEERING}", "arguments": json.dumps({"a": STEERING})}}
    said = [{"role": f"r{STEERING}", "content": f"t{STEERING}"}, {"role": "assistant", "tool_calls": [call]}]
    parts = [{"role": "user", "content": [{"type": f"image{STEERING}"}]}]
    asked = request(CHAT, messages=[*said, *parts])
    asked["model"] = asked["tools"][0]["function"]["name"] = f"m{STEERING}\nB"
    told = seen(asking(CHAT, asked), view, "request")
    assert unsteered(told), ascii(told)
    assert "\nB" not in told


def test_a_content_type_and_an_encoding_that_are_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "dsml"):
        for flow in (
            answered(CHAT, LEAK, content_type=f"text/\x9b\u202e\x1b{'x' * 99}"),
            answered(CHAT, LEAK, content_encoding="\x9b\u202e\x1b"),
        ):
            line = flow.metadata["dsml"]["line"]
            assert line.isprintable() and len(line) < 100
            assert line.startswith("untouched: content ")
            assert unsteered("".join(explained(flow)))
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name == "dsml")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/models?key=hunter2", "GET /v1/models"),
        ("/\x9b\u202e\x1b[31m", "GET /???[31m"),
        ("/" + "x" * 99, f"GET /{'x' * 54}\u2026"),
    ],
)
def test_a_path_that_is_none_of_ours(path: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    flow = asking(CHAT)
    flow.request.method, flow.request.data.path = "GET", path.encode("utf-8", "surrogateescape")
    with caplog.at_level("DEBUG", "dsml"):
        addon().requestheaders(flow)
    assert [record.getMessage() for record in caplog.records] == [f"dsml: untouched: {said}"]


def test_the_words_of_a_break(caplog: pytest.LogCaptureFixture) -> None:
    by = addon()
    flow = asking(CHAT)
    by.requestheaders(flow)
    by.request(flow)
    flow.response = answered(CHAT, "").response
    assert flow.response
    flow.response.raw_content = None
    by.responseheaders(flow)
    assert callable(flow.response.stream)
    for frame in stream(CHAT, LEAK)[:20]:
        flow.response.stream(frame)
    flow.error = Error(f"reset by {STEERING} {'x' * 100}\nB")
    with caplog.at_level("INFO", "dsml"):
        by.error(flow)
    (said,) = [record.getMessage() for record in caplog.records if "reset by" in record.getMessage()]
    assert said.isprintable() and said.endswith("x?B")


# --- The page and the files -------------------------------------------------------------------------------------------


def test_half_of_a_surrogate_pair_is_saved(tmp_path: Path) -> None:
    pieces = [piece.replace(b"a.tx", rb"\ud800") for piece in stream(CHAT, f"A\n\n{LEAK}")]
    pieces = [piece.replace(b'"content": "A', rb'"content": "\ud800A') for piece in pieces]
    flow = answered(CHAT, "", pieces=pieces)
    report.save(tmp_path / "page.html", [flow], Policy(), True)
    assert r"\ud800" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["a\0b", "~a\0b/c", "~nobody-of-that-name/x", "\ud800"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    for opening in (live.JsonLog().open, report.check, lambda path: report.save(path, [], Policy(), False)):
        with pytest.raises(OSError, match="Invalid argument"):
            opening(name)
    with pytest.raises(exceptions.CommandError, match=r"^cannot write to [^\0]+: Invalid argument"):
        Commands(addon()).report(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_written_to_only_where_somebody_reads(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    raised: list[ValueError] = []

    def opening() -> None:
        try:
            addon(log=str(path))._open_files()
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=opening, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert str(raised[0]).startswith(f"cannot write to {path}: ")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    written = live.JsonLog()
    written.open(str(path))
    written.write(["{}"])
    assert os.read(reader, 9) == b"{}\n"
    written.close()
    os.close(reader)


def test_the_page_names_a_model_it_does_not_know_and_a_tool_that_is_declared() -> None:
    asked = request(CHAT)
    asked["tools"][0]["function"]["name"] = "w\u00e9ird tool!"
    flow = answered(CHAT, LEAK.replace("read_file", "w\u00e9ird tool!"), asked=asked)
    flow.metadata["dsml"]["model"] = None
    html = report.page([flow], Policy())
    assert "None" not in html
    assert "1. recovered: openai-chat, unknown model" in html
    assert html.count("<td>w\u00e9ird tool!</td>") == 2
    assert "tool call: w\u00e9ird tool!" in html


# --- The request and what was added to it -----------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses", "ollama"])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_the_difference_that_the_directive_makes(wire: str, system: str) -> None:
    by = addon(models=".")
    asked = request(wire)
    turns = asked["input" if wire == "openai-responses" else "messages"]
    if system:
        turns.insert(0, {"role": "system", "content": system})
    flow = asking(wire, asked)
    by.requestheaders(flow)
    by.request(flow)
    assert prompts.DIRECTIVE[:60] in (flow.request.text or "")
    first, _, *rows = seen(flow, DiffView, "request").splitlines()
    assert first == "The history was not changed. Added by dsml: the directive."
    left = "\n".join(row[:38] for row in rows)
    right = "\n".join(row[41:] for row in rows)
    assert "Tool call format" in right and "Tool call format" not in left
    assert system in left and system in right
