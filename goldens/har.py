"""HTTP archives (HAR 1.2, http://www.softwareishard.com/blog/har-12-spec/), as browsers and proxies save them.

They keep a body as text, so that it comes in one piece.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from dsml_core.formats import wire_of
from goldens.format import GoldenError
from goldens.seen import Seen, seen


def read_har(archive: dict[str, Any]) -> Iterator[tuple[str, Seen]]:
    """The responses of wires we know, each with the number of its entry. Raises `GoldenError` with the field."""
    for number, entry in enumerate(_get(archive, "log", "entries", kind=list)):
        place = f"log.entries[{number}]"
        try:
            method, url = (_get(entry, "request", key, kind=str) for key in ("method", "url"))
            wire = wire_of(url.partition("#")[0]) if method == "POST" else None
            if wire is not None and 200 <= _get(entry, "response", "status", kind=int) < 300:
                yield place, _entry(wire, entry)
        except GoldenError as error:
            raise GoldenError(f"{place}.{error}") from None


def _entry(wire: str, entry: dict[str, Any]) -> Seen:
    content = _get(entry, "response", "content", kind=dict)
    asked = entry["request"].get("postData") or {}
    text = _get(asked, "text", kind=str) if "text" in asked else ""
    header = content.get("mimeType")
    return Seen(
        seen(wire, _body(content), asked=_encoded(text), header=header if isinstance(header, str) else "", chunks=None)
    )


def _body(content: dict[str, Any]) -> bytes:
    if "text" not in content:
        raise GoldenError("response.content.text: is missing; the archive was saved without bodies")
    text = _get(content, "text", kind=str)
    if content.get("encoding") != "base64":
        return _encoded(text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise GoldenError("response.content.text: is no base64") from None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _get[T](value: Any, *keys: str, kind: type[T]) -> T:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, kind):
        raise GoldenError(f"{'.'.join(keys)}: must be {_NAMES[kind]}")
    return value


_NAMES: dict[type, str] = {list: "a list", str: "a string", int: "a number", dict: "an object"}
