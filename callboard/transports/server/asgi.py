"""The endpoint as an ASGI application: for HTTP/2, which hypercorn reads, and for servers that it is mounted in.

Here the server in front owns the connection, and `send` may wait for a stalled client without any bound. So a task with
something to say puts it into a small queue, and only the request's own task, which no other waits for, calls `send`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final

import attrs
import trio

from callboard.actors.outlet import Carrier
from callboard.actors.shares import LOCAL, anonymous_at
from callboard.codecs.http.head import Head, check_coding, check_framing, check_length, check_once
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import refusal_of
from callboard.codecs.http.writer import JSON, STREAM
from callboard.errors import Overloaded
from callboard.supervisor import Supervisor
from callboard.transports.held import HeldBytes
from callboard.transports.limits import Settings
from callboard.transports.server.asgi_types import Message, Receive, Scope, Send
from callboard.transports.server.asgi_websocket import AsgiSocket, as_handshake, refuse_by
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.response import ScopeHeaders
from callboard.transports.server.websocket.guest import GuestBlock, serve_guest

QUEUED: Final = 16
"""Messages of one answer that wait for its client."""

VERSIONS: Final = ("1.0", "1.1", "2")

_LAST: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}


class AsgiResponse:
    """An answer on its way through a queue to the task that calls `send`."""

    def __init__(self, write_time: float, peer: str = LOCAL) -> None:
        self._write_time = write_time
        self.peer = peer
        self._queue, self._out = trio.open_memory_channel[Message](QUEUED)
        self.is_lost = False
        self.is_over = False
        self.is_forwarded = False
        self._is_begun = False
        self.extra: tuple[tuple[bytes, bytes], ...] = ()
        self.held: HeldBytes | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self.scope_headers: ScopeHeaders | None = None
        self.carrier: Carrier | None = None  # the server in front has the task, which ends with the answer

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self._is_begun = True
        length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
        await self._put(_start(status, (*headers, *length, *self.extra)))
        await self._put({"type": "http.response.body", "body": body, "more_body": False})
        self._finish()

    async def answer_json(self, body: bytes) -> None:
        await self.answer(200, JSON, body)

    def try_json(self, body: bytes) -> bool:
        return False

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        self._is_begun = True
        await self._put(_start(200, (*headers, *self.extra)))
        if data:
            await self.write(data)

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        """As `begin`: at the beginning the queue has room."""
        if self.is_over:
            return True
        self._is_begun = True
        self._queue.send_nowait(_start(200, (*headers, *self.extra)))
        return self.try_write(data)

    async def write(self, data: bytes) -> None:
        await self._put({"type": "http.response.body", "body": data, "more_body": True})

    def try_write(self, data: bytes) -> bool:
        try:
            if not self.is_over:
                self._queue.send_nowait({"type": "http.response.body", "body": data, "more_body": True})
        except trio.WouldBlock:
            return False
        return True

    async def end(self, data: bytes = b"") -> None:
        if data:
            await self.write(data)
        await self._put(_LAST)
        self._finish()

    def try_end(self, data: bytes) -> bool:
        return False

    def cut(self) -> None:
        if not self.is_over:
            with suppress(trio.WouldBlock):
                if not self._is_begun:  # a stream without an event
                    self._queue.send_nowait(_start(200, (*STREAM, *self.extra)))
                self._queue.send_nowait(_LAST)
            self._finish()

    def lose(self) -> None:
        """The client has left."""
        if not self.is_over:
            self.is_lost = True
            self._finish()
            self.on_lost()

    async def pump(self, send: Send) -> None:
        """Send what there is to send, until the end. A client that does not take it in time is given up."""
        async for message in self._out:
            with trio.move_on_after(self._write_time) as patience:
                await send(message)
            if patience.cancelled_caught:
                self.lose()
                return

    async def _put(self, message: Message) -> None:
        if self.is_over:
            return
        with trio.move_on_after(self._write_time) as patience:
            await self._queue.send(message)
        if patience.cancelled_caught:
            self.lose()

    def _finish(self) -> None:
        self.is_over = True
        self._queue.close()
        if self.held is not None:
            self.held.release()


@attrs.define(eq=False)
class AsgiApp:
    """The endpoint as an ASGI application. Each request is in the tree, in the task that the server gave it."""

    endpoint: Endpoint
    requests: Supervisor
    sockets: Supervisor | None = attrs.field(default=None, kw_only=True)
    """Where WebSockets are, if not beside the requests."""
    names: "count[int]" = attrs.field(factory=lambda: count(1))
    peer: str | None = None
    """The account of its anonymous clients, if it is known. Otherwise the server in front says where they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = _peer(scope) if self.peer is None else self.peer
        if scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send, peer)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not supported")
        response = AsgiResponse(self.endpoint.settings.write_time, peer)
        try:
            with self.requests.adopt(f"a-{next(self.names)}", kind="AsgiRequest"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._serve, scope, receive, response, nursery.cancel_scope)
                    await response.pump(send)
                    nursery.cancel_scope.cancel()
        finally:
            response.lose()  # if the server in front gave up: the request would go on in vain
            if response.held is not None:
                response.held.release()

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send, peer: str) -> None:
        await receive()
        write_time = self.endpoint.settings.write_time
        with GuestBlock(self.sockets or self.requests, f"a-{next(self.names)}", "AsgiWebSocket") as block:
            try:
                head = as_handshake(scope, _head({"method": "GET", **scope}, self.endpoint.settings))
                self.endpoint.admit(head)
                socket = AsgiSocket(receive, send)
                refused = await serve_guest(block, self.endpoint.upgrade, head, socket, write_time, peer)
            except HttpRefusal as refusal:
                refused = refusal
            if refused is not None:
                response = AsgiResponse(write_time, peer)
                await self.endpoint.refuse(refused, response)
                await response.pump(partial(refuse_by, scope, send))

    async def _serve(self, scope: Scope, receive: Receive, response: AsgiResponse, whole: trio.CancelScope) -> None:
        try:
            head = _head(scope, self.endpoint.settings)
            self.endpoint.admit(head)
            caller, response.held = await self.endpoint.expect_body(head, response.peer)
            body = await self._body(receive, response.held)
        except HttpRefusal as refusal:
            if scope["http_version"] != "2":  # where the next request would begin, two readers could see differently
                response.extra = ((b"connection", b"close"),)
            await self.endpoint.refuse(refusal, response)
            return
        if body is None:
            whole.cancel()
            return
        await self.endpoint.serve(head, body, response, caller)
        while (await receive())["type"] != "http.disconnect":
            pass
        response.lose()

    async def _body(self, receive: Receive, held: HeldBytes) -> bytes | None:
        """The whole body; None if the client left. Raises `HttpRefusal` (408, 413, 429, 503)."""
        limits = self.endpoint.settings
        pieces: list[bytes] = []
        size = 0
        with trio.move_on_after(limits.body_time):
            while True:
                with trio.move_on_after(limits.body_idle) as patience:
                    message = await receive()
                if patience.cancelled_caught:
                    break
                if message["type"] == "http.disconnect":
                    return None
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limits.max_frame:
                    raise HttpRefusal(413, f"body larger than {limits.max_frame} bytes", closes=True)
                try:
                    held.grow(size)
                except Overloaded as error:
                    raise refusal_of(error) from None
                if not message.get("more_body", False):
                    return b"".join(pieces)
        raise HttpRefusal(408, "timed out while reading the body", closes=True)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return anonymous_at(client[0] if client else "")


def _start(status: int, headers: Iterable[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def _head(scope: Scope, limits: Settings) -> Head:
    """Raises `HttpRefusal` for what two readers could read differently, and for what is too large."""
    version, headers = scope["http_version"], [(name.lower(), value.strip(b" \t")) for name, value in scope["headers"]]
    if version not in VERSIONS:
        raise HttpRefusal(505, "HTTP version not supported: use HTTP/1.1 or HTTP/2", closes=True)
    if version == "2":  # where the host is called another name
        known = {name for name, _ in headers}
        headers = [(b"host" if name == b":authority" and b"host" not in known else name, v) for name, v in headers]
    target = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    size = len(target) + sum([len(name) + len(value) + len(": \r\n") for name, value in headers])
    if size > limits.max_header:
        raise HttpRefusal(431, f"request head larger than {limits.max_header} bytes", closes=True)
    if len(headers) > limits.max_headers:
        raise HttpRefusal(431, f"more than {limits.max_headers} headers", closes=True)
    check_once(headers)
    check_framing(headers)
    head = Head(scope["method"], target, headers, version)
    check_coding(head)
    check_length(head)
    return head
