"""The tape gives any part of the text it still holds, however that was added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsml_core.tape import LOOK_BACK, Tape

steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "pass by", "drop", "cut"]), st.integers(0, 300), st.floats(0, 1), st.floats(0, 1)
    ),
    max_size=40,
)


@given(steps)
def test_any_part_can_be_cut(taken: list[tuple[str, int, float, float]]) -> None:
    tape, whole, decided = Tape(), "", 0
    for what, number, first, second in taken:
        if what == "add":
            for at in range(number):
                piece = chr(97 + at % 26) * (at % 4)
                tape.add(piece)
                whole += piece
        elif what == "pass by" and decided == tape.end:
            piece = "z" * number
            tape.pass_by(piece)
            whole += piece
            decided = len(whole)
        elif what == "drop":
            decided += int(first * (len(whole) - decided))
            tape.drop(decided)
        start, end = sorted(tape.start + int(share * (tape.end - tape.start)) for share in (first, second))
        assert (tape.end, tape.cut(start, end)) == (len(whole), whole[start:end])
        assert tape.start <= max(0, decided - LOOK_BACK)
        assert tape.cut(tape.start, tape.end) == whole[tape.start :]
