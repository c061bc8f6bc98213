"""The echo guard (G1): does a message of the request hold the same call, in whatever form?

Both sides are folded to what no quoting, escaping or damage changes; a call of the answer is then looked for as its
name, the names of its parameters and its values, in that order, with nothing but parts of tags between.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

_ROUNDS: Final = 4  # of escaping in escaping
_HUGE: Final = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{8,});?")  # no character; Python would refuse the number
_CODE: Final = re.compile(r"(?<!\\)\\++u([0-9a-fA-F]{4})")
# What a page puts around code: it is none of it.
_PAGE: Final = re.compile(r"</?(?:span|br|code|pre|em|strong|mark|font|div|p|b|i|u|a|td|tr|li)(?:\s[^<>]*)?/?>")
_LINE: Final = "\x1e"  # stands for the end of a line where these are told apart
# White space, quotes, what is noise in a tag (N1, N3), what stands before a line; escapes of characters that go too.
_DROPPED: Final = re.compile(
    "\\\\+[nrtbf]?|(?:[\\x00-\\x1d\\x1f-\\x20\x7f\"'`|>:#+_-]|\u951d\u6ed0\u7d94|[^\\w\\x00-\\x7f])+"
)
_NUMBER: Final = re.compile(r"[0-9]{1,7}")  # of a line
# What may stand between a name and what follows it in a call, once it is folded.
_WORDS: Final = ("name", "string", "true", "false", "type", "parameter", "param", "invoke", "function", "arguments")
_TAG: Final = re.compile("|".join((r"[<=/!\[\].,{}]", "[0-9]{1,7}", *_WORDS, "dsml", "tool", "calls?", "cdata")))
_AHEAD: Final = ("<", "=", "name", "invoke", "function", "dsml")  # what a tool's name stands behind
_CLOSERS: Final = ("parameter", "param", "invoke", "dsml", "toolcall", "function")
_BEHIND: Final = re.compile(rf"\Z|[<\0\]}}]|[0-9]{{0,7}}(?:{'|'.join(_CLOSERS)})")
_BETWEEN: Final = 20  # parts of tags, at most
_MARKS: Final = ("dsml", "invoke")

Parts = Sequence[str]


class Echoes:
    """The texts of a request, folded once, where they may hold a call."""

    def __init__(self, quoted: tuple[str, ...]) -> None:
        folded = [fold(text.replace(_LINE, "")) for text in quoted]
        self._text = "\0".join(text for text in folded if any(mark in text for mark in _MARKS))

    def hold(self, markup: str) -> bool:
        """True where the texts hold `markup` as it is written."""
        return bool(self._text) and fold(markup) in self._text

    def hold_call(self, name: str, parts: Parts) -> bool:
        """True where they hold a call of that name with these parts: the names and values of its parameters, or its
        body.
        """
        key = fold(name)
        if not key or key not in self._text:
            return False
        pieces = [lines for part in parts if any(lines := fold(part.replace("\n", _LINE)).split(_LINE))]
        at = self._text.find(key)
        while at >= 0:
            if self._text.endswith(_AHEAD, 0, at) and _follow(self._text, at + len(key), pieces):
                return True
            at = self._text.find(key, at + 1)
        return False


@lru_cache(maxsize=8)
def echoes(quoted: tuple[str, ...]) -> Echoes:
    """The same for the same texts: all parsers of a response ask."""
    return Echoes(quoted)


def fold(text: str) -> str:
    """`text` without what quoting, escaping and damage change; ends of lines that are marked as such stay."""
    for _ in range(_ROUNDS):
        plain = _CODE.sub(_decoded, html.unescape(_HUGE.sub("", text)))
        if plain == text:
            break
        text = plain
    text = unicodedata.normalize("NFKC", text).casefold()
    return _DROPPED.sub("", _PAGE.sub("", text))


def _decoded(code: re.Match[str]) -> str:
    return chr(int(code[1], 16))


def _follow(text: str, start: int, pieces: Sequence[Parts]) -> bool:
    """True where the pieces stand at `start`, one behind the other, and the call ends there."""
    places = {start}
    for lines in pieces:
        places = {end for at in places for end in _ends(text, at, lines)}
    return any(text[at - 1] == "}" or _BEHIND.match(text, at) for at in places)


def _ends(text: str, at: int, lines: Parts) -> Iterator[int]:
    """Where the lines may end that stand at `at`, or behind parts of tags there."""
    for _ in range(_BETWEEN):
        end = _end(text, at, lines)
        if end is not None:
            yield end
        part = _TAG.match(text, at)
        if part is None:
            return
        at = part.end()


def _end(text: str, at: int, lines: Parts) -> int | None:
    for line in lines:
        if not text.startswith(line, at):
            number = _NUMBER.match(text, at)
            if number is None or not text.startswith(line, number.end()):
                return None
            at = number.end()
        at += len(line)
    return at
