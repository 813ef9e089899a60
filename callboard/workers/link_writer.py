"""Writes the frames of a link, at either end of it: each whole, for many requests share the connection."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import attrs
import trio

from callboard.errors import SupervisorClosed
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import SocketWire, Wire

Carry: TypeAlias = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task. Raises `SupervisorClosed`."""


WRITTEN_WITHIN: Final = 60.0
"""Seconds for the other worker of this node to take what is written: more than one may hang before its parent ends it,
and the link with it. What many requests share is not closed for less."""


def sharable(wire: Wire) -> SocketWire | SslWire:
    """A wire that keeps what the system does not take at once. Raises TypeError."""
    if not isinstance(wire, SocketWire | SslWire):
        raise TypeError("a link needs a socket")
    if isinstance(wire, SocketWire):  # between nodes, the system gives up on a machine that is silent
        wire.write_time = WRITTEN_WITHIN
    return wire


@attrs.define(eq=False)
class LinkWriter:
    """One end's frames. A frame that was begun belongs to the link: a task of the link's own writes the rest of it, so
    no request that is cancelled meanwhile can tear it. Requests wait in line before they begin with one."""

    wire: SocketWire | SslWire = attrs.field(converter=sharable)
    carry: Carry
    _line: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _waiting: int = attrs.field(default=0, init=False)  # in line, or next
    _words: list[bytes] = attrs.field(factory=list, init=False)
    _is_busy: bool = attrs.field(default=False, init=False)  # a task writes what the system did not take
    _is_closing: bool = attrs.field(default=False, init=False)

    def try_say(self, frame: bytes) -> bool:
        """Write a frame if that needs no waiting. False if it does: then nothing was written."""
        return not self._is_busy and not self._waiting and self.wire.send_soon(frame)

    def say_soon(self, frame: bytes) -> None:
        """Write a small frame that must not be lost, now or before those that wait in line. There are a few of them for
        each request, so that those are bounded, too."""
        if self.try_say(frame):
            return
        if self._is_busy:
            self._words.append(frame)
            return
        try:
            self._write(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.wire.close()  # the reader hears it

    def close_after(self, frame: bytes) -> None:
        """Close the link when all that was begun is written, and *frame* after it."""
        self._is_closing = True
        self.say_soon(frame)
        if not self._is_busy:
            self.wire.close()

    async def say(self, frames: Iterable[bytes], is_wanted: Callable[[], bool], otherwise: bytes) -> None:
        """Write *frames*, as long as the message *is_wanted* of which they are parts. If it is not, or this is
        cancelled, after some of them, *otherwise* is said instead of the rest. Raises BrokenResourceError."""
        is_torn = False
        try:
            for frame in frames:
                if self._is_busy or self._waiting:
                    await self._wait_turn()
                if not is_wanted():
                    self._line.unpark()
                    return
                self._write(frame)
                is_torn = True
            is_torn = False
        finally:
            if is_torn:
                self.say_soon(otherwise)

    async def _wait_turn(self) -> None:
        self._waiting += 1
        try:
            await self._line.park()
            while self._is_busy:  # with a small frame
                await self._line.park()
        finally:
            self._waiting -= 1

    def _write(self, frame: bytes) -> None:
        try:
            is_written = self.wire.write(frame)
        except BaseException:
            self._line.unpark_all()  # each hears it
            raise
        if is_written:
            self._line.unpark()
            return
        self._is_busy = True
        try:
            self.carry(self._finish)
        except SupervisorClosed:  # this worker ends: what the system does not take now is not heard
            self._is_busy = False
            self._line.unpark()

    async def _finish(self) -> None:
        """Write what the system did not take, and small frames that came meanwhile."""
        try:
            await self.wire.finish()
            while self._words:
                said, self._words = b"".join(self._words), []
                if not self.wire.write(said):
                    await self.wire.finish()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._is_closing = True
        finally:
            self._is_busy = False
            self._line.unpark()
            if self._is_closing:
                self.wire.close()  # the reader hears it
