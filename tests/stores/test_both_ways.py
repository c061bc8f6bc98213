"""A case comes to the same whether it is read as it arrives or repaired afterwards, and in a store too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsml_core.events import End, Removed
from dsml_core.policy import Policy
from dsml_core.transcript import Repaired, repair
from stores.base import Wanted
from stores.fixing import fixes
from stores.message_lists import OpenAIList
from tests.feeding import Case, cases, feed
from tests.stores.stored import put

NOTE = re.compile(r"\[removed (?:malformed )?(?:\S+ )?call\]")
# What is stored has ended, and only text is repaired.
ALL = [case for case in cases() if case.setup.end in (End.STOP, End.LENGTH, End.NATIVE) and not case.setup.reasoning]
# A list of messages knows no policy, not that a request forbade calls, and not why an answer ended.
STORED = [
    case
    for case in ALL
    if case.setup.policy == Policy(quoted=case.setup.policy.quoted) and case.setup.end is not End.LENGTH
]


def repaired(case: Case) -> Repaired:
    native = case.setup.end is End.NATIVE
    end = End.STOP if native else case.setup.end
    return repair(case.text, case.setup.tools, case.setup.policy, native=native, end=end)


def shown(text: str) -> str:
    return "".join(NOTE.sub("", text).split())


def left(case: Case, removed: tuple[Removed, ...]) -> Iterator[tuple[int, int]]:
    """The ranges of the text that are not removed."""
    at = 0
    for start, end in [*((span.start, span.end) for span in removed), (len(case.text), len(case.text))]:
        if start > at:
            yield at, start
        at = end


def test_there_are_cases() -> None:
    assert len(ALL) > 800
    assert len(STORED) > 700


@pytest.mark.slow
def test_the_parser_and_the_repair_agree() -> None:
    assert [case.id for case in ALL if not same_both_ways(case)] == []


def same_both_ways(case: Case) -> bool:
    arriving = feed(case.text, case.setup, range(3, len(case.text), 3))
    afterwards = repaired(case)
    calls = [{"name": call.name, "arguments": call.arguments} for call in afterwards.calls]
    return (
        list(left(case, afterwards.removed)) == arriving.visible
        and shown(afterwards.text) == shown(arriving.text)
        and calls == ([] if case.setup.end is End.NATIVE else arriving.named_calls)
    )


CALL = {"id": "call_1", "type": "function", "function": {"name": "other", "arguments": "{}"}}


def conversation(case: Case) -> dict[str, Any]:
    """The request of a case, with the answer at its end."""
    quoted = [{"role": "user", "content": text} for text in case.setup.policy.quoted]
    answer: dict[str, Any] = {"role": "assistant", "content": case.text}
    if case.setup.end is End.NATIVE:
        answer["tool_calls"] = [CALL]
    tools = case.setup.tools
    declared = [
        {"type": "function", "function": {"name": name, "parameters": tools[name].root}} for name in tools or ()
    ]
    return {"messages": [*quoted, answer], **({} if tools is None else {"tools": declared})}


@pytest.mark.slow
def test_a_store_agrees_too(tmp_path: Path) -> None:
    path = put(tmp_path / "all.jsonl", "".join(json.dumps(conversation(case)) + "\n" for case in STORED))
    store = OpenAIList(path)
    store.rewrite(Wanted())
    lines = map(json.loads, path.read_text().splitlines())
    assert [case.id for case, line in zip(STORED, lines, strict=True) if not agrees(case, line)] == []
    assert list(fixes(store.messages(Wanted()))) == []


def agrees(case: Case, line: dict[str, Any]) -> bool:
    answer, *results = line["messages"][len(case.setup.policy.quoted) :]
    expected = repaired(case)
    calls = answer.get("tool_calls", [])
    if case.setup.end is End.NATIVE:
        return bool((answer["content"], calls, results) == (expected.text, [CALL], []))
    made = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    wanted = [(call.name, call.arguments) for call in expected.calls]
    return (answer["content"], made, len(results)) == (expected.text, wanted, len(wanted))
