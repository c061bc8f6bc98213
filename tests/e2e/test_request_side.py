"""Each strategy on each wire: what a provider gets of a request that an official client sent, and what comes back."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from mitmproxy import ctx
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from dsml_core import prompts
from dsml_core.history import SHAPES
from tests.client_view import see
from tests.e2e.asking import encoded, run
from tests.e2e.client import Received, once
from tests.e2e.provider import Provider, Reply, provider
from tests.e2e.proxy import in_process
from tests.e2e.sdk import Answer, ask
from tests.e2e.wires import CALL, KINDS, LEAK, PATHS, any_wire, body, request, stream, tools
from tests.markers import live

pytestmark = pytest.mark.slow

LOST = live('<{M}parameter name="path" string="true">a.txt</{M}parameter></{M}invoke>')
NOTE = "[removed malformed read_file call]"
OFF: dict[str, Any] = {f"dsml_{name}": "off" for name in ("directive", "sanitize", "nudge", "hoist_tools")}


def history(wire: str, *said: str) -> dict[str, Any]:
    """A request in whose history the assistant has said this, each answered by the user."""
    asked = request(wire)
    for text in said:
        asked[SHAPES[wire].turns] += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
    return asked


def system_of(wire: str, asked: Mapping[str, Any]) -> list[str]:
    """The system texts of a request, in the order in which the model reads them."""
    top = asked.get("instructions") or asked.get("system") or []
    found = [top] if isinstance(top, str) else [block["text"] for block in top]
    for message in asked[SHAPES[wire].turns]:
        if message.get("role") == "system":
            content = message["content"]
            found.append(content if isinstance(content, str) else content[0]["text"])
    return found


def assistants(wire: str, asked: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in asked[SHAPES[wire].turns] if message.get("role") == "assistant"]


async def answers(
    wire: str, confdir: Path, *asked: dict[str, Any], says: str = "Done.", **ours: Any
) -> tuple[list[Answer], list[dict[str, Any]]]:
    """What the official client makes of the answers, and the requests as the provider got them."""
    async with (
        provider(Reply(stream(wire, says), KINDS[wire])) as upstream,
        in_process(confdir, upstream.port, **ours) as (port, _),
    ):
        seen = [await ask(wire, port, copy.deepcopy(one)) for one in asked]
        return seen, [json.loads(one.body) for one in upstream.asked]


# -- one strategy at a time


@any_wire
def test_directive(wire: str, confdir: Path) -> None:
    asked = history(wire, "Hm.")
    seen, got = asyncio.run(answers(wire, confdir, asked, asked, **OFF | {"dsml_directive": "on"}))
    assert [answer.text for answer in seen] == ["Done.", "Done."]
    assert got[0] == got[1]
    assert system_of(wire, got[0]) == [prompts.DIRECTIVE]
    assert assistants(wire, got[0]) == ["Hm."]


@any_wire
def test_sanitize(wire: str, confdir: Path) -> None:
    asked = history(wire, f"Now.\n{LEAK}", "And then?")
    _, got = asyncio.run(answers(wire, confdir, asked, asked, **OFF | {"dsml_sanitize": "on"}))
    assert got[0] == got[1]
    assert assistants(wire, got[0]) == [f"Now.\n{NOTE}", "And then?"]
    assert system_of(wire, got[0]) == []


@any_wire
def test_nudge(wire: str, confdir: Path) -> None:
    asked = history(wire, f"Now.\n{LOST}")
    over = history(wire, f"Now.\n{LOST}", "Fine.")
    given = OFF | {"dsml_nudge": "on", "dsml_nudge_limit": "2"}
    _, got = asyncio.run(answers(wire, confdir, asked, asked, asked, over, **given))
    assert [system_of(wire, one) for one in got] == [[prompts.NUDGE], [prompts.NUDGE], [], []]
    assert assistants(wire, got[0]) == [f"Now.\n{LOST}"]
    if SHAPES[wire].late:
        assert got[0][SHAPES[wire].turns][:-1] == got[2][SHAPES[wire].turns]


@any_wire
def test_a_message_that_was_stripped_on_its_way_out_is_nudged_when_it_comes_back(wire: str, confdir: Path) -> None:
    async def check() -> None:
        async with (
            provider(Reply(stream(wire, f"Now.\n{LOST}"), KINDS[wire])) as upstream,
            in_process(confdir, upstream.port) as (port, _),
        ):
            seen = await ask(wire, port, request(wire))
            assert (seen.text.strip(), seen.calls) == ("Now.", [])
            await ask(wire, port, history(wire, seen.text))
            await ask(wire, port, history(wire, "Something else."))
        got = [prompts.NUDGE in system_of(wire, json.loads(one.body)) for one in upstream.asked]
        assert got == [False, True, False]

    run(check())


def test_hoist(confdir: Path) -> None:
    wire = "openai-responses"
    asked = request(wire)
    more = {"type": "additional_tools", "tools": [{**tools(wire)[0], "name": "write_file"}]}
    asked["input"].append(more)
    _, got = asyncio.run(answers(wire, confdir, asked, **OFF | {"dsml_hoist_tools": "on"}))
    assert [tool["name"] for tool in got[0]["tools"]] == ["read_file", "write_file"]
    assert got[0]["input"][-1] == more


@any_wire
def test_the_defaults_together(wire: str, confdir: Path) -> None:
    asked = history(wire, "Hm.", f"Now.\n{LOST}")
    seen, got = asyncio.run(answers(wire, confdir, asked, says="Look. " + LEAK))
    assert (seen[0].text.strip(), seen[0].calls) == ("Look.", [CALL])
    assert system_of(wire, got[0]) == [prompts.DIRECTIVE, prompts.NUDGE]
    assert assistants(wire, got[0]) == ["Hm.", "Now.\n"]


def test_a_compressed_request(confdir: Path) -> None:
    wire = "openai-responses"
    packed = encoded("zstd", json.dumps(history(wire, LEAK)).encode())

    async def check() -> None:
        async with (
            provider(Reply(stream(wire, "Done."), KINDS[wire])) as upstream,
            in_process(confdir, upstream.port) as (port, _),
        ):
            await once(port, PATHS[wire], packed, {"content-encoding": "zstd", "content-type": "application/json"})
            (got,) = upstream.asked
            assert "content-encoding" not in got.headers
            assert got.headers["content-length"] == str(len(got.body))
            assert assistants(wire, json.loads(got.body)) == [NOTE]

    run(check())


# -- every combination of the switches

SWITCHES = {
    "dsml_directive": ("on", "off"),
    "dsml_sanitize": ("on", "off"),
    "dsml_nudge": ("on", "off"),
    "dsml_hoist_tools": ("off", "on"),
    "dsml_resume": ("0", "1"),
    "dsml_resume_channel": ("system", "user"),
    "dsml_stream": ("on", "off"),
    "dsml_body": ("on", "off"),
}
COMBINATIONS = [
    given
    for values in itertools.product(*SWITCHES.values())
    if (given := dict(zip(SWITCHES, values, strict=True)))["dsml_resume"] == "1"
    or given["dsml_resume_channel"] == "system"  # without a resume there is no channel
]
VALID: dict[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "anthropic": TypeAdapter(MessageCreateParamsStreaming),
}


def check_valid(wire: str, asked: dict[str, Any]) -> None:
    """The types of the official client, and what the API refuses beside."""
    exhaust(VALID[wire].validate_python(asked | {"stream": True}))
    said = asked["messages"]
    assert all(message["content"] for message in said)
    if wire == "anthropic":
        assert all(block["text"].strip() for block in asked.get("system", []))
        assert {message["role"] for message in said} <= {"user", "assistant"}


def exhaust(value: Any) -> None:
    """Iterables are only checked as they are read."""
    if isinstance(value, Mapping):
        for inner in value.values():
            exhaust(inner)
    elif not isinstance(value, str) and hasattr(value, "__iter__"):
        for inner in value:
            exhaust(inner)


async def one_of_each(wire: str, upstream: Provider, port: int, asked: dict[str, Any]) -> list[Received]:
    """An answer in a stream that leaks, one in a stream whose call is lost, a whole one that leaks."""
    upstream.asked.clear()
    received = []
    for streamed, text in ((True, LEAK), (True, f"Look. {LOST[:-3]}"), (False, LEAK)):
        frames = stream(wire, text) if streamed else [body(wire, text)]
        upstream.reply = Reply(frames, KINDS[wire] if streamed else "application/json", framing="length")
        upstream.then = [Reply(stream(wire, LEAK), KINDS[wire])] if "Look" in text else []
        received.append(await once(port, PATHS[wire], asked | {"stream": streamed}))
    return received


@pytest.mark.parametrize("wire", VALID)
def test_every_combination_gives_a_valid_request_and_a_valid_response(wire: str, confdir: Path) -> None:
    asked = history(wire, f"Now.\n{LEAK}", LOST) | ({"max_tokens": 9} if wire == "anthropic" else {})

    async def check() -> None:
        async with (
            provider(Reply([])) as upstream,
            in_process(confdir, upstream.port) as (port, _),
        ):
            for given in COMBINATIONS:
                ctx.options.update(**given)  # type: ignore[no-untyped-call]
                answers = await one_of_each(wire, upstream, port, asked)
                check_combination(wire, given, answers)
                resumed = given["dsml_resume"] == "1" and given["dsml_stream"] == "on"
                assert len(upstream.asked) == 3 + resumed, given
                for got in upstream.asked:
                    assert got.headers["content-length"] == str(len(got.body))
                    check_valid(wire, json.loads(got.body))

    run(check())


def check_combination(wire: str, given: Mapping[str, str], answers: list[Received]) -> None:
    streamed, lost, whole = answers
    assert all(answer.complete and answer.status == 200 for answer in answers)
    repaired = given["dsml_stream"] == "on"
    assert see(wire, streamed.body).calls == ([CALL] if repaired else [])
    assert see(wire, lost.body).calls == ([CALL] if repaired and given["dsml_resume"] == "1" else []), given
    assert see(wire, lost.body).text.startswith("Look. ")
    assert see(wire, whole.body, stream=False).calls == ([CALL] if given["dsml_body"] == "on" else [])


@any_wire
def test_with_everything_off_no_byte_changes(wire: str, confdir: Path) -> None:
    asked = json.dumps(history(wire, f"Now.\n{LEAK}", LOST), indent=1).encode()
    given = OFF | {"dsml_stream": "off", "dsml_body": "off"}

    async def check() -> None:
        async with provider(Reply([])) as upstream, in_process(confdir, upstream.port, **given) as (port, _):
            for frames, kind in ((stream(wire, LEAK), KINDS[wire]), ([body(wire, LEAK)], "application/json")):
                upstream.reply = Reply(frames, kind)
                received = await once(port, PATHS[wire], asked, {"accept-encoding": "gzip, br"})
                assert received.body == b"".join(frames)
            assert [one.body for one in upstream.asked] == [asked, asked]
            assert {one.headers["accept-encoding"] for one in upstream.asked} == {"gzip, br"}

    run(check())
