"""Bytes to HTTP answers, by llhttp: the client's side of what `parser` is for a server."""

from enum import Enum
from typing import Final, TypeAlias

import attrs
import httptools

from callboard.codecs.http.head import HeaderList
from callboard.errors import BadAnswer

MAX_HEAD: Final = 64 * 1024
"""Largest head of an answer, in bytes."""

MOST_REMEMBERED: Final = 256
"""Most heads of answers that are remembered; then it begins anew."""


@attrs.frozen(eq=False)
class AnswerHead:
    """Status and headers. Names are lower case."""

    status: int
    headers: HeaderList
    keeps_alive: bool = True
    media_type: bytes = attrs.field(init=False, repr=False)
    is_open_ended: bool = attrs.field(init=False, repr=False)
    """Whether the end of the connection is the end of the body."""
    _first: dict[bytes, bytes] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        first = dict(reversed(self.headers))
        kind = first.get(b"content-type", b"").partition(b";")[0].strip().lower()
        object.__setattr__(self, "_first", first)
        object.__setattr__(self, "media_type", kind)
        object.__setattr__(self, "is_open_ended", first.keys().isdisjoint((b"content-length", b"transfer-encoding")))

    def get(self, name: bytes) -> bytes | None:
        """The value of a header, by its lower-case name: of several the first."""
        return self._first.get(name)


class End(Enum):
    """The end of an answer."""

    END = "end"


END: Final = End.END
Event: TypeAlias = AnswerHead | bytes | End
KnownHeads: TypeAlias = dict[bytes, tuple[AnswerHead, int]]
"""Heads by their bytes, each with the length of its body."""


class AnswerParser:
    """Cut a byte stream into answers: for each its head, pieces of its body, and the end.

    `feed` raises `BadAnswer`; then this connection has nothing more to say that could be believed.

    One that *may_switch* to another protocol gives the head of the 101, and all that came behind it. Heads that were
    read before are *known*: the connections to one server share them.
    """

    def __init__(self, known: KnownHeads | None = None, *, may_switch: bool = False) -> None:
        self._may_switch = may_switch
        self._parser = httptools.HttpResponseParser(self)
        self._found: list[Event] = []
        self._known: KnownHeads = {} if known is None else known
        self._is_between = True
        self._begin()

    def _begin(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._has_head = False

    def feed(self, data: bytes) -> list[Event]:
        """Return what *data* holds, in order. Raises `BadAnswer`."""
        starts = self._is_between
        if starts and (known := self._recall(data)) is not None:
            return known
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if not self._may_switch:
                raise BadAnswer("the server switched to another protocol") from None
            head = next(found for found in reversed(self._found) if isinstance(found, AnswerHead))
            return [head, data[switched.args[0] :]]
        except httptools.HttpParserCallbackError as error:
            raise BadAnswer(str(error.__context__)) from None
        except httptools.HttpParserError as error:
            raise BadAnswer(f"invalid HTTP: {error}") from None
        if not self._has_head and not self._is_between:
            self._count(len(data))
        found, self._found = self._found, []
        if starts and self._is_between:
            self._remember(data, found)
        return found

    def _recall(self, data: bytes) -> list[Event] | None:
        """An answer behind a head that was read before: servers say the same with every one."""
        end = data.find(b"\r\n\r\n", 0, 1024) + 4
        known = self._known.get(data[:end])
        if known is None or len(data) - end != known[1]:
            return None
        return [known[0], data[end:], END]

    def _remember(self, data: bytes, found: list[Event]) -> None:
        match found:
            case [AnswerHead(keeps_alive=True) as head, bytes(body), End.END] if (
                head.get(b"content-length") is not None
            ):
                end = len(data) - len(body)
                if end <= 1024 and data.endswith(b"\r\n\r\n", 0, end):
                    if len(self._known) >= MOST_REMEMBERED:
                        self._known.clear()
                    self._known[data[:end]] = head, len(body)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise BadAnswer(f"response head larger than {MAX_HEAD} bytes")

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._is_between = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if not self._has_head:
            self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._has_head = True
        parser = self._parser
        self._found.append(AnswerHead(parser.get_status_code(), self._headers, bool(parser.should_keep_alive())))

    def on_body(self, data: bytes) -> None:
        self._found.append(data)

    def on_message_complete(self) -> None:
        self._found.append(END)
        self._is_between = True
        self._begin()
