"""The golden format: one response and what is made of it, as JSON text for people and for tests (docs/GOLDENS.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dsml_core.formats import WIRES
from dsml_core.policy import Policy

FORMAT = "dsml-golden"
VERSION = 1

_LARGEST = 1 << 26  # bytes that a line may be repeated to
_WIDTH = 100  # characters of a list or object that stays on one line
_BYTES = re.compile(rb"[^\n]*\n+|[^\n]+")  # what was emitted is written by lines, blank lines with the line before
_LASTING = tuple(row.name for row in fields(Policy) if row.name not in ("calls", "quoted"))
_TYPES = get_type_hints(Policy)


class GoldenError(Exception):
    """Why a text is no golden; it names the field."""


@dataclass(frozen=True, slots=True)
class Step:
    """One moment of a response, `ms` milliseconds after the one before.

    `data` arrived; None: the provider had been silent, and what only might be markup went out.
    """

    ms: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the repair makes of a response: the bytes it emits and, as JSON, what it decided (see `replay.run`)."""

    emitted: bytes
    decided: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Golden:
    """One response of `wire`, with the parts of its request that decide anything (None: it could not be read).

    `stream`: a stream, else one JSON document. `clean`: it ended well, else it broke off. `recorded`: the pieces in
    `steps` are those in which it arrived. `policy` holds the fields of `Policy` that are not at their default.
    """

    wire: str
    stream: bool
    steps: tuple[Step, ...]
    request: dict[str, Any] | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = ""
    clean: bool = True
    recorded: bool = True
    redacted: bool = False
    about: str = ""
    expected: Outcome | None = None

    @property
    def received(self) -> bytes:
        """All bytes of the response."""
        return b"".join(step.data for step in self.steps if step.data is not None)


# --- Writing ----------------------------------------------------------------------------------------------------------


def dumps(golden: Golden) -> str:
    """The golden as text: ASCII, one chunk a line, no marker in it that a reader could take for a live one."""
    chunks = [
        {"ms": step.ms, "idle": True} if step.data is None else {"ms": step.ms, "data": _text(step.data)}
        for step in golden.steps
    ]
    value: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "about": golden.about,
        "redacted": golden.redacted,
        "wire": golden.wire,
        "policy": dict(golden.policy),
        "request": golden.request,
        "response": {
            "content_type": golden.content_type,
            "stream": golden.stream,
            "boundaries": "recorded" if golden.recorded else "unknown",
            "end": "clean" if golden.clean else "aborted",
            "chunks": chunks,
        },
    }
    if golden.expected is not None:
        same = golden.expected.emitted == golden.received
        value |= {
            "emitted": None if same else list(_lines(golden.expected.emitted)),
            "decided": golden.expected.decided,
        }
    return escape(_pretty(value, "", top=True)) + "\n"


def _lines(emitted: bytes) -> Iterator[str | dict[str, Any]]:
    """By lines, and a line that comes several times in a row (signs of life while a call is held) only once."""
    for line, equal in groupby(_BYTES.findall(emitted)):
        times = len(list(equal))
        yield _text(line) if times == 1 else {"times": times, "data": _text(line)}


def _text(data: bytes) -> str:
    """Bytes as text: a byte that is not part of a whole UTF-8 character is U+DC00 and the byte."""
    return data.decode("utf-8", "surrogateescape")


def _pretty(value: Any, indent: str, top: bool = False) -> str:
    flat = json.dumps(value)
    if not isinstance(value, dict | list) or not value:
        return flat
    members = list(value.values()) if isinstance(value, dict) else value
    simple = not any(isinstance(member, dict | list) and member for member in members)
    if not top and (len(flat) <= _WIDTH or (simple and isinstance(value, dict))):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {_pretty(member, inner)}" for key, member in value.items()]
    else:
        rows = [_pretty(member, inner) for member in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}{right}"


_LIVE = re.compile(
    r"(?:[|<]|\\\\)(?=[\s|/]{0,8}dsml)"  # before the word
    r"|(?<=dsml)[\s|]{1,8}",  # behind it
    re.IGNORECASE,
)


def escape(text: str) -> str:
    """JSON text whose strings hold no bar, bracket or backslash beside the marker's word: those become escapes."""
    return _LIVE.sub(lambda found: re.sub(r"\\\\|[|<]", lambda sign: f"\\u{ord(sign[0][0]):04x}", found[0]), text)


# --- Reading ----------------------------------------------------------------------------------------------------------


def loads(text: str) -> Golden:
    """The golden that `text` is. Raises `GoldenError` with the field that is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GoldenError(f"damaged or only half written: {error}") from None
    top = _Object(value, "")
    if value.get("format") != FORMAT:
        raise GoldenError(f"format: must be {FORMAT!r}")
    if value.get("version") != VERSION:
        raise GoldenError(f"version: {value.get('version')!r} is not known here, only {VERSION} is")
    response = _Object(top.take("response"), "response.")
    golden = Golden(
        wire=top.choice("wire", tuple(WIRES)),
        stream=response.boolean("stream"),
        steps=tuple(_steps(response)),
        request=_request(top),
        policy=_policy(top),
        content_type=response.text("content_type"),
        clean=response.choice("end", ("clean", "aborted")) == "clean",
        recorded=response.choice("boundaries", ("recorded", "unknown")) == "recorded",
        redacted=top.boolean("redacted"),
        about=top.text("about"),
    )
    response.over()
    expected = _expected(top, golden) if "emitted" in value or "decided" in value else None
    top.over()
    return replace(golden, expected=expected)


class _Object:
    """A JSON object that is read field by field; `path` is how it is called in an error."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise GoldenError(f"{path.rstrip('.') or 'the whole'}: must be an object")
        self._left = dict(value)
        self.path = path

    def take(self, key: str) -> Any:
        if key not in self._left:
            raise GoldenError(f"{self.path}{key}: is missing")
        return self._left.pop(key)

    def text(self, key: str) -> str:
        return self._typed(key, str, "a string")

    def boolean(self, key: str) -> bool:
        return self._typed(key, bool, "true or false")

    def array(self, key: str) -> list[Any]:
        return self._typed(key, list, "a list")

    def whole(self, key: str) -> int:
        number = self._typed(key, int, "a whole number")
        if isinstance(number, bool) or number < 0:
            raise GoldenError(f"{self.path}{key}: must be a whole number")
        return number

    def choice(self, key: str, values: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in values:
            raise GoldenError(f"{self.path}{key}: {value!r} is none of {', '.join(values)}")
        return value

    def bytes(self, key: str) -> bytes:
        return to_bytes(self.text(key), f"{self.path}{key}")

    def has(self, key: str) -> bool:
        return key in self._left

    def over(self) -> None:
        """Nothing else may stand in it."""
        for key in self._left:
            if self.path or key not in ("format", "version"):
                raise GoldenError(f"{self.path}{key}: is not a field of this format")

    def _typed[T](self, key: str, kind: type[T], name: str) -> T:
        value = self.take(key)
        if not isinstance(value, kind):
            raise GoldenError(f"{self.path}{key}: must be {name}")
        return value


def to_bytes(text: str, path: str) -> bytes:
    """The bytes that `text` stands for. Raises `GoldenError` naming `path`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise GoldenError(f"{path}: holds half a surrogate pair") from None


def _steps(response: _Object) -> Iterator[Step]:
    for number, value in enumerate(response.array("chunks")):
        chunk = _Object(value, f"response.chunks[{number}].")
        ms = chunk.whole("ms")
        if chunk.has("idle"):
            if not chunk.boolean("idle"):
                raise GoldenError(f"{chunk.path}idle: must be true, or absent")
            yield Step(ms, None)
        else:
            yield Step(ms, chunk.bytes("data"))
        chunk.over()


def _request(top: _Object) -> dict[str, Any] | None:
    value = top.take("request")
    if value is not None and not isinstance(value, dict):
        raise GoldenError("request: must be an object or null")
    return value


def _policy(top: _Object) -> dict[str, Any]:
    policy = _Object(top.take("policy"), "policy.")
    found: dict[str, Any] = {}
    for name in _LASTING:
        if not policy.has(name):
            continue
        hint = _TYPES[name]
        found[name] = policy.choice(name, get_args(hint)) if get_origin(hint) is Literal else policy.whole(name)
    policy.over()
    return found


def _expected(top: _Object, golden: Golden) -> Outcome:
    lines = top.take("emitted")
    decided = top.take("decided")
    if not isinstance(decided, dict):
        raise GoldenError("decided: must be an object")
    if lines is None:
        return Outcome(golden.received, decided)
    if not isinstance(lines, list):
        raise GoldenError("emitted: must be a list or null")
    return Outcome(b"".join(_emitted(number, line) for number, line in enumerate(lines)), decided)


def _emitted(number: int, line: Any) -> bytes:
    if isinstance(line, str):
        return to_bytes(line, f"emitted[{number}]")
    repeated = _Object(line, f"emitted[{number}].")
    times, data = repeated.whole("times"), repeated.bytes("data")
    repeated.over()
    if times * len(data) > _LARGEST:
        raise GoldenError(f"emitted[{number}].times: is too large")
    return data * times


def policy_of(golden: Golden, *, calls: bool, quoted: tuple[str, ...]) -> Policy:
    """The policy of a golden, with what its request says."""
    return Policy(**golden.policy, calls=calls, quoted=quoted)


def lasting(policy: Policy) -> dict[str, Any]:
    """The fields of a policy that a golden keeps: those of the user, where they are not at their default."""
    default = Policy()
    return {name: getattr(policy, name) for name in _LASTING if getattr(policy, name) != getattr(default, name)}
