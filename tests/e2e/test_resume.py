"""Resume: the first answer leaks beyond recovery, and the request is sent again while the client waits."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import ssl
import time
import weakref
from pathlib import Path
from typing import Any

import h2.connection
import h2.events
import httpx
import pytest
from mitmproxy import ctx

from addon import exchange, repetition
from dsml_core import prompts
from tests.client_view import see
from tests.e2e.asking import CHAT, Flows, calls_in, encoded, run
from tests.e2e.client import Client, once
from tests.e2e.provider import Asked, Break, Provider, Reply, provider
from tests.e2e.proxy import ADDON, in_process, mitmdump
from tests.e2e.sdk import Answer, ask
from tests.e2e.test_tls import asking, certified, http2_provider
from tests.e2e.wires import CALL, KINDS, LEAK, PATHS, any_wire, request, stream
from tests.markers import live

pytestmark = pytest.mark.slow

LOST = live('<{M}tool_calls>\n<{M}invoke name="read_file">\n<{M}parameter name="path" string="true">a.t')


def reply(wire: str, text: str, **how: Any) -> Reply:
    return Reply(stream(wire, text), KINDS[wire], **how)


def messages(wire: str, asked: Asked) -> list[tuple[str, str]]:
    """Role and text of what was said in a request."""
    body = json.loads(asked.body)
    said = body["input" if wire == "openai-responses" else "messages"]
    found = []
    for message in said:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        found.append((message["role"], text))
    return found


async def answered(wire: str, confdir: Path, *replies: Reply, **ours: Any) -> tuple[Answer, Provider]:
    """What the official client makes of these answers of the provider, one a request."""
    async with provider(replies[0]) as upstream:
        upstream.then = list(replies[1:])
        given = {"dsml_resume": "1", "dsml_idle_flush": "5"} | ours  # a busy machine is no silence
        async with in_process(confdir, upstream.port, **given) as (port, _):
            return await ask(wire, port, request(wire)), upstream


# -- it succeeds


@any_wire
def test_the_client_gets_the_call_of_the_second_answer(wire: str, confdir: Path) -> None:
    seen, upstream = asyncio.run(
        answered(wire, confdir, reply(wire, "Look.\n\n" + LOST), reply(wire, "Again. " + LEAK))
    )
    assert seen == Answer("Look.\n\nAgain. ", [CALL], "tool_calls", tokens=14)
    first, second = upstream.asked
    said = messages(wire, first)
    assert said[-1] == ("user", "Read a.txt")
    wake = [("assistant", "Look.\n\n"), ("user", prompts.WAKE)]
    late = [] if wire == "anthropic" else [("system", prompts.NUDGE)]
    assert messages(wire, second) == [*said, *wake, *late]
    assert json.dumps(prompts.NUDGE)[1:-1] in second.body.decode()
    same = set(first.headers) - {"content-length"}
    assert {name: second.headers[name] for name in same} == {name: first.headers[name] for name in same}
    assert second.line == first.line
    assert int(second.headers["content-length"]) == len(second.body)


@any_wire
def test_the_correction_in_the_name_of_the_user(wire: str, confdir: Path) -> None:
    seen, upstream = asyncio.run(
        answered(wire, confdir, reply(wire, "Look. " + LOST), reply(wire, LEAK), dsml_resume_channel="user")
    )
    assert (seen.text, seen.calls) == ("Look. ", [CALL])
    assert messages(wire, upstream.asked[1])[-2:] == [("assistant", "Look. "), ("user", prompts.NUDGE)]


@any_wire
def test_a_quoted_call_without_its_end_is_not_asked_for_again(wire: str, confdir: Path) -> None:
    asked = request(wire)
    asked["input" if wire == "openai-responses" else "messages"][0]["content"] = "What does this mean?\n" + LOST

    async def check() -> tuple[Answer, int]:
        async with provider(reply(wire, "You asked of " + LOST)) as upstream:
            upstream.then = [reply(wire, LEAK)]
            async with in_process(confdir, upstream.port, dsml_resume="1") as (port, _):
                return await ask(wire, port, asked), len(upstream.asked)

    seen, count = asyncio.run(check())
    assert (seen.text, seen.calls, count) == ("You asked of " + LOST, [], 1)


@any_wire
def test_the_third_answer_may_be_the_one(wire: str, confdir: Path) -> None:
    replies = [reply(wire, "One. " + LOST), reply(wire, "Two. " + LOST), reply(wire, "Three. " + LEAK)]
    seen, upstream = asyncio.run(answered(wire, confdir, *replies, dsml_resume="2"))
    assert seen == Answer("One. Two. Three. ", [CALL], "tool_calls", tokens=21)
    assert [len(messages(wire, asked)) for asked in upstream.asked[1:]] == [len(messages(wire, upstream.asked[1]))] * 2
    assert ("assistant", "One. Two. ") in messages(wire, upstream.asked[2])


def test_the_second_answer_comes_as_it_is_written(confdir: Path) -> None:
    frames = stream(CHAT, "Again, slowly. " + LEAK)

    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([*frames[:3], 0.5, *frames[3:]])]
            async with in_process(confdir, upstream.port, dsml_resume="1") as (port, _):
                received = await once(port, PATHS[CHAT], request(CHAT))
        times = [at for at, piece in received.pieces if b"Agai" in piece or b"[DONE]" in piece]
        assert times[1] - times[0] > 0.4
        assert see(CHAT, received.body).calls == [CALL]

    run(check())


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_second_answer_in_a_content_encoding(coding: str, confdir: Path) -> None:
    data = encoded(coding, b"".join(stream(CHAT, "Again. " + LEAK)))
    second = Reply([data[:50], data[50:]], headers=[("content-encoding", coding)])
    seen, _ = asyncio.run(answered(CHAT, confdir, reply(CHAT, "Look. " + LOST), second))
    assert (seen.text, seen.calls) == ("Look. Again. ", [CALL])


@pytest.mark.parametrize("framing", ["close", "length"])
def test_however_the_first_answer_ends(framing: Any, confdir: Path) -> None:
    first = reply(CHAT, "Look. " + LOST, framing=framing)
    seen, _ = asyncio.run(answered(CHAT, confdir, first, reply(CHAT, LEAK)))
    assert (seen.text, seen.calls) == ("Look. ", [CALL])


def test_the_connection_of_the_client_stays(confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, LOST)) as upstream:
            upstream.then = [reply(CHAT, LEAK), reply(CHAT, "Bye.")]
            async with in_process(confdir, upstream.port, dsml_resume="1") as (port, _), Client(port) as client:
                assert calls_in((await client.ask(PATHS[CHAT], request(CHAT))).body) == [CALL]
                assert see(CHAT, (await client.ask(PATHS[CHAT], request(CHAT))).body).text == "Bye."

    run(check())


def test_twenty_at_once(confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [reply(CHAT, "Look. " + LOST)] * 19 + [reply(CHAT, LEAK)]
            async with in_process(confdir, upstream.port, dsml_resume="1") as (port, _):
                answers = await asyncio.gather(*(once(port, PATHS[CHAT], request(CHAT)) for _ in range(20)))
        # Which request comes first is not known: some leak twice. All end, and none is lost.
        assert all(answer.complete for answer in answers)
        assert all(see(CHAT, answer.body).text.startswith("Look. ") or calls_in(answer.body) for answer in answers)
        assert len(upstream.asked) <= 40

    run(check())


# -- it fails


@any_wire
def test_when_every_answer_is_lost_the_markup_is_shown(wire: str, confdir: Path) -> None:
    replies = [reply(wire, "One. " + LOST), reply(wire, LOST), reply(wire, LOST)]
    seen, upstream = asyncio.run(answered(wire, confdir, *replies, dsml_resume="2"))
    assert seen == Answer("One. " + LOST * 3, [], "stop", tokens=21)
    assert len(upstream.asked) == 3


FAILURES: dict[str, tuple[Reply, int]] = {  # with the number of requests made where two repetitions are allowed
    "refused": (Reply([b'{"error": "bad"}'], "application/json", 400), 2),
    "server error": (Reply([b"oops"], "text/plain", 503), 3),
    "not a stream": (Reply([b"{}"], "application/json"), 3),
    "cut before it begins": (Reply([Break.ABORT]), 3),
    "unknown encoding": (Reply([b"??"], headers=[("content-encoding", "lzma")]), 3),
    "damaged encoding": (Reply([b"??" * 20], headers=[("content-encoding", "gzip")]), 3),
}


@pytest.mark.parametrize(("failure", "made"), FAILURES.values(), ids=FAILURES)
def test_without_a_second_answer_the_first_is_as_it_was(failure: Reply, made: int, confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            async with in_process(confdir, upstream.port) as (port, _):
                plain = await once(port, PATHS[CHAT], request(CHAT))
            upstream.then = [failure]
            async with in_process(confdir, upstream.port, dsml_resume="2") as (port, _):
                received = await once(port, PATHS[CHAT], request(CHAT))
        assert received.complete
        assert received.body == plain.body
        assert len(upstream.asked) == made + 1

    run(check())


@any_wire
def test_a_second_answer_that_breaks_off(wire: str, confdir: Path) -> None:
    cut = stream(wire, "Two. " + LEAK)
    replies = [reply(wire, "One. " + LOST), Reply([*cut[: len(cut) // 2], 0.1, Break.ABORT], KINDS[wire])]
    seen, _ = asyncio.run(answered(wire, confdir, *replies))
    assert seen.text.startswith("One. Two. " + LOST)
    assert (seen.calls, seen.finish) == ([], "stop")
    seen, _ = asyncio.run(answered(wire, confdir, *replies, reply(wire, "Three. " + LEAK), dsml_resume="2"))
    assert (seen.text, seen.calls) == ("One. Two. Three. ", [CALL])


def test_a_silent_second_answer_is_bridged(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "ALIVE", 0.2)

    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([1.0, *stream(CHAT, LEAK)])]
            async with in_process(confdir, upstream.port, dsml_resume="1", dsml_idle_flush="0.1") as (port, _):
                received = await once(port, PATHS[CHAT], request(CHAT))
        gaps = [later[0] - earlier[0] for earlier, later in zip(received.pieces, received.pieces[1:], strict=False)]
        assert max(gaps) < 0.5
        assert see(CHAT, received.body).calls == [CALL]

    run(check())


def test_an_answer_that_never_comes_is_given_up(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "PATIENCE", 0.5)

    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([stream(CHAT, "Again. ")[0], *[0.1] * 100])]
            async with in_process(confdir, upstream.port, dsml_resume="1", dsml_idle_flush="0.1") as (port, _):
                received = await once(port, PATHS[CHAT], request(CHAT))
                assert see(CHAT, received.body).text == "Look. " + LOST
                await asyncio.wait_for(upstream.gone.wait(), 5)

    run(check())


def test_a_flow_that_is_killed_while_it_waits(confdir: Path) -> None:
    async def check() -> None:
        flows = Flows()
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([stream(CHAT, "Again. ")[0], *[0.1] * 100])]
            async with in_process(confdir, upstream.port, after=[flows], dsml_resume="1") as (port, _):
                asked = asyncio.create_task(once(port, PATHS[CHAT], request(CHAT)))
                while len(upstream.asked) < 2:
                    await asyncio.sleep(0.02)
                flows.seen[0].kill()  # type: ignore[no-untyped-call]
                assert not (await asked).complete
                await asyncio.wait_for(upstream.gone.wait(), 5)

    run(check())


# -- it is not wanted


@pytest.mark.parametrize(
    ("text", "asked", "ours"),
    [
        ("Look. " + LEAK, {}, {}),
        ("Look. a < b", {}, {}),
        ("Look. " + LOST, {"tools": None}, {}),
        ("Look. " + LOST, {"model": "other"}, {}),
        ("Look. " + LOST, {"n": 2}, {}),
        ("Look. " + LOST, {"tool_choice": "none"}, {}),
        ("Look. " + LOST, {}, {"dsml_resume": "0"}),
        ("Look. " + LOST, {}, {"dsml_mode": "observe"}),
        ("Look. " + LOST, {}, {"dsml_mode": "off"}),
        ("Look. " + LOST, {}, {"dsml_stream": "off"}),
    ],
)
def test_the_request_is_sent_once(text: str, asked: dict[str, Any], ours: dict[str, Any], confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, text)) as upstream:
            async with in_process(confdir, upstream.port, **({"dsml_resume": "2"} | ours)) as (port, _):
                received = await once(port, PATHS[CHAT], request(CHAT) | asked)
            assert received.complete
            assert len(upstream.asked) == 1

    run(check())


# -- the client leaves


@any_wire
def test_the_client_leaves_and_the_second_request_is_cancelled(wire: str, confdir: Path) -> None:
    frames = stream(wire, "Again. " + LEAK)

    async def check() -> None:
        flows = Flows()
        async with provider(reply(wire, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([*frames[:4], *[0.1] * 100], KINDS[wire])]
            async with in_process(confdir, upstream.port, after=[flows], dsml_resume="3") as (port, dsml):
                client = Client(port)
                await client.begin(PATHS[wire], request(wire))
                while len(upstream.asked) < 2:
                    await asyncio.sleep(0.02)
                current = exchange.of(flows.seen[0])
                assert current and current.pipe
                pipe, current = weakref.ref(current.pipe), None
                left = time.monotonic()
                client.leave()
                await asyncio.wait_for(upstream.gone.wait(), 5)
                assert time.monotonic() - left < 2
                await asyncio.sleep(0.2)
                assert len(upstream.asked) == 2
                assert exchange.of(flows.seen[0]) is None
                gc.collect()
                assert pipe() is None
                assert dsml.tally.seen == 1

    run(check())


def test_the_client_leaves_before_the_second_request_is_answered(confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [Reply([*[0.1] * 100])]
            async with in_process(confdir, upstream.port, dsml_resume="3") as (port, _):
                client = Client(port)
                received = await client.begin(PATHS[CHAT], request(CHAT))
                reading = asyncio.create_task(client.rest(received))
                while len(upstream.asked) < 2:
                    await asyncio.sleep(0.02)
                client.leave()
                await asyncio.wait_for(upstream.gone.wait(), 5)
                await reading
                assert not received.complete
                assert len(upstream.asked) == 2

    run(check())


# -- HTTP/2 and TLS


def test_over_http2_through_a_regular_proxy(confdir: Path) -> None:
    async def check() -> None:
        async with http2_provider(confdir, stream(CHAT, "Look. " + LOST)) as (port, made):
            made.then.extend([stream(CHAT, "Look. " + LOST)] * 2 + [stream(CHAT, "Again. " + LEAK)] * 3)
            async with asking(confdir, port, dsml_resume="3") as client:
                answers = await asyncio.gather(*(client.post(PATHS[CHAT], json=request(CHAT)) for _ in range(3)))
                for answer in answers:
                    assert answer.http_version == "HTTP/2"
                    assert calls_in(answer.content) == [CALL]
                assert len(made.asked) == 6

    run(check())


async def reset_at(proxy: int, provider_port: int, trust: ssl.SSLContext, sought: bytes) -> None:
    """Ask over HTTP/2, and reset the stream when `sought` arrives. The connection stays."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
    writer.write(f"CONNECT 127.0.0.1:{provider_port} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    trust.set_alpn_protocols(["h2"])
    await writer.start_tls(trust, server_hostname="127.0.0.1")
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    head = {":method": "POST", ":authority": "127.0.0.1", ":scheme": "https", ":path": PATHS[CHAT]}
    connection.send_headers(1, list(head.items()))
    connection.send_data(1, json.dumps(request(CHAT)).encode(), end_stream=True)
    writer.write(connection.data_to_send())
    received = b""
    while sought not in received:
        for event in connection.receive_data(await reader.read(65536)):
            received += event.data if isinstance(event, h2.events.DataReceived) else b""
    connection.reset_stream(1)
    writer.write(connection.data_to_send())


def test_a_stream_that_is_reset_over_http2_cancels_the_second_request(confdir: Path) -> None:
    async def check() -> None:
        trust = ssl.create_default_context(cafile=str(confdir / "mitmproxy-ca-cert.pem"))
        word = stream(CHAT, "word")[1]
        async with http2_provider(confdir, stream(CHAT, "Look. " + LOST)) as (port, made):
            made.then = [[frame for _ in range(200) for frame in (word, 0.05)]]
            how: dict[str, Any] = {"mode": "regular", "mitm": {"ssl_insecure": True}}
            async with in_process(confdir, port, dsml_resume="3", **how) as (proxy, dsml):
                await asyncio.wait_for(reset_at(proxy, port, trust, b"word"), 5)
                await asyncio.wait_for(made.gone.wait(), 5)
                assert len(made.asked) == 2
                assert dsml.tally.seen == 1

    run(check())


def test_over_tls_through_a_reverse_proxy(confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST), certified(confdir, "http/1.1")) as upstream:
            upstream.then = [reply(CHAT, LEAK)]
            mode = f"reverse:https://127.0.0.1:{upstream.port}"
            async with in_process(confdir, 0, mode=mode, mitm={"ssl_insecure": True}, dsml_resume="1") as (port, _):
                assert calls_in((await once(port, PATHS[CHAT], request(CHAT))).body) == [CALL]

    run(check())


def test_through_another_proxy(confdir: Path) -> None:
    async def check() -> None:
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [reply(CHAT, LEAK)]
            async with mitmdump(confdir, 0, "--set", "dsml_mode=off", mode="regular") as second:
                mode = f"upstream:http://127.0.0.1:{await second.port()}"
                async with (
                    in_process(confdir, 0, mode=mode, dsml_resume="1") as (port, _),
                    httpx.AsyncClient(proxy=f"http://127.0.0.1:{port}") as client,
                ):
                    answer = await client.post(f"http://127.0.0.1:{upstream.port}{PATHS[CHAT]}", json=request(CHAT))
                assert calls_in(answer.content) == [CALL]
                await second.says(r"(?s)POST http.*POST http")

    run(check())


# -- the proxy around it


def test_other_addons_see_the_repetition_as_a_flow_of_its_own(confdir: Path) -> None:
    async def check() -> None:
        flows = Flows()
        async with provider(reply(CHAT, "Look. " + LOST)) as upstream:
            upstream.then = [reply(CHAT, LEAK)]
            async with in_process(confdir, upstream.port, after=[flows], dsml_resume="1") as (port, dsml):
                await once(port, PATHS[CHAT], request(CHAT))
            first, second = flows.seen
            assert second.is_replay == "request" and second.id != first.id
            assert first.id in second.comment
            assert exchange.of(second) is None
            assert dsml.tally.seen == 1

    run(check())


BUILT_OTHERWISE = """
import runpy
from mitmproxy.addons.clientplayback import ReplayHandler
del ReplayHandler.replay
globals().update(runpy.run_path({addon!r}))
"""


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_mitmproxy_built_otherwise_is_refused_where_it_matters(attempts: int, confdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BUILT_OTHERWISE.format(addon=str(ADDON)))

    async def check() -> None:
        async with mitmdump(confdir, 1, "--set", f"dsml_resume={attempts}", script=script) as running:
            if attempts:
                assert await running.ends() == 1
                assert "dsml: dsml_resume needs a mitmproxy built as 12.0.1 to 12.3.1 are" in running.log
            else:
                await running.port()
            assert "Traceback" not in running.log

    run(check())


def test_in_a_real_mitmdump_that_reloads(confdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import runpy\nglobals().update(runpy.run_path({str(ADDON)!r}))\n")

    async def check() -> None:
        async with (
            provider(reply(CHAT, "Look. " + LOST)) as upstream,
            mitmdump(confdir, upstream.port, "--set", "dsml_resume=1", script=script) as running,
        ):
            for time_of_change in (2_000_000_000, 2_000_000_100):
                upstream.then = [reply(CHAT, LEAK), reply(CHAT, "Look. " + LOST)]
                assert calls_in((await once(await running.port(), PATHS[CHAT], request(CHAT))).body) == [CALL]
                loads = running.log.count("Loading script")
                os.utime(script, (time_of_change, time_of_change))
                while running.log.count("Loading script") == loads:
                    await asyncio.sleep(0.1)
            assert "Traceback" not in running.log and "Warning" not in running.log

    run(check())


def test_switched_on_and_off_while_it_runs(confdir: Path) -> None:
    async def check() -> None:
        async with (
            provider(reply(CHAT, "Look. " + LOST)) as upstream,
            in_process(confdir, upstream.port) as (port, _),
        ):
            for attempts, made in (("0", 1), ("1", 2), ("0", 1)):
                upstream.asked.clear()
                ctx.options.update(dsml_resume=attempts)  # type: ignore[no-untyped-call]
                received = await once(port, PATHS[CHAT], request(CHAT))
                assert see(CHAT, received.body).text.count(LOST) == made
                assert len(upstream.asked) == made

    run(check())
