"""Newline framing. Bytes in, frames out: no I/O, no clock, no tasks.

One frame per line, as stdio and plain sockets carry them. What a frame means is decided elsewhere.
"""

import re
from typing import Final, TypeAlias

import attrs

from callboard.codecs.pieces import Pieces
from callboard.errors import FrameTooLarge

MAX_ANSWER: Final = 24 * 1024 * 1024
"""Largest response, in bytes: a file of 16 MiB, as a skill may have one, is 22.4 MiB in Base64. What is larger than
8 MiB must be little else than that: see `json_scan.check_large`."""

MAX_FRAME: Final = 4 * 1024 * 1024
"""Largest accepted frame, in bytes. Same as the reference SDK's HTTP body limit."""

Line: TypeAlias = bytes | FrameTooLarge
"""A frame, or the notice that stands in its place because it passed the limit."""

_BLANK: Final = b" \t\r"
_BLANK_LINES: Final = re.compile(rb"\n[ \t\r\n]*\n")
_MANY: Final = 64  # lines of one read that are looked for one by one, blank ones too


@attrs.define(eq=False)
class LineDecoder:
    """Cut a byte stream into frames, never holding more than one frame's limit.

    A frame over the limit is not kept: a `FrameTooLarge` takes its place in the sequence as soon as the limit
    is passed, the rest of the line is skipped, and the next line is decoded as if nothing had happened.
    """

    limit: int = MAX_FRAME
    _partial: Pieces = attrs.field(factory=Pieces, init=False)
    _skipping: bool = attrs.field(default=False, init=False)

    @property
    def buffered(self) -> int:
        """Bytes held back until their newline arrives: at most `limit` and one carriage return."""
        return self._partial.size

    def feed(self, data: bytes) -> list[Line]:
        """Return the frames that *data* completes, in order.

        A line of any length costs some 0.3 us, and next to nothing if it is blank: feed what one read returned.
        """
        found: list[Line] = []
        start, size = 0, len(data)
        for _ in range(_MANY):  # in a long line `find` is twenty times as fast as `split`
            newline = data.find(b"\n", start)
            if newline < 0:
                self._hold(data[start:], found)
                return found
            self._hold(data[start:newline], found)
            self._end(found)
            start = newline + 1
            if start == size:
                return found
        # A read may hold nothing but blank lines. bytes.split, not splitlines: \r, \x0b, \x85 and U+2028 may sit inside
        # a frame.
        *ended, rest = without_blank(data[start:]).split(b"\n")
        for piece in ended:
            if self._partial.size or self._skipping or len(piece) > self.limit:
                self._hold(piece, found)
                self._end(found)
            elif piece.strip(_BLANK):  # a whole line, as all but the first are
                found.append(piece.removesuffix(b"\r"))
        self._hold(rest, found)
        return found

    def finish(self) -> list[Line]:
        """Return the unfinished last line, if any, as a frame: its sender wrote no newline before the end.

        Nothing is guessed: a JSON object ends with its brace, so a torn one cannot pass for a whole one.
        """
        found: list[Line] = []
        self._end(found)
        return found

    def _hold(self, piece: bytes, found: list[Line]) -> None:
        if self._skipping or not piece:
            return
        size = self._partial.size + len(piece)
        # One byte more may be the carriage return of a frame that just fits.
        if size <= self.limit or (size == self.limit + 1 and piece.endswith(b"\r")):
            self._partial.add(piece)
            return
        self._partial.take()
        self._skipping = True
        found.append(FrameTooLarge("frame", limit=self.limit))

    def _end(self, found: list[Line]) -> None:
        frame = self._partial.take().removesuffix(b"\r")
        self._skipping = False
        if frame.strip(_BLANK):
            found.append(frame)


def without_blank(data: bytes) -> bytes:
    """*data* without its blank lines, but for one at its beginning, which may end what came before."""
    return _BLANK_LINES.sub(b"\n", data)


def encode_line(frame: bytes) -> bytes:
    """End *frame* with its newline. Raises ValueError if it holds one already: that would be two frames."""
    if b"\n" in frame:
        raise ValueError("a frame with a newline inside cannot be sent as one line")
    return frame + b"\n"


def flatten(json: bytes) -> bytes:
    """Return valid *json* on one line, so that a pretty-printed HTTP body can be passed on over stdio.

    JSON forbids raw control characters in strings, so every raw newline is white space between tokens.
    """
    return json.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in json else json


def as_line(json: bytes) -> bytes:
    """Valid *json* as the line that it is sent as."""
    return (flatten(json) if b"\n" in json else json) + b"\n"
