"""Which words of a text are somebody's own, and the placeholders that take their place.

A text is looked at twice: `Words.learn` collects what is to go, `Words.apply` replaces it, everywhere. A placeholder
has the length, the case, the digits and the UTF-8 widths of its word, and depends on nothing but the order of words:
it tells nothing about the word.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import regex

from goldens.escapes import in_text

# Words with a meaning to the parser, whatever stands around them (docs/PATTERNS.md).
_MEANT = (
    "dsml tool tools call calls function functions invoke parameter name string true false null item arguments input "
    "cdata think thinking begin end of sentence infinity quot apos amp lt gt http https"
)
_KEPT: Final = frozenset(_MEANT.split())
# Words of the wires: they stay where a wire has a word of its own (`type`, `finish_reason` and the like).
_SPOKEN = (
    "chat completion chunk message messages assistant developer user system role content text delta start stop block "
    "length filter max tokens output refusal error ping response created progress completed incomplete failed added "
    "done reasoning summary signature json custom local shell web search searching object list model input queued turn "
    "sequence part parts annotation apply patch computer code interpreter image generation file result redacted "
    "citation deepseek coder reasoner flash lite speciale terminus instruct preview latest free event "
    "chatcmpl resp toolu"
)
WIRE_WORDS: Final = frozenset(_SPOKEN.split())

_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+")
_ESCAPED = frozenset("nrtbf")
_MOJIBAKE = "\u951d\u6ed0\u7d94"  # row N3: a bar, misread
# A tag's own name may be cut short (row I2), so it is not always a word of `_KEPT`.
_TAG_NAME = r"(?i:inv|param|tool|func|call)[a-zA-Z]*"
_MARKUP = rf"(?i:dsml)(?:[^\p{{L}}\p{{N}}<>\"'=]{{0,12}}{_TAG_NAME})?|{_MOJIBAKE}|&#[xX]?[0-9A-Fa-f]{{1,7}};"

_TITLES = r"(?:pass\w*|pwd|pin|otp|cvv|\w*token|\w*secret|\w*key|auth\w*|user\w*|login)"
# Where even short words tell something: group 1, or all of it.
_TELLING: Final = tuple(
    regex.compile(pattern)
    for pattern in (
        r"[^\s\"'<>(),;:|\[\]]+[@\uff20][^\s\"'<>(),;:|\[\]]+",  # e-mail
        r"://([^\s\"'<>]+)",
        r"(?i)(?:[/\\]home|[/\\]users|~)[/\\]+([^/\\\s\"'<>]+)",
        r"(?:[0-9A-Fa-f]{1,4}[:\-]){3,}[0-9A-Fa-f]{1,4}",  # hardware address, fingerprint, IPv6
        r"(?:(?:\\+x|%)[0-9A-Fa-f]{2}){2,}",
        rf"(?i){_TITLES}[\\\"']*\s*[:=]\s*[\\\"']*([^\s\"'<>,;]+)",
        rf"(?i)name=[\"']\w*{_TITLES}[\"'][^<>]*>([^<>]*)",
        r"(?i)(?:bearer|basic)\s+([^\s\"'<>,;]+)",
    )
)
_NUMBERS = regex.compile(r"\d(?:(?:,|[ .\-/():+\u00a0]{0,2})\d)+")  # a number in groups: telephone, card, address, date
_TOKENS = regex.compile(r"[A-Za-z0-9_\-+/=.%~]{16,}")  # keys and ids, which punctuation may cut into short pieces
_DATE = regex.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[+-]\d\d:?\d\d)?")
_ENTITY = regex.compile(r"&#(?:(\d{1,7})|[xX]([0-9A-Fa-f]{1,6}));")

_CONSONANTS, _VOWELS, _LETTERS = "bdfghjklmnprstvz", "aeiou", "abcdefghijklmnopqrstuvwxyz"
_WIDE = {  # UTF-8 width of a letter -> letters of that width
    2: "".join(map(chr, range(0x430, 0x450))),
    3: "".join(map(chr, range(0x4E00, 0x4E40))),
    4: "".join(map(chr, range(0x20000, 0x20040))),
}
_DIGITS = {2: "\u0661", 3: "\uff11", 4: "\U0001d7d1"}  # the same for digits that are not ASCII
_ATTEMPTS = 50


class Words:
    """The words of one golden. `names` (tools, parameters) stay where they stand whole."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        listed = sorted({name for name in names if name}, key=len, reverse=True)
        whole = "|".join(map(regex.escape, listed))
        names_pattern = rf"|(?<![A-Za-z0-9_])(?:{whole})(?![A-Za-z0-9_])" if whole else ""
        self._stays = regex.compile(_MARKUP + names_pattern)
        self._found: dict[str, None] = {}  # in order of appearance
        self._singles: dict[str, None] = {}  # one character: replaced only where it tells something
        self._telling: set[str] = set()
        self._learnt: set[str] = set()  # most strings of a stream come again in each frame
        self._applied: dict[tuple[str, frozenset[str]], str] = {}
        self._tried: Counter[str] = Counter()  # by the form of a word: the placeholders tried
        self._placeholders: dict[str, str] = {}
        self._used = {word for name in listed for word in _WORD.findall(_lower(name))}

    def learn(self, text: str) -> None:
        """Note what is to be replaced in `text`. Not to be called once `apply` was."""
        if text not in self._learnt:
            self._learnt.add(text)
            in_text(text, self._learn)

    def apply(self, text: str, kept: frozenset[str] = frozenset()) -> str:
        """`text` with placeholders; the words in `kept`, lower case, stay here."""
        made = self._applied.get((text, kept))
        if made is None:
            made = self._applied[text, kept] = in_text(text, lambda plain: self._apply(plain, kept))
        return made

    def number(self, text: str) -> str:
        """A JSON number with placeholders."""
        return regex.sub(r"\d+", lambda digits: self._put(digits[0]), text) if self._is_long(text) else text

    def learn_number(self, text: str) -> None:
        for digits in regex.findall(r"\d+", text) if self._is_long(text) else ():
            (self._found if len(digits) > 1 else self._singles).setdefault(digits)

    @property
    def telling(self) -> Iterator[str]:
        """The words that are most surely somebody's own, in lower case: ASCII, four characters or more."""
        for word in self._found:
            if word.isascii() and (word in self._telling if word.isalpha() else len(word) > 5):
                yield word

    def _is_long(self, number: str) -> bool:
        return sum(map(str.isdigit, number)) > 3 or number.strip("-") in self._found

    # -- finding

    def _learn(self, text: str) -> str:
        telling = _Telling(text)
        for start, end, whole in self._words(text):
            word = _lower(text[start:end])
            tells = telling.at(start)
            if word in _KEPT or not (tells or _is_own(word, whole)):
                continue
            if tells:
                self._telling.add(word)
            (self._found if len(word) > 1 or not word.isascii() else self._singles).setdefault(word)
        return text

    def _words(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Where words stand that are no markup; and the length that decides, which counts an escape's letter."""
        at = 0
        for fixed in [*self._stays.finditer(text), None]:
            end = fixed.start() if fixed else len(text)
            for found in _WORD.finditer(text, at, end):
                start = found.start()
                escape = text[start] in _ESCAPED and _is_escaped(text, start) and _lower(found[0]) not in _KEPT
                if not escape or found.end() > start + 1:
                    yield start + escape, found.end(), found.end() - start
            at = fixed.end() if fixed else end

    # -- replacing

    def _apply(self, text: str, kept: frozenset[str]) -> str:
        telling = _Telling(text)
        out: list[str] = []
        at = 0
        for start, end, _ in self._words(text):
            word = _lower(text[start:end])
            known = word in self._found or (word in self._singles and telling.at(start))
            if not known or word in kept or word in _KEPT:
                continue
            out += [text[at:start], _ones(text[start:end]) if telling.is_date(start) else self._put(text[start:end])]
            at = end
        return _entities("".join([*out, text[at:]]))

    def _put(self, word: str) -> str:
        """The placeholder, in the case of the word."""
        key = _lower(word)
        if key not in self._placeholders:
            self._placeholders[key] = self._invent(key)
        made = self._placeholders[key]
        return "".join(new.upper() if "A" <= old <= "Z" else new for old, new in zip(word, made, strict=True))

    def _invent(self, word: str) -> str:
        """A new placeholder. Where a short form has no more, one is used again."""
        shape = "".join(map(_class_of, word))
        made = word
        for _ in range(_ATTEMPTS):
            self._tried[shape] += 1
            chosen = random.Random(f"{shape} {self._tried[shape]}")  # not of the word, only of its form
            made = "".join(
                old if kind == "-" else _letter(kind, position, len(word), chosen)
                for position, (old, kind) in enumerate(zip(word, shape, strict=True))
            )
            if made not in self._used and made not in self._found and made not in _KEPT and made not in WIRE_WORDS:
                break
        self._used.add(made)
        return made


def _is_escaped(text: str, place: int) -> bool:
    """An odd number of backslashes stands before it."""
    before = text[:place] if place < 64 else text[place - 64 : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


class _Telling:
    """The places in a text where even short words tell something."""

    def __init__(self, text: str) -> None:
        spans: list[tuple[int, int]] = []
        for pattern in _TELLING:
            spans += [found.span(found.re.groups) for found in pattern.finditer(text)]
        spans += [found.span() for found in _NUMBERS.finditer(text) if sum(map(str.isdigit, found[0])) > 3]
        spans += [found.span() for found in _TOKENS.finditer(text) if _is_token(found[0])]
        self._starts, self._ends = _merged(spans)
        self._dates = _merged([found.span() for found in _DATE.finditer(text)])

    def at(self, place: int) -> bool:
        return _inside(place, self._starts, self._ends)

    def is_date(self, place: int) -> bool:
        """Such a number stays one that can be read."""
        return _inside(place, *self._dates)


def _merged(spans: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(spans):
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return starts, ends


def _inside(place: int, starts: list[int], ends: list[int]) -> bool:
    number = bisect_right(starts, place) - 1
    return number >= 0 and place < ends[number]


def _is_token(text: str) -> bool:
    return sum(map(str.isdigit, text)) >= 2 and sum(map(str.isalpha, text)) >= 2


def _is_own(word: str, length: int) -> bool:
    """More than three letters or digits; in a script that writes words without spaces, any letter at all."""
    marks = 0 if word.isascii() else len(regex.findall(r"\p{M}", word))
    return length - marks > 3 or (not word.isascii() and any(_class_of(letter) in "34" for letter in word))


def _lower(word: str) -> str:
    """ASCII lower case: it changes no length."""
    return word.lower() if word.isascii() else regex.sub("[A-Z]", lambda letter: letter[0].lower(), word)


def _class_of(character: str) -> str:
    """`a`, `0`, the UTF-8 width of another letter, `d` and the width for another digit; `-` stays as it is."""
    if character.isascii():
        return "0" if character.isdigit() else "a"
    width = len(character.encode("utf-8", "surrogatepass"))
    if character.isdecimal():
        return {2: "t", 3: "u", 4: "v"}[width]
    return str(width) if character.isalpha() else "-"


def _letter(kind: str, position: int, length: int, chosen: random.Random) -> str:
    if kind == "0":
        return chosen.choice("0123456789" if position or length == 1 else "123456789")
    if kind == "a":
        few = length <= 4
        return chosen.choice(_LETTERS if few else _VOWELS if position % 2 else _CONSONANTS)
    if kind in "tuv":
        return _DIGITS["tuv".index(kind) + 2]
    return chosen.choice(_WIDE[int(kind)])


def _ones(word: str) -> str:
    """For the parts of a date, which is to stay one: 1111-11-11T11:11:11."""
    return regex.sub("[0-9]", "1", word)


def _entities(text: str) -> str:
    """Numeric entities of letters and digits, written as entities of the same length."""
    if "&#" not in text:
        return text
    return _ENTITY.sub(_entity, text)


def _entity(found: regex.Match[str]) -> str:
    base, digits = (10, found[1]) if found[1] else (16, found[2])
    code = int(digits, base)
    if code > 0x10FFFF or not chr(code).isalnum():
        return found[0]
    likes = {1: "1", 2: "88", 3: "120", 4: "1078", 5: "19968", 6: "131072", 7: "0131072"}
    hexes = {1: "1", 2: "78", 3: "436", 4: "4e00", 5: "20000", 6: "020000"}
    return found[0].replace(digits, (likes if base == 10 else hexes)[len(digits)])
