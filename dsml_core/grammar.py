"""The lexicon: what a tag looks like, however damaged. Every pattern names its row in docs/PATTERNS.md.

`lex` answers the one question the parser has at a possible tag: no, not yet, or this tag.
All patterns are anchored and matched with `partial=True`, so each alternative ends in something
consumed or in a positive lookahead: an optional tail at the end of the buffer would answer
"yes" where "not yet" is meant. Repeats are possessive, so no pattern can backtrack badly.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import regex


class Kind(Enum):
    """What a tag does; openers and closers are different kinds."""

    BLOCK_OPEN = "block opener"
    BLOCK_CLOSE = "block closer"
    BARE_OPEN = "opener without a known name"
    BARE_CLOSE = "closer without a known name"
    INVOKE_OPEN = "invoke opener"
    INVOKE_CLOSE = "invoke closer"
    PARAM_OPEN = "parameter opener"
    PARAM_CLOSE = "parameter closer"
    END_TOKEN = "end token"


OPENERS: Final = frozenset({Kind.BLOCK_OPEN, Kind.BARE_OPEN, Kind.INVOKE_OPEN, Kind.PARAM_OPEN})
CLOSERS: Final = frozenset({Kind.BLOCK_CLOSE, Kind.BARE_CLOSE, Kind.INVOKE_CLOSE, Kind.PARAM_CLOSE})


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag. `length` is in characters from where it was asked for.

    `name` is the tag's own name in lower case, "" where it has none. `attrs` has lower-case keys.
    `tool` is the declared tool whose name is the tag (row I6), else "".
    """

    kind: Kind
    length: int
    marked: bool
    name: str = ""
    attrs: dict[str, str] = field(default_factory=dict)
    self_closing: bool = False
    dropped_lt: bool = False
    tool: str = ""

    @property
    def value_in_attribute(self) -> bool:
        """Row I4: the parameter's value stands in `string=`, which then is no type flag."""
        return self.attrs.get("string", "true").strip().lower() not in ("true", "false")


class Miss(Enum):
    """The two other answers of `lex`."""

    NO = "no"
    NOT_YET = "not yet"


_BAR = r"(?:[|\uff5c\u2016\\]|\u951d\u6ed0\u7d94)"  # N3: the third is the doubled bar's UTF-8 read as GBK
_LT, _GT, _SLASH, _EQ = r"[<\uff1c]", r"[>\uff1e]", r"[/\uff0f]", r"[=\uff1d]"  # N1
_SMART = r"\u201c\u201d\u201e\u2018\u2019\u201a\uff02\uff07"  # T3: quotes beyond ASCII
# N1: white space, bars, and any sign beyond ASCII; never a letter, a bracket, a quote or `=`.
_NOISE = rf"(?:[\s|\\]|\u951d\u6ed0\u7d94|[^\w\x00-\x7f\uff1c\uff1e\uff0f\uff1d{_SMART}])"
_WORD = rf"(?i:dsml)(?:(?:{_NOISE}|[-_])*+(?i:dsml)){{0,3}}+"  # N1
_HEAD = rf"{_LT}{{1,4}}+{_NOISE}*+{_SLASH}?+{_NOISE}*+(?i:dsml)"  # N1: the start of any marked tag
_AFTER_WORD = rf"(?:{_NOISE}|[-_])*+(?:[rR]\s*+:\s*+)?+"  # N1
# W1, I2: any word may be a name, and that of a wrapper two
_NAMED = r"(?:(?i:tool|function)[ \t](?i:calls?+)(?=[^A-Za-z0-9_=])|[A-Za-z][A-Za-z0-9_.:\-]*+)"
# T3: a `<` inside an attribute value is data unless a marked tag could start there.
_INNER_LT = r"[<\uff1c](?=[A-CE-Za-ce-z0-9_=&(\[{$\"'\-])"


def _quoted(opening: str, closing: str) -> str:
    # T3: a quote that does not close before the next marked tag ends there, or where its own tag ends
    inner = rf"[^{closing}<\uff1c]|{_INNER_LT}"
    return rf"{opening}(?:(?:{inner})*+[{closing}]|(?:(?!{_GT})(?:{inner}))*+(?=(?:{inner})*+{_HEAD}))"


# T3: quoted in any way, or not
_VALUE = "|".join(
    (
        _quoted('"', '"'),
        _quoted("'", "'"),
        _quoted("[\u201c\u201d\u201e\uff02]", '\u201c\u201d\uff02"'),
        _quoted("[\u2018\u2019\u201a\uff07]", "\u2018\u2019\uff07'"),
        rf"(?:[^\s<>\uff1c\uff1e\"'{_SMART}=|\uff5c\u2016\\/]|/(?=[^\s>\uff1e]))++",
    )
)
_KEYS = ("name", "string", "type")  # N4
# N1, N4: between attributes; behind a bar only one that tags have, else the bar has ended the tag
_GAP = (
    rf"(?:{_NOISE}*+(?=(?:{'|'.join(_KEYS)})\s*+{_EQ})"
    rf"|(?:\s|[^\w\x00-\x7f\uff1c\uff1e\uff0f\uff1d{_SMART}\uff5c\u2016])*+)"
)
_ATTR = rf"(?P<key>[A-Za-z_][\w.\-]*+)\s*+{_EQ}\s*+(?P<value>{_VALUE})"  # T3
_ATTRS = rf"(?:{_GAP}(?:{_ATTR}))*+"  # T3
# V12: the rest of a call leaked into the tag
_JUNK = rf"(?:{_GAP}(?:{_ATTR}))++(?P<junk>[^<>=\uff1c\uff1e\uff1d]*+){_GT}"


def _other_than(key: str) -> str:
    # N4: each place at which a word that begins like `key` shows that it is no attribute of that name
    early = "|".join(rf"{key[:length]}[^{key[length]}]" for length in range(1, len(key)))
    return rf"{early}|{key}\s*+[^\s=\uff1d]"


# N4: what stands behind a bar that ends a tag, neither noise nor an end nor an attribute as in `_GAP`
_SOLID = (
    rf"(?:(?![nst])(?:[^\W\u951d]|[!-.:-=?@\[\]^`{{}}~\uff1c\uff1d{_SMART}])"
    rf"|{'|'.join(map(_other_than, _KEYS))})"
)
# N4: a bar in place of `>`, or no `>` at all before the next marked tag
_TERMINATOR = (
    rf"(?:{_NOISE}*+(?P<self>{_SLASH})?+{_NOISE}*+{_GT}|[|\uff5c\u2016]++(?={_NOISE}*+{_SOLID})|(?=\s*+{_HEAD}))"
)
# I2, T8: with any name or none, and with what an opener may have
_CLOSED = rf"{_WORD}{_AFTER_WORD}(?P<cname>{_NAMED})?+{_ATTRS}{_TERMINATOR}"
_CLOSER = (  # N1: the slash behind a bar too, or behind the marker
    rf"{_LT}{_NOISE}*+(?:(?P<slash>{_SLASH}){_NOISE}*+{_CLOSED}"
    rf"|{_WORD}{_AFTER_WORD}(?P<slash>{_SLASH}){_NOISE}*+(?P<cname>{_NAMED}){_TERMINATOR})"
)
# V14: half an attribute, so that nobody can read what an invoke is called
_GARBLED = rf"(?<=(?i:invoke))\s++{_EQ}?+\s*+[\"']?+[\w.:\-]*+[\"']?+\s*+{_EQ}?+\s*+{_GT}"
# V1, T3, V12
_OPENER = rf"{_WORD}{_AFTER_WORD}(?P<oname>{_NAMED})?+(?:{_ATTRS}{_TERMINATOR}|{_JUNK}|{_GARBLED})"
_PLAIN = (  # B1, T2, T7, I5: without a marker
    rf"<\s{{0,8}}+(?:/\s*+(?P<pclose>tool_calls|function_calls|tool_call|calls|invoke|parameter)\s*+>"
    rf"|(?P<popen>tool_calls|function_calls|tool_call|calls)\s*+>"
    rf"|(?P<pattr>invoke|parameter)(?:\s++(?:{_ATTR}))++\s*+(?P<pself>/)?+>"
    rf"|function>\s*+<name>\s*+(?P<function>[^<>\s]{{1,128}}+)\s*+</name>)"
)
_END = (  # V21, T9, E1
    r"[<\uff1c][|\uff5c\u2016]{1,2}+"
    r"(?:end[\u2581_ ]of[\u2581_ ](?:sentence|thinking)|tool[\u2581_ ]calls?+[\u2581_ ]end)"
    r"[|\uff5c\u2016]{1,2}+[>\uff1e]|</(?P<think>think)>"
)
# V1, B1, T9
_TAG: Final = regex.compile(rf"(?P<marked>{_LT}{{1,4}}+{_NOISE}*+{_OPENER}|{_CLOSER})|{_PLAIN}|(?P<end>{_END})")
_DROPPED: Final = regex.compile(  # N2
    rf"{_BAR}{{1,4}}+[ \t]*+{_OPENER}|(?P<slash>{_SLASH})[ \t]*+{_BAR}{{1,4}}+[ \t]*+{_CLOSED}"
)
_BARS: Final = re.compile("[|\uff5c\u2016\\\\\u951d]")  # W2

# Where a tag can start: an angle bracket (N1), or a bar or slash at a line start when the bracket was dropped (N2),
# with nothing behind it that rules a tag out. A superset of the tags; it begins with one class, which `re` finds fast.
_SIGN = r"[|\uff5c\u2016\\\u951d]"  # N2
_LOOSE = r"[\s|\\\x80-\uff1b\uff1d-\U0010ffff]*+"  # N1
_MARKED_BEGUN = r"(?i:d(?:\Z|s(?:\Z|m)))"  # V17
_PLAIN_BEGUN = r"i(?:\Z|n)|p(?:\Z|a)|t(?:\Z|[oh])|f(?:\Z|u)|c(?:\Z|a)|e(?:\Z|n)"  # V17
# V17
_AFTER_LT = rf"(?<={_LT}){_LT}{{0,3}}+{_LOOSE}/?+{_LOOSE}(?:\Z|{_MARKED_BEGUN}|{_PLAIN_BEGUN})"
_AFTER_SIGN = (  # N2, V17
    rf"(?<!{_LT})(?<![^\n \t].)(?:(?<={_SLASH})[ \t]*+(?:\Z|{_SIGN})|(?<={_SIGN}))"
    rf"[|\uff5c\u2016\\\u951d\u6ed0\u7d94]{{0,11}}+[ \t]*+(?:\Z|{_MARKED_BEGUN})"
)
# V17, R6
CANDIDATE: Final = re.compile(rf"[<\uff1c|\uff5c\u2016\\\u951d/\uff0f](?:{_AFTER_LT}|{_AFTER_SIGN})")
# V17: a tag that goes on, no sign in it can have ended it. Whether it still may be one, only `lex` tells.
_INSIDE = r"[\s|\\/\x80-\uff1b\uff1d\uff1f-\U0010ffff]*+"
UNFINISHED: Final = re.compile(  # V17
    rf"{_LT}{{1,4}}+{_INSIDE}(?:(?i:dsml){_INSIDE})?+[^<>\uff1c\uff1e|\uff5c\u2016\\\u951d]*+\Z"
)

_QUOTES: Final = {
    '"': '"',
    "'": "'",
    **dict.fromkeys("\u201c\u201d\u201e\uff02", '\u201c\u201d\uff02"'),
    **dict.fromkeys("\u2018\u2019\u201a\uff07", "\u2018\u2019\uff07'"),
}
_QUOTE_SIGNS: Final = "".join(_QUOTES)  # T3
_OTHER_QUOTES: Final = _QUOTE_SIGNS.replace('"', "")
_BESIDE_ATTRIBUTES: Final = " \t\r\n,;" + _QUOTE_SIGNS  # T3
_FLAG: Final = re.compile(r"\s*(?:true|false)\s*", re.IGNORECASE)  # T3
_WORDLIKE: Final = re.compile(r"[\w.\-]+")  # T3
_SEEN: Final = 256  # tags a lexer remembers
BLOCK_NAMES: Final = frozenset({"toolcalls", "functioncalls", "calls", "toolcall"})  # V1, V5, V7, V8
_FLAT: Final = re.compile("[-_ \t]")  # W1
# R3, the profile `strict`: the three official grammars, bars of any width.
CANONICAL: Final = re.compile(
    "</?[|\uff5c]{1,2}DSML[|\uff5c]{1,2} ?(?:tool_calls|function_calls|calls|invoke|parameter)"
    '(?: name="[^"<>]+")?(?: string="(?:true|false)")?>'
)


def _kind(name: str, closer: bool) -> Kind:
    """The kind a tag name stands for; abbreviations of `invoke` and `parameter` count (I2)."""
    if name.startswith("inv") or (closer and name and "invoke".startswith(name)):
        return Kind.INVOKE_CLOSE if closer else Kind.INVOKE_OPEN
    if name.startswith("param") or (closer and name and "parameter".startswith(name)):
        return Kind.PARAM_CLOSE if closer else Kind.PARAM_OPEN
    if _FLAT.sub("", name) in BLOCK_NAMES:
        return Kind.BLOCK_CLOSE if closer else Kind.BLOCK_OPEN
    return Kind.BARE_CLOSE if closer else Kind.BARE_OPEN


def lex(text: str, at: int, tools: Container[str] = (), limit: int = 1024) -> Tag | Miss:
    """The tag that starts at `text[at]`, a place that `CANDIDATE` found, or whether one may still come of it.

    `tools` are the declared names. A tag that `limit` characters do not settle is none.
    The answer for a given start never changes once it is not `NOT_YET`, whatever text follows.
    """
    dropped = text[at] not in "<\uff1c"
    stop = min(len(text), at + limit)
    match = (_DROPPED if dropped else _TAG).match(text, at, stop, partial=True)
    if match is None or (match.partial and len(text) > stop):
        return Miss.NO
    if match.partial:
        return Miss.NOT_YET
    if dropped or match["marked"] is not None:
        return _marked_tag(match, tools, dropped)
    return _plain_tag(match)


class Lexer:
    """`lex` for one text, with the request's tools and limit. It knows again the tags it has seen: most come often."""

    def __init__(self, tools: Container[str], limit: int) -> None:
        self._tools = tools
        self._limit = limit
        self._seen: dict[str, Tag] = {}
        self._quoting = ""  # a tag that may still come, up to within a quoted value

    def lex(self, text: str, at: int, patient: bool = False) -> Tag | Miss:
        """See `lex`; when `patient`, a tag that is not finished counts as one that may still come, without a look."""
        end = text.find(">", at, at + self._limit) + 1
        if end:
            tag = self._seen.get(text[at:end])
            if tag is not None:
                return tag
        elif patient and len(text) - at < self._limit and UNFINISHED.match(text, at) is not None:
            return Miss.NOT_YET
        if self._still_quotes(text, at):
            return Miss.NOT_YET
        found = lex(text, at, self._tools, self._limit)
        self._quoting = text[at:] if found is Miss.NOT_YET and _is_quoting(text[at:]) else ""
        if isinstance(found, Tag) and at + found.length == end and _is_alone(text[at:end]):
            if len(self._seen) == _SEEN:
                self._seen.clear()
            self._seen[text[at:end]] = found
        return found

    def _still_quotes(self, text: str, at: int) -> bool:
        start = self._quoting
        if not (start and text.startswith(start, at) and len(text) - at < self._limit):
            return False
        return _QUOTE_ENDS.search(text, at + len(start)) is None


_QUOTE_ENDS: Final = re.compile(f"[<>=\uff1c\uff1e\uff1d{_QUOTE_SIGNS}]")  # T3, V12


def _is_alone(tag: str) -> bool:
    """True where the text behind a tag that ends in its first `>` cannot make it longer: no quote is open in it."""
    return tag.count('"') % 2 == 0 and not any(quote in tag for quote in _OTHER_QUOTES)


def _is_quoting(tag: str) -> bool:
    """True where a tag that may still come is in a quoted value, or in what V12 allows there."""
    if tag.count('"') % 2 == 0 or any(quote in tag for quote in _OTHER_QUOTES):
        return False
    return _QUOTE_ENDS.search(tag, tag.rindex('"') + 1) is None


def tags(text: str, tools: Container[str] = ()) -> Iterator[tuple[int, Tag]]:
    """All tags of a whole text with their offsets, wherever they stand: also quoted ones."""
    at = 0
    while (candidate := CANDIDATE.search(text, at)) is not None:
        at = candidate.start()
        tag = lex(text, at, tools)
        if isinstance(tag, Tag):
            yield at, tag
            at += tag.length
        else:
            at += 1


def _plain_tag(match: regex.Match[str]) -> Tag | Miss:
    length = match.end() - match.start()
    if match["end"] is not None:
        return Tag(Kind.END_TOKEN, length, marked=False, name=match["think"] or "")
    if match["pclose"] is not None:
        drift = match["pclose"] in ("calls", "tool_call")  # T7
        kind = Kind.BARE_CLOSE if drift else _kind(match["pclose"], True)
        return Tag(kind, length, marked=False, name=match["pclose"])
    if match["popen"] is not None:
        return Tag(_kind(match["popen"], False), length, marked=False, name=match["popen"])
    if match["function"] is not None:
        return Tag(Kind.INVOKE_OPEN, length, marked=False, name="function", attrs={"name": match["function"]})
    attrs = _attributes(match)
    kind = _kind(match["pattr"], False)
    return Tag(kind, length, marked=False, name=match["pattr"], attrs=attrs, self_closing=match["pself"] is not None)


def _marked_tag(match: regex.Match[str], tools: Container[str], dropped: bool) -> Tag | Miss:
    length = match.end() - match.start()
    closer = match["slash"] is not None
    own = match["cname" if closer else "oname"] or ""
    name = own.lower()
    if not own and _BARS.search(match[0]) is None:
        return Miss.NO  # T2: nameless only with bars
    kind = _kind(name, closer)
    attrs = {} if closer else _attributes(match)
    if kind is Kind.PARAM_OPEN and _is_vague(match):
        attrs.pop("name", None)
    tool = ""
    if kind in (Kind.BARE_OPEN, Kind.BARE_CLOSE) and own in tools:
        kind, tool = (Kind.INVOKE_CLOSE if closer else Kind.INVOKE_OPEN), own
        attrs = {**attrs, "name": own}
    if kind is Kind.BARE_OPEN and attrs:
        return Miss.NO
    return Tag(kind, length, True, name, attrs, match["self"] is not None, dropped, tool)


def _attributes(match: regex.Match[str]) -> dict[str, str]:
    """The tag's attributes, first of a kind, lower-case keys, `tool` read as `name` (T3)."""
    found: dict[str, str] = {}
    for key, value in zip(match.captures("key"), match.captures("value"), strict=True):
        key = key.lower()
        found.setdefault("name" if key == "tool" else key, _unquote(value))
    return found


def _unquote(value: str) -> str:
    if value[0] not in _QUOTES:
        return value
    if _is_open([value]):
        return re.split("[>\uff1e\n]", value[1:], maxsplit=1)[0].rstrip(_QUOTE_SIGNS)
    return value[1:-1]


def _is_vague(match: regex.Match[str]) -> bool:
    """True where nobody can tell where a parameter's opener ends and its value begins (T3)."""
    if (match["junk"] or "").strip(_BESIDE_ATTRIBUTES).lower() not in ("", "string"):
        return True
    values = match.captures("value")
    if not _is_open(values):
        return False
    meant = _FLAG if match.captures("key")[-1].lower() == "string" else _WORDLIKE
    return match[0][-1] not in ">\uff1e" or meant.fullmatch(_unquote(values[-1])) is None


def _is_open(values: list[str]) -> bool:
    """True where the last of an opener's attribute values is quoted and the quote was never closed (T3)."""
    last = values[-1] if values else ""
    closing = _QUOTES.get(last[:1])
    return closing is not None and (len(last) == 1 or last[-1] not in closing)


_NOISE_ROWS: Final = (
    ("V1", re.compile("<\uff5cDSML\uff5c\\w[^|\uff5c\u2016\\\\]*$")),
    ("V2", re.compile("<\uff5c\uff5cDSML\uff5c\uff5c ?\\w")),
    ("V3", re.compile("<[|]DSML[|] ?\\w")),
    ("V4", re.compile("<\uff5cDSML\uff5c \\w")),
    ("N2", re.compile("[^<\uff1c]")),
    ("N3", re.compile("<\u951d")),
    ("N1", re.compile("[<\uff1c](?!/?\\w+[ >])|[<\uff1c](?i:dsml)")),
)


def noise_row(tag: str) -> str:
    """The row of the marker in the text of an opener: a canonical one is V1, an unmarked one too."""
    return next((row for row, pattern in _NOISE_ROWS if pattern.match(tag)), "V1")


# Text that ends in one of these may still become a tag: what `lex` says of the most frequent ones.
_FIRST = [
    sign + noise + letter
    for sign in ("<", "<<", "<<<", "<<<<", "</")
    for noise in ("", "|", "||", "\uff5c", "\uff5c\uff5c")
    for letter in ("", "t", "f", "c", "i", "p", "D", "DS")
]
BEGUN: Final = frozenset(text for text in _FIRST if lex(text, 0) is Miss.NOT_YET)
