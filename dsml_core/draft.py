"""An invoke while it is read, and the judgement on it once it has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dsml_core import values
from dsml_core.echo import echoes
from dsml_core.grammar import Tag, noise_row
from dsml_core.jsontext import JsonStrings
from dsml_core.policy import Policy
from dsml_core.tools import Tool
from dsml_core.value import OpenValue

Cut = Callable[[int, int], str]

# T4: a tool name that is not declared is one word of these.
_NAME: Final = re.compile(r"[\w.:/\-]+")
# Rows in the order in which they explain a recovered call best.
_ROW_ORDER: Final = [
    "V26",
    "I5",
    "I6",
    "I7",
    "I4",
    "B1",
    "V25",
    "V11",
    "V16",
    "I2",
    "I1",
    "V9",
    "V15",
    "W2",
    "W1",
    "V7",
    "V5",
    "V8",
    "N2",
    "N3",
    "N4",
    "N1",
    "V2",
    "V3",
    "V4",
    "V13",
    "V6",
    "V1",
]
# V11: what is left of a tag that was not read as one
_MARKER: Final = re.compile(
    "</\\s*[|\uff5c\u2016\\\\]|[|\uff5c\u2016\\\\]\\s*(?i:dsml)"
    "|(?i:dsml)(?:\\s*[|\uff5c\u2016\\\\]|[\\s_-]*(?:param|inv|tool|calls|function))"
)
# What needs no rescue: the official grammars, bars of any width (R3).
_OFFICIAL: Final = frozenset({"V1", "V2", "V3", "V4", "V5", "V8", "V13", "V25"})
BY_POLICY: Final = frozenset({"R4", "R5"})  # rows that reject a call which is fine


@dataclass(slots=True)
class Param:
    """A parameter of a draft: the value is `[start, end)`, or stands in an attribute."""

    name: str
    string: bool | None
    start: int
    end: int
    closed: bool = True
    value: str | None = None
    group: str | None = None


@dataclass(slots=True)
class Draft:
    """One invoke, `[start, ...)`; `body` is where its opener ends. Offsets are the parser's."""

    start: int
    body: int
    name: str
    marked: bool
    tool_tag: bool = False
    wrapped: bool = False
    typed: bool = False  # a parameter carries string="true|false": a fingerprint of this markup (B1)
    holding: bool = False  # a parameter has been opened, or a JSON body has begun
    junk: bool = False
    repeated: bool = False  # what ends it is its own opener once more
    json: JsonStrings | None = None  # the body may be JSON
    end: int = 0  # where the last parameter ended
    container: str | None = None
    params: list[Param] = field(default_factory=list)
    rows: set[str] = field(default_factory=lambda: {"V1"})

    @classmethod
    def opened_by(cls, tag: Tag, start: int) -> Draft:
        """The draft that an invoke opener begins."""
        body = start + tag.length
        draft = cls(start, body, tag.attrs.get("name", "").strip(), tag.marked, bool(tag.tool), end=body)
        if tag.tool:
            draft.rows.add("I6")
        if tag.name == "function":
            draft.rows.add("I5")
        return draft

    def written(self, offset: int) -> int:
        """Where an invoke that is open at `offset` leaves off: prose behind its parameters is none of it."""
        return self.end if self.junk and self.json is None else offset

    @property
    def exact(self) -> bool:
        """True where nothing had to be rescued."""
        return self.rows <= _OFFICIAL

    @property
    def row(self) -> str:
        """The row that explains the call best."""
        return next(row for row in _ROW_ORDER if row in self.rows)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a draft: a call, markup to remove, or text to leave alone."""

    call: bool
    removed: bool
    row: str
    reason: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class Judge:
    """Decides drafts by the request's tools, the policy and the texts that the request quotes."""

    def __init__(self, tools: Mapping[str, Tool] | None, policy: Policy) -> None:
        self.tools = tools
        self.policy = policy

    def tool(self, name: str) -> Tool | None:
        """The declared tool of that name."""
        return None if self.tools is None else self.tools.get(name)

    def limit(self, draft: Draft | None, value: OpenValue | None) -> int:
        """Characters that may be held for `draft`, or for a value that stands outside of any."""
        if value is None and (draft is None or not draft.holding):
            return self.policy.candidate_limit
        declared = draft is not None and self.tool(draft.name) is not None
        return self.policy.declared_hold_limit if declared else self.policy.hold_limit

    def decide(self, draft: Draft, end: int, cut: Cut) -> Verdict:
        """Judge a draft whose body ended at offset `end`."""
        draft.rows.add(noise_row(cut(draft.start, draft.body)))
        if self._is_echo(draft, end, cut):
            return Verdict(False, False, "G1", "the request holds the same invoke")
        arguments, reason = self._arguments(draft, end, cut)
        return self.judge(draft.name, arguments, reason, draft)

    def judge(self, name: str, arguments: dict[str, Any] | None, reason: str, draft: Draft) -> Verdict:
        """Judge a name with its arguments, None where there are none that can be read."""
        tool = self.tool(name)
        marked = draft.marked
        if not name:
            return Verdict(False, marked, "V14", "no tool name")
        if tool is None and _NAME.fullmatch(name) is None:
            return Verdict(False, marked, "V12", "the name is no tool name")
        if not marked and tool is None:
            return Verdict(False, False, "B1", "unmarked, and the tool is not declared")
        if arguments is None:
            return Verdict(False, marked, "R1", reason)
        if not arguments and (tool is None or tool.required):
            return Verdict(False, marked, "R1", "no argument, and the tool is not known to need none")
        if not arguments and draft.repeated:
            return Verdict(False, marked, "R1", "no argument, and its opener comes again")
        if tool is None and self.tools is not None and self.policy.undeclared == "reject":
            return Verdict(False, marked, "R4", "the tool is not declared")
        if not self.policy.calls:
            return Verdict(False, marked, "R5", "the request forbids tool calls")
        if tool is None and self.tools is not None:
            draft.rows.add("V13")
        return Verdict(True, True, draft.row, "", arguments)

    def _arguments(self, draft: Draft, end: int, cut: Cut) -> tuple[dict[str, Any] | None, str]:
        tool = self.tool(draft.name)
        literals = self.policy.values == "literals"
        params = self._kept(draft, tool, cut)
        if params:
            return self._from_params(params, tool, literals, cut), ""
        if draft.params:
            return None, "no parameter is complete"
        body = cut(draft.body, end)
        if not body.strip():
            return {}, ""
        found = values.read_body(body, tool)
        if found is None and draft.tool_tag:
            found = values.read_children(body, tool, literals=literals)
        elif found is not None:
            draft.rows.add("V25")
        return found, "the body is neither parameters nor a JSON object"

    def _kept(self, draft: Draft, tool: Tool | None, cut: Cut) -> list[Param]:
        """V11: a parameter without its own closer counts only if the tool requires it and its text is clean."""
        kept = []
        for param in draft.params:
            if not param.name.strip():
                continue
            if not param.closed:
                draft.rows.add("V11")
                if tool is None or param.name.strip() not in tool.required:
                    continue
                raw = cut(param.start, param.end)
                if not raw.strip() or _MARKER.search(raw):
                    continue
            kept.append(param)
        if draft.wrapped and not any(param.closed for param in kept):
            return []  # V26: at least one must be complete
        return kept

    def _from_params(self, params: list[Param], tool: Tool | None, literals: bool, cut: Cut) -> dict[str, Any]:
        def triple(param: Param) -> tuple[str, str, bool | None]:
            raw = param.value if param.value is not None else cut(param.start, param.end)
            if not param.closed:  # T15: the newline before the next tag is no part of the value
                raw = re.sub(r"\r?\n[ \t]*\Z", "", raw)
            return param.name, raw, param.string

        arguments = values.build_arguments([triple(p) for p in params if p.group is None], tool, literals=literals)
        groups: dict[str, list[Param]] = {}
        for param in params:
            if param.group is not None:
                groups.setdefault(param.group, []).append(param)
        for group, members in groups.items():
            arguments[group] = values.build_arguments([triple(p) for p in members], None, literals=literals)
        return arguments

    def is_echo(self, markup: str) -> bool:
        """True where a message of the request holds the same markup (G1)."""
        return bool(self.policy.quoted) and echoes(self.policy.quoted).hold(markup)

    def _is_echo(self, draft: Draft, end: int, cut: Cut) -> bool:
        """True where it holds the same call."""
        if not self.policy.quoted:
            return False
        parts: list[str] = []
        for param in draft.params:
            parts += [param.name, param.value if param.value is not None else cut(param.start, param.end)]
        same = echoes(self.policy.quoted).hold_call(draft.name, parts or [cut(draft.body, end)])
        return same or self.is_echo(cut(draft.start, end))
