"""The strings and numbers in the bytes of a response: found where they stand, and replaced in place.

Every piece keeps its length in bytes, so that the pieces in which the response arrived keep theirs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from dsml_core.framing import BOM, LINE_END, loads
from goldens import escapes
from goldens.words import WIRE_WORDS, Words

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+\-]*|[a-z]+|[\[\]{}:,]', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z_.$\-]*\d{0,2}")  # a key of a wire; anything else may be somebody's own
_INDEXES = ("index", "output_index", "content_index", "summary_index", "sequence_number")
# The fields whose value is a word of the wire.
_IDS = ("id", "item_id", "call_id")
_WIRE_FIELDS = (
    "type", "object", "role", "finish_reason", "stop_reason", "done_reason", "status", "model", "event", *_IDS,
)  # fmt: skip
_ALONE = (*_WIRE_FIELDS, "name", "created_at", "obfuscation")  # never a piece of a running text


@dataclass(slots=True)
class _Node:
    """An object or array on the way to a leaf. `key` is its own place in the one around it."""

    above: _Node | None
    key: str | int
    is_object: bool
    numbers: dict[str, str] = field(default_factory=dict)

    def path(self) -> Iterator[_Node]:
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.above


@dataclass(slots=True)
class Leaf:
    """A string (without its quotes), key or number, as `text[start:end]`; `kind` says which."""

    start: int
    end: int
    kind: str
    key: str
    node: _Node
    running: Hashable | None = None  # its group

    def group(self, wire: str) -> Hashable | None:
        """The running text of which this is a piece: equal for all its pieces. None where it stands alone."""
        nodes = list(self.node.path())
        if self.kind != "string" or self.key in _ALONE:
            return None
        if self.key != "delta" and not any(node.key == ("message" if wire == "ollama" else "delta") for node in nodes):
            return None
        places = tuple((node.key if isinstance(node.key, str) else "", *_places(node)) for node in nodes)
        return (self.key, places)

    @property
    def opaque(self) -> bool:
        """Tokens and bytes of the text once more, which can be cut anywhere: all of it goes."""
        return self.key == "bytes" or any(node.key in ("logprobs", "bytes") for node in self.node.path())


def _places(node: _Node) -> Iterator[tuple[str, str]]:
    return ((name, node.numbers[name]) for name in _INDEXES[:-1] if name in node.numbers)


@dataclass(slots=True)
class _Text:
    """A JSON text, or any other that stands in a response, and where its pieces stand in the bytes."""

    text: str
    places: list[tuple[int, int]]
    leaves: list[Leaf]


class Body:
    """The body of a response of `wire`, read for its words."""

    def __init__(self, wire: str, data: bytes, *, stream: bool, lines: bool) -> None:
        self._data = data
        find = _whole if not stream else _lines if lines else _events
        self._texts = [_Text(text, places, list(_leaves(text))) for text, places in find(data)]
        self._groups: dict[Hashable, list[tuple[_Text, Leaf]]] = defaultdict(list)
        for text in self._texts:
            for leaf in text.leaves:
                leaf.running = None if leaf.opaque else leaf.group(wire)
                if leaf.running is not None:
                    self._groups[leaf.running].append((text, leaf))

    @property
    def keys(self) -> set[str]:
        """The keys of its JSON that stay as they are."""
        raw = (text.text[leaf.start : leaf.end] for text in self._texts for leaf in text.leaves if leaf.kind == "key")
        return {key for key in raw if _NAME.fullmatch(key)}

    def learn(self, words: Words) -> None:
        """Let `words` see all that the body says."""
        for texts in self._groups.values():
            words.learn("".join(escapes.value(text.text[leaf.start : leaf.end]) for text, leaf in texts))
        for text in self._texts:
            for leaf in text.leaves:
                self._learn_leaf(words, text.text[leaf.start : leaf.end], leaf)
            if not text.leaves:
                words.learn(text.text)

    def apply(self, words: Words) -> bytes:
        """The same body with placeholders. Raises `ValueError` if it would not keep its length."""
        new: dict[int, str] = {}
        for texts in self._groups.values():
            joined = words.apply("".join(escapes.value(text.text[leaf.start : leaf.end]) for text, leaf in texts))
            at = 0
            for text, leaf in texts:
                raw = text.text[leaf.start : leaf.end]
                length = len(escapes.value(raw))
                new[id(leaf)] = escapes.in_json(raw, lambda _, piece=joined[at : at + length]: piece)  # type: ignore[misc]
                at += length
        out = bytearray(self._data)
        for text in self._texts:
            made = self._rewritten(words, text, new)
            at = 0
            for start, end in text.places:
                length = len(_decode(self._data[start:end]))
                out[start:end] = _sized(_encode(made[at : at + length]), end - start)
                at += length + 1
        return bytes(out)

    def _learn_leaf(self, words: Words, raw: str, leaf: Leaf) -> None:
        if leaf.opaque or leaf.key in _INDEXES or leaf.running is not None:
            return
        if leaf.kind == "number":
            words.learn_number(raw)
        elif leaf.kind == "string" or not _NAME.fullmatch(raw):
            words.learn(escapes.value(raw))

    def _rewritten(self, words: Words, text: _Text, new: dict[int, str]) -> str:
        if not text.leaves:
            return words.apply(text.text, WIRE_WORDS)
        out = []
        at = 0
        for leaf in text.leaves:
            raw = text.text[leaf.start : leaf.end]
            out += [text.text[at : leaf.start], new.get(id(leaf)) or self._changed(words, raw, leaf)]
            at = leaf.end
        return "".join([*out, text.text[at:]])

    def _changed(self, words: Words, raw: str, leaf: Leaf) -> str:
        if leaf.key in _INDEXES:
            return raw
        if leaf.kind == "key":
            return raw if _NAME.fullmatch(raw) else escapes.in_json(raw, words.apply)
        if leaf.opaque:
            return re.sub(r"\d", "1", raw) if leaf.kind == "number" else escapes.in_json(raw, _scrubbed)
        if leaf.kind == "number":
            return words.number(raw)
        kept = WIRE_WORDS if leaf.key in _WIRE_FIELDS else frozenset[str]()
        return escapes.in_json(raw, lambda value: words.apply(value, kept))


def _sized(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise ValueError("a placeholder is longer or shorter than its word")
    return data


_ALIKE = {2: "\u0430", 3: "\u4e00", 4: "\U00020000"}


def _scrubbed(text: str) -> str:
    """Every letter and digit gone."""
    return "".join(map(_blank, text))


def _blank(character: str) -> str:
    if not character.isalnum():
        return character
    if character.isascii():
        return "1" if character.isdigit() else "x"
    return _ALIKE[len(character.encode("utf-8"))]


# --- Where the texts are ----------------------------------------------------------------------------------------------

_Found = Iterator[tuple[str, list[tuple[int, int]]]]


def _whole(data: bytes) -> _Found:
    start = len(BOM) if data.startswith(BOM) else 0
    yield _decode(data[start:]), [(start, len(data))]


def _lines(data: bytes) -> _Found:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield _decode(data[start:end]), [(start, end)]
        start = end + 1


def _events(data: bytes) -> _Found:
    """The data of each event, which may stand in several lines; and each other line."""
    said: list[tuple[int, int]] = []
    start = len(BOM) if data.startswith(BOM) else 0
    while start < len(data):
        found = LINE_END.search(data, start)
        end = found.start() if found else len(data)
        name, colon, _ = data[start:end].partition(b":")
        if name == b"data" and colon:
            said.append((start + len(name) + 1, end))
        elif start == end and said:
            yield from _event(data, said)
            said = []
        elif start < end:
            yield _decode(data[start:end]), [(start, end)]
        start = found.end() if found else len(data)
    yield from _event(data, said)


def _event(data: bytes, places: list[tuple[int, int]]) -> _Found:
    if places:
        yield "\n".join(_decode(data[start:end]) for start, end in places), places


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- The leaves of a JSON text ----------------------------------------------------------------------------------------


def _leaves(text: str) -> Iterator[Leaf]:
    """Strings, keys and numbers in order; none where the text is no JSON object or list."""
    if not isinstance(loads(text), dict | list):
        return
    node: _Node | None = None
    key: str | int = ""
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in "{[":
            node = _Node(node, key, sign == "{")
            key = 0
        elif sign in "}]":
            assert node is not None
            key, node = node.key, node.above
        elif sign == ",":
            key = key + 1 if isinstance(key, int) else key
        elif node is not None and sign != ":":
            is_string = sign[0] == '"'
            name = key if isinstance(key, str) else str(node.key)
            kind = "string" if is_string else "number" if sign[0] in "-0123456789" else ""
            if is_string and node.is_object and _is_key(text, token.end()):
                key, kind = escapes.value(sign[1:-1]), "key"
            elif kind == "number" and isinstance(key, str):
                node.numbers[key] = sign
            if kind:
                yield Leaf(token.start() + is_string, token.end() - is_string, kind, name, node)


_COLON = re.compile(r"\s*:")


def _is_key(text: str, end: int) -> bool:
    return _COLON.match(text, end) is not None
