"""JSON text and its values, so that what is written looks like what was read."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from stores.base import Unreadable

BOM: Final = codecs.BOM_UTF8
_SPACE: Final = b" \t\r\n"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# JSON.stringify's way of writing comes first.
_STYLES: Final[list[dict[str, Any]]] = [
    {"indent": indent, "separators": separators, "ensure_ascii": ascii_only}
    for indent, separators in [(None, (",", ":")), (None, (", ", ": ")), *((i, (",", ": ")) for i in (2, 4, 1, "\t"))]
    for ascii_only in (False, True)
]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of JSONL. `fault`: why it cannot be read, with its place; `value` is None then, and in a blank line."""

    number: int
    raw: bytes
    value: Any
    fault: str = ""

    @property
    def text(self) -> str:
        """What stands there, as far as it is text."""
        return self.raw.decode(errors="replace")

    @property
    def exact(self) -> str:
        """Its bytes, each as a character."""
        return self.raw.decode("latin-1")

    def unfit(self, fault: str) -> Line:
        """The line as one that cannot be read, since its value is none that can stand there."""
        return Line(self.number, self.raw, None, fault)


def read_lines(lines: Iterable[bytes], where: str) -> Iterator[Line]:
    """Each line of a JSONL file, in order; `where` names the file."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            yield Line(number, raw, None)
        else:
            yield _line(number, raw, f"{where}, line {number}")


def read_whole(raw: bytes, where: str) -> Line:
    """All of a file as if it were a line; `where` names it."""
    return _line(1, raw, where)


def _line(number: int, raw: bytes, where: str) -> Line:
    try:
        return Line(number, raw, load(raw, where))
    except Unreadable as error:
        return Line(number, raw, None, str(error))


def load(raw: bytes, where: str) -> Any:
    """The value of UTF-8 JSON, with or without a byte order mark; `Unreadable` names the place where it is none."""
    try:
        return json.loads(raw.removeprefix(BOM).rstrip(_SPACE).decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{where}: damaged JSON ({_reason(error)})") from None


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text, byte {error.start + 1}"
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    ends = error.pos == len(error.doc) or error.msg.startswith("Unterminated string")
    return f"{line}column {error.colno}: {'it ends in the middle' if ends else error.msg}"


def dump_like(value: Any, raw: bytes) -> bytes:
    """`value` as JSON in the style of `raw`, or the nearest to it, white space and a mark around it included."""
    text = raw.decode()
    core = text.removeprefix("\ufeff").strip(_SPACE.decode())
    before, _, after = text.partition(core)
    old = json.loads(core)

    nearest, distance = _STYLES[0], len(core) + 1
    for style in _STYLES:
        written = _dump(old, style)
        if written == core:
            nearest = style
            break
        if abs(len(written) - len(core)) < distance:
            nearest, distance = style, abs(len(written) - len(core))
    return (before + _dump(value, nearest) + after).encode()


def _dump(value: Any, style: dict[str, Any]) -> str:
    # JSON text holds no lone surrogates, only their escapes.
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, **style))
