"""Text in many small strings."""

from __future__ import annotations

import sys

from dsml_core.pieces import Pieces


def test_all_of_it_is_there_in_order_and_few_strings_are_kept() -> None:
    pieces, words = Pieces(), [f"{number} " for number in range(10_000)]
    for word in words:
        pieces.add(word)
    assert pieces.text == "".join(words)
    kept = vars(pieces)["_pieces"]
    assert sum(map(sys.getsizeof, kept)) < 2 * len(pieces.text)
    assert pieces.take() == "".join(words)
    assert pieces.text == ""
    pieces.add("more")
    assert pieces.text == "more"
