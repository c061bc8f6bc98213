"""Plain text for the content views and the commands. Nothing here knows mitmproxy."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from addon.log import shown
from addon.reading import Answer, Passage, Span, Structured
from addon.story import Story
from dsml_core.framing import SseFramer

CUT, LEFT, ADDED = "\u2702 ", "? ", "+ "
# Rows that are guards against a call nobody meant.
_GUARDS = {
    "G1": "the echo guard",
    "B1": "the guard on bare XML",
    "R4": "dsml_undeclared",
    "R5": "tool_choice",
    "S3": "the hold limit",
    "T17": "the rule for reasoning",
}
_CONTEXT = 3  # equal lines shown around a difference
_COMPARED = 2000  # lines; a longer difference is shown as one block


def message(story: Story) -> str:
    """The view DSML: the response as a person reads it, what was taken out, where and why."""
    return "\n".join([*_head(story), *_body(story), *_foot(story)]) + "\n"


def diff(story: Story, columns: int) -> str:
    """The view DSML diff: two columns, `columns` characters in all."""
    right = "the client got" if story.happened else "the client would have got"
    titles = ("the provider sent", right)
    sides = list(spoken(story.before)), list(spoken(story.after))
    head = [*_head(story), ""]
    if sides[0] == sides[1]:
        head += ["No difference: the client got what the provider sent.", ""]
    return "\n".join([*head, *side_by_side(titles, *sides, columns)]) + "\n"


def events(data: bytes) -> str:
    """An event stream of no wire we know: the data of each event, indented where it is JSON."""
    framer = SseFramer()
    frames = [frame for frame in [*framer.feed(data), *framer.close()] if frame.data is not None]
    told = [f"== event: {shown(frame.event or 'message')} ==\n{pretty(frame.data or '')}" for frame in frames]
    return "\n".join(told) + "\n"


def spoken(answer: Answer) -> Iterator[str]:
    """A response as lines of text, with all markup in it."""
    for item in answer.items:
        yield f"== {_title(item)} =="
        yield from (item.text if isinstance(item, Passage) else pretty(item.arguments)).split("\n")
    for reason in dict.fromkeys(answer.finish):
        yield f"== finish: {shown(reason)} =="
    if answer.unread:
        yield f"== the rest cannot be read: {answer.unread} =="


def explain(story: Story) -> Iterator[str]:
    """For each span that looks like markup: was it taken, by which row, where, and what decided."""
    if story.half:
        yield "What the provider sent was not kept (dsml_keep_limit): this is about what the client got."
    spans = [(item, span) for item in story.before.passages for span in item.spans if span.kind != "shown"]
    for item, span in spans:
        native = item.choice in story.before.native_choices
        yield f"{_title(item)}, {_place(span)}: {_verdict(span, native, '' if story.happened else 'would be ')}"
    if not spans:
        yield "No markup stands in this response."
    if not story.context.calls:
        yield "The request forbids tool calls (tool_choice)."
    if story.context.tools is None:
        yield "The tools of the request are not known: its body could not be read."
    yield f"finish: {_finish(story)}"


def pretty(arguments: str) -> str:
    """Arguments as indented JSON, as they are where they are none."""
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def marked(text: str, mark: str) -> Iterator[str]:
    """The lines of `text`, each behind `mark`."""
    return (mark + line for line in text.split("\n"))


# --- The view DSML ----------------------------------------------------------------------------------------------------


def _head(story: Story) -> Iterator[str]:
    record = story.record
    if record is None:
        yield "not decided when it passed; this is how it reads now"
    else:
        yield str(record.get("line")).partition(f" ({story.wire}, ")[0]
        yield f"held {record.get('held_characters')} characters, {record.get('held_seconds')} s"
    yield f"{story.wire}, {shown(story.before.model or 'unknown model')}, finish: {_finish(story)}"
    if record is not None and record.get("ended"):
        yield f"ended: {shown(str(record['ended']), 200)}"
    if story.half:
        yield "what the provider sent was not kept (dsml_keep_limit); this is what the client got"


def _finish(story: Story) -> str:
    before, after = (
        ", ".join(map(shown, dict.fromkeys(side.finish))) or "none" for side in (story.before, story.after)
    )
    return before if before == after else f"{before} \u2192 {after}"


def _body(story: Story) -> Iterator[str]:
    for item in story.before.items:
        yield from ("", f"== {_title(item)} ==")
        if isinstance(item, Structured):
            yield pretty(item.arguments)
        else:
            yield from passage(item.spans, "" if story.happened else "would be ")


def passage(spans: Sequence[Span], would: str = "") -> Iterator[str]:
    """A text with what was taken out of it (`would`: before "taken out"), or looks as if it should have been."""
    for span in spans:
        if span.kind == "shown":
            yield from span.text.strip("\n").split("\n") if span.text.strip() else ()
            continue
        mark, word = (CUT, f"{would}taken out") if span.kind == "cut" else (LEFT, "left as text")
        why = ": ".join(filter(None, [span.row, span.reason]))
        yield f"[{word}, {_place(span)}, {why}]"
        yield from marked(span.text.strip("\n"), mark)


def _foot(story: Story) -> Iterator[str]:
    for call in story.before.calls:
        word = "recovered call" if story.happened else "call that would be recovered"
        yield from ("", f"== {word}: {shown(call.name)} ({call.row}) ==", _json(call.arguments))
    visible = "".join(item.visible for item in story.before.passages)
    said = "".join(item.text for item in story.after.passages)
    if said.strip() and not visible.strip():
        yield from ("", "== in its place ==", *marked(said, ADDED))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _title(item: Passage | Structured) -> str:
    what = (
        f"tool call: {shown(item.name)}" if isinstance(item, Structured) else "reasoning" if item.reasoning else "text"
    )
    return f"{what} (choice {item.choice})" if item.choice else what


def _place(span: Span) -> str:
    return f"characters {span.start} to {span.end}"


def _verdict(span: Span, native: bool, would: str) -> str:
    guard = f", {_GUARDS[span.row]}" if span.row in _GUARDS else ""
    row = f" (row {span.row}{guard})" if span.row else ""
    why = ": ".join(filter(None, [shown(span.name or ""), span.reason]))
    if span.call is not None and native:
        return f"{would}taken out{row}, not run: a native call stands in the same message"
    if span.call is not None:
        return f"{would}taken as a call of {shown(span.call.name)}{row}"
    return f"{would}taken out{row}: {why}" if span.kind == "cut" else f"left as text{row}: {why}"


# --- The view DSML diff -----------------------------------------------------------------------------------------------


def side_by_side(titles: tuple[str, str], left: list[str], right: list[str], columns: int) -> Iterator[str]:
    """Two texts in two columns. Between them: nothing where they are equal, `<` only left, `>` only right, `*` both."""
    width = (columns - 3) // 2
    yield f"{_padded(titles[0], width)}   {titles[1]}"
    yield f"{'-' * width}   {'-' * width}"
    for equal, some, others in _blocks(left, right):
        if not equal or len(some) <= 2 * _CONTEXT + 1:
            yield from _rows(some, others, width, equal)
        else:
            yield from _rows(some[:_CONTEXT], others[:_CONTEXT], width, equal)
            yield f"... {len(some) - 2 * _CONTEXT} equal lines ..."
            yield from _rows(some[-_CONTEXT:], others[-_CONTEXT:], width, equal)


def _blocks(left: list[str], right: list[str]) -> Iterator[tuple[bool, list[str], list[str]]]:
    """Runs of lines: whether they are equal, those on the left, those on the right."""
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
        end += 1
    if start:
        yield True, left[:start], right[:start]
    some, others = left[start : len(left) - end], right[start : len(right) - end]
    if len(some) + len(others) > _COMPARED:
        yield False, some, others
    else:
        for tag, low, high, other_low, other_high in SequenceMatcher(None, some, others, False).get_opcodes():
            yield tag == "equal", some[low:high], others[other_low:other_high]
    if end:
        yield True, left[len(left) - end :], right[len(right) - end :]


def _rows(left: list[str], right: list[str], width: int, equal: bool) -> Iterator[str]:
    for number in range(max(len(left), len(right))):
        some = _wrapped(left[number], width) if number < len(left) else []
        others = _wrapped(right[number], width) if number < len(right) else []
        mark = " " if equal else "*" if some and others else "<" if some else ">"
        for row in range(max(len(some), len(others))):
            here = _padded(some[row] if row < len(some) else "", width)
            yield f"{here} {mark} {others[row] if row < len(others) else ''}".rstrip()


def _wrapped(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` columns of a terminal."""
    pieces, piece, used = [], "", 0
    for character in line.replace("\t", "    "):
        wide = _width(character)
        if used + wide > width:
            pieces.append(piece)
            piece, used = "", 0
        piece += character
        used += wide
    return [*pieces, piece]


def _padded(piece: str, width: int) -> str:
    return piece + " " * (width - sum(map(_width, piece)))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
