"""The canonical encoder, written from the published grammars: what a model that makes no mistake writes.

It escapes nothing, as the official one: a string stands raw, anything else as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsml_core.grammar import tags
from tests.markers import MARK


@dataclass(frozen=True)
class Grammar:
    """One of the official grammars: the wrapper's name, and what stands behind the marker in every tag."""

    name: str
    wrapper: str
    gap: str = ""

    def opener(self, name: str, /, **attributes: str) -> str:
        said = "".join(f' {key}="{value}"' for key, value in attributes.items())
        return f"<{MARK}{self.gap}{name}{said}>"

    def closer(self, name: str) -> str:
        return f"</{MARK}{self.gap}{name}>"


GRAMMARS = (Grammar("V3.2", "function_calls"), Grammar("V4", "tool_calls"), Grammar("V4.1", "calls", " "))


@dataclass(frozen=True)
class Encoded:
    """A call as it is to be decoded."""

    name: str
    arguments: dict[str, Any]


def encode(calls: Sequence[Encoded], grammar: Grammar) -> str:
    """One block with these calls."""
    return "".join(pieces(calls, grammar))


def pieces(calls: Sequence[Encoded], grammar: Grammar) -> list[str]:
    """The same, tags and what stands between them apart: even places are text, odd ones are tags."""
    found = ["", grammar.opener(grammar.wrapper)]
    for call in calls:
        found += ["\n", grammar.opener("invoke", name=call.name)]
        for key, value in call.arguments.items():
            raw = isinstance(value, str)
            found += ["\n", grammar.opener("parameter", name=key, string="true" if raw else "false")]
            found += [value if raw else json.dumps(value, ensure_ascii=False), grammar.closer("parameter")]
        found += ["\n", grammar.closer("invoke")]
    return [*found, "\n", grammar.closer(grammar.wrapper), ""]


def speaks_for_itself(value: str) -> bool:
    """True where no marked tag begins in `value`: nothing is escaped, so nobody could tell it from the call's."""
    text = value + GRAMMARS[0].closer("parameter")
    return next(at for at, tag in tags(text) if tag.marked) == len(value)
