"""Pieces of any sizes, in order, are the whole; and they weigh what they say."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.pieces import LARGE, SMALL, Pieces

sizes = st.sampled_from([0, 1, 7, SMALL - 1, SMALL, SMALL + 1, LARGE])


@given(st.lists(sizes, max_size=30))
def test_pieces_are_put_together_in_their_order(wanted: list[int]) -> None:
    pieces, given_ = Pieces(), [bytes([number]) * size for number, size in enumerate(wanted)]
    for number, piece in enumerate(given_, 1):
        pieces.add(piece)
        assert pieces.size == sum(wanted[:number])
    assert pieces.take() == b"".join(given_)
    assert (pieces.size, pieces.take()) == (0, b"")


def test_a_single_piece_is_not_copied() -> None:
    pieces, piece = Pieces(), b"x" * 10
    pieces.add(piece)
    assert pieces.take() is piece


def test_many_small_pieces_are_few_objects() -> None:
    pieces, before = Pieces(), sys.getallocatedblocks()
    for _ in range(100_000):
        pieces.add(b"x")
    assert sys.getallocatedblocks() - before < 100
    assert pieces.take() == b"x" * 100_000
