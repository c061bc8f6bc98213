"""Numbers in sentences."""

from __future__ import annotations


def many(count: int, one: str, more: str = "") -> str:
    """`count` with its word: `one`, or `more` where that is not `one` with an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"
