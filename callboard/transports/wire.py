"""Bytes to and from one peer: a socket as it is. `ssl_wire` has TLS around it.

A task that has something to say writes it itself, and mostly the kernel takes it at once: no queue, no other task
to wake. Only a peer that does not keep up makes writers wait, in line, and none for longer than the write deadline.
"""

import contextlib
import select
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import trio

from callboard.actors.shares import anonymous_at
from callboard.actors.turnstile import wait_turn
from callboard.transports.tcp_info import idle_of, traffic_of

READ_SIZE: Final = 65_536
"""Bytes that are read at once."""

MAX_READ: Final = 1024 * 1024
"""Most bytes that are read at once of a body whose length is known, and counted. The buffer is made before it is known
how much there is."""

MAX_HELD: Final = 65_536
"""Bytes that are held for the end of a turn. More may not fit into the socket, and needs no batching."""

LAST_WORD_TIME: Final = 2.0
"""Seconds for the last word to a peer that took too long to read: for writing it, and for the peer to take it in."""


LARGEST_KEPT: Final = 8 * 1024 * 1024
"""Largest buffer whose memory the C library shall keep for the next one: the largest message."""


def _keep_large_buffers() -> None:
    """Have the C library keep the memory of large messages.

    glibc gives a buffer back to the system as soon as it is freed, and the pages of the next one are made anew, one by
    one: that is half of the CPU time of a message of a megabyte. What it keeps is twice the largest buffer that it has
    ever given back; so it is shown one. The pages of that one are never touched. Elsewhere nothing comes of it.
    """
    bytes(LARGEST_KEPT)


_keep_large_buffers()


def peer_of(connected: socket.socket) -> str:
    """The account of an anonymous client at the other end: its address, without the port."""
    try:
        name = connected.getpeername() if connected.family in (socket.AF_INET, socket.AF_INET6) else ()
    except OSError:  # it is gone already
        name = ()
    return anonymous_at(name[0] if name else "")


def _why(error: OSError) -> str:
    """In words, and without the number: people read it."""
    return error.strerror or str(error)


def _after(data: bytes | memoryview, sent: int) -> bytes | memoryview:
    """What is left of *data*, without a copy of it."""
    return b"" if sent == len(data) else memoryview(data)[sent:] if sent else data


class Wire(Protocol):
    """A byte stream in both directions. One task reads; any may write."""

    async def receive(self, size: int = READ_SIZE) -> bytes:
        """The next data of the peer, at most *size*; empty at its end. Raises BrokenResourceError,
        ClosedResourceError."""

    async def send(self, data: bytes) -> None:
        """Write all of *data*. Raises BrokenResourceError if the peer disconnected, or takes too long."""

    def send_soon(self, data: bytes) -> bool:
        """Write all of *data* without waiting: now, or with what others say in this turn. What the system does not take
        at once is written later, by no task of the caller's. False if it must be sent otherwise: others wait to write,
        or it is large."""

    def send_nowait(self, data: bytes) -> bool:
        """Write all of *data* if that is possible without waiting; else nothing. A courtesy."""

    def is_quiet(self) -> bool:
        """Whether it is still there, and the peer has said nothing that was not read."""

    def stop_probing(self) -> None:
        """Have the system send no probes: the WebSocket on it sends pings, and knows better."""

    def say_if_slow(self, data: bytes) -> None:
        """Have a peer that takes too long to read hear *data* at last, if it reads a little more: the reason."""

    async def linger(self) -> None:
        """Say that nothing more comes, and let the peer say what it has to say, unheard. Bounded by the caller."""

    def close(self) -> None:
        """The end, at once. Its reader and its writers hear it. Harmless twice."""


class BatchWriter(Protocol):
    """Collector of what is said in one turn of the loop."""

    def put(self, wire: "SocketWire", data: bytes) -> bool:
        """Write *data* when the turn is over. False if it must be written otherwise."""

    def finish(self, wire: "SocketWire") -> None:
        """See that what *wire* holds is written."""


class SocketWire:
    """A non-blocking socket: the system calls without a layer in between."""

    __slots__ = (
        *("_has_more", "_is_broken", "_is_held", "_is_parting", "_lock", "_poll", "_rest", "_socket"),
        *("is_sealed", "last_word", "write_batch", "write_time"),
    )

    def __init__(self, connected: socket.socket, write_time: float) -> None:
        self._socket = connected
        self.write_time = write_time
        self._lock: trio.Lock | None = None  # made when a writer has to wait, for the first time
        self._rest: bytes | memoryview = b""  # what is held, or what a courtesy left over
        self._is_broken = False
        self._is_held = False  # until the turn is over: then it is flushed
        self._is_parting = False  # the last word is being said: it ends by itself, soon
        self.is_sealed = False  # what was given to it must go out, or nothing after it can be read
        self.last_word: Callable[[], bytes] | None = None
        self._has_more = False  # probably: the last piece was a full one
        self._poll: select.poll | None = None  # of a connection to a server, which is looked at before it is used again
        self.write_batch: BatchWriter | None = None

    def traffic(self) -> tuple[int, int]:
        """Bytes that came, and that the peer has got: counted by the system, where it tells."""
        return traffic_of(self._socket)

    def idle(self) -> float | None:
        """Seconds for which nothing was sent and nothing came, where the system tells."""
        return idle_of(self._socket)

    async def receive(self, size: int = READ_SIZE) -> bytes:
        while True:
            descriptor = self._socket.fileno()
            if descriptor == -1:
                raise trio.ClosedResourceError("closed locally")
            is_waited_for = not self._has_more
            self._has_more = False
            if is_waited_for:
                await trio.lowlevel.wait_readable(descriptor)
            try:
                data = self._socket.recv(size)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                await wait_turn()
                raise trio.BrokenResourceError(_why(error)) from None
            if not data:
                await wait_turn()  # thousands may leave at once
            # Once, so that others get their turn: half of the turns for a large message.
            self._has_more = is_waited_for and len(data) >= READ_SIZE
            return data

    async def send(self, data: bytes) -> None:
        if (rest := self.begin(data)) is not None:
            await rest

    def begin(self, data: bytes) -> Coroutine[Any, Any, None] | None:
        """Write what goes at once. If that is not all, what is returned must be awaited. Raises as `send`."""
        sent = 0
        if self._is_held:
            data, self._rest, self._is_held = b"".join((self._rest, data)), b"", False
        if self.is_free:
            sent = self._try(data)
            if sent == len(data):
                return None
        return self._send_slowly(_after(data, sent), is_torn=sent > 0)

    # For a caller that waits for many sockets at once, and for none of them by itself.

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive_nowait(self) -> bytes | None:
        """Available data of the peer; empty at its end, None if there is none yet. Raises as `receive`."""
        try:
            return self._socket.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise trio.BrokenResourceError(_why(error)) from None

    def write(self, data: bytes) -> bool:
        """Write what can be written now, and hold the rest. False if the caller must `finish` it. Raises as `send`."""
        if self._is_held:
            data, self._rest, self._is_held = b"".join((self._rest, data)), b"", False
        if self._rest or self._lock is not None:
            if self._is_broken:
                raise trio.BrokenResourceError("the peer disconnected")
            self._rest = b"".join((self._rest, data))
            return False
        sent = self._try(data)
        if sent == len(data):
            return True
        self._rest = _after(data, sent)
        return False

    def send_soon(self, data: bytes) -> bool:
        batch = self.write_batch
        if batch is None or len(data) > MAX_HELD:
            return False
        if not self._is_held and (self._rest or self._lock is not None or self._is_broken):
            return False
        if batch.put(self, data):
            return True
        if self._is_held:  # too much to be held any longer
            data, self._rest, self._is_held = b"".join((self._rest, data)), b"", False
        try:
            self._rest = _after(data, self._try(data))
        except trio.BrokenResourceError:
            return False  # which `send` says, too
        if self._rest:
            batch.finish(self)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether `send_soon` would take a little."""
        return self.write_batch is not None and (self._is_held or self.is_free)

    @property
    def is_free(self) -> bool:
        """Whether no task waits to write."""
        return self._lock is None and not self._rest and not self._is_broken

    def send_nowait(self, data: bytes) -> bool:
        if self._is_held:
            self.flush()
        if not self.is_free:
            return False
        try:
            sent = self._try(data)
        except trio.BrokenResourceError:
            return False
        if sent:
            self._rest = _after(data, sent)
        return sent > 0

    def push(self, data: bytes) -> None:
        """Write what can be written of *data* while the wire is free; the next one to send finishes it."""
        self._rest = _after(data, self._try(data))

    def is_quiet(self) -> bool:
        if hasattr(select, "poll"):  # half the time of a peek, which raises if all is well
            if self._is_broken or self._socket.fileno() == -1:
                return False
            if self._poll is None:
                self._poll = select.poll()
                self._poll.register(self._socket, select.POLLIN)
            return not self._poll.poll(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return not self._is_broken
        except OSError:
            return False
        return False

    def stop_probing(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)

    async def linger(self) -> None:
        if not self.flush():
            await self.finish()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while await self.receive():
            pass

    def hold(self, data: bytes) -> bool:
        """Keep *data* until it is flushed; all that is sent meanwhile comes after it. False if others wait already, or
        if that would be too much."""
        if self._rest or self._lock is not None or self._is_broken:
            if self._is_held and len(self._rest) + len(data) <= MAX_HELD:
                self._rest = b"".join((self._rest, data))
                return True
            return False
        self._rest, self._is_held = data, True
        return True

    def flush(self) -> bool:
        """Write what is held, as far as that is possible without waiting. False if something is left."""
        self._is_held = False
        if not self._rest or self._lock is not None or self._is_broken:
            return True  # the next writer in line sees to it, or it is too late
        try:
            self._rest = _after(self._rest, self._try(self._rest))
        except trio.BrokenResourceError:
            return True  # the reader hears it
        return not self._rest

    async def finish(self) -> None:
        """Write what is held. A peer that takes too long is cut off."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._send_slowly(b"", is_torn=True)

    def close(self) -> None:
        if self._is_parting:
            return
        if self._rest and not self._is_broken and self._lock is None:
            self.flush()  # the last word of a connection that was about to close
        self._is_broken = True
        if self._socket.fileno() != -1:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._is_broken = True
            raise trio.BrokenResourceError(_why(error)) from None

    async def _send_slowly(self, data: bytes | memoryview, *, is_torn: bool) -> None:
        """Wait in line, then for the peer. Cut off in the middle, nothing that follows could be told from the rest."""
        self._is_held = False
        lock = self._lock = self._lock or trio.Lock()
        is_first, is_whole, is_late, left = False, False, False, data
        try:
            with trio.move_on_after(self.write_time):
                async with lock:
                    is_first = True
                    self._check_open()
                    is_torn = is_torn or bool(self._rest)
                    left, self._rest = b"".join((self._rest, data)) if self._rest else data, b""
                    while left:
                        await trio.lowlevel.wait_writable(self._socket)
                        sent = self._try(left)
                        is_torn = is_torn or sent > 0
                        left = _after(left, sent)
                    is_whole = True
                if not lock.locked():  # no writer stood in line behind
                    self._lock = None
            is_late = not is_whole
        finally:
            if is_torn and not is_whole and not is_late:
                self.close()
        if is_late:
            if is_first:  # else the writer before it is as late: the last word belongs behind what that one cut short
                await self._part(left if is_torn or self.is_sealed else b"")
            raise trio.BrokenResourceError("timed out while writing to the peer")

    def _check_open(self) -> None:
        if self._is_broken:
            raise trio.BrokenResourceError("the peer disconnected")

    async def _part(self, left: bytes | memoryview) -> None:
        """The peer took too long: say the last word if there is one, after what was cut short, and close."""
        if self.last_word is None or self._is_broken:
            self.close()
            return
        self._is_broken = self._is_parting = True  # for all others
        try:
            with trio.move_on_after(LAST_WORD_TIME), contextlib.suppress(trio.BrokenResourceError, OSError):
                for rest in (left, self.last_word()):
                    while rest:
                        rest = _after(rest, self._try(rest))
                        if rest:
                            await trio.lowlevel.wait_writable(self._socket)
                self._socket.shutdown(socket.SHUT_WR)
                await trio.sleep(LAST_WORD_TIME)
                self._socket.recv(MAX_READ)  # unread, it would have the system take back what was said
        finally:
            self._is_parting = False
            self.close()

    def say_if_slow(self, data: bytes) -> None:
        self.last_word = lambda: data
