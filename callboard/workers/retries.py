"""A retry, or a request about a task, that came on a WebSocket and belongs to another worker: it goes there as an HTTP
request."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio

from callboard.actors.frames import Outcome
from callboard.actors.outlet import Carrier, FrameKind, Outbound
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Host
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.envelope import ErrorResponse, Notification, ResultResponse, decode, encode
from callboard.codecs.http.head import Head
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.mcp_headers.mirror import mirror
from callboard.codecs.sse import Event, EventDecoder, encode_event
from callboard.errors import (
    BackendRefused,
    Draining,
    HomeGone,
    PeerError,
    RequestFailed,
    SupervisorClosed,
)
from callboard.supervisor.groups import own_nursery
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.places import PATH, path_to
from callboard.transports.server.http.response import ScopeHeaders
from callboard.workers.relay import RelayedRequest

PIECES: Final = 2
"""Pieces of an answer, 64 KiB each at most, that wait for the task of the request. For more the home waits."""


def _nobody_minds() -> None:
    """Used until the request is sent."""


class RetryResponse:
    """The answer of the other worker, in pieces, as the task of the request reads it."""

    extra: tuple[tuple[bytes, bytes], ...] = ()
    held: HeldBytes | None = None
    carrier: Carrier | None = None
    scope_headers: ScopeHeaders | None = None
    is_forwarded = False
    is_lost = False
    is_over = False
    on_lost: Callable[[], None] = staticmethod(_nobody_minds)

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._pieces, self._received = trio.open_memory_channel[bytes | Exception](PIECES)

    # What the link writes.

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        await self.end(encode_event(body))

    async def answer_json(self, body: bytes) -> None:
        await self.end(encode_event(body))

    def try_json(self, body: bytes) -> bool:
        return self.try_end(encode_event(body))

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        if data:
            await self.write(data)

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        return not data or self.try_write(data)

    async def write(self, data: bytes) -> None:
        if not self.is_over:
            await self._put(data)

    def try_write(self, data: bytes) -> bool:
        if not self.is_over:
            try:
                self._pieces.send_nowait(data)
            except trio.WouldBlock:
                return False
            except trio.BrokenResourceError:
                self.lose()
        return True

    async def end(self, data: bytes = b"") -> None:
        await self.write(data)
        self.cut()

    def try_end(self, data: bytes) -> bool:
        if not self.try_write(data):
            return False
        self.cut()
        return True

    async def fail(self, error: Exception) -> None:
        """It could not be sent."""
        if not self.is_over:
            await self._put(error)
            self.cut()

    async def _put(self, piece: bytes | Exception) -> None:
        try:
            await self._pieces.send(piece)
        except trio.BrokenResourceError:  # its reader is gone
            self.lose()

    def cut(self) -> None:
        self.is_over = True
        self.on_lost = _nobody_minds
        self._pieces.close()

    # What the request's task does.

    async def read(self, exchange: Exchange) -> Outcome:
        """Pass on what is said on the way; return the result. Raises `RequestFailed` and `PeerError`."""
        decoder, slot = EventDecoder(MAX_ANSWER), exchange.slot
        async for piece in self._received:
            if isinstance(piece, Exception):
                raise piece
            for item in decoder.feed(piece):
                if not isinstance(item, Event):
                    raise RequestFailed("the answer of another worker cannot be read")
                message = decode(item.data)
                if isinstance(message, ResultResponse):
                    return Forwarded(message.result)
                if isinstance(message, ErrorResponse):
                    data = message.data
                    raise BackendRefused(message.code, message.message, data or None)
                if isinstance(message, Notification) and slot.is_open:
                    await slot.outlet.send(Outbound(item.data, FrameKind.REPORT, (slot.request_id, None)))
        raise HomeGone

    def lose(self) -> None:
        """The client does not want it any more."""
        if not self.is_over:
            self.is_lost = True
            on_lost = self.on_lost
            self.cut()
            on_lost()
        self._received.close()


async def retry_there(
    host: Host, exchange: Exchange, ask: Callable[[RelayedRequest], Awaitable[bool]], gone: PeerError
) -> Outcome:
    """Have the worker answer a request that *ask* asks, which returns False if that worker has not begun with it.
    Raises *gone* then."""
    request, terms, response = exchange.request, exchange.terms, RetryResponse(exchange.slot.account)
    header_map = host.offer.header_map(request.method, exchange.route)
    headers = mirror(terms.revision.value, request.method, request.params, header_map)
    head = Head("POST", path_to(PATH, host.path), [(name.lower(), value) for name, value in headers])
    relayed = RelayedRequest(host, head, encode(request), terms.caller, response)
    try:
        relayed.begin()
    except SupervisorClosed:
        raise Draining from None

    async def send() -> None:
        try:
            if not await ask(relayed):
                await response.fail(gone)  # as one whose home has been gone for long
        except (PeerError, RequestFailed) as error:
            await response.fail(error)

    try:
        async with own_nursery() as nursery:
            nursery.start_soon(send)
            try:
                return await response.read(exchange)
            finally:
                nursery.cancel_scope.cancel()
    finally:
        response.lose()
        relayed.leave()
