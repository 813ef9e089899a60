"""The mask of a client's frames: four bytes, over and over, on all of the payload."""

from functools import lru_cache
from typing import Final

PIECE: Final = 16_384
"""Bytes that are masked at once, as one large integer. It must fit into the fastest cache: twice as fast as all."""

LONG: Final = 2048
"""Bytes from which on the mask is worth keeping: a large frame comes in many pieces of one size."""


def masked(payload: bytes, key: bytes) -> bytes:
    """*payload* with the mask on it; or without it, if it is on."""
    size = len(payload)
    if size > PIECE:
        return _in_pieces(payload, key)
    mask = (_kept_mask if size >= LONG else _mask)(key, size)
    return (int.from_bytes(payload, "little") ^ mask).to_bytes(size, "little")


def _mask(key: bytes, size: int) -> int:
    return int.from_bytes((key * (size // 4 + 1))[:size], "little")


_kept_mask: Final = lru_cache(maxsize=2)(_mask)


def _in_pieces(payload: bytes, key: bytes) -> bytes:
    mask, view, whole = _kept_mask(key, PIECE), memoryview(payload), len(payload) // PIECE * PIECE
    pieces = [
        (int.from_bytes(view[at : at + PIECE], "little") ^ mask).to_bytes(PIECE, "little")
        for at in range(0, whole, PIECE)
    ]
    pieces.append(masked(payload[whole:], key))
    return b"".join(pieces)
