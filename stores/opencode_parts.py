"""OpenCode's messages: a message, and its parts in the order of their ids, whatever they are stored in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from dsml_core.events import ToolCall
from dsml_core.formats.wire import make_id
from stores.base import INTERRUPTED, Fix, Message, Session, Unreadable, ended
from stores.forms import Json, strings
from stores.jsontext import dump_like, load

# Keys that place a part where it is stored as a file of its own.
_PLACE: Final = ("id", "sessionID", "messageID")


@dataclass(frozen=True, slots=True)
class Change:
    """The JSON text of a part; `before` None is a new one, to stand behind the part `beside`."""

    id: str
    before: str | None
    after: str
    beside: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it is stored; parts by id, in order, and the bytes they were read from."""

    session: Session
    id: str
    data: Json
    parts: Mapping[str, Json]
    raws: Mapping[str, bytes]

    @classmethod
    def load(cls, session: Session, id: str, raw: bytes, raws: Mapping[str, bytes], where: str) -> Self:
        """`raw` is the message, `raws` its parts; `where` the store, for `Unreadable`."""
        parts = {part: as_object(raws[part], f"{where}, part {part}") for part in sorted(raws)}
        return cls(session, id, as_object(raw, f"{where}, message {id}"), parts, raws)

    def messages(self) -> Iterator[Message]:
        """The message as one of ours; what its tools gave out comes behind it, as texts a model may quote."""
        texts = tuple(part["text"] for part in self.parts.values() if _is_text(part))
        tools = [part for part in self.parts.values() if part.get("type") == "tool"]
        states = [state for part in tools if isinstance(state := part.get("state"), dict)]
        native = len(tools) > sum(state.get("error") == INTERRUPTED for state in states)
        by_model = self.data.get("role") == "assistant"
        yield Message(self.session, self.id, by_model, texts, native, end=ended(self.data.get("finish")))
        yield Message(self.session, self.id, False, tuple(strings([[s.get("output"), s.get("error")] for s in states])))

    def changes(self, fix: Fix) -> Iterator[Change]:
        """The parts to write. A new one's id sorts behind the text its call was found in, before the next part."""
        repaired = iter(fix.parts)
        for id, part in self.parts.items():
            found = next(repaired) if _is_text(part) else None
            if found is None or not found.removed:
                continue
            raw = self.raws[id]
            yield Change(id, raw.decode(), dump_like({**part, "text": found.text}, raw).decode(), id)
            first = sum(other.startswith(id) for other in self.parts) - 1  # behind those that a repair added before
            for number, call in enumerate(found.calls, first):
                new = f"{id}{number:03d}"
                place: Json = {key: new if key == "id" else part[key] for key in _PLACE if key in part}
                yield Change(new, None, dump_like({**place, **self._call(call, id, number)}, raw).decode(), id)

    def _call(self, call: ToolCall, part: str, number: int) -> Json:
        time = self._time(part)
        return {
            "type": "tool",
            "tool": call.name,
            "callID": make_id("call_", self.session.id, self.id, part, number),
            "state": {
                "status": "error",
                "input": call.arguments,
                "error": INTERRUPTED,
                "metadata": {"interrupted": True},
                "time": {"start": time, "end": time},
            },
        }

    def _time(self, part: str) -> int | float:
        """When the call was written, in milliseconds: the end of its text, else the message's beginning."""
        for times, key in ((self.parts[part].get("time"), "end"), (self.data.get("time"), "created")):
            if isinstance(times, dict) and isinstance(time := times.get(key), int | float):
                return time
        return 0


def data_folder(environment: Mapping[str, str]) -> Path:
    """Where OpenCode keeps its data, by the environment it runs in."""
    data = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", ""), ".local", "share")
    return Path(data, "opencode").resolve()


def _is_text(part: Json) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def as_object(raw: Any, where: str) -> Json:
    """The JSON object in bytes; `Unreadable` names the place where there is none."""
    value = load(raw, where) if isinstance(raw, bytes) else None
    if not isinstance(value, dict):
        raise Unreadable(f"{where}: not a JSON object")
    return value
