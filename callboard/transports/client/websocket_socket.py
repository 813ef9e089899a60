"""One WebSocket of a client's: how it is opened, and frames in both directions."""

import os
import ssl
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead, AnswerParser
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.websocket.client import check_accepted, mask, write_opening
from callboard.codecs.websocket.frames import MessageReader
from callboard.errors import CannotConnect, HttpRefused
from callboard.transports.client.credentials import Credentials
from callboard.transports.client.pool import CONNECT_TIME, Dial, Origin, reach
from callboard.transports.wire import Wire

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""Exceptions of a lost wire."""


class _Refused(HttpRefused):
    """With all that the server said about it."""

    def __init__(self, head: AnswerHead, text: str) -> None:
        super().__init__(head.status, text)
        self.head = head


@attrs.frozen(eq=False)
class Door:
    """Address and options for opening WebSockets."""

    origin: Origin
    target: bytes
    headers: Sequence[tuple[bytes, bytes]] = attrs.field(default=(), repr=False)
    tls: ssl.SSLContext | None = None
    dial: Dial = reach
    credentials: Credentials | None = attrs.field(default=None, repr=False)

    async def open(self, more: Sequence[tuple[bytes, bytes]] = ()) -> "ClientWebSocket":
        """Raises `CannotConnect`, `BadAnswer`, `NotAuthorized`, and `HttpRefused` if the server wants no WebSocket."""
        if self.credentials is None:
            return await self._open(more)
        proof = await self.credentials.prove(b"GET")
        while True:
            try:
                return await self._open((*more, *proof.headers))
            except _Refused as refused:
                if not self.credentials.helps(refused.head, proof):
                    raise
                proof = await self.credentials.renew(b"GET", refused.head, proof)

    async def _open(self, more: Sequence[tuple[bytes, bytes]]) -> "ClientWebSocket":
        wire = await self.dial(self.origin, self.tls)
        is_open = False
        try:
            with trio.move_on_after(CONNECT_TIME):
                socket = await self._shake_hands(wire, more)
                is_open = True
                return socket
        except BROKEN as error:
            raise CannotConnect(f"{self.origin}: {str(error) or 'connection lost'}{self.origin.tls_hint}") from None
        finally:
            if not is_open:
                wire.close()
        raise CannotConnect(f"{self.origin}: timed out after {CONNECT_TIME:g} s")

    async def _shake_hands(self, wire: Wire, more: Sequence[tuple[bytes, bytes]]) -> "ClientWebSocket":
        key = os.urandom(16)
        await wire.send(write_opening(self.target, self.origin.authority, key, (*self.headers, *more)))
        parser = AnswerParser(may_switch=True)
        while True:
            data = await wire.receive()
            if not data:
                raise trio.BrokenResourceError("connection closed by the server")
            for event in (events := parser.feed(data)):
                if isinstance(event, AnswerHead) and event.status == 101:
                    check_accepted(event, key)
                    return ClientWebSocket(wire, event, b"".join(rest for rest in events if isinstance(rest, bytes)))
                if isinstance(event, AnswerHead) and event.status >= 200:
                    body = b"".join(piece for piece in events if isinstance(piece, bytes))
                    raise _Refused(event, body[:200].decode("utf-8", "replace").strip())


@attrs.define(eq=False)
class ClientWebSocket:
    """One open WebSocket."""

    wire: Wire
    head: AnswerHead
    rest: bytes
    """Data behind the handshake response."""
    reader: MessageReader = attrs.field(factory=lambda: MessageReader(MAX_ANSWER, is_client=True), init=False)

    async def send(self, frame: bytes) -> None:
        """Send a frame as a server would write it. Raises as the wire does."""
        await self.wire.send(self.masked(frame))

    def send_nowait(self, frame: bytes) -> bool:
        return self.wire.send_nowait(self.masked(frame))

    def masked(self, frame: bytes) -> bytes:
        """The frame as a client writes it."""
        return mask(frame, os.urandom(4))

    async def receive(self) -> bytes:
        """The next data; empty at the end, clean or not."""
        rest, self.rest = self.rest, b""
        if rest:
            return rest
        try:
            return await self.wire.receive()
        except BROKEN:
            return b""
