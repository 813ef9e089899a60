"""The ends of a pipe: one into which whole lines go, for any writer, also if it is cancelled meanwhile, and one
that is read without asking twice.

Mostly the pipe takes a line at once. If it does not, writers stand in line; what a cancelled one has begun is finished
by the next: half a line would spoil all that follow. POSIX: elsewhere Trio's stream is used as it is.
"""

import contextlib
import os
import sys
from collections.abc import Coroutine
from typing import Any, Final
from weakref import WeakSet

import attrs
import trio

from callboard.transports.lines import READ_SIZE, Incoming, Outgoing

if sys.platform == "linux":
    import fcntl

WIDE: Final = 256 * 1024
"""Bytes that are read at once from a pipe through which a message went that was larger than the system lets it hold,
which is 64 KiB; and that it holds from then on: each time that it is full costs both ends a turn. Linux counts what the
pipes of a user hold, and makes new ones small if that is more than 64 MiB: so not all of them are wide."""

WIDEST: Final = 1024 * 1024
"""Bytes that the first such pipes hold: all that the system allows. So much is not read at once: a hundred thousand
lines may be in it, and others want a turn."""

MAX_WIDEST: Final = 16
"""Most ends of pipes that are made so wide: a quarter of what a user may have."""

_widest: Final["WeakSet[PipeEnd]"] = WeakSet()


@attrs.define(eq=False)
class PipeEnd:
    """Writes to a pipe, or reads from it. The stream is its caller's to close."""

    stream: trio.lowlevel.FdStream
    _rest: bytes | memoryview = attrs.field(default=b"", init=False)  # of a line that was begun
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _is_wide: bool = attrs.field(default=False, init=False)

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
            self._rest = memoryview(data)[begun:]
            if len(data) > READ_SIZE and not self._is_wide:
                self._widen()
        return self._stand_in_line(data, begun)

    def _widen(self) -> None:
        self._is_wide = True
        if sys.platform == "linux":
            descriptor, size = self.stream.fileno(), WIDEST if len(_widest) < MAX_WIDEST else WIDE
            with contextlib.suppress(OSError):  # it is no pipe, or the user has too many that are wide
                if fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) < size:
                    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size)
                    _widest.add(self)

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
        """Wait until there is something, and read it: once, unlike Trio, which tries first. Raises as `send_all`.

        A pipe that was full is read in larger pieces from then on."""
        while True:
            descriptor = self.stream.fileno()
            if descriptor < 0:
                raise trio.ClosedResourceError("closed locally")
            await trio.lowlevel.wait_readable(descriptor)
            try:
                data = os.read(descriptor, WIDE if self._is_wide else max_bytes or READ_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError(error.strerror) from None
            if len(data) == READ_SIZE and not self._is_wide:
                self._widen()
            return data

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
        left = memoryview(data)[begun:]
        self._rest = b"".join((self._rest, left)) if self._rest else left
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
            written = self._try(self._rest)
            if written:  # views: a line of a megabyte goes out in sixteen pieces, and is not copied for each
                self._rest = memoryview(self._rest)[written:]
        self._rest = b""  # an empty view would keep all of the line

    def _try(self, data: bytes | memoryview) -> int:
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
