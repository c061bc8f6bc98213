"""Runs of closers and end tokens (T8, T9)."""

from __future__ import annotations

from dsml_core.grammar import Kind, Tag
from dsml_core.hold import Hold, State, Tail


def start_tail(hold: Hold, tag: Tag, offset: int) -> None:
    """A closer or an end token in prose (T8, T9)."""
    hold.enter_tail(Tail.RESIDUE if hold.left_block else Tail.STRAY)
    hold.left_block = hold.left_block and tag.kind is not Kind.BLOCK_CLOSE
    go_on_tail(hold, tag, offset)


def go_on_tail(hold: Hold, tag: Tag, offset: int) -> None:
    """One more of the run; plain closers only behind a block."""
    known = tag.marked and not (tag.kind is Kind.BARE_CLOSE and tag.name)
    if not known and tag.kind is not Kind.END_TOKEN and hold.tail is Tail.STRAY:
        end_tail(hold, offset)
        hold.to_prose(offset)
        hold.out.text(offset + tag.length)
        hold.cursor = offset + tag.length
        return
    hold.given_up = hold.given_up and tag.kind is Kind.PARAM_CLOSE
    hold.tail_end = offset + tag.length
    hold.tail_closers = hold.tail_closers or tag.kind is not Kind.END_TOKEN
    hold.standing = tag.marked or hold.standing


def leave_tail(hold: Hold, offset: int) -> None:
    """An opener behind the run: residue goes, end tokens and stray closers go with what follows."""
    if hold.state is State.TAIL and hold.tail is not Tail.STRAY:
        end_tail(hold, offset)


def end_tail(hold: Hold, offset: int) -> None:
    """Decide the run; text up to `offset` follows it."""
    forbidden = hold.standing and not hold.judge.policy.calls
    if hold.tail_end is not None and (hold.tail is Tail.RESIDUE or forbidden):
        hold.strip(hold.tail_end, "T8", "closers behind a block")
    hold.out.text(offset)
    hold.tail_end = None
