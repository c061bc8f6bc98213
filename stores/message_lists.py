"""Plain lists of messages in a file: OpenAI's or Anthropic's form, as JSON or JSONL.

A file may be one conversation (a JSON list of messages, an object that has it as `messages`, or a message a line), or
one conversation a line. A request body is such an object: its tools and its system text count as in a live request.
A JSON document is held in memory whole, a JSONL file line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

from stores.base import Message, Session, Unreadable, Unsupported, Wanted
from stores.fixing import Fixer
from stores.forms import Anthropic, Either, Form, Json, OpenAI, strings
from stores.jsontext import BOM, Line, dump_like, load, read_lines, read_whole
from stores.single_file import SingleFile
from stores.unsupported import UNSUPPORTED, is_of_responses

_LOOK: Final = 1000  # messages that decide which form it is


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a file, or all of it: a message (`position` in its conversation), a conversation, or neither."""

    line: Line
    session: Session
    position: int

    @property
    def raw(self) -> bytes:
        return self.line.raw

    @property
    def value(self) -> Any:
        return self.line.value

    @property
    def is_blank(self) -> bool:
        return self.value is None and not self.line.fault

    @property
    def is_message(self) -> bool:
        return isinstance(self.value, dict) and "role" in self.value

    @property
    def messages(self) -> list[Json]:
        if self.value is None:
            return []
        if self.is_message:
            return [self.value]
        found: list[Json] = self.value if isinstance(self.value, list) else self.value["messages"]
        return found

    @property
    def rest(self) -> Json:
        """What a conversation holds besides its messages."""
        if self.is_message or not isinstance(self.value, dict):
            return {}
        return {key: value for key, value in self.value.items() if key != "messages"}

    def holding(self, messages: Sequence[Json]) -> bytes:
        """The bytes of the entry with other messages."""
        if not self.is_message:
            value = messages if isinstance(self.value, list) else {**self.value, "messages": messages}
            return dump_like(value, self.raw)
        lines = [dump_like(messages[0], self.raw)]
        lines += [dump_like(message, self.raw.removeprefix(BOM)) for message in messages[1:]]
        return b"".join([line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]] + lines[-1:])


class MessageList(SingleFile):
    """A file of messages in one form. Any file of JSON may be one; `form_of` tells which."""

    form: ClassVar[Form]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            return any(raw.removeprefix(BOM).lstrip().startswith((b"[", b"{")) for raw in _first_two(file))

    def sessions(self) -> Iterator[Session]:
        seen = None
        for entry in self._entries():
            if entry.value is not None and entry.session != seen:
                seen = entry.session
                yield seen

    def messages(self, wanted: Wanted) -> Iterator[Message]:
        self.progress.begin("reading", self.path.stat().st_size)
        for entry, after in _with_next(self._entries()):
            self.progress.step(len(entry.raw))
            if entry.session in wanted:
                yield from self._read(entry, after)

    def _read(self, entry: Entry, after: Entry | None) -> Iterator[Message]:
        if entry.line.fault:
            yield Message(entry.session, f"line {entry.line.number}", False, (entry.line.text,), fault=entry.line.fault)
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
            if entry.value is None:
                yield entry.line.exact
            elif not entry.is_message:
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


class UndecidedList(MessageList):
    """Messages that both APIs write so, or of both: they can be read, and a call has no one form to be added in."""

    kind = "openai or anthropic"
    form = Either()

    def notices(self) -> Iterator[str]:
        yield f"nothing tells of which API these messages are; --write needs {_CHOICE}"

    def rewrite(self, wanted: Wanted) -> Path:
        raise Unreadable(f"{self.path}: nothing tells of which API these messages are; say {_CHOICE}")


_CHOICE: Final = f"--store {OpenAIList.kind} or --store {AnthropicList.kind}"


def form_of(path: Path) -> type[MessageList]:
    """The form of the messages in a file, told by the first of them."""
    shown: set[type[MessageList]] = set()
    with suppress(Unreadable):  # a damaged line: whoever reads all of it will say so
        for entry in islice(read_entries(path, path.stem), _LOOK):
            for kind in (OpenAIList, AnthropicList):
                if kind.form.shows_body(entry.rest) or any(map(kind.form.shows, entry.messages[:_LOOK])):
                    shown.add(kind)
    return shown.pop() if len(shown) == 1 else UndecidedList


def read_entries(path: Path, stem: str) -> Iterator[Entry]:
    """The entries of a file: its lines, or the one JSON value it is. `Unreadable` where none of them can be read."""
    session, position = Session(stem, "", path.stat().st_mtime), 0
    found, fault = False, ""
    for line, whole in _lines(path):
        is_message = isinstance(line.value, dict) and "role" in line.value
        if line.value is not None and not is_message and not whole:
            session, position = replace(session, id=f"{stem}:{line.number}"), 0
        yield Entry(line, session, position)
        position += is_message or bool(line.fault)
        found = found or line.value is not None
        fault = fault or line.fault
    if not found:
        raise Unreadable(fault or f"{path}: there is nothing in it")


def _with_next(entries: Iterator[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    """Each entry and the one behind it; blank ones lie behind none."""
    last: Entry | None = None
    blank: list[Entry] = []
    for entry in chain(entries, [None]):
        if entry is not None and entry.is_blank:
            blank.append(entry)
            continue
        if last is not None:
            yield last, entry
        yield from ((between, None) for between in blank)
        last, blank = entry, []


def _lines(path: Path) -> Iterator[tuple[Line, bool]]:
    """The lines of a file, or all of it as one; and whether it is all of it."""
    with path.open("rb") as file:
        by_line = _is_jsonl(*_first_two(file))
        file.seek(0)
        for line in read_lines(file, str(path)) if by_line else (read_whole(file.read(), str(path)),):
            if is_of_responses(line.value):
                raise Unsupported(f"{path}: {UNSUPPORTED}")
            if line.fault or not line.raw.strip() or _holds_messages(line.value):
                yield line, not by_line
            else:
                place = f", line {line.number}" if by_line else ""
                yield line.unfit(f"{path}{place}: neither a message nor a conversation"), not by_line


def _first_two(file: BinaryIO) -> tuple[bytes, bytes]:
    """The first lines that are not blank; empty where there are not as many."""
    filled = (raw for raw in file if raw.strip())
    return next(filled, b""), next(filled, b"")


def _is_jsonl(first: bytes, second: bytes) -> bool:
    """Whether a file that begins so holds a value a line, even if the first line is damaged."""
    if _loads(first):
        return True
    # A document goes on like this behind a line that is no value.
    return not first.rstrip().endswith((b"[", b"{", b",", b":")) and second.startswith((b"{", b"[")) and _loads(second)


def _loads(raw: bytes) -> bool:
    try:
        load(raw, "")
    except Unreadable:
        return False
    return True


def _holds_messages(value: Any) -> bool:
    messages = value.get("messages", [value]) if isinstance(value, dict) else value
    return isinstance(messages, list) and all(map(_is_message, messages))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)
