"""The table of transitions: what each kind of tag does in each state.

A pair that is not there does nothing: in prose such a tag is text, between tags it is noise.
Actions move offsets and decide text; they never see how the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dsml_core import blocks, invokes, params, tails
from dsml_core.grammar import Kind, Tag
from dsml_core.hold import Hold, State

_SPACED: Final = re.compile("[|\uff5c] \\w")  # R3

Action = Callable[[Hold, Tag, int], None]
TABLE: Final[dict[tuple[State, Kind], Action]] = {
    (State.PROSE, Kind.BLOCK_OPEN): blocks.open_block,
    (State.PROSE, Kind.BARE_OPEN): blocks.open_block,
    (State.PROSE, Kind.INVOKE_OPEN): invokes.open_invoke,
    (State.PROSE, Kind.PARAM_OPEN): params.open_param,
    (State.PROSE, Kind.BLOCK_CLOSE): tails.start_tail,
    (State.PROSE, Kind.INVOKE_CLOSE): tails.start_tail,
    (State.PROSE, Kind.PARAM_CLOSE): tails.start_tail,
    (State.PROSE, Kind.BARE_CLOSE): tails.start_tail,
    (State.PROSE, Kind.END_TOKEN): tails.start_tail,
    (State.TAIL, Kind.BLOCK_OPEN): blocks.open_block,
    (State.TAIL, Kind.BARE_OPEN): blocks.open_block,
    (State.TAIL, Kind.INVOKE_OPEN): invokes.open_invoke,
    (State.TAIL, Kind.PARAM_OPEN): params.open_param,
    (State.TAIL, Kind.BLOCK_CLOSE): tails.go_on_tail,
    (State.TAIL, Kind.INVOKE_CLOSE): tails.go_on_tail,
    (State.TAIL, Kind.PARAM_CLOSE): tails.go_on_tail,
    (State.TAIL, Kind.BARE_CLOSE): tails.go_on_tail,
    (State.TAIL, Kind.END_TOKEN): tails.go_on_tail,
    (State.BLOCK, Kind.BLOCK_OPEN): blocks.reopen_block,
    (State.BLOCK, Kind.BARE_OPEN): blocks.reopen_block,
    (State.BLOCK, Kind.INVOKE_OPEN): invokes.open_invoke,
    (State.BLOCK, Kind.PARAM_OPEN): params.open_param,
    (State.BLOCK, Kind.BLOCK_CLOSE): blocks.close_block,
    (State.BLOCK, Kind.BARE_CLOSE): blocks.close_block,
    (State.INVOKE, Kind.BLOCK_OPEN): invokes.block_in_invoke,
    (State.INVOKE, Kind.INVOKE_OPEN): invokes.next_invoke,
    (State.INVOKE, Kind.PARAM_OPEN): params.open_param,
    (State.INVOKE, Kind.BLOCK_CLOSE): invokes.close_all,
    (State.INVOKE, Kind.INVOKE_CLOSE): invokes.close_invoke,
    (State.INVOKE, Kind.BARE_CLOSE): invokes.close_invoke,
    (State.INVOKE, Kind.PARAM_CLOSE): params.close_param,
    (State.WAIT, Kind.INVOKE_OPEN): invokes.wait_invoke,
    (State.WAIT, Kind.BLOCK_CLOSE): invokes.accept_waiting,
}


def take(hold: Hold, tag: Tag, offset: int) -> bool:
    """Do what `tag` at `offset` does in this state; False where it does nothing."""
    action = TABLE.get((hold.state, tag.kind))
    if action is None:
        return False
    hold.cursor = offset + tag.length
    if hold.strict:
        hold.exact = _keeps_grammar(hold, tag, offset)
    hold.standing = hold.standing or tag.marked
    hold.saw_syntax = hold.saw_syntax or tag.marked or tag.kind in (Kind.BLOCK_OPEN, Kind.BLOCK_CLOSE)
    action(hold, tag, offset)
    return True


def _keeps_grammar(hold: Hold, tag: Tag, offset: int) -> bool:
    """R3: one official grammar throughout, `calls` with a blank in front of all names, or another wrapper without."""
    spaced = _SPACED.search(hold.tape.cut(offset, offset + tag.length)) is not None
    if tag.kind is Kind.BLOCK_OPEN:
        hold.wrapper = tag.name
    same = spaced is (hold.wrapper == "calls") and (tag.kind is not Kind.BLOCK_CLOSE or tag.name == hold.wrapper)
    first = tag.kind is Kind.BLOCK_OPEN and hold.state in (State.PROSE, State.TAIL)
    return same and (hold.exact or first)
