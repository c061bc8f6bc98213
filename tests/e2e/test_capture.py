"""Goldens of live responses: captured, redacted, replayed; and no fault of it in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mitmproxy.types
import openai
import pytest
from mitmproxy import command, exceptions
from mitmproxy.http import HTTPFlow

from addon import capture
from dsml_core.formats import WIRES
from goldens import replay, store
from goldens.format import Golden
from goldens.serve import Provider
from tests.e2e.asking import CHAT, ask, encoded, run
from tests.e2e.client import Client, Received
from tests.e2e.provider import Break, Reply, provider
from tests.e2e.proxy import ROOT, in_process, mitmdump
from tests.e2e.wires import KINDS, LEAK, PATHS, body, request, stream

pytestmark = pytest.mark.slow

TEXT = "Look, Featherstone: " + LEAK


def kept(folder: Path) -> list[Golden]:
    """The goldens in a folder, which holds nothing else."""
    return [store.read(path) for path in sorted(folder.iterdir())]


def only(folder: Path) -> Golden:
    (golden,) = kept(folder)
    return golden


async def captured(confdir: Path, folder: Path, reply: Reply, path: str = PATHS[CHAT], **how: Any) -> Received:
    return await ask(confdir, reply, path, dsml_capture=str(folder), **how)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_golden_is_what_came_and_what_left(wire: str, streamed: bool, confdir: Path, tmp_path: Path) -> None:
    frames = stream(wire, TEXT) if streamed else [body(wire, TEXT)]
    reply = Reply(frames, KINDS[wire] if streamed else "application/json")
    asked = request(wire, stream=streamed)
    received = asyncio.run(captured(confdir, tmp_path, reply, PATHS[wire], asked=asked, dsml_capture_redact="off"))
    golden = only(tmp_path)
    assert (golden.wire, golden.stream, golden.clean, golden.redacted) == (wire, streamed, True, False)
    assert golden.received == b"".join(frames)
    assert golden.expected == replay.run(golden)
    assert golden.expected is not None and golden.expected.emitted == received.body != golden.received
    assert golden.request is not None and golden.request["model"] == asked["model"]
    assert (tmp_path / next(tmp_path.iterdir())).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("wire", WIRES)
def test_it_is_redacted_unless_told_otherwise(wire: str, confdir: Path, tmp_path: Path) -> None:
    reply = Reply(stream(wire, TEXT), KINDS[wire])
    received = asyncio.run(captured(confdir, tmp_path, reply, PATHS[wire], asked=request(wire)))
    golden = only(tmp_path)
    assert golden.redacted and golden.expected == replay.run(golden)
    assert "eatherstone" not in next(tmp_path.iterdir()).read_text()
    assert len(golden.received) == len(b"".join(reply.steps))  # type: ignore[arg-type]
    assert golden.expected is not None and len(golden.expected.emitted) == len(received.body)
    assert [call["name"] for call in golden.expected.decided["recovered"]] == ["read_file"]


def test_through_a_real_mitmdump(confdir: Path, tmp_path: Path) -> None:
    folder, saved = tmp_path / "goldens", tmp_path / "saved.flow"

    async def check() -> None:
        frames = stream(CHAT, TEXT)
        reply = Reply([frames[0], 0.3, *frames[1:]])
        options = ("--set", f"dsml_capture={folder}", "-w", str(saved))
        async with provider(reply) as upstream, mitmdump(confdir, upstream.port, *options) as running:
            client = Client(await running.port())
            received = await client.ask(PATHS[CHAT], request(CHAT))
            await running.says(r"dsml: captured: \S+openai-chat-v1-[0-9a-f]{12}\.json: recovers read_file \(V1\)")
            assert await running.stop() == 0
        golden = only(folder)
        assert golden.redacted and golden.recorded
        assert replay.run(golden) == golden.expected
        assert golden.expected is not None and len(golden.expected.emitted) == len(received.body)
        assert golden.received[: len(frames[0])].count(b"\n\n") == 1
        assert sum(step.ms for step in golden.steps[:2]) >= 250

    run(check())
    again = tmp_path / "again"
    script = [sys.executable, "-m", "goldens"]
    made = subprocess.run([*script, "--from", saved, "--to", again], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert [path.read_text() for path in again.iterdir()] == [path.read_text() for path in folder.iterdir()]
    for options in ([], ["--chunks", "exhaustive"], ["--chunks", "1"]):
        checked = subprocess.run([*script, "--check", *options, folder], cwd=ROOT, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout) == (0, "1 replayed, 0 wrong\n")


def test_pieces_and_pauses_are_kept(confdir: Path, tmp_path: Path) -> None:
    frames = stream(CHAT, "a b<c then. " + LEAK)
    at = next(number for number, frame in enumerate(frames) if b"<" in frame) + 1
    one, two = b"".join(frames[:at]), b"".join(frames[at:])
    reply = Reply([one, 0.7, two[:1000], 0.05, two[1000:]])
    how = {"dsml_idle_flush": "0.2", "dsml_capture_redact": "off"}
    received = asyncio.run(captured(confdir, tmp_path, reply, **how))
    golden = only(tmp_path)
    assert [step.data for step in golden.steps] == [one, None, two[:1000], two[1000:]]
    assert 150 < golden.steps[1].ms < 600 and 600 < golden.steps[1].ms + golden.steps[2].ms < 3000
    assert golden.expected is not None and golden.expected.emitted == received.body


def test_a_response_that_broke_off_is_kept_as_one(confdir: Path, tmp_path: Path) -> None:
    frames = stream(CHAT, LEAK)
    reply = Reply([*frames[:-3], 0.1, Break.ABORT])
    received = asyncio.run(captured(confdir, tmp_path, reply, dsml_capture_redact="off"))
    golden = only(tmp_path)
    assert not golden.clean and not received.complete
    assert golden.expected is not None and golden.expected.emitted == received.body
    assert golden.expected.decided["recovered"] == []


def test_what_would_have_left_is_kept_when_nothing_is_changed(confdir: Path, tmp_path: Path) -> None:
    reply = Reply(stream(CHAT, LEAK))
    received = asyncio.run(captured(confdir, tmp_path, reply, dsml_mode="observe", dsml_capture_redact="off"))
    golden = only(tmp_path)
    assert received.body == golden.received
    assert golden.expected is not None and golden.expected.emitted != golden.received
    assert golden.recorded and len(golden.steps) == len(stream(CHAT, LEAK))


def test_a_coded_response_is_kept_decoded(confdir: Path, tmp_path: Path) -> None:
    data = encoded("gzip", b"".join(stream(CHAT, LEAK)))
    reply = Reply([data[:50], data[50:]], headers=[("content-encoding", "gzip")])
    asyncio.run(captured(confdir, tmp_path, reply, dsml_capture_redact="off"))
    assert only(tmp_path).received == b"".join(stream(CHAT, LEAK))


def test_the_policy_of_the_user_is_kept(confdir: Path, tmp_path: Path) -> None:
    how = {"dsml_undeclared": "reject", "dsml_hold_limit": "5000"}
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, LEAK)), **how))
    assert only(tmp_path).policy == {"undeclared": "reject", "hold_limit": 5000}


SECRET_HEADERS = {
    "authorization": "Bearer tok-in-request",
    "cookie": "session=cookie-in-request",
    "x-api-key": "key-in-request",
    "openai-organization": "org-in-request",
    "user-agent": "agent-in-request",
}


def test_no_header_is_kept(confdir: Path, tmp_path: Path) -> None:
    sent = [("set-cookie", "id=cookie-in-response"), ("x-request-id", "req-in-response"), ("x-account", "in-response")]
    reply = Reply(stream(CHAT, LEAK), "text/event-stream; account=in-response", headers=sent)
    asyncio.run(captured(confdir, tmp_path, reply, headers=SECRET_HEADERS, dsml_capture_redact="off"))
    assert only(tmp_path).content_type == "text/event-stream"
    text = next(tmp_path.iterdir()).read_text()
    assert "in-re" not in text and "127.0.0.1" not in text


@pytest.mark.parametrize(("shown", "count"), [("~u chat/completions", 1), ("~u nowhere", 0), ("~bq a.txt", 1)])
def test_a_filter_chooses(shown: str, count: int, confdir: Path, tmp_path: Path) -> None:
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, LEAK)), dsml_capture_filter=shown))
    assert len(kept(tmp_path)) == count


def test_only_what_leaks_is_captured(confdir: Path, tmp_path: Path) -> None:
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, "Nothing: a < b."))))
    assert kept(tmp_path) == []
    unclosed = LEAK[: LEAK.index("limit")]
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, unclosed))))
    assert only(tmp_path).about.startswith("refuses ")


def test_the_same_leak_is_kept_once(confdir: Path, tmp_path: Path) -> None:
    for _ in range(2):
        asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, LEAK))))
    assert len(kept(tmp_path)) == 1


# --- Never in the way -------------------------------------------------------------------------------------------------


async def undisturbed(confdir: Path, folder: Path) -> None:
    frames = stream(CHAT, LEAK)
    reference = await ask(confdir, Reply(frames))
    received = await captured(confdir, folder, Reply(frames))
    assert received.complete and received.body == reference.body


def test_a_fault_in_it_costs_nothing(
    confdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("injected")

    for name, message in (("from_flow", "fault in "), ("_write", "dsml: not captured: fault in it")):
        monkeypatch.setattr(capture, name, broken)
        asyncio.run(undisturbed(confdir, tmp_path))
        assert message in caplog.text
        monkeypatch.undo()
    assert kept(tmp_path) == []


def test_a_folder_that_goes_away_costs_nothing(confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "goldens"

    async def check() -> None:
        reply = Reply([0.3, *stream(CHAT, LEAK)])
        async with provider(reply) as up, in_process(confdir, up.port, dsml_capture=str(folder)) as (port, _):
            shutil.rmtree(folder)
            assert (await Client(port).ask(PATHS[CHAT], request(CHAT))).complete

    run(check())
    assert f"dsml: not captured: cannot write to {folder}: No such file or directory" in caplog.text
    assert not folder.exists()


def test_a_response_that_was_not_kept_is_said(confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, LEAK)), dsml_keep_limit="100"))
    assert "dsml: not captured: its body was not kept (dsml_keep_limit)" in caplog.text
    assert kept(tmp_path) == []


def test_a_refusal_is_said_without_the_text(confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    leak = LEAK.replace('name="limit">7', 'name="limit" string="false">12e10')
    asyncio.run(captured(confdir, tmp_path, Reply(stream(CHAT, leak))))
    assert "dsml: not captured: redaction would change what is decided, first at message" in caplog.text
    assert "12e10" not in caplog.text and kept(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["dsml_capture=/dev/null/x"], "dsml: cannot write to /dev/null/x: Not a directory"),
        (["dsml_capture=/proc/x"], "dsml: cannot write to /proc/x: "),
        (["dsml_capture_filter=~nothing"], "dsml: dsml_capture_filter: Invalid filter expression: '~nothing'"),
        (["dsml_capture=~nobody-of-that-name/x"], "dsml: cannot write to ~nobody-of-that-name/x: Invalid argument"),
        (["dsml_capture_redact=maybe"], "dsml: dsml_capture_redact must be on or off (or true, "),
    ],
)
def test_a_bad_option_stops_the_start_with_a_sentence(options: list[str], message: str, confdir: Path) -> None:
    async def check() -> None:
        given = [part for option in options for part in ("--set", option)]
        async with mitmdump(confdir, 1, *given) as running:
            assert await running.ends() == 1
            assert message in running.log and "Traceback" not in running.log

    run(check())


def test_a_bad_option_later_on_changes_nothing(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, LEAK))) as up,
            session(confdir, up.port, dsml_capture=str(tmp_path / "a")) as (port, master, _),
        ):
            with pytest.raises(exceptions.OptionsError, match="cannot write to /dev/null/x"):
                master.options.update(dsml_capture="/dev/null/x")
            await Client(port).ask(PATHS[CHAT], request(CHAT))

    run(check())
    assert len(kept(tmp_path / "a")) == 1


def test_the_work_of_two_answers_is_not_taken_for_one(
    confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The request was sent again, and the response the client got is made of both answers."""
    lost = LEAK[: LEAK.index("limit")]

    async def check() -> None:
        async with provider(Reply(stream(CHAT, "Look. " + lost))) as up:
            up.then = [Reply(stream(CHAT, LEAK))]
            how: Any = {"dsml_capture": str(tmp_path), "dsml_resume": "1", "dsml_idle_flush": "5"}
            async with in_process(confdir, up.port, **how) as (port, _):
                assert (await Client(port).ask(PATHS[CHAT], request(CHAT))).complete
            assert len(up.asked) == 2

    run(check())
    assert "dsml: not captured: the bytes that were kept give something else now than they gave then" in caplog.text
    assert kept(tmp_path) == []


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.0, 0.02, 0.06, 0.15])
def test_a_kill_leaves_no_broken_file(after: float, confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        text = "".join(f"Line {number} of the answer. " for number in range(500)) + LEAK
        reply = Reply([b"".join(stream(CHAT, text))])
        async with provider(reply) as up, mitmdump(confdir, up.port, "--set", f"dsml_capture={tmp_path}") as running:
            clients = [Client(await running.port()) for _ in range(2)]
            asking = [asyncio.create_task(client.ask(PATHS[CHAT], request(CHAT))) for client in clients]
            await running.says("dsml: recovered 1 call")
            await asyncio.sleep(after)
            running.process.kill()
            await running.ends()
            for task in asking:
                with contextlib.suppress(Exception):
                    await task

    run(check())
    for golden in kept(tmp_path):
        assert replay.run(golden) == golden.expected


def test_a_kill_in_the_middle_of_writing_leaves_whole_files_only(tmp_path: Path) -> None:
    code = f"""
import itertools
from pathlib import Path
from goldens import store
golden = store.read(Path({str(ROOT / "tests/golden/wrapped/edit-1.json")!r}))
print("ready", flush=True)
for number in itertools.count():
    store.write(Path({str(tmp_path)!r}), f"{{number}}.json", golden)
"""
    for tenth in range(5):
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as writing:
            assert writing.stdout and writing.stdout.readline() == b"ready\n"
            time.sleep(0.05 + tenth * 0.013)
            writing.send_signal(signal.SIGKILL)
        files = list(tmp_path.iterdir())
        size = len((ROOT / "tests/golden/wrapped/edit-1.json").read_bytes())
        assert files and {path.stat().st_size for path in files} == {size}
        for path in files:
            path.unlink()


# --- The command ------------------------------------------------------------------------------------------------------


class Seen:
    """Keeps the flows, and the master through which commands are called."""

    def __init__(self) -> None:
        self.flows: list[HTTPFlow] = []
        self.master: Any = None

    def running(self) -> None:
        from mitmproxy import ctx

        self.master = ctx.master

    def request(self, flow: HTTPFlow) -> None:
        self.flows.append(flow)


@contextlib.asynccontextmanager
async def session(confdir: Path, upstream: int, **options: Any) -> AsyncIterator[tuple[int, Any, Seen]]:
    seen = Seen()
    async with in_process(confdir, upstream, before=[seen], **options) as (port, _):
        while seen.master is None:
            await asyncio.sleep(0.005)
        yield port, seen.master, seen


def test_the_command_writes_what_is_chosen(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, TEXT))) as up,
            session(confdir, up.port) as (port, master, seen),
        ):
            received = await Client(port).ask(PATHS[CHAT], request(CHAT))
            said = master.commands.call("dsml.capture", seen.flows, str(tmp_path / "one"))
            golden = only(tmp_path / "one")
            assert golden.redacted and golden.expected is not None
            assert len(golden.expected.emitted) == len(received.body)
            assert said == [f"{next((tmp_path / 'one').iterdir())}: recovers read_file (V1)"]
            assert "(was there already)" in master.commands.call("dsml.capture", seen.flows, str(tmp_path / "one"))[0]
            with pytest.raises(exceptions.CommandError, match="no folder is given"):
                master.commands.call("dsml.capture", seen.flows)
            master.options.update(dsml_capture=str(tmp_path / "two"), dsml_capture_redact="off")
            master.commands.call("dsml.capture", seen.flows)
            assert only(tmp_path / "two").received == b"".join(stream(CHAT, TEXT))
            with pytest.raises(exceptions.CommandError, match="cannot write to /dev/null/x"):
                master.commands.call("dsml.capture", seen.flows, "/dev/null/x")
            for name in ("~nobody-of-that-name/x", "a\0b"):
                with pytest.raises(exceptions.CommandError, match=r"^cannot write to [^\0]+: Invalid argument$"):
                    master.commands.call("dsml.capture", seen.flows, name)
            assert master.commands.call("dsml.capture", [], str(tmp_path)) == ["No flow is selected."]

    run(check())


def test_the_command_says_why_not(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            provider(Reply([b"{}"], "application/json", status=500)) as up,
            session(confdir, up.port) as (port, master, seen),
        ):
            await Client(port).ask(PATHS[CHAT], request(CHAT))
            said = master.commands.call("dsml.capture", seen.flows, str(tmp_path))
            assert said == ["not captured: it is no response that is repaired here"]

    run(check())


def test_the_command_completes_flows_and_a_folder(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with session(confdir, 1) as (_, master, _):
            made = master.commands.commands["dsml.capture"]
            assert isinstance(made, command.Command)
            types: list[Any] = [mitmproxy.types.CommandTypes.get(parameter.type) for parameter in made.parameters]
            (tmp_path / "goldens").mkdir()
            offered = [
                kind.completion(master.commands, parameter.type, start)
                for kind, parameter, start in zip(types, made.parameters, ["", str(tmp_path) + "/"], strict=True)
            ]
            assert "@all" in offered[0]
            assert offered[1] == [f"{tmp_path}/goldens/"]
            assert made.help

    run(check())


# --- Replay for a real client -----------------------------------------------------------------------------------------


def test_a_client_behind_the_proxy_gets_the_call_of_a_served_golden(confdir: Path) -> None:
    golden = store.read(ROOT / "tests" / "golden" / "wrapped" / "shell-1.json")
    served = Provider([golden], 0)
    threading.Thread(target=served.serve_forever, daemon=True).start()

    async def check() -> None:
        async with in_process(confdir, served.port) as (port, _):
            assert golden.request is not None
            asked: Any = {"model": "deepseek-v4.1-flash", "messages": [{"role": "user", "content": "Build it."}]}
            async with (
                openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
                client.chat.completions.stream(**asked, tools=golden.request["tools"]) as answer,
            ):
                message = (await answer.get_final_completion()).choices[0]
            assert message.finish_reason == "tool_calls"
            calls: Any = message.message.tool_calls
            (call,) = calls
            assert call.function.name == "shell"
            assert call.function.arguments == '{"command": "./gradlew :app:assembleDebug 2>&1 | tail -n 30"}'

    try:
        run(check())
    finally:
        served.shutdown()
        served.server_close()
