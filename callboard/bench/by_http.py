"""A fast lane over HTTP: on connections of its own, which are kept, with one request at a time on each."""

import ssl
from functools import partial
from itertools import count
from typing import Final

import attrs
import httptools
import trio

from callboard.bench.framing import check_length
from callboard.bench.hub import Hub, QuickLane, Settled
from callboard.bench.requests import FIRST_ID, Template, http_fault_of
from callboard.bench.work import Act
from callboard.errors import BadAnswer, CallboardError, CannotConnect, ConnectionLost
from callboard.transports.client.pool import Origin, reach
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import SocketWire

_GONE: Final = 404
_REFUSED: Final = 401  # a token that was good once: the client, in another session, has a new one


@attrs.define(eq=False)
class Line:
    """One connection, with one request on it at a time."""

    lane: "PreparedLane"
    wire: SocketWire | SslWire
    descriptor: int
    is_used: bool = attrs.field(default=False, init=False)
    _asked: "_Asked | None" = attrs.field(default=None, init=False)
    _parser: httptools.HttpResponseParser = attrs.field(init=False)
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_whole: bool = attrs.field(default=False, init=False)
    _status: int = attrs.field(default=0, init=False)
    _keeps_alive: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def on_body(self, piece: bytes) -> None:
        if not self._is_whole:
            self._size += len(piece)
            check_length(self._size)
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._is_whole:
            self._keeps_alive = False  # more than was asked for: what comes next is unknown
            return
        # Asked here and not later: afterwards the parser is ready for another message, and knows nothing of this one.
        self._is_whole, self._keeps_alive = True, bool(self._parser.should_keep_alive())
        self._status = self._parser.get_status_code()

    def ask(self, asked: "_Asked") -> None:
        self._asked, self._is_whole, self._size = asked, False, 0
        self._pieces.clear()
        try:
            if not self.wire.write(asked.request):
                self.lane.hub.start(self.wire.finish)
        except trio.BrokenResourceError as error:
            self._lose(str(error))

    def heard(self) -> None:
        """There is something to read."""
        try:
            data = self.wire.receive_nowait()
            if data is None:
                return
            if not data:
                self._lose("connection closed by the server")
                return
            self._parser.feed_data(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lose(str(error))
        except httptools.HttpParserCallbackError as error:
            self._end(BadAnswer(str(error.__context__)))
        except httptools.HttpParserError as error:
            self._end(BadAnswer(str(error)))
        else:
            if self._is_whole:
                self._answered()

    def _answered(self) -> None:
        asked, self._asked, self.is_used = self._asked, None, True
        status, body = self._status, b"".join(self._pieces)
        if asked is None:  # unsolicited, and the next request would take it for its answer
            self.lane.release(self, is_kept=False)
            return
        self.lane.release(self, is_kept=self._keeps_alive)  # first of all: the caller may ask again at once
        fault = http_fault_of(status, body, asked.number, asked.act)
        if status == _REFUSED or (status == _GONE and self.lane.templates[asked.act].has_session):
            self.lane.forget()
        asked.settled(fault)

    def _lose(self, why: str) -> None:
        asked = self._asked
        if asked is not None and self.is_used and not self._pieces and not asked.is_again:
            self._asked = None
            self.lane.again(self, asked)  # the server ended what was idle, as it may: that is not the request's fault
        else:
            self._end(ConnectionLost(why))

    def _end(self, failure: CallboardError) -> None:
        asked, self._asked = self._asked, None
        self.lane.release(self, is_kept=False)
        if asked is not None:
            asked.settled(failure)


@attrs.define(eq=False)
class _Asked:
    """A request that waits for its answer."""

    act: Act
    number: int
    request: bytes
    settled: Settled
    is_again: bool = False


@attrs.define(eq=False)
class PreparedLane(QuickLane):
    """A session of the client's, and connections on which its requests are repeated."""

    hub: Hub
    origin: Origin
    tls: ssl.SSLContext | None
    templates: dict[Act, Template]
    _is_forgotten: bool = attrs.field(default=False, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(FIRST_ID), init=False)
    _idle: list[Line] = attrs.field(factory=list, init=False)
    _all: set[Line] = attrs.field(factory=set, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    @property
    def is_lost(self) -> bool:
        """Whether the server no longer knows the session. Connections are dialled anew as it takes."""
        return self._is_forgotten

    def forget(self) -> None:
        self._is_forgotten = True

    def begin(self, act: Act, settled: Settled) -> None:
        number = next(self._ids)
        asked = _Asked(act, number, self.templates[act].filled(number), settled)
        if self._idle:
            self._idle.pop().ask(asked)
        else:
            self.hub.start(partial(self._dial, asked))

    def again(self, line: Line, asked: _Asked) -> None:
        """Ask on another connection what the end of *line* left unanswered."""
        self.release(line, is_kept=False)
        asked.is_again = True
        self.hub.start(partial(self._dial, asked))

    def release(self, line: Line, *, is_kept: bool) -> None:
        """The request on *line* has ended."""
        if line not in self._all:
            return
        if is_kept:
            self._idle.append(line)
            return
        self._all.discard(line)
        if line in self._idle:
            self._idle.remove(line)
        self.hub.remove(line.descriptor)
        line.wire.close()

    def close(self) -> None:
        self._is_closed = True
        for line in list(self._all):
            self.release(line, is_kept=False)

    async def _dial(self, asked: _Asked) -> None:
        try:
            wire = await reach(self.origin, self.tls)
        except CannotConnect as error:
            asked.settled(error if not asked.is_again else ConnectionLost(str(error)))
            return
        if self._is_closed:
            wire.close()
            return
        line = Line(self, wire, wire.fileno())
        self._all.add(line)
        self.hub.add(line.descriptor, line.heard)
        line.ask(asked)
