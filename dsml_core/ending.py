"""The end of the text: what is still open is decided here (V15, V16, V26)."""

from __future__ import annotations

import re
from typing import Final

from dsml_core import invokes
from dsml_core.draft import Draft
from dsml_core.events import End
from dsml_core.hold import Hold, State, Tail
from dsml_core.markdown import Quote

_RESIDUE: Final = re.compile("[<\uff1c]{1,4}\\s*(?:[/\uff0f|\uff5c\u2016\\\\]|(?i:dsml))|[|\uff5c\u2016]+\\s*(?i:dsml)")

# Without a call before it, what shows no sign of the marker is text: `a </` may end any sentence.
_MARKED: Final = re.compile("[<\uff1c]{0,4}\\s*[/\uff0f\\\\]?\\s*(?:[\uff5c\u2016]|[|]*\\s*(?i:dsml))")


def finish(hold: Hold, end: End) -> None:
    """All text is read: decide what is still open."""
    draft, cursor = hold.draft, hold.cursor
    if draft is not None and end is End.STOP and _is_whole(hold, draft):
        written = draft.written(hold.tape.end)
        invokes.end_draft(hold, written, written)
        hold.cursor = max(cursor, hold.out.done)
    if hold.state is State.TAIL:
        removes = hold.tail_closers and end is not End.PART
        if hold.tail_end is not None and (removes or hold.tail is Tail.RESIDUE) and hold.tail is not Tail.QUOTED:
            hold.strip(hold.tail_end, "T8", "closers at the end")
        _finish_partial(hold, end)
    elif hold.state is State.PROSE or (hold.state is State.BLOCK and hold.block is not None and hold.block.decided):
        if hold.state is State.BLOCK and _residue_goes(hold, end) and hold.tape.cut(hold.out.done, cursor).strip():
            hold.strip(cursor, "T8", "closers at the end")
        _finish_partial(hold, end)
    else:
        _finish_open(hold, end)


def _is_whole(hold: Hold, draft: Draft) -> bool:
    """V26 at a clean stop: every required parameter is there."""
    tool = hold.judge.tool(draft.name)
    if not draft.wrapped or tool is None or hold.value is not None:
        return False
    return bool(draft.params) and tool.required <= {param.name for param in draft.params if param.closed}


def _residue_goes(hold: Hold, end: End) -> bool:
    if end is End.NATIVE or not hold.judge.policy.calls:
        return True
    return hold.out.calls > 0 and end is not End.PART


def _finish_partial(hold: Hold, end: End) -> None:
    """A tag that the end cut off (V16): residue behind a recovered call and before a native one."""
    hold.out.text(hold.cursor)
    rest = hold.tape.cut(hold.out.done, hold.tape.end)
    if hold.out.read_prose().place is Quote.QUOTED:
        return
    residue = _RESIDUE if hold.out.calls else _MARKED
    if rest and _residue_goes(hold, end) and residue.match(rest):
        hold.strip(hold.tape.end, "V16", "a tag that was cut off")


def _finish_open(hold: Hold, end: End) -> None:
    start, block = hold.out.done, hold.block
    name = hold.draft.name if hold.draft is not None else None
    removed = hold.standing and not hold.spilled and _residue_goes(hold, end)
    if start < hold.tape.end and hold.state is not State.WAIT:
        hold.out.reject(name, "V16" if removed else "V15", "not closed", start, hold.tape.end, removed)
    if not removed:
        return
    if block is not None and block.prose is not None and not block.decided and hold.draft is None:
        hold.strip(block.body, "V16", "a block opener")
    elif hold.draft is not None and hold.value is None:
        hold.strip(hold.draft.written(hold.tape.end), "V16", "not closed", name)
        _finish_partial(hold, end)
    else:
        hold.strip(hold.tape.end, "V16", "not closed", name)
