"""Structured calls that came damaged: their arguments put right (RULES 20), and only where they are no valid JSON."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

from dsml_core.atoms import Native
from dsml_core.events import End, Text, ToolCall
from dsml_core.framing import loads
from dsml_core.parser import Parser

# One call in the V4 grammar; a name that would need escaping is left alone.
_CALL = '<\uff5cDSML\uff5cinvoke name="%s">%s</\uff5cDSML\uff5cinvoke>'
_UNWATCHED = 65536  # characters that may go by at once where nothing looks for markup in them


class NativeCall:
    """One structured call whose arguments arrive in pieces.

    They flow on as they come. They are held once they need watching: a complete leak of the same name came before,
    or markup begins in them.
    """

    def __init__(self, name: str, leaked: bool, parser: Callable[[], Parser]) -> None:
        self.name = name
        self.complete = False
        self.repaired: str | None = None  # the arguments that took the place of the provider's
        self.waiting: deque[Native] = deque()
        self._pieces: list[str] = []
        self._sent = 0  # characters of the arguments that have left
        self._leaked = leaked
        self._new_parser = parser
        self._watch: Parser | None = parser()
        self._marked = False

    @property
    def holding(self) -> bool:
        """Its frames wait."""
        return not self.complete and (self.certain or (self._watch is not None and self._watch.held > 0))

    @property
    def certain(self) -> bool:
        """It waits until its arguments are complete, not only for the next piece."""
        return self._leaked or self._marked

    @property
    def room(self) -> int:
        """Characters of arguments that may `glide`."""
        if self.complete or self.holding or self.waiting:
            return 0
        return _UNWATCHED if self._watch is None else self._watch.room

    def renew(self) -> int:
        """The room there is once note is taken of all that did."""
        if self._watch is not None:
            self._watch.renew()
        return self.room

    def glides(self, text: str) -> bool:
        """True where no markup begins in `text`."""
        return self._watch is None or self._watch.passes(text)

    def glide(self, text: str) -> None:
        """Arguments that no markup may begin in have left."""
        self._pieces.append(text)
        self._sent += len(text)
        if self._watch is not None:
            self._watch.pass_by(text)

    def add(self, piece: Native) -> None:
        """More arguments."""
        self._pieces.append(piece.arguments)
        self.waiting.append(piece)
        if self._watch is not None and piece.arguments and not self.certain:
            events = self._watch.feed(piece.arguments)
            self._marked = self._watch.standing or any(not isinstance(event, Text) for event in events)

    def sent(self, piece: Native) -> None:
        """The frame with `piece` leaves; pieces leave in order."""
        self.waiting.popleft()
        self._sent += len(piece.arguments)

    def release(self) -> None:
        """What only might be markup goes out, and is watched no longer."""
        if self.holding and not self.certain:
            self._watch = None

    def finish(self, leaks: list[ToolCall]) -> None:
        """The arguments are complete: take those of a leak, or drop markup, where they are no use as they are."""
        if self.complete:
            return
        self.complete = True
        held = self._pieces if self.certain else []
        self._pieces = []
        if not held:
            return
        arguments = "".join(held)
        better = self._repair(arguments, leaks)
        if better is None or not better.startswith(arguments[: self._sent]):
            return
        self.repaired = better
        for number, piece in enumerate(self.waiting):
            piece.shown = "" if number else better[self._sent :]

    def _repair(self, arguments: str, leaks: list[ToolCall]) -> str | None:
        value = loads(arguments)
        if isinstance(value, dict) and value:
            return None
        if value is None and "<" in arguments:
            better = self._without_residue(arguments) or self._from_markup(arguments)
            if better is not None:
                return better
        leak = next((leak for leak in leaks if leak.name == self.name), None)
        if leak is None:
            return None
        leaks.remove(leak)
        return json.dumps(leak.arguments, ensure_ascii=False)

    def _without_residue(self, arguments: str) -> str | None:
        """Arguments that are JSON with markup glued to its end."""
        text = arguments.lstrip()
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return None
        parser = self._new_parser()
        events = parser.feed(text[end:]) + parser.close(End.NATIVE)
        rest = "".join(event.text for event in events if isinstance(event, Text))
        end += len(arguments) - len(text)
        return arguments[:end] if isinstance(value, dict) and not rest.strip() else None

    def _from_markup(self, arguments: str) -> str | None:
        """Arguments that are marked parameters instead of JSON."""
        if '"' in self.name:
            return None
        parser = self._new_parser()
        events = parser.feed(_CALL % (self.name, arguments)) + parser.close()
        calls = [event for event in events if isinstance(event, ToolCall)]
        rest = "".join(event.text for event in events if isinstance(event, Text))
        if len(calls) != 1 or rest.strip() or calls[0].name != self.name:
            return None
        return json.dumps(calls[0].arguments, ensure_ascii=False)
