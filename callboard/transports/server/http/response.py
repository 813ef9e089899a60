"""One answer on its way to an HTTP client: whole, or as a stream."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import trio

from callboard.actors.outlet import Carrier
from callboard.actors.shares import LOCAL
from callboard.codecs.http.writer import LAST_CHUNK, STREAM, write_answer, write_chunk, write_head, write_json
from callboard.errors import InsufficientScope
from callboard.transports.held import HeldBytes
from callboard.transports.wire import Wire

ScopeHeaders: TypeAlias = Callable[[InsufficientScope], Iterable[tuple[bytes, bytes]]]


class Response(Protocol):
    """The response to one request, as the endpoint writes it.

    Either `answer`, once; or `begin`, any number of `write`, and `end`. A lost client is no error here: data
    for it is dropped, and `on_lost` was called.
    """

    on_lost: Callable[[], None]
    """Called when the client leaves before the end."""

    extra: tuple[tuple[bytes, bytes], ...]
    """Headers that any answer gets."""

    peer: str
    """The account of its client if it is anonymous."""

    held: HeldBytes | None
    """The account of a large request, until it is answered."""

    carrier: Carrier | None
    """The task that read the request, if it can run one that waits."""

    scope_headers: ScopeHeaders | None
    """The headers of an answer for which scopes are missing, if tokens are asked for here."""

    is_forwarded: bool
    """Whether another worker has read the request."""

    @property
    def is_lost(self) -> bool: ...

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or its reader is gone."""

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None: ...

    async def answer_json(self, body: bytes) -> None:
        """`answer` with 200 and JSON: the most common one, and the fastest."""

    def try_json(self, body: bytes) -> bool:
        """As `answer_json`, if that needs no waiting; False if it does."""

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        """Begin a stream, with its first piece if there is one: no other writer gets between them."""

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        """As `begin`, if that needs no waiting; False if it does."""

    async def write(self, data: bytes) -> None: ...

    def try_write(self, data: bytes) -> bool:
        """As `write`, if that needs no waiting; False if it does. To a client that has left, nothing is written."""

    async def end(self, data: bytes = b"") -> None:
        """End a stream, with its last piece if there is one."""

    def try_end(self, data: bytes) -> bool:
        """As `end`, if that needs no waiting; False if it does."""

    def cut(self) -> None:
        """End at once, politely if that needs no waiting: nothing more will be said."""


def cut(response: Response) -> None:
    """End a stream, and tell its session that the client has to come again."""
    on_lost = response.on_lost
    response.cut()
    on_lost()


def _nobody_minds() -> None:
    """Used until a request wants to know that the client has left."""


class WireResponse:
    """A response of the native engine: bytes on the connection's wire, written by any task."""

    # Defaults of the class: most answers are given at once, and need nothing of this.
    extra: tuple[tuple[bytes, bytes], ...] = ()
    held: HeldBytes | None = None
    is_lost = False
    is_over = False
    is_forwarded = False
    lingers = False
    """Whether the connection closes itself when the answer was heard."""
    carrier: Carrier | None = None
    scope_headers: ScopeHeaders | None = None
    on_lost: Callable[[], None] = staticmethod(_nobody_minds)
    on_over: Callable[[], None] = staticmethod(_nobody_minds)
    _is_stream = False

    def __init__(self, wire: Wire, *, keeps_alive: bool, chunked: bool, peer: str = LOCAL) -> None:
        self._wire = wire
        self.peer = peer
        self._chunked = chunked
        self._closes = not keeps_alive

    def close_after(self) -> None:
        """Let this answer be the last one."""
        self._closes = True

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        await self._write(write_answer(status, (*headers, *self.extra), body, closes=self._closes))
        self._finish()

    async def answer_json(self, body: bytes) -> None:
        if self._closes or self.extra:
            await self.answer(200, ((b"content-type", b"application/json"),), body)
        else:
            await self._write(write_json(body))
            self._finish()

    def try_json(self, body: bytes) -> bool:
        if self._closes or self.extra or self.is_over or not self._wire.send_soon(write_json(body)):
            return False
        self._finish()
        return True

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        self._is_stream = True
        await self._write(self._beginning(headers, data))

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        if self.is_lost or self.is_over:
            return True
        self._is_stream = self._wire.send_soon(self._beginning(headers, data))
        return self._is_stream

    def _beginning(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bytes:
        if self._chunked:
            headers = (*headers, (b"transfer-encoding", b"chunked"))
        else:
            self._closes = True  # HTTP/1.0 knows no other end of a stream
        first = write_chunk(data) if data and self._chunked else data
        return write_head(200, (*headers, *self.extra), closes=self._closes) + first

    async def write(self, data: bytes) -> None:
        await self._write(write_chunk(data) if self._chunked else data)

    def try_write(self, data: bytes) -> bool:
        return self.is_lost or self.is_over or self._wire.send_soon(write_chunk(data) if self._chunked else data)

    async def end(self, data: bytes = b"") -> None:
        if last := self._last(data):
            await self._write(last)
        self._finish()

    def try_end(self, data: bytes) -> bool:
        if not self.is_over and not self._wire.send_soon(self._last(data)):
            return False
        self._finish()
        return True

    def _last(self, data: bytes) -> bytes:
        if self._chunked:
            return write_chunk(data) + LAST_CHUNK if data else LAST_CHUNK
        return data

    def cut(self) -> None:
        if not self.is_over:
            ending = LAST_CHUNK if self._chunked else b""
            if not self._is_stream:  # a stream without an event
                ending = write_answer(200, (*STREAM, *self.extra), b"", closes=self._closes)
            if not (ending and self._wire.send_nowait(ending)):
                self._closes = True
            self._finish()

    def lose(self) -> None:
        """The client has left."""
        if not self.is_over and not self.is_lost:
            self.is_lost = True
            self.on_lost()
            self._finish()

    async def wait_over(self) -> None:
        """Wait until the answer is written, or its reader is gone."""
        if not self.is_over:
            done, told = trio.Event(), self.on_over

            def tell() -> None:
                told()
                done.set()

            self.on_over = tell
            await done.wait()

    def _finish(self) -> None:
        self.is_over = True
        if self._closes and not self.lingers:
            self._wire.close()
        if self.held is not None:
            self.held.release()
        on_over = self.on_over
        # A request that is parked keeps its answer, and the answer must not keep the connection and what minded it.
        self.on_lost = self.on_over = _nobody_minds
        self.carrier = None
        on_over()

    async def _write(self, data: bytes) -> None:
        if self.is_lost or self.is_over or self._wire.send_soon(data):
            return
        try:
            await self._wire.send(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._wire.close()
            self.lose()
