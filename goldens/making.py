"""From a response that was seen to a golden that may be kept; refused where it would not say the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from goldens import replay
from goldens.format import Golden, Outcome
from goldens.redact import Redactor

_FREE = ("text", "reasoning", "arguments")  # of a decision: what is said there may change in a redaction


class RefusedError(Exception):
    """Why no golden was made: a sentence for the user, without any text of the message."""


def make(seen: Golden, *, emitted: bytes | None = None, redact: bool = True) -> Golden:
    """The golden of a response, with its expectation.

    `emitted`: what left the repair then, where that is known. Raises `RefusedError` where the recorded bytes give
    something else now, or where a redacted response would be decided in another way.
    """
    outcome = replay.run(seen)
    if emitted is not None and not _same(seen, outcome.emitted, emitted):
        raise RefusedError("the bytes that were kept give something else now than they gave then")
    golden = replace(seen, expected=outcome)
    if redact and not golden.redacted:
        golden = _redacted(golden, outcome)
    return expecting(golden, golden.expected or outcome)


def expecting(golden: Golden, outcome: Outcome) -> Golden:
    """The same response, of which `outcome` is expected."""
    made = replace(golden, expected=outcome)
    return replace(made, about=golden.about or about(made))


def _same(seen: Golden, one: bytes, other: bytes) -> bool:
    """White space before a JSON body goes out as it comes, and where it ends depends on the pieces."""
    return one == other if seen.stream else one.lstrip() == other.lstrip()


def _redacted(golden: Golden, outcome: Outcome) -> Golden:
    redactor = Redactor(golden)
    made = redactor.redacted()
    again = replay.run(made)
    for place in differences(outcome.decided, again.decided, redactor.words.apply):
        raise RefusedError(f"redaction would change what is decided, first at {place}")
    made = replace(made, expected=again)
    if redactor.left(made) is not None:
        raise RefusedError("a word that was to be taken out still stands in it")
    return made


def differences(
    old: Any, new: Any, renamed: Callable[[str], str], place: str = "", free: bool = False
) -> Iterator[str]:
    """The places where two decisions differ in more than the values of texts and arguments.

    `renamed` gives what becomes of a name. Of a value the JSON type and the length count.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if [len(key) for key in old] != [len(key) for key in new]:
            yield place
            return
        for (key, was), (other, now) in zip(old.items(), new.items(), strict=True):
            if other not in (key, renamed(key)) and not (free and len(key) == len(other)):
                yield f"{place}.{key}".lstrip(".")
            yield from differences(was, now, renamed, f"{place}.{key}".lstrip("."), free or key in _FREE)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield place
            return
        for number, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(was, now, renamed, f"{place}[{number}]", free)
    elif type(old) is not type(new) or not (_fits(old, new) if free else old == new or _is_renamed(old, new, renamed)):
        yield place


def _fits(old: Any, new: Any) -> bool:
    """A value may be another one of the same type and length."""
    if isinstance(old, str):
        return len(old) == len(new)
    return old == new or (isinstance(old, int | float) and not isinstance(old, bool))


def _is_renamed(old: Any, new: Any, renamed: Callable[[str], str]) -> bool:
    return isinstance(old, str) and renamed(old) == new


# --- What it is called ------------------------------------------------------------------------------------------------


_VERBS = {"recovered": "recovers", "repaired": "repairs", "rejected": "refuses", "removed": "removes"}


def about(golden: Golden) -> str:
    """One line on what was decided."""
    decided = golden.expected.decided if golden.expected else {}
    for key, word in _VERBS.items():
        if found := decided.get(key):
            return f"{word} " + ", ".join(map(_shown, found))
    return "leaves everything as it came"


def _shown(item: Any) -> str:
    return item if isinstance(item, str) else f"{item['name'] or 'markup'} ({item['row']})"


def file_name(golden: Golden) -> str:
    """A name made of the wire, the row that decided first, and a digest: nothing in it is anybody's choice."""
    decided = golden.expected.decided if golden.expected else {}
    rows = [item["row"] for key in ("recovered", "rejected", "removed") for item in decided.get(key, ())]
    row = re.sub("[^a-z0-9]", "", rows[0].lower()) if rows else "none"
    return f"{golden.wire}-{row}-{hashlib.sha256(golden.received).hexdigest()[:12]}.json"
