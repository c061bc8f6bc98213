"""A golden without anything that is somebody's own (docs/GOLDENS.md, "What is taken out")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dsml_core.formats import WIRES
from goldens import request
from goldens.bodies import Body
from goldens.format import Golden, Step, dumps
from goldens.words import WIRE_WORDS, Words

# The name of a tool or parameter, as far as it may stay: no address, no key.
_NAME = re.compile(r"[A-Za-z_$][\w$.:/\-]{0,63}", re.ASCII)
_ASCII_WORD = re.compile("[a-z0-9]{4,}")
# Of a reduced request: names stay, and so do the words of JSON schema.
_FIXED = ("name", "required", "type", "$ref")
_CHOICES = frozenset({"auto", "none", "required", "any", "tool", "function"})
_KEPT = {"model": WIRE_WORDS, "role": WIRE_WORDS, "tool_choice": _CHOICES, "function_call": _CHOICES}


class Redactor:
    """Redacts one golden, which has its expectation."""

    def __init__(self, golden: Golden) -> None:
        self._golden = golden
        self._names = list(_names(golden))
        self.words = Words(self._names)
        self._body = Body(golden.wire, golden.received, stream=golden.stream, lines=WIRES[golden.wire].LINES)
        self._body.learn(self.words)
        for text in _texts(golden.request):
            self.words.learn(text)

    def redacted(self) -> Golden:
        """The golden with placeholders, in the same pieces, and without an expectation."""
        body = self._body.apply(self.words)
        return replace(
            self._golden,
            steps=tuple(_in_pieces(body, self._golden.steps)),
            request=self._request(),
            redacted=True,
            expected=None,
        )

    def left(self, golden: Golden) -> str | None:
        """A telling word that was to go and still stands in `golden`, None where none does.

        A last look at the text itself, without a thought of how it is built. Words that stand elsewhere by right, in
        names and in the keys of the wire, are not looked for.
        """
        right = set(_ASCII_WORD.findall(" ".join([*self._names, *self._body.keys]).lower())) | WIRE_WORDS
        standing = set(_ASCII_WORD.findall(dumps(golden).lower())) - right
        return next((word for word in self.words.telling if word in standing), None)

    def _request(self) -> dict[str, Any] | None:
        asked = self._golden.request
        if asked is None:
            return None
        return {key: self._value(value, key) for key, value in asked.items()}

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: self._value(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._value(inner, key) for inner in value]
        if not isinstance(value, str) or key in _FIXED:
            return value
        return self.words.apply(value, _KEPT.get(key, frozenset()))


def _texts(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str) and key not in _FIXED:
        yield value


def _names(golden: Golden) -> Iterator[str]:
    """The names of tools and parameters, declared or called."""
    yield from request.names(golden.request)
    decided = golden.expected.decided if golden.expected else {}
    named = [*decided.get("recovered", ()), *decided.get("removed", ()), *decided.get("rejected", ())]
    found = [item["name"] for item in named]
    for part in decided.get("message", {}).get("parts", ()):
        if "call" in part:
            found.append(part["call"])
            found += part["arguments"] if isinstance(part["arguments"], dict) else ()
    yield from (name for name in found if isinstance(name, str) and _is_name(name))


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and sum(map(str.isdigit, name)) < 4


def _in_pieces(body: bytes, steps: tuple[Step, ...]) -> Iterator[Step]:
    at = 0
    for step in steps:
        if step.data is None:
            yield step
        else:
            yield Step(step.ms, body[at : at + len(step.data)])
            at += len(step.data)
