"""Bytes that come in pieces, put together once."""

from typing import Final

SMALL: Final = 4096
"""Bytes of a piece that is kept as it came. Smaller ones are put together: a thousand weigh more than they say."""

LARGE: Final = 65_536
"""Bytes of small pieces that are put together. More of them would be moved more than once as they grow."""


class Pieces:
    """The pieces so far of something that is not whole yet."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        pieces = self._pieces
        self.size += len(piece)
        if len(piece) >= SMALL or not pieces:
            pieces.append(piece)
        elif isinstance(last := pieces[-1], bytearray) and len(last) < LARGE:
            last += piece
        else:
            pieces.append(bytearray(piece))

    def take(self) -> bytes:
        """All of it, in the one copy that is made. Nothing is left."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], bytes) else b"".join(pieces)
