"""Connections to one HTTP origin, kept open from one request to the next."""

import errno
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Self, TypeAlias, get_args
from urllib.parse import SplitResult, unquote, urlsplit

import attrs
import trio

from callboard.actors.deadlines import DeadlineTimer
from callboard.actors.end_of_turn import FEW, SMALL, EndOfTurn
from callboard.codecs.http.response_parser import END, AnswerHead, AnswerParser, End, Event, KnownHeads
from callboard.errors import BadAnswer, CannotConnect, ConnectionLost, InvalidTarget
from callboard.supervisor.groups import first_leaf, own_nursery
from callboard.transports.client.tls import secured, why_untrusted
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import MAX_READ, READ_SIZE, SocketWire, Wire

CONNECT_TIME: Final = 10.0
"""Seconds to reach a server, its TLS handshake included."""

WRITE_TIME: Final = 30.0
"""Seconds for a server to take in what is written to it."""

MAX_CHANNELS: Final = 64
"""Most connections to one origin at once, of each kind; a request that needs another one waits."""

IDLE_TIME: Final = 4.0
"""Seconds that an unused connection is trusted to be still there. Many servers end theirs after five, and what is asked
in that moment would be lost: nothing is asked twice."""

SIGNS_OF_LIFE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""After how many seconds of silence a server is asked by the kernel whether it is there, how often, and how often in
vain. A client that only listens would never hear that a server has vanished: so it takes a minute."""

Use: TypeAlias = Literal["call", "stream", "word"]
"""What a connection is for: a request, something that is heard for as long as it goes on, or a word without an answer.

Each kind has its own turns. Else requests, which may wait for an answer of ours, would keep that very answer waiting;
and a client that listens often enough could ask nothing any more."""

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_UNIX: Final = "+unix"
_USER: Final = re.compile(r"//[^/?#]*@")
_NOBODY: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})


def shown(url: str) -> str:
    """*url* as it may stand in an error: without a user, and without a query, for either may be a secret."""
    return repr(_USER.sub("//", url).partition("?")[0][:200])


@attrs.frozen
class Origin:
    """Address of a server: scheme, host and port, or the path of a Unix socket."""

    scheme: str
    host: str
    port: int
    path: str | None = None

    @classmethod
    def of(cls, url: str | SplitResult) -> Self:
        """Raises `CannotConnect` for what is no address."""
        parts = urlsplit(url) if isinstance(url, str) else url
        scheme = parts.scheme.lower().removesuffix(_UNIX)
        if scheme in _PORTS and parts.scheme.lower().endswith(_UNIX):
            return cls(scheme, "localhost", 0, unquote(parts.netloc))
        try:
            host, port = parts.hostname or "", parts.port
            host.encode("idna")
        except UnicodeError:
            raise InvalidTarget(f"invalid server URL {shown(parts.geturl())}: invalid host name") from None
        except ValueError as error:
            raise InvalidTarget(f"invalid server URL {shown(parts.geturl())}: {error}") from None
        if scheme not in _PORTS or not host or " " in host or not host.isprintable():
            raise InvalidTarget(f"invalid server URL {shown(parts.geturl())}")
        if "@" in parts.netloc:
            raise InvalidTarget(
                f"{shown(parts.geturl())}: credentials in the URL are not supported: use an Authorization header"
            )
        return cls(scheme, host, port or _PORTS[scheme])

    @property
    def is_secure(self) -> bool:
        return self.scheme in ("https", "wss")

    @property
    def tls_hint(self) -> str:
        """What a connection may mean that is closed without a word: so does a server that expects TLS."""
        return "" if self.is_secure or self.path is not None else f"; if it serves TLS, use {self.scheme}s://"

    @property
    def authority(self) -> bytes:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        bare = self.path is not None or self.port == _PORTS[self.scheme]
        return (host if bare else f"{host}:{self.port}").encode("idna" if not host.isascii() else "ascii")

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path is not None else f"{self.scheme}://{self.authority.decode()}"


async def reach(origin: Origin, tls: ssl.SSLContext | None = None) -> SocketWire | SslWire:
    """Connect to *origin*. Raises `CannotConnect` with the reason."""
    with trio.move_on_after(CONNECT_TIME):
        try:
            connected = await _connected(origin)
            if not origin.is_secure:
                return SocketWire(connected, WRITE_TIME)
            return await secured(connected, origin.host, tls, WRITE_TIME)
        except ssl.SSLError as error:
            raise CannotConnect(f"{origin}: TLS: {why_untrusted(error)}") from None
        except (OSError, trio.BrokenResourceError) as error:
            root = _root(error)
            failure = CannotConnect(f"{origin}: {_why(root)}")
            failure.is_refused = isinstance(root, OSError) and root.errno in _NOBODY
            raise failure from None
    raise CannotConnect(f"{origin}: timed out after {CONNECT_TIME:g} s")


async def _connected(origin: Origin) -> socket.socket:
    if origin.path is not None:
        stream = await trio.open_unix_socket(origin.path)
    else:
        stream = await trio.open_tcp_stream(origin.host, origin.port)
    connected = socket.socket(fileno=stream.socket.detach())
    connected.setblocking(False)
    if origin.path is None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in SIGNS_OF_LIFE:
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _root(error: BaseException) -> BaseException:
    """The cause of *error*: if several addresses were tried, that of the first one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _root(first_leaf(error)) if isinstance(error, BaseExceptionGroup) else error


Dial: TypeAlias = Callable[[Origin, ssl.SSLContext | None], Awaitable[Wire]]
"""Connects. Raises `CannotConnect`."""


@attrs.define(eq=False)
class Channel:
    """One connection, and the answers that come on it, one after the other."""

    wire: Wire
    used_at: float = 0.0
    known: KnownHeads = attrs.field(factory=dict)
    is_spent: bool = attrs.field(default=False, init=False)
    """Whether nothing more can be asked on it."""
    _parser: AnswerParser = attrs.field(init=False)
    _events: deque[Event] = attrs.field(factory=deque, init=False)
    _is_open_ended: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._parser = AnswerParser(self.known)

    async def send(self, data: bytes) -> None:
        """Raises `ConnectionLost`."""
        try:
            if not self.wire.send_soon(data):
                await self.wire.send(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost(str(error) or "connection lost") from None

    async def head(self) -> AnswerHead:
        """The head of the next answer, not of those that only say to wait. Raises `ConnectionLost`, `BadAnswer`."""
        while True:
            if not self._events:
                await self._read()
            event = self._events.popleft()
            if isinstance(event, AnswerHead) and event.status >= 200:
                self.is_spent, self._is_open_ended = not event.keeps_alive, event.is_open_ended
                return event

    async def piece(self, size: int = READ_SIZE) -> bytes | None:
        """The next piece of the body, read in pieces of *size*; None at its end. Raises `ConnectionLost`,
        `BadAnswer`."""
        if not self._events:
            await self._read(size)
        event = self._events.popleft()
        if isinstance(event, AnswerHead):
            raise BadAnswer("unexpected response")
        return None if event is END else event

    async def whole(self, most: int) -> bytes:
        """The whole body. Raises `BadAnswer` if it is larger than *most*, and `ConnectionLost`."""
        events = self._events
        if len(events) == 2 and events[1] is END and isinstance(body := events[0], bytes) and len(body) <= most:
            events.clear()  # it came with the head
            return body
        pieces: list[bytes] = []
        size = 0
        while (piece := await self.piece(MAX_READ)) is not None:
            size += len(piece)
            if size > most:
                raise BadAnswer(f"response larger than {most} bytes")
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left over of what was asked before."""
        return not self._events and not self.is_spent

    async def _read(self, size: int = READ_SIZE) -> None:
        while not self._events:
            try:
                data = await self.wire.receive(size)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionLost(str(error) or "connection lost") from None
            if data:
                self._events.extend(self._parser.feed(data))
            elif self._is_open_ended and self.is_spent:
                self._events.append(End.END)  # it ends with the connection
            else:
                raise ConnectionLost("connection closed by the server")


@attrs.define(eq=False)
class Pool:
    """The channels to one origin. The one used last is used next: the others may end."""

    origin: Origin
    tls: ssl.SSLContext | None = None
    most: int = MAX_CHANNELS
    dial: Dial = reach
    times: DeadlineTimer = attrs.field(factory=DeadlineTimer, init=False)
    """Keeps the time of requests while this is attended."""
    _heads: KnownHeads = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _turn: EndOfTurn | None = attrs.field(default=None, init=False)
    _together: list[SocketWire] = attrs.field(factory=list, init=False)  # that have something to write at its end
    _idle: list[Channel] = attrs.field(factory=list, init=False)
    _taken: dict[Channel, trio.Semaphore] = attrs.field(factory=dict, init=False)
    _turns: dict[Use, trio.Semaphore] = attrs.field(init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _closed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = {use: trio.Semaphore(self.most) for use in get_args(Use)}

    # While it is attended, a request that finds an idle channel needs no time limit of its own.

    async def attend(self) -> None:
        """Keep the time of requests, and write those of one turn together, until this is closed."""
        async with own_nursery() as nursery:
            nursery.start_soon(self.times.run)
            self._nursery, self._turn = nursery, EndOfTurn(self._write_together)
            nursery.start_soon(self._turn.run)
            try:
                await self._closed.wait()
            finally:
                self._nursery = self._turn = None
            nursery.cancel_scope.cancel()

    def take_attended(self) -> Channel | None:
        """An idle channel for a request whose time is kept here: if it passes, the channel is closed, which ends all
        waiting on it. None if there is none, or this is not attended."""
        turn = self._turns["call"]
        if self._turn is None or self._is_closed or not self._idle or not turn.value:
            return None
        channel = self._kept()
        if channel is not None:
            turn.acquire_nowait()
            self._taken[channel] = turn
        return channel

    def put(self, wire: SocketWire, data: bytes) -> bool:
        """Write *data* at the end of this turn. False if it must be written otherwise."""
        if self._turn is None or len(data) > SMALL or not self._turn.is_near() or not wire.hold(data):
            return False
        self._together.append(wire)
        if len(self._together) >= FEW:
            self._write_together()
        return True

    def finish(self, wire: SocketWire) -> None:
        """Have what *wire* holds written when the socket takes it; or by the next that is sent on it."""
        if self._nursery is not None:
            self._nursery.start_soon(wire.finish)

    def _write_together(self) -> bool:
        wires, self._together = self._together, []
        for wire in wires:
            if not wire.flush():
                self.finish(wire)
        return bool(wires)

    def has_room(self, use: Use) -> bool:
        """Whether a request would get a channel without waiting for another one to end."""
        return bool(self._turns[use].value)

    async def take(self, use: Use = "call") -> Channel:
        """A channel for one request. Raises `CannotConnect`, and `ConnectionLost` once the pool is closed."""
        turn = self._turns[use]
        try:
            turn.acquire_nowait()  # mostly there is room: a turn of the loop for nothing would cost 15 us
        except trio.WouldBlock:
            await turn.acquire()
        channel: Channel | None = None
        try:
            self._check_open()
            channel = self._kept() or await self._another()
            self._taken[channel] = turn
        finally:
            if channel is None:
                turn.release()
        if self._is_closed:
            self.give_back(channel, is_done=False)
        self._check_open()
        return channel

    async def _another(self) -> Channel:
        wire = await self.dial(self.origin, self.tls)
        if isinstance(wire, SocketWire):
            wire.write_batch = self
        return Channel(wire, known=self._heads)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost("closed locally")

    def _kept(self) -> Channel | None:
        oldest = trio.current_time() - IDLE_TIME
        while self._idle:
            channel = self._idle.pop()
            if channel.used_at >= oldest and channel.wire.is_quiet():
                return channel
            channel.wire.close()
        return None

    async def wait_dropped(self) -> bool:
        """Take an idle connection out, and hold it until the server lets go of it. False, at once, if there is none."""
        had_any = bool(self._idle)
        channel = self._kept()
        if channel is None:
            return had_any  # those have ended by now
        is_dropped = False
        try:
            await channel.wire.receive()  # any bytes here are unsolicited
            is_dropped = True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            is_dropped = True
        finally:
            if is_dropped or self._is_closed or not channel.wire.is_quiet():
                channel.wire.close()
            else:
                self._idle.append(channel)  # only no longer held
        return True

    def give_back(self, channel: Channel, *, is_done: bool) -> None:
        """The request is over. Unless it *is_done*, nothing more is known of the channel, and it ends."""
        self._taken.pop(channel).release()
        if is_done and channel.is_clean and not self._is_closed:
            channel.used_at = trio.current_time()
            self._idle.append(channel)
        else:
            channel.wire.close()

    def close(self) -> None:
        """End all channels, also those in use. There are no others afterwards."""
        self._is_closed = True
        self._closed.set()
        for channel in (*self._idle, *self._taken):
            channel.wire.close()
        self._idle.clear()
