"""One web page about the decisions of a session: a single file, without scripts, that asks nothing of the network.

Unless `content` is asked for it is redacted: outside of tags every letter is an x and every digit a 0, in tags all but
the words of the markup, the names of tools that were called, and the names the request declares.
"""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EINVAL, EISDIR, ENOENT, ENOTDIR
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from mitmproxy.http import HTTPFlow

from addon import kept, render
from addon.log import printable
from addon.reading import Answer, Passage, Span
from addon.story import Story, tell
from dsml_core.events import ToolCall
from dsml_core.grammar import tags
from dsml_core.policy import Policy

_TEMPLATE = Path(__file__).with_name("report.html")
_MARKUP = "DSML invoke parameter tool_calls function_calls calls tool_call function name string true false"
_NAME = re.compile(r"[\w./:-]{1,64}")
_BARS = {"\uff5c": "&#xff5c;", "\u2016": "&#x2016;", "|": "&#124;"}  # the file holds no marker that could be executed
_UNKNOWN = "unknown model"
_SHOWN = 4000  # characters of one span
_ELEMENTS = {"cut": "del", "left": "mark"}


def place(path: str | Path) -> Path:
    """`path` with the user's home filled in; `OSError` where it can name no file: it holds a NUL, or no such user."""
    try:
        where = Path(path).expanduser()
        with suppress(OSError):
            where.lstat()
    except (ValueError, RuntimeError):
        raise OSError(EINVAL, os.strerror(EINVAL), printable(str(path))) from None
    return where


def check(path: str) -> None:
    """`OSError` where no file can be written at `path`; an empty one is none."""
    where = place(path)
    if path and where.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    if path and not where.parent.exists():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(where.parent))
    if path and not where.parent.is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(where.parent))


def save(path: str | Path, flows: Sequence[HTTPFlow], policy: Policy, content: bool) -> None:
    """Write the page, whole or not at all, readable by its owner alone."""
    where = place(path)
    check(str(where))
    number, name = tempfile.mkstemp(dir=where.parent, prefix=f".{where.name}.")
    try:
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:  # half of a surrogate pair
            file.write(page(flows, policy, content))
        os.replace(name, where)
    except BaseException:
        os.unlink(name)
        raise


def page(flows: Sequence[HTTPFlow], policy: Policy, content: bool = False) -> str:
    """The page about `flows`, each with a record; `policy` is for those whose record has none."""
    told = [_response(number, flow, policy, content) for number, flow in enumerate(flows, 1)]
    body = [_head([row for row, _ in told], content), *(article for _, article in told)]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(body="\n".join(body))


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """`text` with its length, white space, punctuation and tags, and without what it says."""
    known = {word for name in [_MARKUP, *names] for word in re.findall(r"\w+", name)}
    pieces, at = [], 0
    for start, tag in tags(text, set(names)):
        pieces.append(_masked(text[at:start]))
        at = start + tag.length
        pieces.append(re.sub(r"\w+", lambda word: word[0] if word[0] in known else _masked(word[0]), text[start:at]))
    return "".join([*pieces, _masked(text[at:])])


def _masked(text: str) -> str:
    return "".join(map(_mask, text))


def _mask(character: str) -> str:
    kind = unicodedata.category(character)[0]
    if kind == "N":
        return "0"
    if kind in "LM" or (kind in "SC" and not character.isascii() and character not in _BARS):
        return "x"
    return character


@dataclass(frozen=True, slots=True)
class Mask:
    """What may be shown of one response: all of it (`content`), or what `redacted` leaves."""

    content: bool
    names: frozenset[str] = frozenset()

    def text(self, text: str) -> str:
        shown = text if self.content else redacted(text, self.names)
        if len(shown) <= _SHOWN:
            return _escaped(shown)
        half = _SHOWN // 2
        return _escaped(f"{shown[:half]}\n... {len(shown) - 2 * half} characters ...\n{shown[-half:]}")

    def name(self, name: str) -> str:
        known = self.content or name in self.names or _NAME.fullmatch(name)
        return _escaped(name if known else _masked(name))


# --- HTML -------------------------------------------------------------------------------------------------------------


def _escaped(text: Any) -> str:
    made = escape(str(text))
    for bar, entity in _BARS.items():
        made = made.replace(bar, entity)
    return made


def _head(rows: Sequence[str], content: bool) -> str:
    notice = (
        "This page holds the texts of messages as they were. Share it with care."
        if content
        else "Texts are redacted: letters are x, digits 0. Tags and the names of tools and parameters are not."
    )
    heads = ("Response", "Outcome", "Tools", "Rows", "Model", "Wire", "Held", "Time")
    return (
        f'<p class="quiet">Responses with something to decide: {len(rows)}. '
        f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</p>"
        f'<p class="notice">{notice}</p>{_table("All responses", heads, rows)}'
    )


def _cells(number: int, record: dict[str, Any], mask: Mask) -> Iterator[str]:
    decisions = record.get("decisions", ())
    yield f'<a href="#response-{number}">{number}</a>'
    yield _escaped(f"{record.get('outcome')}{' (observed only)' if record.get('mode') == 'observe' else ''}")
    yield ", ".join(dict.fromkeys(mask.name(made["tool"]) for made in decisions if made.get("tool")))
    yield _escaped(", ".join(dict.fromkeys(made["row"] for made in decisions if made.get("row"))))
    yield _escaped(record.get("model") or _UNKNOWN)
    yield _escaped(record.get("wire"))
    yield _escaped(f"{record.get('held_characters')} characters, {record.get('held_seconds')} s")
    yield _escaped(str(record.get("time"))[:19].replace("T", " "))


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(cells: Iterable[str]) -> str:
    first, *rest = cells
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def _response(number: int, flow: HTTPFlow, policy: Policy, content: bool) -> tuple[str, str]:
    """The row of a response in the table of all, and its article."""
    record = kept.record_of(flow) or {}
    told = tell(flow, policy)
    names = {made["tool"] for made in record.get("decisions", ()) if made.get("tool") and _NAME.fullmatch(made["tool"])}
    for tool in (told.context.tools or {}).values() if told else ():
        names |= {tool.name, *tool.properties}
    mask = Mask(content, frozenset(names))
    return _row(_cells(number, record, mask)), _article(number, record, told, mask)


def _article(number: int, record: dict[str, Any], told: Story | None, mask: Mask) -> str:
    heads = ("Decision", "Tool", "Row", "Reason", "Characters", "Text")
    about = _escaped(f"{record.get('wire')}, {record.get('model') or _UNKNOWN}")
    return (
        f'<article aria-labelledby="response-{number}">'
        f'<h2 id="response-{number}">{number}. {_escaped(record.get("outcome"))}: {about}</h2>'
        f"{_table(f'Decisions on response {number}', heads, list(_decisions(record, mask)))}"
        f"{_sides(told, mask) if told else '<p>The body was not kept.</p>'}</article>"
    )


def _decisions(record: dict[str, Any], mask: Mask) -> Iterator[str]:
    for made in record.get("decisions", ()):
        name = mask.name(made["tool"]) if made.get("tool") else ""
        start, length = made.get("start"), made.get("characters")
        place = "" if length is None else f"{length} from {start}"
        text = "" if length is None else "taken out" if made.get("removed") else "left"
        row, reason = (_escaped(made.get(key) or "") for key in ("row", "reason"))
        yield _row([_escaped(made["decision"]), name, row, reason, _escaped(place), text])


def _sides(told: Story, mask: Mask) -> str:
    after = "What the client got" if told.happened else "What the client would have got"
    half = "<p>What the provider sent was not kept; this is what the client got.</p>" if told.half else ""
    return (
        f'{half}<div class="sides"><section><h3>What the provider sent</h3>{_side(told.before, [], mask)}</section>'
        f"<section><h3>{after}</h3>{_side(told.after, told.before.calls, mask)}</section></div>"
    )


def _side(answer: Answer, recovered: Sequence[ToolCall], mask: Mask) -> str:
    names = [call.name for call in recovered]
    shown = []
    for item in answer.items:
        if isinstance(item, Passage):
            shown.append(f"<pre>{''.join(_span(span, mask) for span in item.spans)}</pre>")
        else:
            element = "ins" if item.name in names else "span"
            arguments = f"<{element}>{mask.text(render.pretty(item.arguments))}</{element}>"
            shown.append(f"<p>tool call: {mask.name(item.name)}</p><pre>{arguments}</pre>")
    finish = ", ".join(dict.fromkeys(answer.finish)) or "none"
    return "".join([*shown, f"<p>finish: {_escaped(finish)}</p>"])


def _span(span: Span, mask: Mask) -> str:
    text = mask.text(span.text)
    element = _ELEMENTS.get(span.kind)
    if element is None:
        return text
    word = "taken out" if span.kind == "cut" else "left as text"
    return f'<span class="why">{_escaped(f"{word} {span.row}".strip())}</span><{element}>{text}</{element}>'
