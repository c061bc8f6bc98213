"""JSON text and its values, so that what is written looks like what was read."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from stores.base import Unreadable

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# JSON.stringify's way of writing comes first.
_STYLES: Final[list[dict[str, Any]]] = [
    {"indent": indent, "separators": separators, "ensure_ascii": ascii_only}
    for indent, separators in [(None, (",", ":")), (None, (", ", ": ")), *((i, (",", ": ")) for i in (2, 4, 1, "\t"))]
    for ascii_only in (False, True)
]


def load(raw: bytes, where: str) -> Any:
    """The value of UTF-8 JSON; `Unreadable` names the place where it is none."""
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{where}: damaged JSON ({error})") from None


def dump_like(value: Any, raw: bytes) -> bytes:
    """`value` as JSON in the style of `raw`, or the nearest to it, white space around it included."""
    text = raw.decode()
    core = text.strip()
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
