"""Leaks, and a Repairer run over what a provider sends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from dsml_core import Policy, Repairer
from tests.client_view import Seen, see
from tests.markers import live
from tests.provider_frames import WIRES, Answer, Calls, body, stream

STRING = {"type": "string"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": properties, "required": required}}}
    for name, properties, required in (
        ("bash", {"command": STRING, "timeout": {"type": "integer"}}, ["command"]),
        ("read", {"path": STRING}, ["path"]),
    )
]
BASH = live('<{M}invoke name="bash">\n<{M}parameter name="command" string="true">make</{M}parameter>\n</{M}invoke>')
READ = live('<{M}invoke name="read">\n<{M}parameter name="path" string="true">a b</{M}parameter>\n</{M}invoke>')
LEAK = live(f"<{{M}}tool_calls>\n{BASH}\n</{{M}}tool_calls>")
TWO = live(f"<{{M}}tool_calls>\n{BASH}\n{READ}\n</{{M}}tool_calls>")
REJECTED = live('<{M}tool_calls>\n<{M}invoke name="">\n</{M}invoke>\n</{M}tool_calls>')
UNCLOSED = live('<{M}tool_calls>\n<{M}invoke name="bash">\n<{M}parameter name="command" string="true">ls')
MADE = ("bash", {"command": "make"})
NATIVE = Calls("read", ['{"pa', 'th": "x"}'])
PROSE = "Compare a < b, <div>, <|x|> and \u20ac\U0001f600. "
SIZES = [1, 4, 10_000]

any_wire = pytest.mark.parametrize("wire", WIRES)
any_size = pytest.mark.parametrize("size", SIZES)


def repaired(
    wire: str, data: Iterable[bytes], *, streamed: bool = True, tools: Any = TOOLS, policy: Policy | None = None
) -> tuple[bytes, Repairer]:
    repairer = Repairer(wire, stream=streamed, tools=tools, policy=policy)
    out = b"".join([repairer.feed(piece) for piece in data] + [repairer.close()])
    assert repairer.report.faults == []
    return out, repairer


def both(wire: str, answer: Answer, finish: str = "stop", policy: Policy | None = None) -> Seen:
    """What a client sees of the answer; the same whether it is streamed or not."""
    streamed, _ = repaired(wire, stream(wire, answer, finish), policy=policy)
    whole, _ = repaired(wire, [body(wire, answer, finish)], streamed=False, policy=policy)
    seen = see(wire, streamed)
    assert see(wire, whole, stream=False).calls == seen.calls
    assert see(wire, whole, stream=False).text == seen.text
    assert see(wire, whole, stream=False).finish == seen.finish
    return seen


def said(wire: str, out: bytes) -> str:
    """The text of all deltas, whether or not the stream is complete."""
    found = []
    for line in out.decode().splitlines():
        value = line.removeprefix("data: ")
        if not value.startswith("{") or not value.endswith("}"):
            continue
        event = json.loads(value)
        if wire == "openai-chat":
            found += [choice["delta"].get("content") or "" for choice in event["choices"]]
        elif wire == "ollama":
            found.append(event["message"]["content"])
        elif wire == "anthropic":
            found.append(event.get("delta", {}).get("text", ""))
        elif event["type"] == "response.output_text.delta":
            found.append(event["delta"])
    return "".join(found)
