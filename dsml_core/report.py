"""What was decided about one response: the source of the log line, never of the content at info level."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import Rejected, Removed


@dataclass(frozen=True, slots=True)
class Recovered:
    """A call that was written; `chars` is the length of its markup, `start` its place in its part, in characters."""

    name: str
    row: str
    chars: int
    start: int


@dataclass(slots=True)
class Report:
    """Filled while the response passes; complete after `Repairer.close`.

    `removed` and `visible` hold content of the message: a caller decides whether to show it. `visible` is the text of a
    message whose markup was removed without a call coming of it, as the client has it, else None.
    `held` is the largest number of characters undecided at once. `faults` name the place of an exception alone.
    """

    wire: str
    model: str | None = None
    calls: list[Recovered] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    native: int = 0
    repaired: list[str] = field(default_factory=list)  # native calls whose arguments were replaced
    saw_syntax: bool = False
    held: int = 0
    faults: list[str] = field(default_factory=list)
    aborted: bool = False
    visible: str | None = None
    resumed: int = 0  # times the request was sent again (see `answers`)
    changed: bool = False  # the bytes that left differ from those that came
