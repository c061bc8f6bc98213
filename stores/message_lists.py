"""Plain lists of messages in a file: OpenAI's or Anthropic's form, as JSON or JSONL.

A file may be one conversation (a JSON list of messages, an object that has it as `messages`, or a message a line), or
one conversation a line. A request body is such an object: its tools and its system text count as in a live request.
A JSON document is held in memory whole, a JSONL file line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

from stores.base import Message, Session, Unreadable, Wanted
from stores.fixing import Fixer
from stores.forms import Anthropic, Form, Json, OpenAI, strings
from stores.jsontext import dump_like, load
from stores.single_file import SingleFile

_LOOK: Final = 1000  # messages that decide which form it is


@dataclass(frozen=True, slots=True)
class Entry:
    """One JSON value of a file: a message (`position` in its conversation), or a conversation."""

    raw: bytes
    value: Any
    session: Session
    position: int

    @property
    def is_message(self) -> bool:
        return isinstance(self.value, dict) and "role" in self.value

    @property
    def messages(self) -> list[Json]:
        if self.is_message:
            return [self.value]
        found: list[Json] = self.value if isinstance(self.value, list) else self.value["messages"]
        return found

    @property
    def rest(self) -> Json:
        """What a conversation holds besides its messages."""
        if self.is_message or isinstance(self.value, list):
            return {}
        return {key: value for key, value in self.value.items() if key != "messages"}

    def holding(self, messages: Sequence[Json]) -> bytes:
        """The bytes of the entry with other messages."""
        if not self.is_message:
            value = messages if isinstance(self.value, list) else {**self.value, "messages": messages}
            return dump_like(value, self.raw)
        lines = [dump_like(message, self.raw) for message in messages]
        return b"".join([line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]] + lines[-1:])


class MessageList(SingleFile):
    """A file of messages in one form."""

    form: ClassVar[Form]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            if file.read(4096).lstrip()[:1] not in (b"[", b"{"):
                return False
        return form_of(path) is cls

    def sessions(self) -> Iterator[Session]:
        seen = None
        for entry in self._entries():
            if entry.session != seen:
                seen = entry.session
                yield seen

    def messages(self, wanted: Wanted) -> Iterator[Message]:
        self.progress.begin("reading", self.path.stat().st_size)
        for entry, after in _with_next(self._entries()):
            self.progress.step(len(entry.raw))
            if entry.session in wanted:
                yield from self._read(entry, after)

    def _read(self, entry: Entry, after: Entry | None) -> Iterator[Message]:
        tools = entry.rest.get("tools", entry.rest.get("functions"))
        if "system" in entry.rest:
            yield Message(entry.session, "system", False, tuple(strings(entry.rest["system"])))
        behind = after.messages[:1] if after is not None and after.is_message else []
        pairs = pairwise([*entry.messages, *(behind or [{}])])
        for position, (message, following) in enumerate(pairs, entry.position):
            by_model = message["role"] == "assistant"
            texts = self.form.texts(message) if by_model else tuple(strings(message))
            native = self.form.native(message) and not self.form.is_result(following)
            yield Message(entry.session, str(position), by_model, texts, native, tools)

    def rewritten(self, wanted: Wanted) -> Iterator[tuple[bytes, int]]:
        fixer = Fixer()
        for entry, after in _with_next(self._entries()):
            if entry.session not in wanted:
                yield entry.raw, 0
                continue
            found = {
                fix.message.id: fix for message in self._read(entry, after) if (fix := fixer.fix(message)) is not None
            }
            if not found:
                yield entry.raw, 0
                continue
            messages: list[Json] = []
            for position, message in enumerate(entry.messages, entry.position):
                fix = found.get(str(position))
                messages += [message] if fix is None else self.form.repaired(message, fix)
            yield entry.holding(messages), len(found)

    def records(self) -> Iterator[Any]:
        for entry in self._entries():
            if not entry.is_message:
                yield entry.rest
            yield from entry.messages

    def kept(self, record: Any) -> Any:
        if isinstance(record, dict) and record.get("role") == "assistant":
            return {key: value for key, value in record.items() if key not in ("content", "tool_calls")}
        return record

    def is_added(self, record: Any) -> bool:
        return self.form.is_result(record)

    def _entries(self) -> Iterator[Entry]:
        return read_entries(self.path, self.stem)


class OpenAIList(MessageList):
    kind = "openai"
    form = OpenAI()


class AnthropicList(MessageList):
    kind = "anthropic"
    form = Anthropic()


def form_of(path: Path) -> type[MessageList]:
    """The form of the messages in a file; OpenAI's where nothing in them tells."""
    with suppress(Unreadable):  # a damaged line: whoever reads all of it will say so
        entries = islice(read_entries(path, path.stem), _LOOK)
        for entry in entries:
            if "system" in entry.rest:
                return AnthropicList
            for message in entry.messages[:_LOOK]:
                for kind in (OpenAIList, AnthropicList):
                    if kind.form.shows(message):
                        return kind
    return OpenAIList


def read_entries(path: Path, stem: str) -> Iterator[Entry]:
    """The entries of a file: its lines, or the one JSON value it is."""
    changed = path.stat().st_mtime
    position = 0
    for name, raw, value in _values(path):
        messages = value.get("messages", [value]) if isinstance(value, dict) else value
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            raise Unreadable(f"{path}{name and ', ' + name}: neither a message nor a conversation")
        alone = isinstance(value, dict) and "role" in value
        id = stem if alone or not name else f"{stem}:{name.removeprefix('line ')}"
        yield Entry(raw, value, Session(id, "", changed), position if alone else 0)
        position += alone


def _with_next(entries: Iterator[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    pairs: Iterator[tuple[Any, Any]] = pairwise(chain(entries, [None]))
    return pairs


def _values(path: Path) -> Iterator[tuple[str, bytes, Any]]:
    """Each JSON value in a file, its bytes and the name of its place."""
    with path.open("rb") as file:
        first = file.readline()
        by_line = False
        with suppress(Unreadable):
            load(first, "")
            by_line = True
        file.seek(0)
        if not by_line:
            raw = file.read()
            yield "", raw, load(raw, str(path))
            return
        for number, raw in enumerate(file, 1):
            if raw.strip():
                yield f"line {number}", raw, load(raw, f"{path}, line {number}")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)
