"""The request on its way out: what is changed in its bytes and headers, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mitmproxy.http import HTTPFlow
from mitmproxy.net import encoding
from mitmproxy.test.tflow import tflow

from addon import options, request_side
from addon.exchange import Exchange
from addon.options import Settings
from addon.request_side import RequestSide
from dsml_core import prompts
from dsml_core.history import SHAPES
from dsml_core.policy import Policy
from dsml_core.report import Report
from tests.e2e.wires import LEAK, PATHS, request
from tests.markers import live

WIRES = list(PATHS)
LOST = live('<{M}parameter name="path" string="true">a.txt</{M}parameter></{M}invoke>')
OFF = {"directive": "off", "sanitize": "off", "nudge": "off"}
any_wire = pytest.mark.parametrize("wire", WIRES)


def settings(**given: str) -> Settings:
    names = {f"dsml_{name}": value for name, value in given.items()}
    return options.read({option.name: option.default for option in options.OPTIONS} | names)


def history(wire: str, said: str, **more: Any) -> dict[str, Any]:
    """A request in whose history the assistant has said `said`."""
    asked = request(wire, **more)
    asked[SHAPES[wire].turns] += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
    return asked


def sent(
    wire: str, content: bytes, side: RequestSide | None = None, headers: dict[str, str] | None = None, **given: str
) -> tuple[HTTPFlow, Exchange]:
    """The flow with its request as it leaves."""
    flow, current = tflow(), Exchange(wire)
    flow.request.headers.clear()
    flow.request.headers.update({"content-length": str(len(content))} if headers is None else headers)
    flow.request.raw_content = content
    made = side or RequestSide(lambda context: Policy(calls=context.calls, quoted=context.quoted))
    made.take(flow, current, settings(**given))
    return flow, current


def encode(asked: Any) -> bytes:
    """JSON as no serialiser of ours would write it."""
    return json.dumps(asked, indent=1).encode()


def said_by_assistant(wire: str, flow: HTTPFlow) -> list[Any]:
    body = json.loads(flow.request.get_content() or b"")
    return [message["content"] for message in body[SHAPES[wire].turns] if message.get("role") == "assistant"]


# -- what is changed


@any_wire
def test_all_at_once(wire: str) -> None:
    flow, _ = sent(wire, encode(history(wire, f"Now.\n{LOST}")))
    text = flow.request.get_text() or ""
    assert text.count(json.dumps(prompts.DIRECTIVE)[1:-1]) == 1
    assert text.count(json.dumps(prompts.NUDGE)[1:-1]) == 1
    assert said_by_assistant(wire, flow) == ["Now.\n"]
    assert flow.request.headers["content-length"] == str(len(flow.request.raw_content or b""))


@any_wire
def test_the_same_request_gives_the_same_bytes(wire: str) -> None:
    content = encode(history(wire, f"Now.\n{LEAK}"))
    assert sent(wire, content)[0].request.raw_content == sent(wire, content)[0].request.raw_content


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_compressed_body_leaves_as_it_is_told_in_its_headers(coding: str) -> None:
    packed = encoding.encode(encode(history("openai-responses", LEAK)), coding)
    assert isinstance(packed, bytes)
    flow, _ = sent("openai-responses", packed, headers={"content-encoding": coding})
    assert "content-encoding" not in flow.request.headers
    raw = flow.request.raw_content or b""
    assert said_by_assistant("openai-responses", flow) == ["[removed malformed read_file call]"]
    assert json.loads(raw)["instructions"] == prompts.DIRECTIVE
    assert flow.request.headers["content-length"] == str(len(raw))


def test_a_chunked_request_gets_no_length() -> None:
    content = encode(request("openai-chat"))
    flow, _ = sent("openai-chat", content, headers={"transfer-encoding": "chunked"})
    assert flow.request.raw_content != content
    assert dict(flow.request.headers) == {"transfer-encoding": "chunked"}


def test_half_a_surrogate_pair_survives() -> None:
    flow, _ = sent("openai-chat", b'{"model":"deepseek","tools":[{}],"messages":[{"role":"user","content":"\\ud83d"}]}')
    assert json.loads(flow.request.raw_content or b"")["messages"][-1]["content"] == "\ud83d"


def test_numbers_keep_their_value() -> None:
    given = b'{"model":"deepseek","tools":[{}],"messages":[],"a":12345678901234567890123,"b":0.1,"c":1e-7,"d":-0.0}'
    flow, _ = sent("openai-chat", given)
    kept = json.loads(flow.request.raw_content or b"")
    assert {key: kept[key] for key in "abcd"} == {key: json.loads(given)[key] for key in "abcd"}


# -- what never is


@any_wire
@pytest.mark.parametrize(
    "given",
    [
        OFF,
        {"mode": "observe"},
        {"mode": "off"},
        {"models": "claude"},
        {**OFF, "resume": "3", "stream": "off", "body": "off"},
    ],
)
def test_untouched(wire: str, given: dict[str, Any]) -> None:
    content = encode(history(wire, LEAK))
    flow, _ = sent(wire, content, headers={"x": "y"}, **given)
    assert flow.request.raw_content == content
    assert dict(flow.request.headers) == {"x": "y"}


@any_wire
@pytest.mark.parametrize("tools", [None, []])
def test_a_request_without_tools_is_untouched(wire: str, tools: Any) -> None:
    content = encode(history(wire, LEAK, tools=tools))
    assert sent(wire, content)[0].request.raw_content == content


@pytest.mark.parametrize("model", ["DeepSeek-V4", "openrouter/deepseek/deepseek-chat", "my-DEEPSEEK"])
def test_the_model_is_found_in_any_case(model: str) -> None:
    content = encode(request("openai-chat") | {"model": model})
    assert sent("openai-chat", content)[0].request.raw_content != content


NO_REQUEST: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"7",
    b"null",
    b"\xff\xfe{}",
    encode(request("openai-chat")).decode().encode("utf-16"),
    b"[" * 100_000,
    b'{"model": "deepseek", "tools": [{}], "messages": [], "input": [], "temperature": NaN}',
    b'{"model": "deepseek", "tools": [{}], "messages": [], "input": [], "temperature": 1e999}',
    b'{"model": 7, "tools": [{}], "messages": [], "input": []}',
]


@any_wire
@pytest.mark.parametrize("content", NO_REQUEST, ids=[str(number) for number in range(len(NO_REQUEST))])
def test_what_is_no_request_passes(wire: str, content: bytes) -> None:
    assert sent(wire, content)[0].request.raw_content == content


@any_wire
@pytest.mark.parametrize("said", [None, 7, "text", {"a": 1}])
@pytest.mark.parametrize("key", ["messages", "input", "system", "instructions"])
def test_what_has_not_the_shape_of_the_wire_stays(wire: str, key: str, said: Any) -> None:
    asked = {"model": "deepseek", "tools": [{}], key: said}
    kept = json.loads(sent(wire, encode(asked))[0].request.get_content() or b"")
    ours = {"system", "instructions"} if said in (None, "text") else set()
    assert {name: value for name, value in kept.items() if name in asked and name not in ours} == {
        name: value for name, value in asked.items() if name not in ours
    }


@any_wire
@pytest.mark.parametrize("odd", [None, 7, "x", [], [[]], {"role": 7}, {"role": "assistant", "content": 7}])
def test_odd_messages_stay_as_they_are(wire: str, odd: Any) -> None:
    asked = history(wire, "Now.")
    asked[SHAPES[wire].turns].insert(1, odd)
    kept = json.loads(sent(wire, encode(asked))[0].request.raw_content or b"")
    assert odd in kept[SHAPES[wire].turns]


@any_wire
def test_a_history_that_is_too_large_passes(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(history(wire, LEAK))
    monkeypatch.setattr(request_side, "BODY_LIMIT", len(content) - 1)
    flow, current = sent(wire, content, resume="1")
    assert flow.request.raw_content == content
    assert current.context.tools and not current.resumable


@pytest.mark.slow
def test_twenty_megabytes_pass() -> None:
    content = encode(history("openai-chat", LEAK + "x" * 20_000_000))
    flow, current = sent("openai-chat", content)
    assert flow.request.raw_content == content
    assert current.context.tools


@pytest.mark.parametrize("coding", ["gzip", "br", "lzma", "gzip, br"])
def test_an_encoding_that_cannot_be_taken_off_passes(coding: str) -> None:
    flow, current = sent("openai-chat", b"\x01\x02\x03", headers={"content-encoding": coding})
    assert flow.request.raw_content == b"\x01\x02\x03"
    assert flow.request.headers["content-encoding"] == coding
    assert current.context.tools is None


def test_a_request_that_is_streamed_has_no_body_to_read() -> None:
    flow, current = tflow(), Exchange("openai-chat")
    flow.request.raw_content = None
    RequestSide(lambda context: Policy()).take(flow, current, settings())
    assert current.context.tools is None


# -- what is kept in mind


@any_wire
def test_a_message_whose_markup_was_removed_is_corrected_when_it_comes_back(wire: str) -> None:
    side = RequestSide(lambda context: Policy())
    flow, current = sent(wire, encode(request(wire)), side)
    side.answered(flow, current, Report(wire, visible="Let me look. "))
    nudge = json.dumps(prompts.NUDGE)[1:-1]

    def nudged(said: str) -> bool:
        return nudge in (sent(wire, encode(history(wire, said)), side, nudge_limit="2")[0].request.get_text() or "")

    assert not nudged("Something else.")
    assert [nudged("Let me look.") for _ in range(3)] == [True, True, False]


@any_wire
def test_a_message_that_lost_nothing_is_not(wire: str) -> None:
    side = RequestSide(lambda context: Policy())
    flow, current = sent(wire, encode(request(wire)), side)
    side.answered(flow, current, Report(wire))
    text = sent(wire, encode(history(wire, "Let me look.")), side)[0].request.get_text() or ""
    assert json.dumps(prompts.NUDGE)[1:-1] not in text


def test_where_no_call_was_wanted_none_was_lost() -> None:
    side = RequestSide(lambda context: Policy())
    flow, current = sent("openai-chat", encode(request("openai-chat", tool_choice="none")), side)
    side.answered(flow, current, Report("openai-chat", visible="Let me look."))
    text = sent("openai-chat", encode(history("openai-chat", "Let me look.")), side)[0].request.get_text() or ""
    assert json.dumps(prompts.NUDGE)[1:-1] not in text
