"""Bytes to HTTP requests, by llhttp: strict where two readers could differ, and bounded everywhere."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import attrs
import httptools

from callboard.codecs.http.head import Head, check_coding, check_once
from callboard.codecs.http.refusal import HttpRefusal

MAX_REMEMBERED: Final = 2048
"""Longest head that is remembered, in bytes."""

MOST_REMEMBERED: Final = 1024
"""Most heads that are remembered; then it begins anew. Two megabytes."""

MAX_IDLE: Final = 4
"""Bytes of empty lines between two requests that are no fault. More of them are a slow head."""


class ParserStage(Enum):
    """Part of a request that is being read. Each has its own timeout."""

    IDLE = "nothing"
    HEAD = "a head"
    BODY = "a body"


class Received(NamedTuple):
    """A whole request. *rest* is what came after an upgrade: it belongs to the other protocol."""

    head: Head
    body: bytes
    rest: bytes | None = None


@attrs.define(eq=False)
class HeadMemory:
    """Heads that were read and admitted before, by their bytes: a client says the same with every request.

    The same bytes get the same decisions, so each is made once. Shared by the connections of a listener.
    """

    _known: dict[bytes, tuple[Head, int]] = attrs.field(factory=dict, init=False)

    def recall(self, data: bytes) -> Received | None:
        """The request that *data* is, if it is a whole one behind a known head."""
        end = data.find(b"\r\n\r\n", 0, MAX_REMEMBERED) + 4
        known = self._known.get(data[:end])
        if known is None or len(data) - end != known[1]:
            return None
        return Received(known[0], data[end:])

    def remember(self, data: bytes, received: Received) -> None:
        """*data* was read as just one request. A head that asks for more than an answer is not remembered."""
        head, end = received.head, len(data) - len(received.body)
        length = head.get(b"content-length")
        plain = length is not None and head.keeps_alive and head.get(b"expect") is None and received.rest is None
        if plain and end <= MAX_REMEMBERED and data.endswith(b"\r\n\r\n", 0, end):
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[data[:end]] = head, len(received.body)


class RequestParser:
    """Cut a byte stream into requests. `on_head` is asked about every head, before its body is read.

    `feed` raises `HttpRefusal`, from `on_head` or its own; then this connection has nothing more to say.
    """

    def __init__(
        self,
        on_head: Callable[[Head], None],
        *,
        max_body: int,
        max_header: int,
        max_headers: int,
        memory: HeadMemory | None = None,
    ) -> None:
        self.stage = ParserStage.IDLE
        self.is_waited_for = False
        """Whether the peer waits for a `100 Continue` before it sends the body."""
        self._on_head = on_head
        self._max_body = max_body
        self._max_header = max_header
        self._max_headers = max_headers
        self._memory = memory
        self._parser = httptools.HttpRequestParser(self)
        self._found: list[Received] = []
        self._is_stirred = False
        self._read_before: Head | None = None
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: Head | None = None
        self._unseen = 0  # bytes that were read since anything came of them
        self._trailer_size = 0
        self._body: bytes | bytearray = b""

    def close(self) -> None:
        """Stop reading, and release everything. May be called twice.

        llhttp's parser holds this one by its callbacks: neither would ever let go of the other.
        """
        self.__dict__.pop("_parser", None)
        self._found = []
        self._begin()

    @property
    def head(self) -> Head | None:
        """The head of the current request, while its body is read."""
        return self._head

    @property
    def held(self) -> int:
        """Bytes of that body so far."""
        return len(self._body)

    @property
    def unfinished(self) -> int:
        """Bytes of a head that has not ended."""
        return self._unseen if self._head is None else 0

    def feed(self, data: bytes) -> Iterable[Received]:
        """Return the requests that *data* completes, in order.

        Raises `HttpRefusal`, at the latest after the last of them: what was whole is answered, wherever the bytes were
        cut.
        """
        starts = self.stage is ParserStage.IDLE and self._memory is not None
        if starts and self._memory is not None and (known := self._memory.recall(data)) is not None:
            return [known]
        refusal = self._read(data)
        found, self._found = self._found, []
        if refusal is not None:
            if not found:
                raise refusal
            return _before(found, refusal)
        if starts and self._memory is not None and len(found) == 1 and self.stage is ParserStage.IDLE:
            self._memory.remember(data, found[0])
        return found

    def _read(self, data: bytes) -> HttpRefusal | None:
        self._is_stirred = False
        try:
            while True:
                try:
                    self._parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    if self._upgrades(data):
                        return None
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, HttpRefusal):
                return error.__context__
            if isinstance(error.__context__, MemoryError):
                raise MemoryError from None  # noqa: TRY004  # it is what a callback raised, and no wrong type
            raise
        except httptools.HttpParserInvalidMethodError:
            return HttpRefusal(501, "method not implemented", closes=True)
        except httptools.HttpParserError as error:
            return HttpRefusal(400, f"invalid HTTP: {error}", closes=True)
        return self._weigh(len(data))

    def _upgrades(self, rest: bytes) -> bool:
        """llhttp stops where a client offers another protocol. Whether that is taken up; if not, it goes on.

        Only a WebSocket is. Java's client offers HTTP/2 with its first request, of any kind, and waits for an
        answer all the same.
        """
        head = self._found.pop().head
        is_offered = head.method == "GET" and (head.get(b"upgrade") or b"").lower() == b"websocket"
        if is_offered and not head.has_body:
            self._found.append(Received(head, b"", rest))
            return True
        # The same request once more, without the offer: so it gets its body.
        kept = (b"content-length", b"transfer-encoding", b"connection")
        lines = [b"%b: %b\r\n" % header for header in head.headers if header[0] in kept]
        again = b"%b / HTTP/%b\r\n%b\r\n" % (head.method.encode(), head.version.encode(), b"".join(lines))
        self._read_before = head
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(again)
        return False

    def _weigh(self, size: int) -> HttpRefusal | None:
        """Bound what is held of a head, of a trailer, or between two chunks: llhttp does not say how much that is."""
        self._unseen = 0 if self._is_stirred else self._unseen + size
        if self.stage is ParserStage.IDLE and self._unseen > MAX_IDLE:
            self.stage = ParserStage.HEAD
        return self._too_long() if self._unseen > self._max_header else None

    def _too_long(self) -> HttpRefusal:
        return HttpRefusal(431, f"request head larger than {self._max_header} bytes", closes=True)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.stage = ParserStage.HEAD

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:
            self._headers.append((name.lower(), value.strip(b" \t")))
            if len(self._headers) > self._max_headers:
                raise HttpRefusal(431, f"more than {self._max_headers} headers", closes=True)
        else:  # what follows a chunked body is not looked at, but weighed
            self._trailer_size += len(name) + len(value) + len(": \r\n")
            if self._trailer_size > self._max_header:
                raise self._too_long()

    def on_headers_complete(self) -> None:
        head, self._read_before = self._read_before, None
        if head is None:
            head = self._checked_head()
        self._head = head
        self._is_stirred = True
        self.stage = ParserStage.BODY
        self.is_waited_for = head.version == "1.1" and (head.get(b"expect") or b"").lower() == b"100-continue"

    def _checked_head(self) -> Head:
        parser, headers = self._parser, self._headers
        version, method = parser.get_http_version(), parser.get_method().decode()
        if version not in ("1.1", "1.0"):
            raise HttpRefusal(505, "HTTP version not supported: use HTTP/1.1", closes=True)
        size = len(f"{method}  HTTP/1.1\r\n\r\n") + len(self._target)
        if size + sum([len(name) + len(value) + len(": \r\n") for name, value in headers]) > self._max_header:
            raise self._too_long()
        check_once(headers)
        # A client of 1.0 cannot be told that its connection goes on.
        head = Head(method, self._target, headers, version, version == "1.1" and bool(parser.should_keep_alive()))
        check_coding(head)
        if method == "CONNECT":
            raise HttpRefusal(501, "this server is not a proxy", closes=True)
        length = head.get(b"content-length")
        if length is not None and int(length) > self._max_body:
            raise HttpRefusal(413, f"body larger than {self._max_body} bytes", closes=True)
        try:
            self._on_head(head)
        except HttpRefusal as refusal:
            refusal.is_bodiless = method == "HEAD"
            raise
        return head

    def on_body(self, data: bytes) -> None:
        self.is_waited_for = False
        self._is_stirred = True
        if len(self._body) + len(data) > self._max_body:
            raise HttpRefusal(413, f"body larger than {self._max_body} bytes", closes=True)
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):  # not a list of pieces: a thousand small chunks weigh more than they say
                self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._found.append(Received(self._head, bytes(self._body)))
            self.stage = ParserStage.IDLE
            self.is_waited_for = False
            self._begin()


def _before(found: list[Received], refusal: HttpRefusal) -> Iterator[Received]:
    yield from found
    raise refusal
