"""Stores of one file: sessions of Claude Code, and lists of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stores import detect
from stores.base import InUse, NoProgress, NotWritten, Store, Unreadable, Wanted
from stores.claude_jsonl import ClaudeJsonl
from stores.fixing import fixes
from stores.jsontext import dump_like, load
from stores.message_lists import AnthropicList, MessageList, OpenAIList, UndecidedList
from tests.stores.stored import (
    ARGUMENTS,
    LEAK,
    MAKERS,
    REPAIRED,
    TURNS,
    Turn,
    compact,
    content,
    make_claude_code,
    openai_messages,
    put,
    said,
    text_block,
)
from tests.stores.test_stores_opencode import process_named

ALL = Wanted()
INTERRUPTED = "interrupted, not executed"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def found(store: Store) -> int:
    return len(list(fixes(store.messages(ALL))))


# --- Claude Code ------------------------------------------------------------------------------------------------------


def test_the_chain_of_entries_leads_over_the_results(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("user", "Go."), Turn("assistant", LEAK), Turn("user", "And now?")])
    ClaudeJsonl(path).rewrite(ALL)
    entries = {entry["uuid"]: entry for entry in lines(path) if "uuid" in entry}
    leaf = next(entry["leafUuid"] for entry in reversed(lines(path)) if "leafUuid" in entry)
    chain = []
    while leaf is not None:
        chain.append(entries[leaf])
        leaf = entries[leaf]["parentUuid"]
    assert len(chain) == len(entries) == 4
    last, result, call, first = chain
    assert (first["message"]["content"], last["message"]["content"]) == ("Go.", "And now?")
    assert [block["type"] for block in call["message"]["content"]] == ["text", "tool_use"]
    assert result["message"]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": call["message"]["content"][1]["id"],
            "content": INTERRUPTED,
            "is_error": True,
        }
    ]
    assert (result["type"], result["sourceToolAssistantUUID"]) == ("user", call["uuid"])
    assert all(result[key] == call[key] for key in ("cwd", "sessionId", "timestamp", "isSidechain"))


def test_the_leaf_moves_with_its_last_entry(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("user", "Go."), Turn("assistant", LEAK)])
    ClaudeJsonl(path).rewrite(ALL)
    *_, text, result, leaf = lines(path)
    assert (result["parentUuid"], leaf["leafUuid"]) == (text["uuid"], result["uuid"])


def test_a_call_in_another_line_of_the_same_message_counts(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("assistant", LEAK, call=True)])
    ClaudeJsonl(path).rewrite(ALL)
    assert said(path) == [("text", REPAIRED), ("call", ("bash", {"command": "echo x"}, "x"))]


def test_copies_of_requests_are_neither_repaired_nor_quoted_from(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("user", "Go."), Turn("assistant", LEAK)])
    blob = {"type": "api-request-blob", "sessionId": path.stem, "message": {"role": "assistant", "content": LEAK}}
    path.write_text(compact(blob) + "\n" + path.read_text())
    assert found(ClaudeJsonl(path)) == 1
    ClaudeJsonl(path).rewrite(ALL)
    assert lines(path)[0] == blob


def test_a_last_line_without_its_end(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("user", "Go."), Turn("assistant", LEAK)])
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))  # ends in the leak
    ClaudeJsonl(path).rewrite(ALL)
    assert not path.read_text().endswith("\n")
    assert lines(path)[-1]["type"] == "user"
    assert said(path) == [("text", REPAIRED), ("call", ("bash", ARGUMENTS, INTERRUPTED))]


def test_blank_lines_stay(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, TURNS)
    path.write_text(path.read_text().replace("\n", "\n\n"))
    before = path.read_text().count("\n\n")
    ClaudeJsonl(path).rewrite(ALL)
    assert path.read_text().count("\n\n") == before
    assert found(ClaudeJsonl(path)) == 0


def test_an_entry_that_no_call_can_be_added_to(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("assistant", LEAK)])
    path.write_text(path.read_text().replace('"uuid"', '"id"'))
    before = content(tmp_path)
    with pytest.raises(Unreadable, match="line 2: an entry without uuid"):
        ClaudeJsonl(path).rewrite(ALL)
    assert content(tmp_path) == before


def test_what_the_provider_refused_stays(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, [Turn("assistant", LEAK)])
    path.write_text(path.read_text().replace("end_turn", "refusal"))
    assert found(ClaudeJsonl(path)) == 0


def test_claude_running_in_the_folder_of_a_session_is_noticed(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, TURNS)
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    with process_named("claude", tmp_path / "there"):
        path.write_text(path.read_text().replace("/home/a b", str(tmp_path / "there")))
        with pytest.raises(InUse, match="claude is running"):
            ClaudeJsonl(path).rewrite(ALL)
        path.write_text(path.read_text().replace(str(tmp_path / "there"), str(tmp_path / "here")))
        ClaudeJsonl(path).rewrite(ALL)


# --- Any single file --------------------------------------------------------------------------------------------------


def test_a_file_that_is_written_to_meanwhile(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, TURNS)

    class Slow(ClaudeJsonl):
        def _check(self, *given: Any) -> None:
            super()._check(*given)
            with path.open("a") as file:
                file.write("\n")

    before = path.read_bytes()
    with pytest.raises(InUse, match="meanwhile"):
        Slow(path).rewrite(ALL)
    assert path.read_bytes() == before + b"\n"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", LEAK.encode()])
def test_what_was_written_wrong_does_not_get_in(broken: bytes, tmp_path: Path) -> None:
    path = MAKERS["openai"](tmp_path, TURNS)

    class Broken(OpenAIList):
        def _write(self, new: Path, wanted: Wanted) -> int:
            changed = super()._write(new, wanted)
            new.write_bytes(broken)
            return changed

    before = content(tmp_path)
    with pytest.raises(NotWritten):
        Broken(path).rewrite(ALL)
    assert content(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 1


def test_undo_does_not_lose_what_came_since(tmp_path: Path) -> None:
    path = make_claude_code(tmp_path, TURNS)
    backup = ClaudeJsonl(path).rewrite(ALL)
    with path.open("a") as file:
        file.write('{"type": "user"}\n')
    before = path.read_bytes()
    with pytest.raises(NotWritten, match="changed since"):
        detect.undo(backup)
    assert path.read_bytes() == before


# --- Lists of messages ------------------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
MESSAGES = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": LEAK}]


@pytest.mark.parametrize(
    ("body", "leaks"),
    [
        ({"messages": MESSAGES}, 1),
        ({"messages": MESSAGES, "tools": [TOOL]}, 1),
        ({"messages": MESSAGES, "tools": []}, 0),  # no tool was there to call
        ({"messages": MESSAGES, "system": LEAK}, 0),  # it was told to write so
        ({"messages": [{"role": "user", "content": LEAK}, *MESSAGES]}, 0),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": LEAK}]}, *MESSAGES]}, 0),
        ({"messages": [*MESSAGES, {"role": "user", "content": LEAK}]}, 1),  # that came later
        ({"messages": [{"role": "assistant", "content": None}, {"role": "assistant", "content": []}]}, 0),
        ({"messages": [{"role": "assistant", "content": [5, {"type": "text"}, {"type": "text", "text": LEAK}]}]}, 1),
    ],
)
def test_a_request_is_read_as_one(body: dict[str, Any], leaks: int, tmp_path: Path) -> None:
    path = put(tmp_path / "body.json", json.dumps(body))
    store = AnthropicList(path) if "system" in body else OpenAIList(path)
    assert found(store) == leaks
    store.rewrite(ALL)
    assert found(store) == 0


def test_each_line_may_be_a_conversation(tmp_path: Path) -> None:
    path = put(tmp_path / "all.jsonl", "".join(f"{json.dumps({'messages': MESSAGES})}\n" for _ in range(3)))
    store = OpenAIList(path)
    assert [session.id for session in store.sessions()] == ["all:1", "all:2", "all:3"]
    first, *_ = path.read_bytes().splitlines()
    store.rewrite(Wanted(frozenset(["all:2"])))
    one, two, three = path.read_bytes().splitlines()
    assert one == three == first
    assert [message["role"] for message in json.loads(two)["messages"]] == ["user", "assistant", "tool"]


def test_a_message_keeps_its_other_keys(tmp_path: Path) -> None:
    message = {"role": "assistant", "name": "x", "content": [text_block(LEAK), text_block("So.")], "reasoning": LEAK}
    path = put(tmp_path / "m.json", json.dumps([message]))
    OpenAIList(path).rewrite(ALL)
    repaired, result = json.loads(path.read_text())
    (call,) = repaired.pop("tool_calls")
    assert repaired == {**message, "content": [text_block(REPAIRED), text_block("So.")]}
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": INTERRUPTED}
    assert (call["type"], call["function"]["name"]) == ("function", "bash")
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([{"role": "user", "content": "Hi"}], UndecidedList),
        ([{"role": "system", "content": "Hi"}], OpenAIList),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], OpenAIList),
        ([{"role": "user", "content": [text_block("Hi")]}], UndecidedList),
        ([{"role": "tool", "content": "Hi"}, {"role": "user", "content": [{"type": "tool_result"}]}], UndecidedList),
        ([{"role": "assistant", "content": None}], OpenAIList),
        ([{"role": "user", "content": [{"type": "image_url"}]}], OpenAIList),
        ([{"role": "user", "content": [{"type": "image"}]}], AnthropicList),
        ([{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "tool_result"}]}], AnthropicList),
        ([{"role": "assistant", "content": [{"type": "tool_use"}]}], AnthropicList),
    ],
)
def test_the_form_is_told_by_the_messages(
    messages: list[dict[str, Any]], kind: type[MessageList], tmp_path: Path
) -> None:
    (store,) = detect.find(put(tmp_path / "m.json", json.dumps(messages)), None, NoProgress())
    assert type(store) is kind


def test_a_kind_that_is_given_counts(tmp_path: Path) -> None:
    path = put(tmp_path / "m.json", json.dumps(MESSAGES))
    (store,) = detect.find(path, "anthropic", NoProgress())
    store.rewrite(ALL)
    *_, text, result = json.loads(path.read_text())
    assert [block["type"] for block in text["content"]] == ["text", "tool_use"]
    assert result["role"] == "user"


# --- JSON text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
@pytest.mark.parametrize("around", [("", ""), ("", "\n"), (" \n", " \r\n")])
def test_json_is_written_as_it_was(ascii_only: bool, indent: int | str | None, around: tuple[str, str]) -> None:
    old, new = openai_messages(TURNS), openai_messages(TURNS[::-1])
    raw = json.dumps(old, indent=indent, ensure_ascii=ascii_only).join(around).encode()
    assert dump_like(new, raw) == json.dumps(new, indent=indent, ensure_ascii=ascii_only).join(around).encode()


def test_json_of_another_style_keeps_the_nearest() -> None:
    raw = b'{\n    "a": 1.10,\n    "b": "\\u00fc"\n}'
    assert dump_like({"a": 1.1, "b": "\u00fc"}, raw) == b'{\n    "a": 1.1,\n    "b": "\\u00fc"\n}'


def test_lone_surrogates_are_escaped() -> None:
    raw = '{"a":"\u00fc","b":"\\ud83d"}'.encode()
    assert dump_like(load(raw, ""), raw) == raw


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_json_that_cannot_be_read_is_told(raw: bytes) -> None:
    with pytest.raises(Unreadable, match=r"here: damaged JSON"):
        load(raw, "here")
