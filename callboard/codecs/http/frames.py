"""Frames of HTTP/2, as far as a clock needs to know them. Bytes in, one fact out: is a head being sent?"""

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The preface of an HTTP/2 client. No HTTP/1 request starts with it."""

_FRAME_HEAD: Final = 9
_DATA: Final = 0
_HEADERS: Final = 1
_CONTINUATION: Final = 9
_END_HEADERS: Final = 0x4


def may_be_http2(data: bytes) -> bool | None:
    """Whether a connection that begins with *data* speaks HTTP/2; None if more bytes are needed."""
    if data.startswith(PREFACE):
        return True
    return None if PREFACE.startswith(data) else False


class FrameMeter:
    """Follows the frames of one connection, preface included.

    A head may come in any number of frames, and a frame in any number of pieces. The library that reads them tells of a
    request when its head is whole, and so cannot bound how long that takes.
    """

    def __init__(self) -> None:
        self._to_skip = len(PREFACE)
        self._kind = _DATA
        self._partial = b""
        self._block_is_open = False

    def feed(self, data: bytes) -> None:
        at = 0
        while True:
            skipped = min(self._to_skip, len(data) - at)
            self._to_skip -= skipped
            at += skipped
            if self._to_skip or at == len(data):
                return
            wanted = _FRAME_HEAD - len(self._partial)
            self._partial += data[at : at + wanted]
            at += wanted
            if len(self._partial) < _FRAME_HEAD:
                return
            head, self._partial = self._partial, b""
            self._to_skip, self._kind = int.from_bytes(head[:3], "big"), head[3]
            if self._kind in (_HEADERS, _CONTINUATION):
                self._block_is_open = not head[4] & _END_HEADERS

    @property
    def is_in_head(self) -> bool:
        """Whether the client has begun something other than a body, and has not finished it."""
        return self._block_is_open or bool(self._partial) or (self._to_skip > 0 and self._kind != _DATA)
