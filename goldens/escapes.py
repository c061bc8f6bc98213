"""Text behind escapes: `\\uXXXX` and the like read as the characters they stand for, and written back the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

Change = Callable[[str], str]  # the same number of characters, each with the UTF-8 width it had

_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_JSON = re.compile(rf"{_PAIR}|\\u[0-9a-fA-F]{{4}}|\\.|.", re.DOTALL)
_NESTED = re.compile(rf"{_PAIR}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|.", re.DOTALL)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def in_json(raw: str, change: Change) -> str:
    """Change the value of a JSON string, `raw` being what stands between its quotes."""
    return _through(raw, _JSON, change)


def in_text(text: str, change: Change) -> str:
    """Change a text in which characters may stand as `\\uXXXX`, as in the JSON text of a call's arguments."""
    return _through(text, _NESTED, change) if "\\u" in text else change(text)


def _through(raw: str, unit: re.Pattern[str], change: Change) -> str:
    if "\\" not in raw:
        return change(raw)
    units = unit.findall(raw)
    old = "".join(map(_read, units))
    new = change(old)
    return "".join(
        written if was == now else _write(now, written) for written, was, now in zip(units, old, new, strict=True)
    )


def value(raw: str) -> str:
    """The value of a JSON string, `raw` being what stands between its quotes. Half a surrogate pair stays one."""
    return "".join(map(_read, _JSON.findall(raw))) if "\\" in raw else raw


def _read(unit: str) -> str:
    if len(unit) == 1:
        return unit
    if len(unit) == 12:
        return (chr(int(unit[2:6], 16)) + chr(int(unit[8:], 16))).encode("utf-16", "surrogatepass").decode("utf-16")
    if len(unit) == 6:
        return chr(int(unit[2:], 16))
    return _SHORT.get(unit[1], unit[1])


def _write(character: str, like: str) -> str:
    """`character` in the way the character of `like` is written."""
    if len(like) <= 2:
        return character
    code = character.encode("utf-16-be").hex()
    code = code if like == like.lower() else code.upper()
    return "".join(f"\\u{code[start : start + 4]}" for start in range(0, len(code), 4))
