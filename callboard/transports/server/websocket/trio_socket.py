"""A WebSocket of a trio-websocket application, which has accepted it, or leaves that to us."""

from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from callboard.actors.server.host import Host
from callboard.actors.shares import anonymous_at
from callboard.codecs.http.access import Access
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.websocket.frames import Close, Code, Text
from callboard.codecs.websocket.handshake import VERSION
from callboard.transports.limits import Settings
from callboard.transports.server.websocket.guest import GuestBlock, GuestUpgrade, Headers, serve_guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_websocket import WebSocketConnection as TrioConnection
    from trio_websocket import WebSocketRequest

_KEY: Final = b"MDEyMzQ1Njc4OWFiY2RlZg=="  # which the library has read, and answers
_LOST: Final = 1006
_LATER: Final = frozenset({429, 503})


class TrioSocket:
    """A `WebSocketRequest` that is not answered yet, or the `WebSocketConnection` that came of one."""

    def __init__(self, given: "WebSocketRequest | TrioConnection") -> None:
        from trio_websocket import ConnectionClosed, WebSocketRequest  # an extra, which this caller has

        self._closed = ConnectionClosed
        self.request = given if isinstance(given, WebSocketRequest) else None
        self.connection: TrioConnection | None = None if isinstance(given, WebSocketRequest) else given
        self._accepted = trio.Event()

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        if self.request is not None:
            with self._broken_if_closed():
                self.connection = await self.request.accept(subprotocol=subprotocol, extra_headers=list(headers))
        self._accepted.set()

    async def receive(self) -> Text | Close | bytes | None:
        await self._accepted.wait()
        try:
            message = await self._open.get_message()
        except self._closed as closed:
            reason = closed.reason
            return None if reason is None or reason.code == _LOST else Close(reason.code, reason.reason or "")
        return Text(message.encode()) if isinstance(message, str) else message

    async def send_text(self, frame: bytes) -> None:
        with self._broken_if_closed():
            await self._open.send_message(frame.decode())

    async def ping(self, payload: bytes) -> bytes:
        try:
            with self._broken_if_closed():
                await self._open.ping(payload)
        except ValueError:  # one that says the same is on its way
            return b""
        return payload

    async def close(self, code: int, reason: str) -> None:
        if self.connection is not None:
            await self.connection.aclose(code, reason)

    @property
    def _open(self) -> "TrioConnection":
        if self.connection is None:
            raise trio.BrokenResourceError("it was not accepted")
        return self.connection

    @contextmanager
    def _broken_if_closed(self) -> "Iterator[None]":
        try:
            yield
        except self._closed:
            raise trio.BrokenResourceError("the peer disconnected") from None

    # What is known of it.

    def head(self) -> Head:
        """The handshake. The library keeps `Host` to itself: so it goes by a name that is always allowed."""
        if self.request is not None:
            given: Headers = self.request.headers
            target, offered = self.request.path, self.request.proposed_subprotocols
        else:
            given, target = self._open.handshake_headers, self._open.path or "/"
            offered = () if self._open.subprotocol is None else (self._open.subprotocol,)
        return Head("GET", target.encode("latin-1", "replace"), _headers(given, offered), "1.1")

    def peer(self) -> str:
        remote = (self.request or self._open).remote
        return anonymous_at("" if isinstance(remote, str) else str(remote.address))

    async def refuse(self, refusal: HttpRefusal) -> None:
        """Answer the handshake with it; or, where that is too late, close."""
        with self._broken_if_closed():
            if self.request is not None:
                await self.request.reject(
                    refusal.status, extra_headers=list(refusal.headers), body=str(refusal).encode()
                )
            else:
                code = Code.OVERLOADED if refusal.status in _LATER else Code.POLICY
                await self.close(code, str(refusal))


def _headers(given: Sequence[tuple[bytes, bytes]], offered: Sequence[str]) -> Headers:
    headers = [(name.lower(), value) for name, value in given if name.lower() not in _OWN]
    headers += [(b"host", b"localhost"), (b"sec-websocket-version", VERSION), (b"sec-websocket-key", _KEY)]
    return (
        [*headers, (b"sec-websocket-protocol", ", ".join(offered).encode("latin-1", "replace"))] if offered else headers
    )


_OWN: Final = frozenset((b"host", b"sec-websocket-version", b"sec-websocket-key", b"sec-websocket-protocol"))


async def serve_trio_websocket(
    block: GuestBlock,
    host: Host,
    access: Access,
    upgrade: GuestUpgrade,
    settings: Settings,
    given: "WebSocketRequest | TrioConnection",
) -> None:
    """Serve one to its end."""
    socket = TrioSocket(given)
    head = socket.head()
    try:
        access.check(b"localhost", head.get(b"origin"))
        refused = await serve_guest(block, upgrade, head, socket, settings.write_time, socket.peer())
    except HttpRefusal as refusal:
        refused = refusal
    if refused is not None:
        host.count_refusal(refused)
        with trio.move_on_after(settings.write_time):
            with suppress(trio.BrokenResourceError):  # it did not wait for that
                await socket.refuse(refused)
