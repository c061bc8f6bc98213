"""The addon's options: one table, from which they are declared, checked and documented.

Every option is declared to mitmproxy as an optional string and read here. mitmproxy's own types will not do: a bad
value for one of them, given before the addon is loaded, disables the addon without a word.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

PREFIX = "dsml_"


class Kind(Protocol):
    """How the text of an option is read. `expects` completes the sentence "NAME must be ..."."""

    expects: str

    def parse(self, text: str) -> Any:
        """The value; `ValueError` when `text` is none."""


class Switch:
    """Yes or no, in any letter case."""

    expects = "on or off (or true, false, yes, no)"

    def parse(self, text: str) -> bool:
        return {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}[text.lower()]


class Choice:
    """One of a few words, in any letter case."""

    def __init__(self, *values: str) -> None:
        self._values = values
        self.expects = " or ".join([", ".join(values[:-1]), values[-1]])

    def parse(self, text: str) -> str:
        return self._values[self._values.index(text.lower())]


class Whole:
    """A whole number in decimal digits."""

    def __init__(self, lowest: int, highest: int) -> None:
        self._range = range(lowest, highest + 1)
        self.expects = f"a whole number from {lowest} to {highest}"

    def parse(self, text: str) -> int:
        return self._range[self._range.index(int(text))]


class Seconds:
    """A number of seconds, parts of one allowed."""

    def __init__(self, lowest: float, highest: float) -> None:
        self._lowest, self._highest = lowest, highest
        self.expects = f"a number of seconds from {lowest:g} to {highest:g}"

    def parse(self, text: str) -> float:
        value = float(text)
        if math.isnan(value) or not self._lowest <= value <= self._highest:
            raise ValueError(text)
        return value


class Expression:
    """A regular expression, sought in the text without regard to case."""

    expects = "a regular expression"

    def parse(self, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text, re.IGNORECASE)
        except re.error as error:
            raise ValueError(text) from error


class Text:
    """Any text that could be typed."""

    expects = "a text, or empty"

    def parse(self, text: str) -> str:
        if "\0" in text:
            raise ValueError(text)
        return text


class PathName(Text):
    """The path of a file or folder, or nothing."""

    expects = "a path, or empty"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: the option's full name, its default as it would be written, and what it is for."""

    name: str
    default: str
    kind: Kind
    help: str

    def read(self, text: str | None) -> Any:
        """The value of `text`, `ValueError` with a sentence for the user when it has none."""
        try:
            if text is None:
                raise ValueError("no value")
            return self.kind.parse(text.strip())
        except (ValueError, KeyError):
            given = "it has no value" if text is None else f"it is {text!r}"
            raise ValueError(f"{self.name} must be {self.kind.expects}; {given}") from None


def _row(default: str, kind: Kind, help: str) -> Any:
    return field(default=kind.parse(default), metadata={"default": default, "kind": kind, "help": help})


_LARGEST_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as read. A field IS the option `dsml_` + its name. Limits are characters unless they say bytes."""

    mode: Literal["repair", "observe", "off"] = _row(
        "repair",
        Choice("repair", "observe", "off"),
        "repair: change what leaked. observe: change nothing in either direction, but look and report. "
        "off: do not look.",
    )
    stream: bool = _row("on", Switch(), "Repair streamed responses (text/event-stream, application/x-ndjson).")
    body: bool = _row("on", Switch(), "Repair responses that come as one JSON body.")
    profile: Literal["relaxed", "strict"] = _row(
        "relaxed",
        Choice("relaxed", "strict"),
        "relaxed: all of the catalogue, damage included. strict: only complete blocks of the official grammars.",
    )
    values: Literal["schema", "literals"] = _row(
        "schema",
        Choice("schema", "literals"),
        "A parameter without a string attribute and without a declared type: schema keeps its text, "
        "literals makes any valid JSON literal its value.",
    )
    undeclared: Literal["keep", "reject"] = _row(
        "keep",
        Choice("keep", "reject"),
        "A call of a tool the request does not declare: keep recovers it, reject strips it.",
    )
    candidate_limit: int = _row(
        "1024",
        Whole(1, _LARGEST_LIMIT),
        "Characters held while markup has begun and no parameter is open.",
    )
    hold_limit: int = _row("65536", Whole(1, _LARGEST_LIMIT), "Characters held once a parameter is open.")
    declared_hold_limit: int = _row(
        "4194304",
        Whole(1, _LARGEST_LIMIT),
        "The same for a tool that the request declares.",
    )
    idle_flush: float = _row(
        "0.5",
        Seconds(0, 3600),
        "Seconds of silence after which text that only might become markup goes out; 0 waits for the provider.",
    )
    models: re.Pattern[str] = _row(  # noqa: RUF009
        "deepseek",
        Expression(),
        "The models whose requests may be changed, where they declare tools: the name holds a match, in any case.",
    )
    directive: bool = _row("on", Switch(), "Say in the system text how a tool call is written.")
    sanitize: bool = _row("on", Switch(), "Cut leaked markup out of what the assistant said in earlier turns.")
    nudge: bool = _row(
        "on",
        Switch(),
        "After a call that was lost, tell the model so at the end of the next request, and to issue it again.",
    )
    nudge_limit: int = _row("3", Whole(1, 1000), "How many requests in a row carry that correction for one message.")
    resume: int = _row(
        "0",
        Whole(0, 10),
        "How often a request is sent again, while the client waits, when its streamed answer lost the call.",
    )
    resume_channel: Literal["system", "user"] = _row(
        "system",
        Choice("system", "user"),
        "Where the correction stands in a request sent again: system text behind a short line of the user, "
        "or all of it in the user's name.",
    )
    hoist_tools: bool = _row(
        "off", Switch(), "Copy tools that stand in input[].additional_tools (Responses) to the top-level tools."
    )
    log: str = _row("", PathName(), "A file to which each decision is appended as a line of JSON (docs/DEBUGGING.md).")
    log_content: bool = _row(
        "off", Switch(), "Put the text of messages into the files of dsml_log and dsml_report, without redaction."
    )
    report: str = _row("", PathName(), "A file for a web page about the session's decisions, written at the end.")
    capture: str = _row(
        "", PathName(), "A folder into which each response that leaks is written as a golden fixture (docs/GOLDENS.md)."
    )
    capture_filter: str = _row("", Text(), "A filter of mitmproxy: only flows that match are captured.")
    capture_redact: bool = _row("on", Switch(), "Put placeholders for words, numbers and names into what is captured.")
    keep_limit: int = _row(
        "4194304",
        Whole(0, _LARGEST_LIMIT),
        "Bytes of a streamed response that are kept to be looked at: those the client got, and, where there was "
        "something to decide, those the provider sent. A longer one is not kept.",
    )


OPTIONS: tuple[Option, ...] = tuple(
    Option(PREFIX + row.name, row.metadata["default"], row.metadata["kind"], row.metadata["help"])
    for row in fields(Settings)
)


def read(values: Mapping[str, str | None]) -> Settings:
    """Settings from option name -> text. `ValueError` with a sentence for the user at the first bad one."""
    return Settings(**{option.name.removeprefix(PREFIX): option.read(values[option.name]) for option in OPTIONS})


def unknown(names: Iterable[str]) -> str | None:
    """A sentence about the first of `names` that has our prefix, in any case and with any dash, and is no option of
    ours, None without one."""
    known = [option.name.removeprefix(PREFIX) for option in OPTIONS]
    for name in sorted(names):
        meant = name.lower().replace("-", "_")
        if meant.startswith(PREFIX) and name.removeprefix(PREFIX) not in known:
            near = difflib.get_close_matches(meant.removeprefix(PREFIX), known, n=1)
            return f"there is no option {name}" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
    return None


def settle_deferred(deferred: MutableMapping[str, Any]) -> list[str]:
    """Turn values given before the options were declared into the one type declared for them.

    A configuration file gives YAML booleans and numbers; the command line gives lists of strings, of which more than
    one is an error. mitmproxy would refuse either without saying so. Returns sentences about what is wrong.
    """
    wrong = []
    for option in OPTIONS:
        value = deferred.get(option.name)
        if isinstance(value, bool):
            deferred[option.name] = "on" if value else "off"
        elif isinstance(value, int | float):
            deferred[option.name] = str(value)
        elif len(given := getattr(value, "val", ())) > 1:
            wrong.append(f"{option.name} is given {len(given)} times")
            del deferred[option.name]
        elif isinstance(value, list | dict):
            wrong.append(f"{option.name} must be {option.kind.expects}; it is {value!r}")
            del deferred[option.name]
    return wrong
