"""A stored response read once more, as the repair reads it: what it says, what is taken out of it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from dsml_core.atoms import Atom, Delta, Key, Native
from dsml_core.events import End, Event, Rejected, Removed, Text, ToolCall
from dsml_core.formats import WIRES
from dsml_core.formats.wire import Body, Wire, dicts
from dsml_core.framing import BodyFramer, LineFramer, SseFramer, loads
from dsml_core.grammar import tags
from dsml_core.markdown import Quote, Quoting
from dsml_core.parser import Parser
from dsml_core.policy import Policy
from dsml_core.report import Report
from dsml_core.rewriter import Rewriter, unwrap
from dsml_core.tools import Tools

_QUOTES = {
    Quote.QUOTED: "it stands in a code fence or a block quote",
    Quote.CODE: "it stands in inline code",
    Quote.THINK: "it stands in an inline thinking passage",
    Quote.NONE: "it is no complete call",
}
_REFUSED = "the provider ended the answer with a refusal: its text goes out as it came"
_NO_TOOLS = "the request declares no tools"
_NEAR = 256  # characters between two tags that are told of as one span


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, in characters of it.

    `cut`: it was taken out, and made `call` where there is one. `left`: it looks like markup, and stays.
    """

    kind: Literal["shown", "cut", "left"]
    start: int
    end: int
    text: str
    row: str = ""
    reason: str = ""
    name: str | None = None
    call: ToolCall | None = None


@dataclass(slots=True)
class Passage:
    """One text of a response; its spans tile it."""

    choice: int
    reasoning: bool
    spans: list[Span]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

    @property
    def visible(self) -> str:
        return "".join(span.text for span in self.spans if span.kind != "cut")


@dataclass(slots=True)
class Structured:
    """A native tool call; `arguments` is their JSON text."""

    choice: int
    name: str
    arguments: str


@dataclass(slots=True)
class Answer:
    """What a response says. `calls` are those the repair writes; `finish` the finish reasons as they came."""

    wire: str
    model: str | None = None
    items: list[Passage | Structured] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    unread: str = ""  # why the end of the body is missing here

    @property
    def passages(self) -> list[Passage]:
        return [item for item in self.items if isinstance(item, Passage)]

    @property
    def native_choices(self) -> set[int]:
        """The choices with native calls: what leaked beside those is taken out and not run."""
        return {item.choice for item in self.items if isinstance(item, Structured)}


def read_answer(
    wire: str, data: bytes, *, stream: bool, tools: Tools | None = None, policy: Policy | None = None
) -> Answer:
    """Read a response body of `wire`, without content encoding. Does not raise: `unread` tells what went wrong.

    With no tools (an empty collection) nothing is taken out.
    """
    answer = Answer(wire)
    atoms: list[Atom] = []
    format = _listening(WIRES[wire], atoms)(tools)
    rewriter = Rewriter(format, lambda reasoning: _Recording(tools, policy, reasoning=reasoning), Report(wire))
    try:
        for frame in _frames(data, stream=stream, lines=format.LINES):
            body = loads(frame.data) if frame.data else None
            if isinstance(body, dict):
                answer.finish += finish_reasons(unwrap(body, format)[1])
            (rewriter.take if stream else rewriter.whole)(frame)
        if stream:
            rewriter.end()
    except Exception as error:
        answer.unread = f"{type(error).__name__}: {error}"
    for part in format.parts.values():
        if not part.resolved:
            part.parser.close(End.ABORT)
    answer.model = model if isinstance(model := format.base.get("model"), str) else None
    answer.items = list(_items(atoms, format, tools))
    written = [passage for passage in answer.passages if passage.choice not in answer.native_choices]
    answer.calls = [span.call for passage in written for span in passage.spans if span.call is not None]
    return answer


def read_text(text: str, tools: Tools | None = None, policy: Policy | None = None) -> list[Span]:
    """The spans of one text that is whole."""
    parser = _Recording(tools, policy)
    parser.feed(text)
    parser.close()
    return list(_spans(parser.heard, parser.rejected, tools))


class _Recording(Parser):
    """A parser that keeps what it said."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.heard: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        events = super().feed(text)
        self.heard += events
        return events

    def close(self, end: End = End.STOP) -> list[Event]:
        events = super().close(end)
        self.heard += events
        return events


def _listening(wire: type[Wire], atoms: list[Atom]) -> type[Wire]:
    """The wire, noting in `atoms` what it reads."""

    def read(self: Wire, body: Body) -> list[Atom]:
        found = wire.read(self, body)
        atoms.extend(found)
        return found

    def read_body(self: Wire, body: Body) -> list[Atom]:
        found = wire.read_body(self, body)
        atoms.extend(found)
        return found

    return cast("type[Wire]", type(wire.__name__, (wire,), {"read": read, "read_body": read_body}))


def _frames(data: bytes, *, stream: bool, lines: bool) -> Iterator[Any]:
    framer = BodyFramer() if not stream else LineFramer() if lines else SseFramer()
    yield from framer.feed(data)
    yield from framer.close()


def _items(atoms: list[Atom], wire: Wire, tools: Tools | None) -> Iterator[Passage | Structured]:
    """Texts and native calls, in the order in which they began."""
    found: dict[tuple[str, Key], Passage | Structured] = {}
    for atom in atoms:
        if isinstance(atom, Delta) and ("text", atom.part) not in found and atom.part in wire.parts:
            part = wire.parts[atom.part]
            parser = cast("_Recording", part.parser)
            spans = list(_spans(parser.heard, parser.rejected, tools))
            if part.choice.refused:
                spans = [
                    replace(span, kind="left", reason=_REFUSED, call=None) if span.kind == "cut" else span
                    for span in spans
                ]
            found["text", atom.part] = Passage(atom.choice, atom.reasoning, spans)
        elif isinstance(atom, Native):
            call = found.setdefault(("call", atom.key), Structured(atom.choice, "", ""))
            assert isinstance(call, Structured)
            call.name = call.name or atom.name or ""
            call.arguments += atom.arguments
    return iter(found.values())


def _spans(events: list[Event], rejected: list[Rejected], tools: Tools | None) -> Iterator[Span]:
    calls = {event.start: event for event in events if isinstance(event, ToolCall)}
    left = sorted((span for span in rejected if not span.removed), key=lambda span: span.start)
    quoting = Quoting()
    shown = ""
    for event in events:
        if isinstance(event, Text):
            shown += event.text
        elif isinstance(event, Removed):
            yield from _shown(shown, event.start - len(shown), left, quoting, tools)
            shown = ""
            quoting.skip(event.text)
            call = calls.get(event.start)
            yield Span("cut", event.start, event.end, event.text, event.row, event.reason, event.name, call)
    end = max((event.end for event in events), default=0)
    yield from _shown(shown, end - len(shown), left, quoting, tools)


def _shown(text: str, start: int, left: list[Rejected], quoting: Quoting, tools: Tools | None) -> Iterator[Span]:
    """Visible text, with the places marked where it looks like markup."""
    at = 0
    marked = [(span.start - start, span.end - start, span.row, span.reason, span.name) for span in left]
    marked = [span for span in marked if 0 <= span[0] < span[1] <= len(text)]
    for begin, end in _mentions(text, tools):
        if not any(begin < span[1] and span[0] < end for span in marked):
            marked.append((begin, end, "", "", None))
    for begin, end, row, reason, name in sorted(marked, key=lambda span: span[0]):
        if begin < at:
            continue
        if begin > at:
            yield Span("shown", start + at, start + begin, text[at:begin])
        quoting.read(text[at:begin], start + at)
        reason = reason or (_NO_TOOLS if tools == {} else _QUOTES[quoting.place])
        yield Span("left", start + begin, start + end, text[begin:end], row, reason, name)
        quoting.read(text[begin:end], start + begin)
        at = end
    if at < len(text):
        yield Span("shown", start + at, start + len(text), text[at:])
        quoting.read(text[at:], start + at)


def _mentions(text: str, tools: Tools | None) -> Iterator[tuple[int, int]]:
    """Where marked tags stand, those that are near each other as one."""
    begin = end = -1
    for start, tag in tags(text, tools or ()):
        if not tag.marked:
            continue
        if begin >= 0 and start - end > _NEAR:
            yield begin, end
            begin = -1
        begin = start if begin < 0 else begin
        end = start + tag.length
    if begin >= 0:
        yield begin, end


def finish_reasons(body: Body) -> list[str]:
    """The finish reasons in one frame of a response, on any wire, as the provider writes them."""
    choices = body.get("choices")
    delta, response = body.get("delta"), body.get("response")
    found = [choice.get("finish_reason") for choice in dicts(choices)]
    found += [body.get("stop_reason"), body.get("done_reason")]
    found += [delta.get("stop_reason")] if isinstance(delta, dict) else []
    if str(body.get("type")) in ("response.completed", "response.incomplete", "response.failed"):
        found += [response.get("status")] if isinstance(response, dict) else []
    elif body.get("object") == "response":
        found.append(body.get("status"))
    return [reason for reason in found if isinstance(reason, str)]


def guess_wire(data: bytes) -> str | None:
    """The wire that a stored body looks like, None for anything else."""
    lines = [line.removeprefix(b"data:").strip() for line in data[:65536].splitlines()]
    for line in [data, *lines]:
        value = loads(line.decode("utf-8", "replace")) if line[:1] == b"{" else None
        if isinstance(value, dict):
            inner = value.get("data")
            wire = _wire_of(value) or (_wire_of(inner) if isinstance(inner, dict) else None)
            if wire:
                return wire
    return None


def _wire_of(body: Body) -> str | None:
    kind = str(body.get("type"))
    if "choices" in body:
        return "openai-chat"
    if kind.startswith("response.") or body.get("object") == "response":
        return "openai-responses"
    if kind.startswith(("message", "content_block")):
        return "anthropic"
    return "ollama" if "message" in body and "done" in body else None


def is_stream(data: bytes, wire: str) -> bool:
    """True where a stored body is a stream, False where it is one JSON document."""
    if WIRES[wire].LINES:
        return data.strip().count(b"\n") > 0 and loads(data.decode("utf-8", "replace")) is None
    return not data.lstrip().startswith((b"{", b"\xef\xbb\xbf{"))
