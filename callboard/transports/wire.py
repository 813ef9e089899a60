"""Bytes to and from one peer: a socket as it is, or TLS around it.

Whoever has something to say writes it in his own task, and mostly the kernel takes it at once: no queue, no other task
to wake. Only a peer that does not keep up makes writers wait, in line, and none for longer than the write deadline.
"""

import contextlib
import socket
from typing import Final, Protocol

import trio

READ_SIZE: Final = 65_536
"""Bytes that are read at once."""


class Wire(Protocol):
    """A byte stream in both directions. One task reads; any may write."""

    async def receive(self) -> bytes:
        """What the peer says next; nothing when it has ended. Raises BrokenResourceError, ClosedResourceError."""

    async def send(self, data: bytes) -> None:
        """Write all of *data*. Raises BrokenResourceError if the peer is gone, or takes too long."""

    def send_nowait(self, data: bytes) -> bool:
        """Write all of *data* if that is possible without waiting; else nothing. A courtesy."""

    async def linger(self) -> None:
        """Say that nothing more comes, and let the peer say what it has to say, unheard. Bounded by the caller."""

    def close(self) -> None:
        """The end, at once. Whoever reads or writes hears it. Harmless twice."""


class SocketWire:
    """A non-blocking socket: the system calls without a layer in between."""

    __slots__ = ("_is_broken", "_lock", "_rest", "_socket", "_write_time")

    def __init__(self, connected: socket.socket, write_time: float) -> None:
        self._socket = connected
        self._write_time = write_time
        self._lock: trio.Lock | None = None  # made when a writer has to wait, for the first time
        self._rest = b""  # what a courtesy left over
        self._is_broken = False

    async def receive(self) -> bytes:
        while True:
            if self._socket.fileno() == -1:
                raise trio.ClosedResourceError("it was closed here")
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(READ_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from None

    async def send(self, data: bytes) -> None:
        if self._lock is None and not self._rest and not self._is_broken:
            sent = self._try(data)
            if sent == len(data):
                return
            data = data[sent:]
            if self._lock is None:
                self._lock = trio.Lock()
        await self._send_slowly(data)

    def send_nowait(self, data: bytes) -> bool:
        if self._lock is not None or self._rest or self._is_broken:
            return False
        try:
            sent = self._try(data)
        except trio.BrokenResourceError:
            return False
        if sent:
            self._rest = data[sent:]
        return sent > 0

    async def linger(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while await self.receive():
            pass

    def close(self) -> None:
        self._is_broken = True
        if self._socket.fileno() != -1:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def _try(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._is_broken = True
            raise trio.BrokenResourceError(str(error)) from None

    async def _send_slowly(self, data: bytes) -> None:
        """Wait in line, then for the peer. Cut off in the middle, nothing that follows could be told from the rest."""
        lock = self._lock = self._lock or trio.Lock()
        is_whole = False
        with trio.move_on_after(self._write_time):
            async with lock:
                try:
                    if self._is_broken:
                        raise trio.BrokenResourceError("the peer is gone")
                    left = memoryview(self._rest + data)
                    self._rest = b""
                    while left:
                        await trio.lowlevel.wait_writable(self._socket)
                        left = left[self._try(left) :]  # type: ignore[arg-type]  # a buffer is as good as bytes
                    is_whole = True
                finally:
                    if not is_whole:
                        self.close()
            if not lock.locked():  # nobody stood in line behind
                self._lock = None
        if not is_whole:
            self.close()
            raise trio.BrokenResourceError("the peer takes too long to read")


class SslWire:
    """TLS around a socket."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream], write_time: float) -> None:
        self._stream = stream
        self._write_time = write_time
        self._lock = trio.Lock()

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(READ_SIZE))

    async def send(self, data: bytes) -> None:
        is_whole = False
        with trio.move_on_after(self._write_time):
            async with self._lock:
                try:
                    await self._stream.send_all(data)
                    is_whole = True
                finally:
                    if not is_whole:
                        self.close()
        if not is_whole:
            raise trio.BrokenResourceError("the peer takes too long to read")

    def send_nowait(self, data: bytes) -> bool:
        return False

    async def linger(self) -> None:
        while await self.receive():
            pass

    def close(self) -> None:
        """Without the good-bye of TLS: there may be nobody to read it."""
        with contextlib.suppress(OSError):
            self._stream.transport_stream.socket.close()
