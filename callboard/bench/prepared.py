"""A fast lane over HTTP: requests that callboard's client has made once, sent again and again with another id.

The client opens the session and makes each request, so that a lane knows nothing of revisions, headers or sessions.
What it does itself is little: write bytes, read an answer, see whether it is one.
"""

import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import attrs
import httptools
import msgspec
import trio

from callboard.actors.link import Link
from callboard.bench.engine import Lane, OpenLane
from callboard.bench.lanes import ClientLane
from callboard.bench.work import Act, ToolFailed, Work
from callboard.client import Client, Common, connect
from callboard.errors import BadAnswer, CallboardError, ConnectionLost, HttpRefused, ServerRefused
from callboard.mcp_servers import Remote
from callboard.targets import Access, Way, Ways, ways_to
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool, reach
from callboard.transports.wire import Wire

FIRST_ID: Final = 1_000_000_000
"""Beyond all that the client uses, and always of the same length."""

TRIAL: Final = 2.0
"""Seconds for the first answer on the fast lane. A server that leaves streams open has none, and gets the slow one."""

_FRAME: Final = re.compile(
    rb'(POST .*?\r\ncontent-length: )\d+(\r\n.*?\r\n)(\{"jsonrpc":"2\.0","id":)\d+(,.*)', re.DOTALL
)


class _Failure(msgspec.Struct):
    code: int
    message: str = ""


class _Outcome(msgspec.Struct, rename="camel"):
    is_error: bool = False
    result_type: str = "complete"


class _Answer(msgspec.Struct):
    id: int | str | None = None
    result: _Outcome | None = None
    error: _Failure | None = None


_decode: Final = msgspec.json.Decoder(_Answer).decode


@attrs.frozen
class Template:
    """A request whose id can be chosen."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, sent: bytes) -> "Template | None":
        """None for what the client does not write like that."""
        found = _FRAME.fullmatch(sent)
        if found is None:
            return None
        head, blank, start, rest = found.groups()
        length = len(start) + len(b"%d" % FIRST_ID) + len(rest)
        return cls(b"".join((head, b"%d" % length, blank, start)), rest)

    def filled(self, number: int) -> bytes:
        return b"%b%d%b" % (self.before, number, self.after)


@attrs.define(eq=False)
class Line:
    """One connection, with one request on it at a time."""

    wire: Wire
    is_used: bool = attrs.field(default=False, init=False)
    keeps_alive: bool = attrs.field(default=False, init=False)
    _parser: httptools.HttpResponseParser = attrs.field(init=False)
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    _is_whole: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        # Asked here and not later: afterwards the parser is ready for another message, and knows nothing of this one.
        self._is_whole, self.keeps_alive = True, bool(self._parser.should_keep_alive())

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises `ConnectionLost` and `BadAnswer`."""
        self._pieces.clear()
        self._is_whole = False
        try:
            await self.wire.send(request)
            while not self._is_whole:
                data = await self.wire.receive()
                if not data:
                    raise ConnectionLost("the server closed the connection")
                self._parser.feed_data(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost(str(error)) from None
        except httptools.HttpParserError as error:
            raise BadAnswer(str(error)) from None
        self.is_used = True
        return self._parser.get_status_code(), b"".join(self._pieces)


@attrs.define(eq=False)
class PreparedLane:
    """A session of the client's, and connections on which its requests are repeated."""

    origin: Origin
    tls: ssl.SSLContext | None
    templates: dict[Act, Template]
    _ids: "count[int]" = attrs.field(factory=lambda: count(FIRST_ID), init=False)
    _idle: list[Line] = attrs.field(factory=list, init=False)
    _all: set[Line] = attrs.field(factory=set, init=False)

    async def do(self, act: Act) -> None:
        number = next(self._ids)
        request = self.templates[act].filled(number)
        line = self._idle.pop() if self._idle else await self._dial()
        is_kept = False
        try:
            try:
                status, body = await line.ask(request)
            except ConnectionLost:
                if not line.is_used:
                    raise
                self._drop(line)  # the server ended what was idle, as it may: that is not the request's fault
                line = await self._dial()
                status, body = await line.ask(request)
            is_kept = line.keeps_alive
        finally:
            if is_kept:
                self._idle.append(line)
            else:
                self._drop(line)
        check(status, body, number, act)

    def close(self) -> None:
        for line in list(self._all):
            self._drop(line)

    async def _dial(self) -> Line:
        line = Line(await reach(self.origin, self.tls))
        self._all.add(line)
        return line

    def _drop(self, line: Line) -> None:
        self._all.discard(line)
        line.wire.close()


def check(status: int, body: bytes, number: int, act: Act) -> None:
    """Raises what the client would raise for an answer that is none."""
    if not body.startswith(b"{"):
        events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and len(line) > len(b"data: ")]
        body = events[-1] if events else b""
    try:
        answer = _decode(body)
    except msgspec.MsgspecError:
        if status != 200:
            raise HttpRefused(status, "") from None
        raise BadAnswer("no JSON-RPC") from None
    if answer.error is not None:
        raise ServerRefused(answer.error.code, answer.error.message)
    if status != 200:
        raise HttpRefused(status, "")
    if answer.result is None or answer.id != number or answer.result.result_type != "complete":
        raise BadAnswer("no result of this request")
    if answer.result.is_error:
        raise ToolFailed(f"the tool {act.name} failed")


@attrs.define(eq=False)
class Tap:
    """Notes the requests that a link writes, for as long as that is wanted."""

    sent: list[bytes] = attrs.field(factory=list, init=False)
    is_on: bool = attrs.field(default=True, init=False)
    pool: Pool | None = attrs.field(default=None, init=False)
    """The connections of the link, if it is one over HTTP."""

    def of(self, way: Way) -> Way:
        @asynccontextmanager
        async def open_link() -> AsyncIterator[Link]:
            async with way.open() as link:
                if isinstance(link, HttpLink):
                    self.pool, link.pool.dial = link.pool, self._dial
                yield link

        return attrs.evolve(way, open=open_link)

    async def _dial(self, origin: Origin, tls: ssl.SSLContext | None) -> Wire:
        return _Tapped(await reach(origin, tls), self)


@attrs.frozen(eq=False)
class _Tapped(Wire):
    """A wire, and who listens in."""

    wire: Wire
    tap: Tap

    async def receive(self) -> bytes:
        return await self.wire.receive()

    async def send(self, data: bytes) -> None:
        if self.tap.is_on and data.startswith(b"POST "):
            self.tap.sent.append(data)
        await self.wire.send(data)

    def send_soon(self, data: bytes) -> bool:
        return self.wire.send_soon(data)

    def send_nowait(self, data: bytes) -> bool:
        return self.wire.send_nowait(data)

    def is_quiet(self) -> bool:
        return self.wire.is_quiet()

    async def linger(self) -> None:
        await self.wire.linger()

    def close(self) -> None:
        self.wire.close()


def by_requests(remote: Remote, options: Common, work: Work, on_open: Callable[[Client, bool], None]) -> OpenLane:
    """Sessions at *remote*, each of them fast if it can be; *on_open* is given the client, and whether it is."""
    access = Access(headers=options.get("headers") or {}, tls=options.get("tls"), auth=options.get("auth"))

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        tap, ways = Tap(), ways_to(remote, access)
        tapped = Ways(ways.key, tuple(tap.of(way) for way in ways.ways))
        async with connect(tapped, **options) as client:
            fast = await _prepared(client, tap, work)
            tap.is_on = False
            on_open(client, fast is not None)
            try:
                yield ClientLane(client) if fast is None else fast
            finally:
                if fast is not None:
                    fast.close()

    return open_lane


async def _prepared(client: Client, tap: Tap, work: Work) -> PreparedLane | None:
    """The fast lane, once each request has been answered on it; None if there is none to this server."""
    templates: dict[Act, Template] = {}
    for act in work.acts:
        tap.sent.clear()
        try:
            await act.do(client)
        except CallboardError:
            return None  # it is told, by whoever tries
        template = Template.of(tap.sent[0]) if len(tap.sent) == 1 else None
        if template is None:
            return None
        templates[act] = template
    if tap.pool is None:
        return None
    lane = PreparedLane(tap.pool.origin, tap.pool.tls, templates)
    with trio.move_on_after(TRIAL):
        try:
            for act in work.acts:
                await lane.do(act)
        except CallboardError:
            lane.close()
            return None
        return lane
    lane.close()
    return None
