"""A case comes to the same whether it is read as it arrives or repaired afterwards, and in a store too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsml_core.context import read_context
from dsml_core.events import End, Removed, Text, ToolCall
from dsml_core.parser import Parser
from dsml_core.policy import Policy
from dsml_core.transcript import repair
from stores.base import Wanted
from stores.fixing import fixes
from stores.message_lists import OpenAIList
from tests.stores.stored import put

CASES = Path(__file__).resolve().parent.parent / "cases"
NOTE = re.compile(r"\[removed (?:malformed )?(?:\S+ )?call\]")
ENDS = {"length": End.LENGTH, "content_filter": End.REFUSAL}


def cases() -> list[dict[str, Any]]:
    """Those of text that a model said; a refused answer is not repaired afterwards at all."""
    lines = [line for file in sorted(CASES.rglob("*.jsonl")) for line in file.read_text().splitlines()]
    found = [case for case in map(json.loads, lines) if case.get("field", "content") == "content"]
    return [case for case in found if case.get("finish") != "content_filter"]


ALL = cases()
each = pytest.mark.parametrize("case", ALL, ids=[case["id"] for case in ALL])


def request(case: dict[str, Any]) -> dict[str, Any]:
    return {key: case[key] for key in ("tools", "tool_choice", "messages") if key in case}


def visible(text: str) -> str:
    return "".join(NOTE.sub("", text).split())


def test_there_are_cases() -> None:
    assert len(ALL) > 300


@each
def test_the_parser_and_the_repair_agree(case: dict[str, Any]) -> None:
    context = read_context("openai-chat", request(case))
    policy = Policy(quoted=context.quoted, calls=context.calls)
    native = bool(case.get("native"))
    parser = Parser(context.tools, policy)
    events = [event for character in case["text"] for event in parser.feed(character)]
    events += parser.close(End.NATIVE if native else ENDS.get(case.get("finish", ""), End.STOP))
    repaired = repair(case["text"], context.tools, policy, native=native)
    assert repaired.removed == tuple(event for event in events if isinstance(event, Removed))
    assert visible(repaired.text) == visible("".join(event.text for event in events if isinstance(event, Text)))
    assert repaired.calls == (() if native else tuple(event for event in events if isinstance(event, ToolCall)))


@each
def test_a_store_agrees_too(case: dict[str, Any], tmp_path: Path) -> None:
    """The request is the conversation, and the answer stands at its end."""
    context = read_context("openai-chat", request(case))
    native = case.get("native", [])
    repaired = repair(case["text"], context.tools, Policy(quoted=context.quoted), native=bool(native))
    answer = {"role": "assistant", "content": case["text"], **({"tool_calls": native} if native else {})}
    body = {**request(case), "messages": [*case.get("messages", []), answer]}
    if "tools" not in case:
        body["tools"] = []  # as in a request, where it means that there is none
    path = put(tmp_path / "body.json", json.dumps(body))
    OpenAIList(path).rewrite(Wanted())
    place = len(body["messages"]) - 1
    said, *results = json.loads(path.read_text())["messages"][place:]
    assert said["content"] == repaired.text
    assert len(results) == len(repaired.calls)
    if native:
        assert said["tool_calls"] == native
    else:
        made = [call["function"] for call in said.get("tool_calls", [])]
        calls = [(call["name"], json.loads(call["arguments"])) for call in made]
        assert calls == [(call.name, call.arguments) for call in repaired.calls]
    assert list(fixes(OpenAIList(path).messages(Wanted()))) == []
