"""What a store is: sessions, their messages in the order they were said, and one way to write the repaired ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from dsml_core.events import End, ToolCall
from dsml_core.transcript import Repaired

# Why an answer ended, in the words of clients and providers; any other is a stop.
_ENDS: Final = {
    "length": End.LENGTH,
    "max_tokens": End.LENGTH,
    "content-filter": End.REFUSAL,
    "refusal": End.REFUSAL,
}
# Stands in each added call where the form has a place for its result.
INTERRUPTED: Final = "interrupted, not executed"


class StoreError(Exception):
    """A message for the user. `status` is the exit status that tells the kind."""

    status: ClassVar[int]


class Unreadable(StoreError):
    """Not a store we know, of another version, or damaged."""

    status = 3


class Unsupported(StoreError):
    """Known, and not dealt with here."""

    status = 3


class InUse(StoreError):
    """The client runs, or another repair does."""

    status = 4


class NotWritten(StoreError):
    """Writing failed; the store is as it was."""

    status = 5


@dataclass(frozen=True, slots=True)
class Session:
    """`changed` is in seconds since 1970."""

    id: str
    title: str
    changed: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions a user asked for: all without `ids`, those changed at `since` or later."""

    ids: frozenset[str] = frozenset()
    since: float = 0.0

    def __contains__(self, session: Session) -> bool:
        return (not self.ids or session.id in self.ids) and session.changed >= self.since


@dataclass(frozen=True, slots=True)
class Message:
    """A message, as far as a repair looks at it.

    `by_model`: `texts` are the model's, one for each text part; else they are all that a model could be quoting.
    `native`: it holds native calls, other than those a repair added. `tools`: what was declared where the store knows,
    as for `Parser`. `end`: why it ended. `fault`: it is a piece of the store that cannot be read, and why, with its
    place; its text is what stands there, as a model could be quoting that.
    """

    session: Session
    id: str
    by_model: bool
    texts: tuple[str, ...]
    native: bool = False
    tools: Any = None
    end: End = End.STOP
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """A message and what each of its texts becomes."""

    message: Message
    parts: tuple[Repaired, ...]

    @property
    def calls(self) -> list[ToolCall]:
        return [call for part in self.parts for call in part.calls]

    @property
    def rows(self) -> list[str]:
        """The rows of docs/PATTERNS.md that decided, one for each span that is cut."""
        return [span.row for part in self.parts for span in part.removed]


class Progress(Protocol):
    """Told how far long work is. `total` and `steps` count whatever the work is made of."""

    def begin(self, label: str, total: int) -> None: ...

    def step(self, steps: int = 1) -> None: ...


class NoProgress:
    def begin(self, label: str, total: int) -> None: ...

    def step(self, steps: int = 1) -> None: ...


class Store(ABC):
    """One store of one client. Every method may raise a `StoreError`."""

    kind: ClassVar[str]

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path.absolute()
        self.progress: Progress = progress or NoProgress()

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether there is a store of this kind at `path`, whatever its version."""

    @abstractmethod
    def sessions(self) -> Iterator[Session]:
        """All sessions."""

    @abstractmethod
    def messages(self, wanted: Wanted) -> Iterator[Message]:
        """The messages of the wanted sessions that may hold markup, a session after the other, in the order they were
        said."""

    @abstractmethod
    def rewrite(self, wanted: Wanted) -> Path:
        """Repair the wanted sessions; the backup that was made. All of it is written, or nothing."""

    @classmethod
    @abstractmethod
    def undo(cls, backup: Path, about: dict[str, Any]) -> int:
        """Put back what a repair changed, by its backup; how many changes were left, since the client changed them."""

    def notices(self) -> Iterator[str]:
        """What a user should know of the store besides its leaks."""
        yield from ()


def ended(reason: Any) -> End:
    """Why an answer ended, by what a client stored."""
    return _ENDS.get(reason, End.STOP) if isinstance(reason, str) else End.STOP


def may_hold_markup(text: str) -> bool:
    """False where the text holds neither leaked markup nor anything, escaped or not, that it could be quoted from."""
    lowered = text.lower()
    return "dsml" in lowered or "invoke" in lowered
