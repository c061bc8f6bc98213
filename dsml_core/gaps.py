"""What is no tag where tags are expected."""

from __future__ import annotations

from dsml_core import tails
from dsml_core.grammar import Tag
from dsml_core.hold import Hold, State
from dsml_core.jsontext import JsonStrings


def junk(hold: Hold, offset: int, char: str) -> bool:
    """Something that is no tag stands at `offset`, between tags; True where that changes the state."""
    if hold.state is State.TAIL:
        tails.end_tail(hold, offset)
        hold.to_prose(offset)
        return True
    if hold.state is State.WAIT:
        hold.abandon(offset)
        return True
    if hold.state is State.BLOCK:
        return _junk_in_block(hold, offset, char)
    draft = hold.draft
    assert draft is not None
    if draft.junk:
        return False
    draft.junk = True
    draft.holding = draft.holding or char == "{"
    if char in "{`~":
        draft.json = JsonStrings(protects=not hold.second)
    if not draft.marked and not draft.params and char != "{":
        hold.abandon(offset)
        return True
    return False


def _junk_in_block(hold: Hold, offset: int, char: str) -> bool:
    block = hold.block
    assert block is not None
    if block.decided:
        hold.left_block = block.recovered > 0
        hold.abandon(offset)
        return True
    if block.json or block.prose is not None:
        return False
    if char in "{[`~" and (block.sure or not block.marked):
        block.json = JsonStrings(protects=not hold.second)
        return False
    if not block.sure:
        hold.abandon(offset)
        return True
    block.prose, hold.exact = offset, False
    return False


def unfit(hold: Hold, tag: Tag) -> bool:
    """A tag that shows the open wrapper to be none (T2, B1)."""
    block = hold.block
    if hold.state is not State.BLOCK or block is None or block.decided or tag.marked:
        return False
    return (block.marked and not block.sure) or not block.evidence
