"""Bytes to HTTP requests, by llhttp: strict where two readers could differ, and bounded everywhere."""

from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs
import httptools

from callboard.codecs.http.head import Head, check_once
from callboard.codecs.http.refusal import Refusal

MAX_REMEMBERED: Final = 2048
"""Longest head that is remembered, in bytes."""

MOST_REMEMBERED: Final = 1024
"""Most heads that are remembered; then it begins anew. Two megabytes."""

MAX_WAITING: Final = 64
"""Most requests of one connection that are read before the first is answered. Nobody pipelines more."""


class Stage(Enum):
    """What is being read. Each stage has its own patience."""

    IDLE = "nothing"
    HEAD = "a head"
    BODY = "a body"


@attrs.frozen
class Received:
    """A whole request. *rest* is what came after an upgrade: it belongs to the other protocol."""

    head: Head
    body: bytes
    rest: bytes | None = None


@attrs.define(eq=False)
class HeadMemory:
    """Heads that were read and admitted before, by their bytes: a client says the same with every request.

    The same bytes get the same decisions, so nothing of it is worked out twice. Shared by the connections of a door.
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

    `feed` raises `Refusal`, from `on_head` or its own; then this connection has nothing more to say.
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
        self.stage = Stage.IDLE
        self.is_waited_for = False
        """Whether the peer waits for a `100 Continue` before it sends the body."""
        self._on_head = on_head
        self._max_body = max_body
        self._max_header = max_header
        self._max_headers = max_headers
        self._memory = memory
        self._parser = httptools.HttpRequestParser(self)
        self._found: list[Received] = []
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: Head | None = None
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0

    def feed(self, data: bytes) -> list[Received]:
        """Return the requests that *data* completes, in order. Raises `Refusal`."""
        starts = self.stage is Stage.IDLE and self._memory is not None
        if starts and self._memory is not None and (known := self._memory.recall(data)) is not None:
            return [known]
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, Refusal):
                raise cause from None
            raise
        except httptools.HttpParserInvalidMethodError:
            raise Refusal(501, "no such method is known here", closes=True) from None
        except httptools.HttpParserError as error:
            raise Refusal(400, f"not HTTP: {error}", closes=True) from None
        if self.stage is Stage.HEAD:
            self._count(len(data))
        found, self._found = self._found, []
        if starts and self._memory is not None and len(found) == 1 and self.stage is Stage.IDLE:
            self._memory.remember(data, found[0])
        return found

    def _upgraded(self, rest: bytes) -> None:
        """llhttp stops at the end of the head: what follows is another protocol's."""
        head = self._found.pop().head if self._found else None
        if head is None or (head.get(b"upgrade") or b"").lower() != b"websocket":
            raise Refusal(501, "only a WebSocket can be upgraded to", closes=True)
        self._found.append(Received(head, b"", rest))

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._max_header:
            raise Refusal(431, f"a head of more than {self._max_header} bytes", closes=True)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.stage = Stage.HEAD

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._head is None:  # what follows a chunked body is not looked at
            self._headers.append((name.lower(), value.strip(b" \t")))
            if len(self._headers) > self._max_headers:
                raise Refusal(431, f"more than {self._max_headers} headers", closes=True)

    def on_headers_complete(self) -> None:
        parser = self._parser
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refusal(505, "HTTP/1.1 is spoken here", closes=True)
        self._count(len(self._target))
        check_once(self._headers)
        head = Head(
            parser.get_method().decode(), self._target, self._headers, version, bool(parser.should_keep_alive())
        )
        length = head.get(b"content-length")
        if length is not None and int(length) > self._max_body:
            raise Refusal(413, f"a body of more than {self._max_body} bytes", closes=True)
        self._on_head(head)
        self._head = head
        self._head_size = 0
        self.stage = Stage.BODY
        self.is_waited_for = (head.get(b"expect") or b"").lower() == b"100-continue"

    def on_body(self, data: bytes) -> None:
        self.is_waited_for = False
        self._body_size += len(data)
        if self._body_size > self._max_body:
            raise Refusal(413, f"a body of more than {self._max_body} bytes", closes=True)
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._head is None:
            return
        if len(self._found) >= MAX_WAITING:
            raise Refusal(400, "too many requests at once", closes=True)
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._found.append(Received(self._head, body))
        self.stage = Stage.IDLE
        self.is_waited_for = False
        self._begin()
