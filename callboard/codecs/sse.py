"""Server-Sent Events, both directions, by the algorithm of the WHATWG.

A stream is lines, lines make events, an event carries one frame. An event that cannot be delivered (too large,
or not UTF-8) does not end the stream: the reason takes its place in the sequence, and after the next blank line
all is as before.
"""

from typing import Final, TypeAlias

import attrs

from callboard.codecs.lines import MAX_FRAME
from callboard.codecs.pieces import Pieces
from callboard.errors import FrameTooLarge, ParseError

MAX_FIELD: Final = 1024
"""Longest `id` or `event` value, in bytes. An id must fit the `Last-Event-ID` header of a later request."""

MAX_RETRY: Final = 60 * 60 * 1000
"""Longest reconnection time, in milliseconds. A larger `retry` is read as this: a client must obey it."""

_LINE_ROOM: Final = len(b"data: ") + 3  # a line is a frame, its field name, and at the stream's start a BOM
_BOM: Final = "\ufeff".encode()
_DATA: Final = b"data: "


@attrs.frozen
class Event:
    """One event as it was dispatched.

    `data` is empty when the event only tells its id, as the first event of a 2025-11-25 stream does.
    `id` is the last event id in force, "" for none.
    """

    data: bytes
    event: str = "message"
    id: str = ""


Item: TypeAlias = Event | FrameTooLarge | ParseError


@attrs.define(eq=False)
class EventDecoder:
    """Turn a byte stream into events. An event that the stream's end cuts off is dropped, with its id.

    `comments` counts comment lines, so that a keep-alive can be seen; `retry` is the last reconnection time,
    in milliseconds; `last_event_id` is what a resuming client must send.
    """

    limit: int = MAX_FRAME
    comments: int = attrs.field(default=0, init=False)
    retry: int | None = attrs.field(default=None, init=False)
    last_event_id: str = attrs.field(default="", init=False)
    _line: Pieces = attrs.field(factory=Pieces, init=False)
    _data: bytes | bytearray | None = attrs.field(default=None, init=False)
    _event: str = attrs.field(default="", init=False)
    _id: str | None = attrs.field(default=None, init=False)
    _at_start: bool = attrs.field(default=True, init=False)
    _after_cr: bool = attrs.field(default=False, init=False)
    _refused: bool = attrs.field(default=False, init=False)

    @property
    def buffered(self) -> int:
        """Bytes held of an event that is not complete."""
        return self._line.size + len(self._data or b"")

    def feed(self, data: bytes) -> list[Item]:
        """Return the events that *data* completes, in order.

        A line of any length costs some 0.4 us: feed what one read returned (64 KiB of newlines take 25 ms).
        """
        found: list[Item] = []
        if not data:
            return found
        # A \r ends its line at once; a \n after it, even in the next chunk, belongs to the same ending.
        half = self._after_cr and data.startswith(b"\n")
        self._after_cr = data.endswith(b"\r")
        data = _unified(data[1:] if half else data)
        if b"\n" not in data:  # which takes a thirtieth of the time of a split, and a large event has many such pieces
            self._hold(data, found)
            return found
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._hold(piece, found)
            self._end_line(found)
        self._hold(rest, found)
        return found

    def _hold(self, piece: bytes, found: list[Item]) -> None:
        if not piece:
            return
        if self._refused:
            if not self._line.size:
                self._line.add(piece[:1])  # enough to tell a blank line from another
        elif self._line.size + len(piece) > self.limit + _LINE_ROOM:
            self._refuse(FrameTooLarge("line of an event stream", limit=self.limit), found)
            self._line.add(piece[:1])
        else:
            self._line.add(piece)

    def _end_line(self, found: list[Item]) -> None:
        line = self._line.take()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(found)
        elif not self._refused:
            self._read_field(line, found)

    def _read_field(self, line: bytes, found: list[Item]) -> None:
        if not _is_utf8(line):
            self._refuse(ParseError("an event stream must be UTF-8"), found)
            return
        if line.startswith(_DATA):
            self._add_data(line[len(_DATA) :], found)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value, found)
        elif not name:
            self.comments += 1
        elif name == b"retry":
            self.retry = _milliseconds(value, self.retry)
        elif name in (b"id", b"event"):
            self._set_text(name, value, found)

    def _add_data(self, value: bytes, found: list[Item]) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n" + value
        if len(self._data) > self.limit:
            self._refuse(FrameTooLarge("event", limit=self.limit), found)

    def _set_text(self, name: bytes, value: bytes, found: list[Item]) -> None:
        if len(value) > MAX_FIELD:
            self._refuse(FrameTooLarge(f"{name.decode()} of an event", limit=MAX_FIELD), found)
        elif name == b"event":
            self._event = value.decode()
        elif b"\0" not in value:
            self._id = value.decode()

    def _dispatch(self, found: list[Item]) -> None:
        if self._id is not None:
            self.last_event_id = self._id
        # The WHATWG drops an event without data; ours still tells its id, which MCP's polling needs noticed.
        if self._data is not None or self._id is not None:
            found.append(Event(bytes(self._data or b""), self._event or "message", self.last_event_id))
        self._forget()
        self._refused = False

    def _refuse(self, reason: FrameTooLarge | ParseError, found: list[Item]) -> None:
        found.append(reason)
        self._forget()
        self._line.take()
        self._refused = True

    def _forget(self) -> None:
        self._data, self._event, self._id = None, "", None


def encode_event(
    data: bytes, *, event_id: str | None = None, event: str | None = None, retry: int | None = None
) -> bytes:
    """Write one event. Every kind of newline in *data* becomes a line of its own, and is read back as \\n.

    Raises ValueError for an id or event name that could not be read back: a newline or NUL inside, or too
    long.
    """
    if b"\n" in data or b"\r" in data:
        data = _unified(data).replace(b"\n", b"\ndata: ")
    if event is None and event_id is None and retry is None:
        return b"data: %b\n\n" % data
    head = b"" if event is None else b"event: " + _field(event or "message")
    head += b"" if event_id is None else b"id: " + _field(event_id)
    head += b"" if retry is None else b"retry: %d\n" % max(0, min(retry, MAX_RETRY))
    return b"%bdata: %b\n\n" % (head, data)


def encode_comment(text: str = "") -> bytes:
    """Write a comment, which receivers ignore: a keep-alive."""
    return b": " + _unified(text.encode()).replace(b"\n", b"\n: ") + b"\n\n"


def _field(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > MAX_FIELD or any(byte in encoded for byte in b"\r\n\0"):
        raise ValueError("an id or event name must be short and hold no newline or NUL")
    return encoded + b"\n"


def _unified(data: bytes) -> bytes:
    """Spell every line ending as \\n."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _is_utf8(line: bytes) -> bool:
    try:
        return line.isascii() or bool(line.decode())
    except UnicodeDecodeError:
        return False


def _milliseconds(value: bytes, otherwise: int | None) -> int | None:
    """Read a `retry` value; one that is not all ASCII digits is ignored."""
    if not value.isdigit():
        return otherwise
    digits = value.lstrip(b"0")
    return min(int(digits or b"0"), MAX_RETRY) if len(digits) <= len(str(MAX_RETRY)) else MAX_RETRY
