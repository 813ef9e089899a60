"""The ends of a pipe: one into which whole lines go, for any writer, also if it is cancelled meanwhile, and one
that is read without asking twice.

Mostly the pipe takes a line at once. If it does not, writers stand in line; what a cancelled one has begun is finished
by the next: half a line would spoil all that follow. POSIX: elsewhere Trio's stream is used as it is.
"""

import os
from collections.abc import Coroutine
from typing import Any

import attrs
import trio

from callboard.transports.lines import READ_SIZE, Incoming, Outgoing


@attrs.define(eq=False)
class PipeEnd:
    """Writes to a pipe, or reads from it. The stream is its caller's to close."""

    stream: trio.lowlevel.FdStream
    _rest: bytes = attrs.field(default=b"", init=False)  # of a line that was begun
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def send_all(self, data: bytes) -> None:
        """Write all of *data*, or nothing. Raises BrokenResourceError, ClosedResourceError."""
        if (rest := self.begin(data)) is not None:
            await rest

    def begin(self, data: bytes) -> Coroutine[Any, Any, None] | None:
        """Write what goes at once. If that is not all, what is returned must be awaited. Raises as `send_all`."""
        begun = 0 if self._rest or self._turn.locked() else self._try(data)
        if begun == len(data):
            return None
        if begun:
            self._rest = data[begun:]
        return self._stand_in_line(data, begun)

    async def _stand_in_line(self, data: bytes, begun: int) -> None:
        async with self._turn:
            await self._finish()
            if begun:
                return
            self._rest = data
            try:
                await self._finish()
            finally:
                if self._rest is data:  # not begun, and no longer wanted
                    self._rest = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait until there is something, and read it: once, unlike Trio, which tries first. Raises as `send_all`."""
        while True:
            descriptor = self.stream.fileno()
            if descriptor < 0:
                raise trio.ClosedResourceError("closed locally")
            await trio.lowlevel.wait_readable(descriptor)
            try:
                return os.read(descriptor, max_bytes or READ_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError(error.strerror) from None

    # For a caller that waits for many pipes at once, and for none of them by itself.

    def fileno(self) -> int:
        return self.stream.fileno()

    def receive_nowait(self) -> bytes | None:
        """Available data; empty at the end, None if there is none yet. Raises as `receive_some`."""
        try:
            return os.read(self.stream.fileno(), READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise trio.BrokenResourceError(error.strerror) from None

    def write(self, data: bytes) -> bool:
        """Write what can be written now, and hold the rest. False if the caller must `finish` it. Raises as before."""
        begun = 0 if self._rest or self._turn.locked() else self._try(data)
        if begun == len(data):
            return True
        self._rest += data[begun:]
        return False

    async def finish(self) -> None:
        """Write what is held. Raises as `send_all`."""
        async with self._turn:
            await self._finish()

    async def _finish(self) -> None:
        while self._rest:
            descriptor = self.stream.fileno()
            if descriptor < 0:  # Trio would remember the waiter, and refuse the next one
                raise trio.ClosedResourceError("closed locally")
            await trio.lowlevel.wait_writable(descriptor)
            self._rest = self._rest[self._try(self._rest) :]

    def _try(self, data: bytes) -> int:
        try:
            return os.write(self.stream.fileno(), data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(error.strerror) from None


@attrs.define(eq=False)
class StreamEnd:
    """The same over a stream that cannot tell how much of a line it has written."""

    stream: trio.abc.SendStream
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def send_all(self, data: bytes) -> None:
        async with self._turn:
            await self.stream.send_all(data)


def line_end(stream: trio.abc.SendStream) -> Outgoing:
    """The end of *stream* to write to, as good as the system has it."""
    return PipeEnd(stream) if isinstance(stream, trio.lowlevel.FdStream) else StreamEnd(stream)


def line_start(stream: trio.abc.ReceiveStream) -> Incoming:
    """The end of *stream* to read from, as good as the system has it."""
    return PipeEnd(stream) if isinstance(stream, trio.lowlevel.FdStream) else stream
