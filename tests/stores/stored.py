"""Stores with one same conversation in them, each in the form of its client."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.markers import live

LEAK = live(
    "Let me look.\n"
    '<{M}tool_calls>\n<{M}invoke name="bash">\n<{M}parameter name="command" string="true">ls | wc</{M}parameter>\n'
    '<{M}parameter name="limit" string="false">3</{M}parameter>\n</{M}invoke>\n</{M}tool_calls>'
)
QUOTED = live(
    '<{M}tool_calls><{M}invoke name="read"><{M}parameter name="path" string="true">a.py</{M}parameter>'
    "</{M}invoke></{M}tool_calls>"
)
REPAIRED = "Let me look.\n[removed malformed bash call]"
ARGUMENTS = {"command": "ls | wc", "limit": 3}
FENCED = f"Write it like this:\n```\n{LEAK}\n```\n"
OPEN = LEAK[: LEAK.index("wc")]
SESSION = "ses_22d8b519e001n7K4NnGIqous3Z"
TITLE = "a leak"
MINUTE = 60_000
NOON = 1_796_040_000_000  # milliseconds


@dataclass(frozen=True)
class Turn:
    """What was said; `call` is a native call that follows the text, with its result."""

    role: str
    text: str
    call: bool = False


TURNS = [
    Turn("user", "Please list the files. \u00fc \U0001f600"),
    Turn("assistant", LEAK),
    Turn("user", "Go on."),
    Turn("assistant", LEAK, call=True),
    Turn("user", f"What does {QUOTED} mean?"),
    Turn("assistant", f"You wrote {QUOTED}."),
    Turn("assistant", FENCED),
    Turn("user", "And that?"),
    Turn("assistant", OPEN),
    Turn("assistant", "All done."),
]
CALL = {"id": "call_1", "name": "bash", "input": {"command": "echo x"}}

Make = Callable[[Path, list[Turn]], Path]


# --- OpenCode ---------------------------------------------------------------------------------------------------------

SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL);
CREATE TABLE session (
    id text PRIMARY KEY, project_id text NOT NULL, title text NOT NULL, version text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL,
    FOREIGN KEY (project_id) REFERENCES project(id) ON DELETE CASCADE
);
CREATE TABLE message (
    id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
    data text NOT NULL, FOREIGN KEY (session_id) REFERENCES session(id) ON DELETE CASCADE
);
CREATE TABLE part (
    id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL, FOREIGN KEY (message_id) REFERENCES message(id) ON DELETE CASCADE
);
CREATE TABLE event (id text PRIMARY KEY, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
"""


def opencode_messages(turns: list[Turn]) -> Iterator[tuple[str, dict[str, Any], dict[str, dict[str, Any]]]]:
    """Id, content and parts of each message."""
    for number, turn in enumerate(turns):
        said = NOON + number * MINUTE
        times = {"start": said, "end": said + 5}
        parts: list[dict[str, Any]] = [{"type": "text", "text": turn.text, "time": times}]
        if turn.role == "assistant":
            parts = [{"type": "step-start"}, *parts, {"type": "step-finish", "reason": "stop", "cost": 0}]
        if turn.call:
            state = {"status": "completed", "input": CALL["input"], "output": "x", "title": "", "time": times}
            parts.insert(2, {"type": "tool", "tool": CALL["name"], "callID": CALL["id"], "state": state})
        ids = [f"prt_22d8b5{number:03d}{part:03d}DE04XdlYkMTTmYyu" for part in range(len(parts))]
        yield (
            f"msg_22d8b5{number:03d}001B4iQ3nB9xPO4",
            {"role": turn.role, "time": {"created": said}},
            dict(zip(ids, parts, strict=True)),
        )


def make_opencode(folder: Path, turns: list[Turn]) -> Path:
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
        db.execute("INSERT INTO project VALUES ('global', '/')")
        db.execute("INSERT INTO session VALUES (?, 'global', ?, '1.18', ?, ?)", (SESSION, TITLE, NOON, NOON))
        db.execute("INSERT INTO event VALUES ('evt_1', ?)", (compact({"text": LEAK}),))
        for id, data, parts in opencode_messages(turns):
            db.execute(
                "INSERT INTO message VALUES (?, ?, ?, 0, ?)", (id, SESSION, data["time"]["created"], compact(data))
            )
            for part, content in parts.items():
                db.execute("INSERT INTO part VALUES (?, ?, ?, 1, 2, ?)", (part, id, SESSION, compact(content)))
        db.commit()
    return path


def make_opencode_files(folder: Path, turns: list[Turn]) -> Path:
    storage = folder / "storage"
    info = {"id": SESSION, "title": TITLE, "time": {"created": NOON, "updated": NOON}}
    put(storage / "migration", "2")
    put(storage / "session" / "global" / f"{SESSION}.json", json.dumps(info, indent=2))
    for id, data, parts in opencode_messages(turns):
        message = {"id": id, "sessionID": SESSION, **data}
        put(storage / "message" / SESSION / f"{id}.json", json.dumps(message, indent=2, ensure_ascii=False))
        for part, content in parts.items():
            content = {"id": part, "sessionID": SESSION, "messageID": id, **content}
            put(storage / "part" / id / f"{part}.json", json.dumps(content, indent=2, ensure_ascii=False))
    return storage


# --- Claude Code ------------------------------------------------------------------------------------------------------


def make_claude_code(folder: Path, turns: list[Turn]) -> Path:
    path = folder / "9f0c2c5e-6f4e-4d53-9a53-0f5f6a4d1c11.jsonl"
    lines: list[dict[str, Any]] = [{"type": "mode", "mode": "normal", "sessionId": path.stem}]
    parent = None
    for number, turn in enumerate(turns):
        said = turn.text if turn.role == "user" else [text_block(turn.text)]
        blocks: list[dict[str, Any]] = [{"role": turn.role, "content": said}]
        if turn.call:
            blocks.append({"role": "assistant", "content": [{"type": "tool_use", **CALL}]})
            result = {"type": "tool_result", "tool_use_id": CALL["id"], "content": "x", "is_error": False}
            blocks.append({"role": "user", "content": [result]})
        for block, message in enumerate(blocks):
            if message["role"] == "assistant":
                message = {"id": f"msg_{number}", "type": "message", **message, "stop_reason": "end_turn"}
            uuid = f"0f5f6a4d-0000-4000-8000-{number:06d}{block:06d}"
            lines.append(
                {"parentUuid": parent, "isSidechain": False, "type": message["role"], "message": message, "uuid": uuid}
                | {"timestamp": f"2026-11-30T12:{number:02d}:00.000Z", "cwd": "/home/a b", "sessionId": path.stem}
            )
            parent = uuid
        lines.append({"type": "last-prompt", "lastPrompt": "...", "leafUuid": parent, "sessionId": path.stem})
    put(path, "".join(compact(line) + "\n" for line in lines))
    return path


# --- Lists of messages ------------------------------------------------------------------------------------------------


def openai_messages(turns: list[Turn]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for turn in turns:
        messages.append({"role": turn.role, "content": turn.text})
        if turn.call:
            function = {"name": CALL["name"], "arguments": compact(CALL["input"])}
            messages[-1]["tool_calls"] = [{"id": CALL["id"], "type": "function", "function": function}]
            messages.append({"role": "tool", "tool_call_id": CALL["id"], "content": "x"})
    return messages


def anthropic_messages(turns: list[Turn]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages.append({"role": turn.role, "content": [text_block(turn.text)] if turn.call else turn.text})
        if turn.call:
            messages[-1]["content"].append({"type": "tool_use", **CALL})
            result = {"type": "tool_result", "tool_use_id": CALL["id"], "content": "x"}
            messages.append({"role": "user", "content": [result]})
    return messages


def make_openai(folder: Path, turns: list[Turn]) -> Path:
    return put(folder / "chat.json", json.dumps(openai_messages(turns), indent=4))


def make_openai_lines(folder: Path, turns: list[Turn]) -> Path:
    return put(folder / "chat.jsonl", "".join(json.dumps(message) + "\n" for message in openai_messages(turns)))


def make_anthropic(folder: Path, turns: list[Turn]) -> Path:
    body = {"model": "m", "max_tokens": 5, "system": "Be brief.", "messages": anthropic_messages(turns)}
    return put(folder / "body.json", compact(body))


def make_anthropic_lines(folder: Path, turns: list[Turn]) -> Path:
    other = {"messages": [{"role": "user", "content": "Hi"}]}
    body = {"system": "Be brief.", "messages": anthropic_messages(turns)}
    return put(folder / "bodies.jsonl", compact(body) + "\n" + compact(other))


MAKERS: dict[str, Make] = {
    "opencode": make_opencode,
    "opencode-files": make_opencode_files,
    "claude-code": make_claude_code,
    "openai": make_openai,
    "openai lines": make_openai_lines,
    "anthropic": make_anthropic,
    "anthropic lines": make_anthropic_lines,
}


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def compact(value: Any) -> str:
    """JSON as JSON.stringify writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- Looking at them --------------------------------------------------------------------------------------------------

Said = list[tuple[str, Any]]


def said(path: Path) -> Said:
    """What the model said in a store of a kind above: texts, and calls as (name, input, result), in order."""
    if path.suffix == ".db":
        return [item for data in parts_of(path) for item in _of_part(data)]
    if path.is_dir():
        files = sorted(path.glob("part/*/*.json"))
        return [item for file in files if _by_model(path, file) for item in _of_part(json.loads(file.read_text()))]
    values = [json.loads(line) for line in _values(path.read_text())]
    if path.stem.count("-") == 4:
        messages = [value["message"] for value in values if "message" in value]
    else:
        messages = [
            m for value in values for m in (value if isinstance(value, list) else value.get("messages", [value]))
        ]
    return _of_openai(messages) if path.stem == "chat" else _of_anthropic(messages)


def parts_of(database: Path) -> list[dict[str, Any]]:
    query = """SELECT part.data FROM part JOIN message ON message.id = message_id
        WHERE message.data ->> 'role' = 'assistant' ORDER BY message_id, part.id"""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
        return [json.loads(data) for (data,) in db.execute(query)]


def _by_model(storage: Path, part: Path) -> bool:
    message = storage / "message" / SESSION / f"{part.parent.name}.json"
    return bool(json.loads(message.read_text())["role"] == "assistant")


def _of_part(part: dict[str, Any]) -> Said:
    if part["type"] == "text":
        return [("text", part["text"])]
    if part["type"] == "tool":
        state = part["state"]
        return [("call", (part["tool"], state["input"], state.get("output", state.get("error"))))]
    return []


def _of_openai(messages: list[dict[str, Any]]) -> Said:
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    found: Said = []
    for message in messages:
        if message["role"] == "assistant":
            found.append(("text", message["content"]))
        for call in message.get("tool_calls", []):
            arguments = json.loads(call["function"]["arguments"])
            found.append(("call", (call["function"]["name"], arguments, results[call["id"]])))
    return found


def _of_anthropic(messages: list[dict[str, Any]]) -> Said:
    blocks = [(message["role"], block) for message in messages for block in _blocks(message["content"])]
    results = {block["tool_use_id"]: block["content"] for _, block in blocks if block["type"] == "tool_result"}
    found: Said = []
    for role, block in blocks:
        if block["type"] == "tool_use":
            found.append(("call", (block["name"], block["input"], results[block["id"]])))
        elif role == "assistant":
            found.append(("text", block["text"]))
    return found


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [text_block(content)] if isinstance(content, str) else content


def _values(text: str) -> list[str]:
    """The JSON texts in a file: its lines, or all of it."""
    return [text] if text.startswith("[") else text.splitlines()


def content(folder: Path) -> dict[str, Any]:
    """All that stores in a folder hold: rows of databases, bytes of files; no backups, no side files of a database."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and ".dsml-backup-" not in name and not path.name.endswith(("-wal", "-shm")):
            found[name] = rows(path) if path.suffix == ".db" else path.read_bytes()
    return found


def rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        db.text_factory = bytes
        return {table: db.execute(f'SELECT * FROM "{table}" ORDER BY 1').fetchall() for table in tables}
