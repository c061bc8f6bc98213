"""What parameter tags do, and where a value ends."""

from __future__ import annotations

from dsml_core import invokes, tails
from dsml_core.draft import Draft, Param
from dsml_core.grammar import CLOSERS, Kind, Tag
from dsml_core.hold import Hold, State
from dsml_core.value import OpenValue, Weak


def open_param(hold: Hold, tag: Tag, offset: int) -> None:
    """A parameter opener."""
    tails.leave_tail(hold, offset)
    draft, end = hold.draft, offset + tag.length
    name = tag.attrs.get("name", "").strip()
    typed = "string" in tag.attrs and not tag.value_in_attribute
    if draft is not None:
        draft.holding = True
        draft.typed = draft.typed or typed
        draft.marked = draft.marked or tag.marked
    if tag.self_closing:
        _self_closing_param(hold, tag, name, offset)
        return
    string = tag.attrs["string"].strip().lower() == "true" if typed else None
    tool = hold.judge.tool(draft.name) if draft is not None else None
    names = tool.properties if tool is not None and tool.properties else None
    hold.value = OpenValue(name, string, offset, end, tag.marked, names, hold.second)
    hold.state = State.VALUE


def _self_closing_param(hold: Hold, tag: Tag, name: str, offset: int) -> None:
    if hold.draft is None:
        if hold.given_up:
            hold.out.text(offset + tag.length)
        else:
            hold.strip(offset + tag.length, "V10", "a parameter without an invoke")
        hold.decided(offset + tag.length, recovered=0, kept=hold.given_up)
    elif tag.value_in_attribute:
        hold.draft.params.append(Param(name, True, offset, offset, value=tag.attrs["string"]))
        hold.draft.end = offset + tag.length
        hold.draft.rows.add("I3")


def close_param(hold: Hold, tag: Tag, offset: int) -> None:
    """A parameter closer between parameters: of a container, or of the wrapped tool (V26)."""
    draft = hold.draft
    assert draft is not None
    if draft.container is not None:
        draft.container = None
    elif draft.wrapped and any(param.closed for param in draft.params):
        invokes.close_invoke(hold, tag, offset)


def end_value(hold: Hold, offset: int, end: int, closed: bool, marked: bool = False) -> None:
    """The value ends at `offset`; reading goes on at `end`."""
    value, draft = hold.value, hold.draft
    assert value is not None
    hold.value = None
    hold.cursor = end
    if draft is None:
        _end_orphan(hold, end, closed)
        return
    draft.params.append(Param(value.name, value.string, value.start, offset, closed, group=draft.container))
    draft.end = end
    draft.marked = draft.marked or value.marked or marked
    hold.state = State.INVOKE


def _end_orphan(hold: Hold, end: int, closed: bool) -> None:
    if not closed and not hold.spilled and hold.block is None and hold.judge.policy.calls:
        hold.abandon(end)  # a mention
        return
    quoted = hold.given_up or hold.judge.is_echo(hold.tape.cut(hold.out.done, end))
    if hold.spilled or quoted:
        hold.spilled = False
        hold.out.text(end)
    else:
        start = hold.out.done
        hold.exact = False
        hold.strip(end, "V10", "a parameter without an invoke")
        hold.out.reject(None, "V10", "a parameter without an invoke", start, end, removed=True)
    hold.decided(end, recovered=0, kept=quoted)


def bound_value(hold: Hold, tag: Tag, offset: int) -> None:
    """A marked opener in the value: nested in it (V26, containers), or the value had no closer (V11)."""
    value = hold.value
    assert value is not None
    if tag.kind is Kind.PARAM_OPEN and value.blank:
        if hold.draft is None or _is_next_wrapped(hold, value):
            _open_wrapped(hold, value, offset)
            return
        tool = hold.judge.tool(hold.draft.name)
        schema = tool.schema(value.name) if tool is not None else None
        if schema is not None and schema.type in ("array", "object"):
            hold.draft.container, hold.value, hold.state = value.name, None, State.INVOKE
            hold.cursor = offset
            return
    end_value(hold, offset, offset, closed=False)


def _is_next_wrapped(hold: Hold, value: OpenValue) -> bool:
    draft, tools = hold.draft, hold.judge.tools
    assert draft is not None
    if not draft.wrapped or tools is None:
        return False
    own = tools.get(draft.name)
    return value.name in tools and not (own is not None and value.name in own.properties)


def _open_wrapped(hold: Hold, value: OpenValue, offset: int) -> None:
    if hold.draft is not None:
        invokes.end_draft(hold, value.opener, value.opener)
    hold.draft = Draft(value.opener, value.start, value.name, marked=True, wrapped=True, end=value.start)
    hold.draft.rows.add("V26")
    hold.value, hold.state = None, State.INVOKE
    hold.standing = True
    hold.cursor = offset


def end_at(hold: Hold, weak: Weak) -> None:
    """The value ends at a tag that stood in it; what follows is read again."""
    closed = weak.tag.kind is Kind.PARAM_CLOSE
    if hold.spilled:
        hold.value = None
        if hold.draft is not None:
            invokes.end_draft(hold, hold.cursor, hold.cursor)
        else:
            _end_orphan(hold, hold.cursor, closed)
        return
    # V11: a nameless closer closes what is open, and that is the parameter
    end = weak.end if closed or not weak.tag.name else weak.at
    end_value(hold, weak.at, end, closed=closed or (hold.draft is None and weak.tag.kind in CLOSERS))
