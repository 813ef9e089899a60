"""Bytes to HTTP requests, by llhttp: strict where two readers could differ, and bounded everywhere."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

import httptools

from callboard.codecs.http.head import Head, check_coding, check_once
from callboard.codecs.http.head_memory import HeadMemory as HeadMemory
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.pieces import Pieces

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


class RequestParser:
    """Cut a byte stream into requests. `on_head` is asked about every head, before its body is read.

    llhttp reads heads, and bodies in chunks. A body whose length is known needs no parser: its bytes are put together
    here, once.

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
        upgrade: bytes = b"websocket",
    ) -> None:
        self.stage = ParserStage.IDLE
        self.is_waited_for = False
        """Whether the peer waits for a `100 Continue` before it sends the body."""
        self._on_head = on_head
        self._max_body = max_body
        self._max_header = max_header
        self._max_headers = max_headers
        self._memory = memory
        self._upgrade = upgrade
        self._parser = httptools.HttpRequestParser(self)
        self._found: list[Received] = []
        self._is_stirred = False
        self._read_before: Head | None = None
        self._is_amid = False  # llhttp, in a body that it does not get to see
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: Head | None = None
        self._unseen = 0  # bytes that were read since anything came of them
        self._trailer_size = 0
        self._body = Pieces()
        self.missing = 0
        """Bytes that are still to come of a body that is put together without llhttp."""

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
        return self._body.size

    @property
    def unfinished(self) -> int:
        """Bytes of a head that has not ended."""
        return self._unseen if self._head is None else 0

    def feed(self, data: bytes) -> Iterable[Received]:
        """Return the requests that *data* completes, in order.

        Raises `HttpRefusal`, at the latest after the last of them: what was whole is answered, wherever the bytes were
        cut.
        """
        if self.missing:
            return self._put_together(data)
        memory = self._memory if self.stage is ParserStage.IDLE else None
        if memory is not None and (known := memory.recall(data)) is not None:
            head, end, size = known
            left = len(data) - end
            if left == size <= self._max_body and end <= self._max_header:
                return (Received(head, data[end:]),)
            if left < size <= self._max_body and end <= self._max_header:
                self._expect(head, size - left, data[end:])
                return ()
        refusal = self._read(data)
        found, self._found = self._found, []
        if refusal is not None:
            if not found:
                raise refusal
            return _before(found, refusal)
        if memory is not None:
            self._remember(memory, data, found)
        if self.stage is ParserStage.BODY and self._head is not None:
            self._leave_out_llhttp(self._head)
        return found

    def _remember(self, memory: HeadMemory, data: bytes, found: list[Received]) -> None:
        """Remember the head in *data*, if there is just one."""
        if len(found) == 1 and self.stage is ParserStage.IDLE and found[0].rest is None:
            memory.remember(data[: len(data) - len(found[0].body)], found[0].head)
        elif not found and self.stage is ParserStage.BODY and self._head is not None:
            memory.remember(data[: len(data) - self._body.size], self._head)

    def _leave_out_llhttp(self, head: Head) -> None:
        """Put the rest of a body together here, if its length is known and another request may follow it."""
        length = head.get(b"content-length")
        if length is not None and head.keeps_alive and head.get(b"expect") is None and head.get(b"upgrade") is None:
            self.missing = int(length) - self._body.size
            self._is_amid = True

    def _expect(self, head: Head, missing: int, begun: bytes) -> None:
        self._head, self.missing = head, missing
        if begun:
            self._body.add(begun)
        self.stage = ParserStage.BODY

    def _put_together(self, data: bytes) -> Iterable[Received]:
        """Take the next bytes of a body. Behind its last one, another request may have begun."""
        missing, head = self.missing, self._head
        if len(data) < missing or head is None:
            self._body.add(data)
            self.missing -= len(data)
            return ()
        self._body.add(data[:missing])
        received = Received(head, self._body.take())
        if self._is_amid:
            self._is_amid = False
            self._parser = httptools.HttpRequestParser(self)
        self.stage = ParserStage.IDLE
        self._begin()
        if len(data) == missing:
            return (received,)
        try:
            return chain((received,), self.feed(data[missing:]))
        except HttpRefusal as refusal:
            return _before([received], refusal)

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

        Only a WebSocket is, or what else is served there. Java's client offers HTTP/2 with its first request, of any
        kind, and waits for an answer all the same.
        """
        head = self._found.pop().head
        is_offered = head.method == "GET" and (head.get(b"upgrade") or b"").lower() == self._upgrade
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
        if self._body.size + len(data) > self._max_body:
            raise HttpRefusal(413, f"body larger than {self._max_body} bytes", closes=True)
        self._body.add(data)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._found.append(Received(self._head, self._body.take()))
            self.stage = ParserStage.IDLE
            self.is_waited_for = False
            self._begin()


def _before(found: list[Received], refusal: HttpRefusal) -> Iterator[Received]:
    yield from found
    raise refusal
