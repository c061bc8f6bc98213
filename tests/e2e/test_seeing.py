"""Seeing it work: commands, and what a real mitmdump leaves behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import ctx, exceptions
from mitmproxy.addons.view import View
from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowReader
from mitmproxy.types import CommandTypes

from addon import kept
from tests.e2e.asking import CHAT, Flows, encoded, run
from tests.e2e.client import once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import ROOT, in_process, mitmdump
from tests.e2e.wires import LEAK, PATHS, PROSE, request, stream

pytestmark = pytest.mark.slow

BAD = LEAK.replace("read_file", "rm -rf")


def execute(command: str) -> Any:
    return ctx.master.commands.execute(command)


def of(argument: str, command: str = "dsml.explain") -> list[str]:
    """The completions of an argument of a command."""
    commands = ctx.master.commands
    (parameter,) = commands.commands[command].parameters
    found = CommandTypes.get(parameter.type)
    assert found
    return [str(word) for word in found.completion(commands, parameter.type, argument)]


def test_the_commands(confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dsml")

    async def check() -> None:
        view: Any = View()
        async with (
            provider(Reply(stream(CHAT, LEAK))) as upstream,
            in_process(confdir, upstream.port, before=[view]) as (port, _),
        ):
            assert execute("dsml.explain @all") == ["No flow is selected."]
            await once(port, PATHS[CHAT], request(CHAT))
            upstream.reply = Reply(stream(CHAT, BAD))
            await once(port, PATHS[CHAT], request(CHAT))
            upstream.reply = Reply(stream(CHAT, PROSE))
            await once(port, PATHS[CHAT], request(CHAT))
            upstream.reply = Reply([b"{}"], "application/json", 500)
            await once(port, PATHS[CHAT], request(CHAT))
            await once(port, "/v1/models", method="GET")

            assert execute("dsml.stats") == [
                "3 responses seen, 2 leaked, 1 call recovered, 1 response with a refused call",
                "recovered by row: V1 1",
                "refused by row: V12 1",
                "model deepseek-test: 3 responses seen, 2 leaked, 1 call recovered, 1 response with a refused call",
            ]
            assert [line for line in execute("dsml.explain @all") if "held" not in line] == [
                "POST /v1/chat/completions",
                "text, characters 0 to 183: taken as a call of read_file (row V1)",
                "text, characters 183 to 203: taken out (row T8): closers at the end",
                "finish: stop \u2192 tool_calls",
                "POST /v1/chat/completions",
                "text, characters 0 to 180: taken out (row V12): rm -rf: the name is no tool name",
                "text, characters 180 to 200: taken out (row T8): closers at the end",
                "finish: stop",
                "POST /v1/chat/completions",
                "Nothing was decided when it passed; this is how it reads now.",
                "No markup stands in this response.",
                "finish: stop",
                "POST /v1/chat/completions",
                "untouched: status 500",
                "There is no body of a wire that is repaired.",
                "GET /v1/models",
                "Not looked at: this asks for no wire that is repaired.",
                "There is no body of a wire that is repaired.",
            ]
            view.focus.flow = view[1]
            assert "V12" in execute("dsml.explain @focus")[1]
            assert {"@all", "@focus"} <= set(of("@"))

            page = tmp_path / "page.html"
            execute(f"dsml.report {page}")
            assert "Responses with something to decide: 2." in page.read_text()
            assert str(page) in of(f"{tmp_path}/", "dsml.report")
            with pytest.raises(exceptions.CommandError, match="cannot write"):
                execute(f"dsml.report {tmp_path}/missing/page.html")

    run(check())
    assert f"dsml: wrote {tmp_path / 'page.html'}" in caplog.text


def test_without_a_list_of_flows_the_last_ones_are_told_of(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, LEAK))) as upstream,
            in_process(confdir, upstream.port) as (port, _),
        ):
            await once(port, PATHS[CHAT], request(CHAT))
            execute(f"dsml.report {tmp_path / 'page.html'}")
            assert "Responses with something to decide: 1." in (tmp_path / "page.html").read_text()

    run(check())


def test_a_page_that_cannot_be_written_at_the_end_is_said(
    confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    async def check() -> None:
        async with in_process(confdir, 1, dsml_report=str(folder / "page.html")):
            folder.rmdir()

    run(check())
    assert "dsml: the page of dsml_report was not written" in caplog.text


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_the_body_is_what_the_client_got_also_when_mitmproxy_stores_it(coding: str, confdir: Path) -> None:
    async def check() -> None:
        frames = b"".join(stream(CHAT, "Look. " + LEAK))
        headers = [("content-encoding", coding)] if coding else []
        for stored in (False, True):
            flows = Flows()
            async with (
                provider(Reply([encoded(coding, frames)], headers=headers)) as upstream,
                in_process(confdir, upstream.port, after=[flows], mitm={"store_streamed_bodies": stored}) as (port, _),
            ):
                received = await once(port, PATHS[CHAT], request(CHAT))
                flow = flows.seen[0]
                assert flow.response
                assert flow.response.content == received.body
                assert kept.sides(flow) == (frames, received.body)

    run(check())


def test_a_real_mitmdump_leaves_a_log_a_page_and_flows_that_tell_the_same(confdir: Path, tmp_path: Path) -> None:
    log, page, flows, again = (tmp_path / name for name in ("log.jsonl", "page.html", "flows", "again.html"))

    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, LEAK))) as upstream,
            mitmdump(
                *(confdir, upstream.port, "-w", str(flows), "--set", f"dsml_log={log}"),
                *("--set", f"dsml_report={page}"),
            ) as running,
        ):
            received = await once(await running.port(), PATHS[CHAT], request(CHAT))
            await running.says("dsml: recovered 1 call")
            assert await running.stop() == 0
            assert "dsml: model deepseek-test: 1 response seen" in running.log
        with flows.open("rb") as file:
            (flow,) = FlowReader(file).stream()
        assert isinstance(flow, HTTPFlow)
        assert kept.sides(flow) == (b"".join(stream(CHAT, LEAK)), received.body)
        assert flow.comment.startswith("dsml: recovered 1 call: read_file")
        (call, _) = [json.loads(line) for line in log.read_text().splitlines()]
        assert (call["flow"], call["tool"]) == (flow.id, "read_file")

        async with mitmdump(confdir, 1, "-nr", str(flows), "--set", f"dsml_report={again}") as reading:
            assert await reading.ends() == 0
        told = [text.read_text().partition("<article")[2] for text in (page, again)]
        assert told[0] == told[1] != ""

    asyncio.run(check())


@pytest.mark.parametrize("option", ["dsml_log=/nowhere/log", "dsml_report=/nowhere/page.html"])
def test_a_file_that_cannot_be_written_stops_it_at_once(option: str, confdir: Path) -> None:
    async def check() -> None:
        async with mitmdump(confdir, 1, "--set", option) as running:
            assert await running.ends() == 1
            assert "dsml: cannot write to /nowhere" in running.log
            assert "Traceback" not in running.log

    asyncio.run(check())


def test_after_a_reload_it_is_seen_as_before(confdir: Path, tmp_path: Path) -> None:
    for package in ("addon", "dsml_core", "goldens"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    script, log = tmp_path / "addon" / "dsml.py", tmp_path / "log.jsonl"

    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, LEAK))) as upstream,
            mitmdump(confdir, upstream.port, "--set", f"dsml_log={log}", script=script) as running,
        ):
            port = await running.port()
            await once(port, PATHS[CHAT], request(CHAT))
            await running.says("dsml: recovered 1 call")
            os.utime(script, (2_000_000_000, 2_000_000_000))
            await running.says("Replacing existing dsml diff contentview")
            await once(port, PATHS[CHAT], request(CHAT))
            await running.says(r"(?s)dsml: recovered 1 call.*dsml: recovered 1 call")
            assert await running.stop() == 0
            assert "Traceback" not in running.log
        assert [json.loads(line)["decision"] for line in log.read_text().splitlines()] == ["recovered", "removed"] * 2

    asyncio.run(check())
