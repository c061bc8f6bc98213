"""What the log says, and that no fault of ours costs a byte."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mitmproxy.addons.eventstore import EventStore
from mitmproxy.addons.termlog import TermLog

from addon import hooks, request_side
from dsml_core.parser import Parser
from tests.e2e.asking import CHAT, ask, encoded
from tests.e2e.client import Client, once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.wires import LEAK, PATHS, PROSE, request, sse, stream


def test_the_log_has_one_line_for_a_decision_and_no_content(confdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(ask(confdir, Reply(stream(CHAT, "My secret. " + LEAK))))
    ours = [record.getMessage() for record in caplog.records if record.name == "dsml"]
    assert ours[0].startswith("dsml: recovered 1 call: read_file (V")
    assert ours[0].count(f"({CHAT}, deepseek-test, held ") == 1
    whole = "1 response seen, 1 leaked, 1 call recovered, 0 responses with a refused call"
    assert ours[1:] == [f"dsml: {whole}", "dsml: recovered by row: V1 1", f"dsml: model deepseek-test: {whole}"]
    assert "secret" not in caplog.text
    assert "a.txt" not in caplog.text


@pytest.mark.parametrize(
    ("reply", "asked", "reason"),
    [
        (Reply([b"{}"], "application/json", 500), request(CHAT), "status 500"),
        (Reply([b"{}"], "text/plain"), request(CHAT), "content type text/plain"),
        (Reply([b"{}"], ""), request(CHAT), "content type missing"),
        (Reply([b""" """]), {**request(CHAT), "tools": []}, "the request declares no tools"),
        (Reply([b"x"], headers=[("content-encoding", "x, y")]), request(CHAT), "content encoding x, y"),
    ],
    ids=["status", "type", "no type", "tools", "coding"],
)
def test_a_skip_is_said_at_debug_level(
    reply: Reply, asked: Any, reason: str, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dsml")
    asyncio.run(ask(confdir, reply, asked=asked))
    skips = [record for record in caplog.records if f"{CHAT} untouched: {reason}" in record.getMessage()]
    assert [record.levelname for record in skips] == ["DEBUG"]


@pytest.mark.parametrize(("verbosity", "kept", "said"), [("info", False, 0), ("debug", False, 1), ("info", True, 1)])
def test_what_is_not_shown_is_not_said(
    verbosity: str, kept: bool, said: int, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dsml")

    async def check() -> None:
        before = [TermLog(io.StringIO()), *([EventStore()] if kept else [])]
        shown: dict[str, object] = {"termlog_verbosity": verbosity}
        async with (
            provider(Reply([b"x"], "text/plain")) as upstream,
            in_process(confdir, upstream.port, before=before, mitm=shown) as (port, _),
        ):
            await once(port, PATHS[CHAT], request(CHAT))

    asyncio.run(check())
    assert len([record for record in caplog.records if "untouched" in record.getMessage()]) == said


UNDER_WAY: dict[str, tuple[int, list[str]]] = {
    "in a hold": (40, ["candidate without a call; broken off ("]),
    "behind a call": (-1, ["recovered 1 call: read_file (V1, 183 characters); broken off ("]),
    "in prose": (2, []),
}


@pytest.mark.parametrize(("frames", "said"), UNDER_WAY.values(), ids=UNDER_WAY)
def test_what_is_under_way_when_it_is_stopped_is_said(
    frames: int, said: list[str], confdir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dsml")
    options: Any = {"dsml_log": str(tmp_path / "log"), "dsml_capture": str(tmp_path / "goldens")}
    sent = b"".join(stream(CHAT, LEAK)[:frames])

    async def check() -> None:
        async with provider(Reply([sent, 20.0])) as upstream:
            async with in_process(confdir, upstream.port, **options) as (port, _):
                client = Client(port)
                await client.begin(PATHS[CHAT], request(CHAT))
                await asyncio.sleep(0.2)
            client.leave()

    asyncio.run(check())
    ours = [record.getMessage() for record in caplog.records if record.name == "dsml"]
    lines = [line for line in ours if line.endswith(": mitmproxy was stopped")]
    assert [line.partition("(openai-chat")[0] for line in lines] == [
        *(f"dsml: {line[:-1]}" for line in said),
        "dsml: 1 response cut short: mitmproxy was stopped",
    ]
    assert ours[len(lines)].startswith("dsml: 1 response seen, ")
    logged = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {(made["aborted"], made["ended"]) for made in logged} == {(True, "mitmproxy was stopped") for _ in said}
    assert len(list((tmp_path / "goldens").iterdir())) == sum("dsml: captured: " in line for line in ours) == len(said)


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("injected")


HOOKS = {
    hooks: ["wire_of", "decoder_for", "Repairer", "reframe"],
    request_side: ["read_context", "prepare", "replace_body"],
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in HOOKS.items() for name in names])
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_fault_in_a_hook_costs_nothing(
    module: ModuleType,
    name: str,
    coding: str,
    confdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, name, broken)
    data = b"".join(stream(CHAT, PROSE))
    sent = encoded(coding, data)
    reply = Reply([sent[:20], sent[20:]], headers=[("content-encoding", coding)] if coding else [])
    received = asyncio.run(ask(confdir, reply))
    assert received.complete
    assert received.body == (sent if "content-encoding" in received.headers else data)
    assert "injected" in caplog.text


@pytest.mark.parametrize("at", [0, 1, 5, 20, 40])
def test_a_fault_in_the_parser_costs_no_character(
    at: int, confdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    sound: Callable[[Parser, str], Any] = Parser.feed

    def feed(self: Parser, text: str) -> Any:
        nonlocal calls
        calls += 1
        return broken() if calls == at + 1 else sound(self, text)

    monkeypatch.setattr(Parser, "feed", feed)
    text = PROSE + "\n" + LEAK + " and on"
    received = asyncio.run(ask(confdir, Reply(stream(CHAT, text))))
    chunks = [json.loads(line[6:]) for line in received.body.decode().splitlines() if line.startswith("data: {")]
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said == text
    assert received.complete
    assert received.body.endswith(b"data: [DONE]\n\n")
    assert "after a fault in" in caplog.text


def test_whatever_is_not_json_passes(confdir: Path) -> None:
    frames = [b"data: {\n\n", b"data: []\n\n", sse({"choices": "x"}), sse({"choices": [1, {"delta": 7}]}), b"data:\n\n"]
    assert asyncio.run(ask(confdir, Reply(frames))).body == b"".join(frames)
