"""Two ends of a connection in one process: for tests, and for servers that live beside their client."""

from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

import attrs
import trio

IN_BETWEEN: Final = 16
"""Frames that may be on their way in each direction before the sender waits."""


@attrs.frozen(eq=False)
class MemoryConnection:
    """One end. Frames sent here come out at the other end, in order."""

    _outgoing: trio.MemorySendChannel[bytes]
    _incoming: trio.MemoryReceiveChannel[bytes]

    async def send(self, frame: bytes) -> None:
        """Raises `trio.BrokenResourceError` when either end is closed."""
        try:
            await self._outgoing.send(frame)
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError("closed locally") from None

    def begin(self, frame: bytes) -> Coroutine[Any, Any, None] | None:
        """As `send`; if there is no room now, what is returned must be awaited."""
        try:
            self._outgoing.send_nowait(frame)
        except trio.WouldBlock:
            return self.send(frame)
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError("closed locally") from None
        return None

    async def receive(self) -> bytes:
        """Raises `trio.EndOfChannel` when the other end is closed and all was read."""
        return await self._incoming.receive()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._incoming.__aiter__()

    def close(self) -> None:
        """Hang up. Harmless twice."""
        self._outgoing.close()
        self._incoming.close()


def memory_pair() -> tuple[MemoryConnection, MemoryConnection]:
    """Two ends that are connected to each other."""
    there_send, there_receive = trio.open_memory_channel[bytes](IN_BETWEEN)
    back_send, back_receive = trio.open_memory_channel[bytes](IN_BETWEEN)
    return MemoryConnection(there_send, back_receive), MemoryConnection(back_send, there_receive)
