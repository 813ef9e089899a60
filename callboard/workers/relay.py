"""A request that another worker answers: its bytes go there, and the answer's come back, with nothing kept between."""

import math
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import attrs
import trio

from callboard.actors.outlet import Carrier
from callboard.actors.server.host import Host
from callboard.codecs.http.head import Head
from callboard.codecs.http.response_parser import AnswerHead
from callboard.errors import CannotConnect, ConnectionLost, Draining, Overloaded, SupervisorClosed
from callboard.supervisor import WHY_DRAIN, WHY_KILLED, Fact, Lifetime, Snapshot, Unfinished
from callboard.transports.client.pool import Channel, Pool, Use
from callboard.transports.server.http.modern import answer_unread, asked_id
from callboard.transports.server.http.response import Response

PRINCIPAL: Final = b"callboard-principal"
PEER: Final = b"callboard-peer"
"""What the worker that read a request knows of its client, and the one that answers it does not ask again."""

MAX_STREAMS: Final = 1024
"""Requests and streams, each, that one worker has at another at once. For more there is a 503."""

_NOT_PASSED: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect", b"te", b"trailer"),
        *(b"upgrade", b"host", b"authorization", b"proxy-authorization", b"cookie", PRINCIPAL, PEER),
    )
)
"""Headers that are for the worker that read them alone. Who the client is, it says itself."""

_FRAMING: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"content-length"))
_JSON: Final = [(b"content-type", b"application/json")]


def write_forwarded(head: Head, body: bytes, principal: str, peer: str) -> bytes:
    """A request as it goes to another worker."""
    return b"%bcontent-length: %d\r\n\r\n%b" % (_head(head, principal, peer), len(body), body)


def write_upgrade(head: Head, principal: str, peer: str) -> bytes:
    """The same for one that turns into a WebSocket."""
    return _head(head, principal, peer) + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"


def _head(head: Head, principal: str, peer: str) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\nhost: worker\r\n" % (head.method.encode(), head.target)]
    lines += [b"%b: %b\r\n" % header for header in head.headers if header[0] not in _NOT_PASSED]
    lines.append(b"%b: %b\r\n%b: %b\r\n" % (PRINCIPAL, write_name(principal), PEER, write_name(peer)))
    return b"".join(lines)


def write_name(name: str) -> bytes:
    """A principal as the value of a header."""
    return quote_from_bytes(name.encode("utf-8", "surrogatepass")).encode()


def read_name(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "surrogatepass")


class HomeLost(Exception):
    """The other worker ended, or cannot be reached. *was_sent*: whether it may have begun with the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class NotThere(Exception):
    """The other worker lives, and has no such session any more: another one may have it."""


MISDIRECTED: Final = 421
"""Status by which a worker says so."""


@attrs.define(eq=False)
class HomeLink:
    """The way to one other worker: plain HTTP on a Unix socket, a connection for each request that is under way."""

    name: bytes
    pool: Pool
    hangs: bool = False

    async def ask(self, request: bytes, use: Use, response: Response, limit: int) -> None:
        """Send *request*, and copy its answer to *response*. Raises `HomeLost`, `NotThere` and `Overloaded`."""
        if not self.pool.has_room(use):
            raise Overloaded("too many requests to another worker")
        try:
            channel = await self.pool.take(use)
        except (CannotConnect, ConnectionLost) as error:
            raise HomeLost(str(error), was_sent=False) from None
        is_done = False
        try:
            await channel.send(request)
            head = await channel.head()
            if head.status == MISDIRECTED:
                await channel.whole(limit)
                is_done = True
                raise NotThere
            is_done = await _copy(channel, head, response, limit)
        except ConnectionLost as error:
            raise HomeLost(str(error), was_sent=True) from None
        finally:
            self.pool.give_back(channel, is_done=is_done)


async def _copy(channel: Channel, head: AnswerHead, response: Response, limit: int) -> bool:
    """Copy an answer. Returns whether all of it was read: then the connection can be used again."""
    headers = [header for header in head.headers if header[0] not in _FRAMING]
    if head.get(b"transfer-encoding") is None:
        body = await channel.whole(limit)
        if head.status != 200 or headers != _JSON:
            await response.answer(head.status, headers, body)
        elif not response.try_json(body):
            await response.answer_json(body)
        return True
    if not response.try_begin(headers, b""):
        await response.begin(headers)
    try:
        while (piece := await channel.piece()) is not None:
            if not response.try_write(piece):
                await response.write(piece)
            if response.is_over:  # the client has left
                return False
    except ConnectionLost:
        response.cut()  # the stream ends with its home: a client that comes back hears what is known
        return False
    await response.end()
    return True


class RelayedRequest:
    """One request that another worker answers, as the tree shows it: it can be cancelled, and it is drained."""

    __slots__ = (
        "_carrier",
        "_lifetime",
        "_number",
        "_over",
        "_where",
        "body",
        "head",
        "host",
        "response",
        "started_at",
    )

    begin_stop = None
    left = math.inf
    """The worker that answers keeps the time."""

    def __init__(self, host: Host, head: Head, body: bytes, response: Response, where: str) -> None:
        self.host = host
        self.head = head
        self.body = body
        self.response = response
        self._number = next(host.numbers)
        self.started_at = trio.current_time()
        self._carrier: Carrier | None = response.carrier
        self._lifetime: Lifetime | None = None
        self._over = trio.Event()
        self._where = where

    def begin(self) -> None:
        """It waits for the first time. Never raises."""
        response = self.response
        response.on_lost = self.cancel
        has_place = True
        try:
            self.host.requests.take_in(self)
        except SupervisorClosed:
            has_place = False
        if self._carrier is not None:
            self._carrier.carry(self)
        if not has_place or response.is_lost:
            self.cancel()

    def leave(self) -> None:
        self.host.requests.let_go(self)
        if self._carrier is not None:
            self._carrier.drop(self)
        self._over.set()

    # How long it lives.

    def own(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime

    def _own(self) -> Lifetime:
        if self._lifetime is None and self._carrier is not None:
            self.own(self._carrier.free())
        if self._lifetime is None:
            raise RuntimeError(f"{self.path} has no task")
        return self._lifetime

    def cancel(self, why: str = WHY_KILLED) -> None:
        self._own().cut(why)

    def drain(self, until: float) -> None:
        self._own().drain(until)

    # How it is drained.

    def unfinished(self) -> Iterable[Unfinished]:
        return () if self._over.is_set() else (self,)

    async def wait_over(self) -> None:
        await self._over.wait()

    def cut_short(self) -> bool:
        return not self._over.is_set()

    async def part(self) -> None:
        """Its client is told that this worker ends. What the other one does with it is not known."""
        try:
            if not self.response.is_over:
                await answer_unread(self.response, Draining(), asked_id(self.head, self.body))
        finally:
            self.cancel(WHY_DRAIN)

    # What the tree shows.

    @property
    def name(self) -> str:
        return f"r-{self._number}"

    @property
    def path(self) -> str:
        return f"{self.host.requests.path}/{self.name}"

    def snapshot(self, now: float) -> Snapshot:
        facts: dict[str, Fact] = {"method": f"HTTP {self.head.method}", "worker": self._where}
        return Snapshot(
            name=self.name,
            path=self.path,
            kind="RelayedRequest",
            state="running",
            age=now - self.started_at,
            facts=facts,
        )
