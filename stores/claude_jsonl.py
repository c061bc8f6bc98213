"""Claude Code's sessions: one JSONL file each, every line an entry that names its parent.

A message of the model may take several lines, one for each content block, with the same `message.id`. The result of a
call is a user's entry behind it. Entries of other types (copies of requests, snapshots, ...) are left alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from stores.base import INTERRUPTED, Message, Session, Unreadable, Wanted, ended
from stores.fixing import Fixer
from stores.forms import Anthropic, Json, strings
from stores.jsontext import BOM, Line, dump_like, read_lines
from stores.running import refuse_if_running
from stores.single_file import SingleFile

_LOOK: Final = 50  # lines among which one has to be an entry as we know it
_FORM: Final = Anthropic()
_QUOTED: Final = ("user", "attachment", "system")
_PARENTS: Final = ("parentUuid", "logicalParentUuid", "leafUuid")
# What an added entry takes over from the one it belongs to.
_SHARED: Final = (
    *("isSidechain", "agentId", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug"),
    "timestamp",
)
_ERROR: Final = f"Error: {INTERRUPTED}"


class ClaudeJsonl(SingleFile):
    """One session."""

    kind = "claude-code"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as lines:
            for line in read_lines(islice(lines, _LOOK), str(path)):
                value = line.value
                if isinstance(value, dict) and "type" in value and ("sessionId" in value or "leafUuid" in value):
                    return True
        return False

    def sessions(self) -> Iterator[Session]:
        yield self._session()

    def messages(self, wanted: Wanted) -> Iterator[Message]:
        session = self._session()
        if session not in wanted:
            return
        self.progress.begin("reading", 2 * self.path.stat().st_size)
        natives = self._with_calls()
        for line in self._lines():
            self.progress.step(len(line.raw))
            if (message := _message(session, line, natives)) is not None:
                yield message

    def _with_calls(self) -> set[str]:
        """The ids of the messages that hold native calls; those that a repair added are none."""
        found, last = set(), ""
        for line in self._lines():
            self.progress.step(len(line.raw))
            entry = _entry(line)
            if self.is_added(entry):
                found.discard(last)
            elif entry.get("type") == "assistant" and _FORM.native(_said(entry)):
                last = _message_id(entry)
                found.add(last)
        return found

    def rewritten(self, wanted: Wanted) -> Iterator[tuple[bytes, int]]:
        session = self._session()
        fixer, natives = Fixer(), self._with_calls()
        moved: dict[str, str] = {}  # whose children hang on an added entry now
        for line in self._lines():
            raw, entry = line.raw, _entry(line)
            message = _message(session, line, natives) if session in wanted else None
            fix = fixer.fix(message) if message is not None else None
            new = {key: moved.get(value, value) if key in _PARENTS else value for key, value in entry.items()}
            if fix is None:
                yield (raw, 0) if new == entry else (dump_like(new, raw), 1)
                continue
            said, *results = _FORM.repaired(_said(new), fix)
            yield dump_like({**new, "message": said}, raw), 1
            for result in results:
                added = self._result(entry, result, line.number)
                moved[entry["uuid"]] = added["uuid"]
                yield _on_its_line(raw, dump_like(added, raw.removeprefix(BOM))), 0

    def _result(self, entry: Json, said: Json, number: int) -> Json:
        parent = entry.get("uuid")
        if not isinstance(parent, str):
            raise Unreadable(f"{self.path}, line {number}: an entry without uuid; no call can be added to it")
        return {
            "parentUuid": parent,
            **{key: entry[key] for key in _SHARED if key in entry},
            "type": "user",
            "message": said,
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{parent} {said['content'][0]['tool_use_id']}")),
            "toolUseResult": _ERROR,
            "sourceToolAssistantUUID": parent,
        }

    def records(self) -> Iterator[Any]:
        return (line.value if _entry(line) else line.exact for line in self._lines())

    def kept(self, record: Any) -> Any:
        if not isinstance(record, dict):
            return record
        kept = {key: value for key, value in record.items() if key not in _PARENTS}
        if record.get("type") == "assistant":
            kept["message"] = {key: value for key, value in _said(record).items() if key != "content"}
        return kept

    def is_added(self, record: Any) -> bool:
        if not isinstance(record, dict):
            return False
        return record.get("toolUseResult") == _ERROR and _FORM.is_result(record.get("message"))

    def refuse_if_in_use(self) -> None:
        entries = map(_entry, islice(self._lines(), _LOOK))
        folders = {Path(str(entry["cwd"])) for entry in entries if "cwd" in entry}
        refuse_if_running("claude", lambda process: process.folder in folders)

    def _session(self) -> Session:
        title = ""
        for entry in map(_entry, islice(self._lines(), _LOOK)):
            said = _said(entry).get("content")
            if entry.get("type") == "user" and isinstance(said, str):
                title = " ".join(said.split())[:60]
                break
        return Session(self.stem, title, self.path.stat().st_mtime)

    def _lines(self) -> Iterator[Line]:
        with self.path.open("rb") as lines:
            for line in read_lines(lines, str(self.path)):
                if line.fault or isinstance(line.value, dict) or not line.raw.strip():
                    yield line
                else:
                    yield line.unfit(f"{self.path}, line {line.number}: not an entry of a session")


def _entry(line: Line) -> Json:
    """The entry in a line; empty where there is none."""
    return line.value or {}


def _said(entry: Json) -> Json:
    said = entry.get("message")
    return said if isinstance(said, dict) else {}


def _message_id(entry: Json) -> str:
    return str(_said(entry).get("id") or entry.get("uuid"))


def _message(session: Session, line: Line, natives: set[str]) -> Message | None:
    if line.fault:
        return Message(session, f"line {line.number}", False, (line.text,), fault=line.fault)
    entry = _entry(line)
    id = str(entry.get("uuid", f"line {line.number}"))
    if entry.get("type") == "assistant":
        said = _said(entry)
        native, end = _message_id(entry) in natives, ended(said.get("stop_reason"))
        return Message(session, id, True, _FORM.texts(said), native, end=end)
    if entry.get("type") in _QUOTED:
        return Message(session, id, False, tuple(strings(entry)))
    return None


def _on_its_line(raw: bytes, line: bytes) -> bytes:
    """A line to follow `raw`, which may be the last one and without its end."""
    return line if raw.endswith(b"\n") else b"\n" + line
