"""What invoke tags do, and block tags in an invoke."""

from __future__ import annotations

from dsml_core import blocks, tails
from dsml_core.draft import BY_POLICY, Draft, Param
from dsml_core.grammar import Kind, Tag
from dsml_core.hold import Hold, State, Tail
from dsml_core.jsontext import begins_as_json


def open_invoke(hold: Hold, tag: Tag, offset: int) -> None:
    """An invoke opener outside of an invoke."""
    tails.leave_tail(hold, offset)
    hold.given_up = False
    hold.draft = Draft.opened_by(tag, offset)
    hold.state, hold.cursor = State.INVOKE, offset + tag.length
    if hold.block is None:
        hold.draft.rows.add("V9")
    else:
        hold.draft.marked = hold.draft.marked or hold.block.marked
    if tag.self_closing:
        end_draft(hold, offset + tag.length, offset + tag.length)


def next_invoke(hold: Hold, tag: Tag, offset: int) -> None:
    """An invoke opener in an invoke: its value in `string=` makes it a parameter (I4), else it ends that one (I1)."""
    draft = hold.draft
    assert draft is not None
    if tag.value_in_attribute and not tag.tool:
        name = tag.attrs.get("name", "")
        draft.params.append(Param(name, True, offset, offset, value=tag.attrs["string"]))
        draft.end = offset + tag.length
        draft.rows.add("I4")
        draft.holding = True
        return
    draft.repeated = not draft.params and tag.attrs.get("name", "").strip() == draft.name
    _cut_off(hold, offset, "I1")
    open_invoke(hold, tag, offset)


def block_in_invoke(hold: Hold, tag: Tag, offset: int) -> None:
    """A block opener in an invoke: the invoke was never closed (V16)."""
    draft = hold.draft
    assert draft is not None
    if draft.params and not hold.spilled:
        hold.strip(draft.written(offset), "V16", "an invoke that is not closed", draft.name)
    hold.out.text(offset)
    hold.to_prose(offset + tag.length)
    hold.standing = tag.marked
    blocks.open_block(hold, tag, offset)


def _cut_off(hold: Hold, offset: int, row: str) -> None:
    """The invoke ends where the next begins; one that only prose follows was a mention."""
    draft = hold.draft
    assert draft is not None
    if draft.junk and not draft.params and not begins_as_json(hold.tape.cut(draft.body, offset)):
        hold.out.text(offset)
        hold.draft = None
        hold.state = State.BLOCK if hold.block is not None else State.TAIL
        return
    draft.rows.add(row)
    end_draft(hold, offset, offset)


def close_invoke(hold: Hold, tag: Tag, offset: int) -> None:
    """The closer of an invoke, also an abbreviated or nameless one (I2)."""
    assert hold.draft is not None
    if tag.kind is Kind.BARE_CLOSE and not tag.marked:
        return  # T7: a drift to another dialect closes nothing
    hold.draft.marked = hold.draft.marked or tag.marked
    if tag.kind is Kind.BARE_CLOSE and tag.name:
        close_all(hold, tag, offset)
        return
    end_draft(hold, offset, offset + tag.length)


def close_all(hold: Hold, tag: Tag, offset: int) -> None:
    """A block closer in an invoke ends both (I2)."""
    assert hold.draft is not None
    hold.draft.marked = hold.draft.marked or tag.marked
    hold.draft.rows.add("I2")
    if hold.block is None:
        end_draft(hold, offset, offset + tag.length)
        return
    end_draft(hold, offset, offset)
    if hold.state is State.WAIT:
        accept_waiting(hold, tag, offset)
    else:
        blocks.close_block(hold, tag, offset)


def end_draft(hold: Hold, body_end: int, end: int) -> None:
    """The invoke is over: judge it now, or wait for evidence where nothing of it is marked (B1)."""
    draft = hold.draft
    assert draft is not None
    hold.draft = None
    if hold.spilled:
        hold.spilled = False
        _leave(hold, end)
        return
    evidence = draft.marked or draft.typed or (hold.block is not None and hold.block.evidence)
    if not evidence:
        hold.waiting.append((draft, body_end))
        hold.state = State.WAIT
        return
    settle(hold, draft, body_end, end)


def settle(hold: Hold, draft: Draft, body_end: int, end: int) -> None:
    """Judge a draft and decide its text."""
    verdict = hold.judge.decide(draft, body_end, hold.tape.cut)
    block = hold.block
    if block is not None:
        draft.rows.add(block.row)
    if not verdict.removed:
        hold.out.reject(draft.name, verdict.row, verdict.reason, draft.start, end, removed=False)
        _leave(hold, end)
        return
    if block is not None and block.prose is not None and not block.decided:
        hold.out.remove(block.body, "T2", "a block opener")
        hold.out.text(draft.start)
    start = hold.out.done
    hold.strip(end, draft.row if verdict.call else verdict.row, verdict.reason or "a tool call", draft.name)
    hold.exact = hold.exact and draft.exact and (verdict.call or verdict.row in BY_POLICY)
    hold.report(draft.name, verdict, start, end, row=draft.row)
    hold.decided(end, recovered=int(verdict.call))


def _leave(hold: Hold, end: int) -> None:
    """The invoke stays in the text up to `end`, and the closer of a block that holds nothing else stays with it."""
    hold.out.text(end)
    if hold.block is not None and not hold.block.decided:
        hold.block.recovered = -1
    hold.decided(end, recovered=0, kept=True)


def accept_waiting(hold: Hold, tag: Tag, offset: int) -> None:
    """A block closer behind unmarked invokes: they were in a block whose opener was lost."""
    waiting, hold.waiting = hold.waiting, []
    kept = []
    for draft, body_end in waiting:
        draft.rows.add("B1")
        draft.marked = draft.marked or tag.marked
        settle(hold, draft, body_end, min(hold.tape.end, _end_of(hold, draft, waiting, offset)))
        kept.append(hold.tail is Tail.QUOTED)
    hold.enter_tail(Tail.QUOTED if all(kept) else Tail.RESIDUE, offset + tag.length)


def _end_of(hold: Hold, draft: Draft, waiting: list[tuple[Draft, int]], offset: int) -> int:
    later = [other.start for other, _ in waiting if other.start > draft.start]
    return min(later, default=offset)


def wait_invoke(hold: Hold, tag: Tag, offset: int) -> None:
    """One more unmarked invoke behind a waiting one."""
    hold.draft = Draft.opened_by(tag, offset)
    hold.state = State.INVOKE
