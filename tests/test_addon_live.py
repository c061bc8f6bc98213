"""What is left of a response when it has passed: the lines of the JSON log, and what goes with its flow."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import flowfilter
from mitmproxy.flow import Error
from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowReader, FlowWriter
from mitmproxy.utils.emoji import emoji

from addon import exchange, kept, live
from addon.hooks import Dsml
from addon.kept import Tape
from tests.e2e.wires import LEAK, PATHS, body, request, stream
from tests.flows import addon, answered, asking

CHAT = "openai-chat"
BAD = LEAK.replace("read_file", "rm -rf")
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "DEBUGGING.md"


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logging_to(path: Path, **given: str) -> Dsml:
    made = addon(log=str(path), **given)
    made._open_files()
    return made


def saved(flow: HTTPFlow) -> HTTPFlow:
    """The flow as it comes back from a file."""
    file = io.BytesIO()
    FlowWriter(file).add(flow)  # type: ignore[no-untyped-call]
    file.seek(0)
    (read,) = FlowReader(file).stream()
    assert isinstance(read, HTTPFlow)
    return read


# --- The JSON lines ---------------------------------------------------------------------------------------------------


def test_one_object_a_decision(tmp_path: Path) -> None:
    path = tmp_path / "log"
    flow = answered(CHAT, f"Look.\n\n{LEAK}\n\n{BAD}", logging_to(path))
    first, *rest = logged(path)
    assert first.pop("held_seconds") >= 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first.pop("time"))
    assert first == {
        "version": 1,
        "flow": flow.id,
        "mode": "repair",
        "wire": CHAT,
        "model": "deepseek-test",
        "held_characters": first["held_characters"],
        "native_calls": 0,
        "resumed": 0,
        "aborted": False,
        "ended": None,
        "changed": True,
        "decision": "recovered",
        "tool": "read_file",
        "row": "V1",
        "reason": "a tool call",
        "start": 7,
        "characters": 183,
        "removed": True,
    }
    told = [(line["decision"], line["tool"], line["row"]) for line in rest]
    assert ("refused", None, "V12") in told
    assert ("removed", None, "T8") in told


@pytest.mark.parametrize(
    ("text", "more", "decision"),
    [
        (LEAK, {}, "recovered"),
        (BAD, {}, "refused"),
        (LEAK, {"messages": [{"role": "user", "content": LEAK}]}, "refused"),
        (LEAK, {"tool_choice": "none"}, "refused"),
        (LEAK[:100], {}, "refused"),
        (LEAK, {"tools": []}, "skipped"),
    ],
)
def test_the_kinds_of_decisions(text: str, more: dict[str, Any], decision: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    answered(CHAT, text, logging_to(path), asked=request(CHAT, **more))
    assert logged(path)[0]["decision"] == decision


def test_a_fault_is_a_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("dsml_core.rewriter.Rewriter.take", broken)
    path = tmp_path / "log"
    flow = answered(CHAT, LEAK, logging_to(path))
    (line, *_) = logged(path)
    assert line["decision"] == "fault"
    assert line["reason"].startswith("RuntimeError at ")
    assert "secret" not in path.read_text()
    assert flow.marked == ":x:"


def test_a_stream_that_names_no_model_is_told_by_that_of_its_request() -> None:
    nameless = [frame.replace(b'"model": "deepseek-test"', b'"x": 0') for frame in stream(CHAT, LEAK)]
    asked = request(CHAT, model="deepseek-asked")
    assert answered(CHAT, "", pieces=nameless, asked=asked).metadata["dsml"]["model"] == "deepseek-asked"
    assert answered(CHAT, LEAK, asked=asked).metadata["dsml"]["model"] == "deepseek-test"


def test_nothing_is_written_where_nothing_was_decided(tmp_path: Path) -> None:
    path = tmp_path / "log"
    flow = answered(CHAT, "a < b", logging_to(path))
    assert path.read_text() == ""
    assert (flow.metadata, flow.comment, flow.marked) == ({}, "", "")


def test_content_is_written_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    answered(CHAT, f"My secret. {LEAK}", logging_to(path))
    assert "text" not in logged(path)[0]
    assert "a.txt" not in path.read_text()
    answered(CHAT, f"My secret. {LEAK}", logging_to(path, log_content="on"))
    *_, call, tail = logged(path)
    assert call["text"] + tail["text"] == LEAK
    assert path.read_text().isascii()  # so it holds no marker that could be executed
    assert "secret" not in path.read_text()


def test_the_keys_are_those_of_the_document(tmp_path: Path) -> None:
    path = tmp_path / "log"
    answered(CHAT, LEAK, logging_to(path, log_content="on"))
    answered(CHAT, LEAK, logging_to(path), asked=request(CHAT, tools=[]))
    documented = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text().partition("## The JSON log")[2], re.MULTILINE)
    lines = logged(path)
    assert list(lines[0]) == documented
    assert set(lines[-1]) < set(documented)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("kept\n")
    old.chmod(0o644)
    for path in (new, old):
        answered(CHAT, LEAK, logging_to(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert old.read_text().startswith("kept\n{")


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    for given in ({"log": str(tmp_path)}, {"log": "/nowhere/log"}, {"report": str(tmp_path)}, {"report": "/nowhere/r"}):
        with pytest.raises(ValueError, match=r"cannot write to .*: "):
            addon(**given)._open_files()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_costs_the_log_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    by = logging_to(Path("/dev/full"))
    for _ in range(2):
        flow = answered(CHAT, LEAK, by)
        assert flow.metadata["dsml"]["outcome"] == "recovered"
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warned] == [
        "dsml: nothing more is written to dsml_log: [Errno 28] No space left on device"
    ]


def test_the_file_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    log = live.JsonLog()
    for name in ("one", "two", ""):
        log.open(str(tmp_path / name) if name else "")
        log.write(["{}"])
        log.write(["{}"])
    log.close()
    assert [path.read_text() for path in (tmp_path / "one", tmp_path / "two")] == ["{}\n{}\n", "{}\n{}\n"]


@pytest.mark.parametrize("whose", ["mine", "the system's", "another's"])
def test_a_link_that_another_user_made_is_not_followed(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    owner, me = {"mine": (4711, 4711), "the system's": (0, 4711), "another's": (815, 4711)}[whose]
    seen = os.stat_result([*link.lstat()[:4], owner, *link.lstat()[5:10]])
    monkeypatch.setattr(os, "geteuid", lambda: me)
    monkeypatch.setattr(Path, "lstat", lambda _: seen)
    log = live.JsonLog()
    if whose == "another's":
        with pytest.raises(OSError, match="it is a link that another user made") as caught:
            log.open(str(link))
        assert caught.value.filename == str(link)
    else:
        log.open(str(link))
        log.write(["{}"])
        log.close()
    assert target.exists() is (whose != "another's")


# --- The flow ---------------------------------------------------------------------------------------------------------

MARKS = {
    "recovered": (LEAK, {}, ":wrench:", "dsml: recovered 1 call: read_file (V1, 183 characters)"),
    "refused": (BAD, {}, ":warning:", "dsml: refused nameless (V12: the name is no tool name; removed)"),
    "observed": (
        LEAK,
        {"mode": "observe"},
        ":eyes:",
        "dsml: observed only: would have recovered 1 call: read_file (V1, 183 characters)",
    ),
}


@pytest.mark.parametrize(("text", "options", "mark", "comment"), MARKS.values(), ids=MARKS)
def test_the_list_of_flows_shows_it(text: str, options: dict[str, str], mark: str, comment: str) -> None:
    flow = answered(CHAT, text, addon(**options))
    assert (flow.marked, flow.comment) == (mark, comment)
    assert mark in emoji


@pytest.mark.parametrize(
    "expression",
    ["~comment recovered", "~comment read_file", "~marker wrench", "~marked", "~meta dsml", "~meta \"row': 'V1\""],
)
def test_filters_find_it(expression: str) -> None:
    assert flowfilter.match(expression, answered(CHAT, LEAK))
    assert not flowfilter.match(expression, answered(CHAT, "a < b"))


@pytest.mark.parametrize("expression", ["~meta my.secret", "~meta a.txt"])
def test_no_filter_on_metadata_finds_the_text_of_a_message(expression: str) -> None:
    assert not flowfilter.match(expression, answered(CHAT, f"my secret {LEAK}"))


def test_a_long_comment_is_shortened() -> None:
    flow = answered(CHAT, "\n\n".join(LEAK for _ in range(5)))
    assert len(flow.comment) == 120
    assert flow.comment.endswith("\u2026")


def test_what_a_user_wrote_and_marked_stays() -> None:
    flow = asking(CHAT)
    flow.comment, flow.marked = "mine", ":x:"
    answered(CHAT, LEAK, flow=flow)
    assert flow.comment.startswith("mine; dsml: recovered")
    assert flow.marked == ":x:"


def test_a_replayed_flow_forgets_what_was_said_of_it() -> None:
    flow = asking(CHAT)
    flow.comment = "mine"
    answered(CHAT, LEAK, flow=flow)
    answered(CHAT, "a < b", flow=flow)
    assert (flow.comment, flow.marked, flow.metadata) == ("mine", "", {})


# --- What is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_both_sides_of_a_repair_are_kept_and_come_back_from_a_file(wire: str, streamed: bool) -> None:
    pieces = stream(wire, LEAK) if streamed else [body(wire, LEAK)]
    flow = saved(answered(wire, "", pieces=pieces, streamed=streamed))
    sides = kept.sides(flow)
    assert sides and flow.response
    assert sides[0] == b"".join(pieces)
    assert sides[1] == flow.response.content != sides[0]
    assert [size for _, size in kept.chunks_of(flow) or ()] == [len(piece) for piece in pieces]


def test_a_stream_without_a_decision_is_shown_too() -> None:
    flow = answered(CHAT, "a < b")
    assert flow.response
    assert flow.response.content == b"".join(stream(CHAT, "a < b"))
    assert kept.sides(flow) == (flow.response.content, flow.response.content)


def test_an_observed_stream_is_kept_in_its_encoding_and_what_it_would_have_been_beside_it() -> None:
    data = b"".join(stream(CHAT, LEAK))
    packed = gzip.compress(data)
    flow = saved(answered(CHAT, "", addon(mode="observe"), pieces=[packed[:50], packed[50:]], content_encoding="gzip"))
    assert flow.response
    assert flow.response.raw_content == packed
    sides = kept.sides(flow)
    assert sides
    assert sides[0] == data
    assert b'"tool_calls"' in sides[1]
    repaired = answered(CHAT, LEAK).response
    assert repaired
    assert sides[1] == repaired.content


def test_the_same_bytes_are_kept_once() -> None:
    flow = answered(CHAT, LEAK[:100], streamed=False)
    assert flow.metadata["dsml"]["outcome"] == "refused"
    assert "dsml_other" not in flow.metadata


@pytest.mark.parametrize("limit", ["0", "1000"])
def test_a_stream_over_the_limit_is_not_kept(limit: str) -> None:
    flow = answered(CHAT, LEAK, addon(keep_limit=limit))
    assert flow.response
    assert flow.response.raw_content is None
    assert set(flow.metadata) == {"dsml"}
    assert flow.comment.startswith("dsml: recovered")


def test_what_mitmproxy_has_stored_itself_stays() -> None:
    flow = answered(CHAT, LEAK)
    assert flow.response
    flow.response.raw_content = b"stored"
    tape = Tape(10)
    tape.add(b"ours")
    kept.keep_body(flow, tape)
    assert flow.response.raw_content == b"stored"


def test_a_tape_holds_no_more_than_its_limit() -> None:
    tape = Tape(5)
    for piece in (b"ab", b"", b"cde"):
        tape.add(piece)
    assert tape.joined() == b"abcde"
    tape.add(b"f")
    assert (tape.joined(), tape.complete) == (None, False)


def test_a_response_that_broke_off_is_kept_as_far_as_it_came() -> None:
    by = addon()
    flow = asking(CHAT)
    frames = stream(CHAT, LEAK)[:20]
    by.requestheaders(flow)
    by.request(flow)
    flow.response = answered(CHAT, "").response
    assert flow.response
    flow.response.raw_content = None
    by.responseheaders(flow)
    assert callable(flow.response.stream)
    for frame in frames:
        flow.response.stream(frame)
    flow.error = Error("peer closed connection")
    by.error(flow)
    assert flow.metadata["dsml"]["aborted"] is True
    assert flow.metadata["dsml"]["ended"] == "peer closed connection"
    sides = kept.sides(flow)
    assert sides
    assert sides[0] == b"".join(frames)
    assert exchange.of(flow) is None


def test_a_skip_is_kept_with_its_reason_and_marks_nothing() -> None:
    flow = answered(CHAT, LEAK, asked=request(CHAT, tools=[]))
    assert flow.metadata["dsml"]["line"] == "untouched: the request declares no tools"
    assert (flow.comment, flow.marked) == ("", "")


def test_how_long_text_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(float(second) for second in range(10_000))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    flow = answered(CHAT, "", pieces=[*stream(CHAT, LEAK)])
    seconds = flow.metadata["dsml"]["held_seconds"]
    assert seconds > 40
    assert f"{seconds:.1f} s)" in flow.metadata["dsml"]["line"]


def test_the_last_flows_of_a_session() -> None:
    recent = live.Recent(count=3, size=60_000)
    flows = [answered(CHAT, LEAK) for _ in range(4)]
    for flow in [answered(CHAT, "a < b"), *flows]:
        recent.add(flow)
    assert recent.flows() == flows[1:]
    large = answered(CHAT, "x" * 9000 + LEAK)
    recent.add(large)
    assert recent.flows() == []
