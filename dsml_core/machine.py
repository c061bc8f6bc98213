"""The table of transitions: what each kind of tag does in each state.

A pair that is not there does nothing: in prose such a tag is text, between tags it is noise.
Actions move offsets and decide text; they never see how the text was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dsml_core import blocks, invokes, params, tails
from dsml_core.grammar import Kind, Tag
from dsml_core.hold import Hold, State

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
    hold.standing = hold.standing or tag.marked
    hold.saw_syntax = hold.saw_syntax or tag.marked or tag.kind in (Kind.BLOCK_OPEN, Kind.BLOCK_CLOSE)
    action(hold, tag, offset)
    return True
