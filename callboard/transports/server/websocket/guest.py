"""A WebSocket that another library reads: whole messages there, the frames of a wire here.

So a session does not know which library reads its socket: the handshake, the guard, limits, both eras, resumption and
the end are those of a WebSocket that callboard reads itself. The library answers pings, puts fragments together and
masks.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.websocket.client import mask
from callboard.codecs.websocket.frames import (
    Close,
    Code,
    MessageReader,
    Ping,
    Pong,
    Received,
    Text,
    write_close,
    write_pong,
    write_text,
)
from callboard.codecs.websocket.handshake import SUBPROTOCOL
from callboard.supervisor import Supervisor
from callboard.supervisor.adopted import AdoptedBlock
from callboard.transports.server.http.upgraded import GuestTask, Upgraded
from callboard.transports.server.websocket.socket import TOO_SLOW
from callboard.transports.wire import LAST_WORD_TIME, READ_SIZE, Wire

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
GuestUpgrade: TypeAlias = Callable[[Head, bytes, Wire, GuestTask], Awaitable[Upgraded]]

_ANY_SIZE: Final = 1 << 62  # of what is written here
_NO_MASK: Final = bytes(4)
_OWN: Final = frozenset((b"upgrade", b"connection", b"sec-websocket-accept", b"sec-websocket-protocol"))


class MessageSocket(Protocol):
    """A WebSocket of another library's. Each method raises BrokenResourceError when the peer is gone."""

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        """Answer the handshake, if that was not done."""

    async def receive(self) -> Text | Close | bytes | None:
        """The next message, bytes for a binary one; None at the end without a close frame."""

    async def send_text(self, frame: bytes) -> None: ...

    async def ping(self, payload: bytes) -> bytes:
        """Ping the peer if that can be done, and return what its answer acknowledges."""

    async def close(self, code: int, reason: str) -> None: ...


@attrs.frozen
class Accept:
    """The answer to a handshake, as the library must give it."""

    subprotocol: str | None
    headers: Headers


class GuestWire:
    """A wire on such a socket. Only the task of `write` calls what may wait for a stalled peer."""

    def __init__(self, socket: MessageSocket, write_time: float) -> None:
        self.socket = socket
        self.write_time = write_time
        self.written = trio.Event()
        """Set when nothing more will be written."""
        self._heard, self._hearing = trio.open_memory_channel[bytes](1)
        self._said, self._saying = trio.open_memory_channel[Received | Accept](1)
        self._own = MessageReader(_ANY_SIZE, is_client=True)
        self._pings: trio.Nursery | None = None
        self._is_accepted = False
        self._is_over = False
        self._is_left = False  # the peer has closed

    # What a session does.

    async def receive(self, size: int = READ_SIZE) -> bytes:
        try:
            return await self._hearing.receive()
        except trio.EndOfChannel:
            return b""

    async def send(self, data: bytes) -> None:
        for item in self._parsed(data):
            if self._is_over:
                raise trio.BrokenResourceError("the peer disconnected")
            with trio.move_on_after(self.write_time) as patience:
                try:
                    await self._said.send(item)
                except trio.ClosedResourceError:
                    raise trio.BrokenResourceError("the peer disconnected") from None
            if patience.cancelled_caught:
                raise trio.BrokenResourceError("timed out while writing to the peer")

    def send_soon(self, data: bytes) -> bool:
        return False

    def send_nowait(self, data: bytes) -> bool:
        with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            for item in self._parsed(data):
                self._said.send_nowait(item)
            return not self._is_over
        return False

    def is_quiet(self) -> bool:
        return not self._is_over

    def stop_probing(self) -> None:
        """The connection is the library's."""

    def say_if_slow(self, data: bytes) -> None:
        """`write` does, by the same word."""

    async def linger(self) -> None:
        async for _ in self._hearing:
            pass

    def close(self) -> None:
        self._is_over = True
        self._said.close()
        self._heard.close()

    def _parsed(self, data: bytes) -> Iterator[Received | Accept]:
        """The frames that a session writes, as messages; and before them the answer to the handshake."""
        if not self._is_accepted:
            self._is_accepted = True
            head, _, data = data.partition(b"\r\n\r\n")
            yield _acceptance(head.split(b"\r\n")[1:])
        yield from self._own.feed(data)

    # What is done for it.

    async def read(self) -> None:
        """Read the socket to its end."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while (received := await self.socket.receive()) is not None:
                self._is_left = isinstance(received, Close)
                await self._heard.send(_frame(received))
                if self._is_left:
                    break
        self._is_left = True
        self._heard.close()

    async def write(self) -> None:
        """Write to the socket, until its peer takes too long: then it is told so, if it takes that."""
        async with trio.open_nursery() as self._pings:
            with suppress(trio.BrokenResourceError):
                async for item in self._saying:
                    if await self._is_slow(item):
                        break
            self._pings.cancel_scope.cancel()
        self._is_over = True
        self._saying.close()
        self._heard.close()
        self.written.set()

    async def _is_slow(self, item: Received | Accept) -> bool:
        """Write one message. Whether that took too long: then the peer has heard so, or will not."""
        began = trio.current_time()
        with trio.move_on_after(self.write_time + LAST_WORD_TIME):
            await self._do(item)
            if trio.current_time() - began <= self.write_time:
                return False
            await self.socket.close(TOO_SLOW.code, TOO_SLOW.reason)
        return True

    async def _do(self, item: Received | Accept) -> None:
        match item:
            case Accept(subprotocol, headers):
                await self.socket.accept(subprotocol, headers)
            case Text(frame) if not self._is_left:
                await self.socket.send_text(frame)
            case Ping(payload) if self._pings is not None and not self._is_left:
                self._pings.start_soon(self._ping, payload)
            case Close(code, reason):
                await self.socket.close(Code.NORMAL if code == Code.NO_CODE else code, reason)

    async def _ping(self, payload: bytes) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            answer = await self.socket.ping(payload)
            await self._heard.send(_frame(Pong(answer)))


class GuestBlock(AdoptedBlock):
    """The WebSocket in the tree, in the task of the library. When its supervisor ends, its session may finish."""

    __slots__ = ("link",)

    def __init__(self, parent: Supervisor, name: str, kind: str) -> None:
        super().__init__(parent, name, kind, None)
        self.link: Upgraded | None = None

    def drain(self, until: float) -> None:
        if self.link is not None:
            self.link.leave()
        super().drain(until)


async def serve_guest(
    block: GuestBlock, upgrade: GuestUpgrade, head: Head, socket: MessageSocket, write_time: float, peer: str
) -> HttpRefusal | None:
    """Serve a WebSocket to its end. Returns why it is refused, if it is: then nothing was said on it."""
    wire = GuestWire(socket, write_time)
    refused: HttpRefusal | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.read)
        nursery.start_soon(wire.write)
        try:
            block.link = await upgrade(head, b"", wire, GuestTask(peer))
            await block.link.run()
            with trio.move_on_after(LAST_WORD_TIME):
                await wire.written.wait()  # the last word may be on its way
        except HttpRefusal as refusal:
            refused = refusal
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # it was turned away, or is gone
        finally:
            block.link = None
            wire.close()
            nursery.cancel_scope.cancel()
    return refused


def _frame(received: Received | bytes) -> bytes:
    """As the frame of a client."""
    match received:
        case Text(frame):
            return mask(write_text(frame), _NO_MASK)
        case Pong(payload):
            return mask(write_pong(payload), _NO_MASK)
        case Close():
            return mask(write_close(received), _NO_MASK)
        case bytes():
            return b"\x82\x80" + _NO_MASK
    raise TypeError(received)


def _acceptance(lines: Iterable[bytes]) -> Accept:
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    chosen = SUBPROTOCOL.decode() if (b"sec-websocket-protocol", SUBPROTOCOL) in headers else None
    return Accept(chosen, [(name, value) for name, value in headers if name.lower() not in _OWN])
