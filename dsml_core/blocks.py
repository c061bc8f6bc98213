"""What block tags do."""

from __future__ import annotations

import re
from typing import Final

from dsml_core import tails, values
from dsml_core.draft import Draft
from dsml_core.grammar import Kind, Tag
from dsml_core.hold import Block, Hold, State, Tail

_BLOCK_ROWS: Final = {"calls": "V5", "tool_call": "V7", "function_calls": "V8", "tool_calls": "V1"}


def open_block(hold: Hold, tag: Tag, offset: int) -> None:
    """A block opener, or a nameless or unknown one (T2)."""
    tails.leave_tail(hold, offset)
    name = re.sub("[-\\s]", "_", tag.name)
    row = _BLOCK_ROWS.get(name, "W1" if name else "W2")
    sure = tag.marked and tag.kind is Kind.BLOCK_OPEN
    hold.block = Block(offset + tag.length, tag.marked, name, row, sure)
    hold.given_up = False
    hold.state = State.BLOCK


def reopen_block(hold: Hold, tag: Tag, offset: int) -> None:
    """A block opener in a block: noise, or the first one was only mentioned (T2)."""
    assert hold.block is not None
    if hold.block.prose is not None or hold.block.json is not None:
        hold.out.text(offset)
        hold.exact = True
    elif not hold.block.decided and tag.kind is Kind.BARE_OPEN:
        return
    open_block(hold, tag, offset)


def close_block(hold: Hold, tag: Tag, offset: int) -> None:
    """The block's end; what is in it and was not an invoke is judged here."""
    block, end = hold.block, offset + tag.length
    assert block is not None
    hold.cursor = end
    if block.json is not None and block.marked and tag.kind is Kind.BARE_CLOSE and not tag.marked:
        return  # T7: a drift to another dialect closes nothing
    block.marked = block.marked or tag.marked
    named_unknown = bool(block.name) and not block.sure and block.row == "W1"
    if block.json is not None:
        _json_calls(hold, block, offset, end)
    elif block.decided:
        hold.enter_tail(Tail.RESIDUE if block.recovered >= 0 else Tail.QUOTED, end)
    elif block.prose is not None or named_unknown or not block.marked:
        hold.abandon(end)
    else:
        hold.strip(end, "R2", "an empty block")
        hold.enter_tail(Tail.RESIDUE)
    hold.block = None
    if hold.strict and hold.out.deferring and not hold.thought:
        hold.out.remove(end, "V1", "the end of a block")
        hold.end_strict()


def _json_calls(hold: Hold, block: Block, offset: int, end: int) -> None:
    """T11: the block holds JSON objects with a name and arguments."""
    found = values.read_calls(hold.tape.cut(block.body, offset))
    markup = Draft(hold.out.done, block.body, "", block.marked)
    markup.rows.add("I7")
    if not found or not block.marked or hold.judge.is_echo(hold.tape.cut(block.body, offset)):
        hold.out.reject(None, "I7", "no call in it, or the request holds the same", hold.out.done, end, removed=False)
        hold.abandon(end)
        return
    hold.exact = False
    start = hold.out.done
    hold.out.remove(end, "I7", "calls as JSON in a block", found[0][0])
    for name, written in found:
        arguments = values.unwrap(written, hold.judge.tool(name))
        hold.report(name, hold.judge.judge(name, arguments, "no arguments", markup), start, end)
    hold.enter_tail(Tail.RESIDUE)
