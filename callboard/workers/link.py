"""The link to one other worker: one connection, on which all requests to it go, and all answers come back."""

import ssl
from contextlib import suppress
from itertools import count
from typing import Final, Never

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead, AnswerParser
from callboard.codecs.link import LAST, MAX_PIECE, REQUEST, LinkDecoder, write_frame, write_frames
from callboard.errors import BadAnswer, CannotConnect, SupervisorClosed
from callboard.supervisor import Actor, Fact, get_logger
from callboard.transports.client.pool import Dial, Origin, reach
from callboard.transports.server.http.write_batch import WriteBatch
from callboard.transports.wire import MAX_READ, SocketWire, SslWire, Wire
from callboard.workers.relay import UPGRADE, RelayedRequest, write_forwarded

OPENING: Final = b"GET /link HTTP/1.1\r\nhost: worker\r\n" + UPGRADE + b"\r\n"

MAX_STREAMS: Final = 1024
"""Requests and streams that one worker has at another at once. For more there is a 503."""

OPENED_WITHIN: Final = 5.0
"""Seconds for the other worker to answer the opening."""

AGAIN_AFTER: Final = 0.05
"""Seconds after which a link that ended is opened again, as long as the parent says that the worker is there."""


log = get_logger("callboard.workers")


@attrs.define(eq=False)
class HomeLink(Actor[Never]):
    """Opens the connection, keeps it open, and gives each frame to the request that it belongs to."""

    mailbox = None

    home: bytes
    origin: Origin
    batch: WriteBatch
    tls: ssl.SSLContext | None = None
    dial: Dial = reach
    hangs: bool = attrs.field(default=False, init=False)
    """Whether the other worker does not answer its parent."""
    sent: int = attrs.field(default=0, init=False)
    _wire: Wire | None = attrs.field(default=None, init=False)
    _has_failed: bool = attrs.field(default=False, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _streams: dict[int, RelayedRequest] = attrs.field(factory=dict, init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def run(self) -> None:
        while True:
            try:
                await self._carry()
            except (CannotConnect, BadAnswer, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # its end is the other worker's affair; what was on its way is told below
            except Exception as error:  # a fault of ours, or of the other worker's: the next connection may be better
                log.warning("link_failed", worker=self.home.hex(), failure=f"{type(error).__name__}: {error}")
            finally:
                self._has_failed = True
                self._lose()
            await trio.sleep(AGAIN_AFTER)

    async def _carry(self) -> None:
        """Open the connection, and read it to its end."""
        with trio.fail_after(OPENED_WITHIN):
            wire = await self.dial(self.origin, self.tls)
        try:
            with trio.fail_after(OPENED_WITHIN):
                rest = await _opened(wire)
            if isinstance(wire, SocketWire | SslWire):
                wire.write_batch = self.batch
            self._wire, self._has_failed = wire, False
            self._note()
            decoder = LinkDecoder()
            while True:
                for stream, kind, payload in decoder.feed(rest):
                    if (relayed := self._streams.get(stream)) is not None:
                        relayed.hear(kind, payload)
                    elif kind == LAST:
                        self._give_back(int(payload))
                rest = await wire.receive(MAX_READ)
                if not rest:
                    return
        finally:
            wire.close()

    def _give_back(self, latest: int) -> None:
        """The other worker ends: what it has not begun, another one may."""
        self._wire = None
        for number in [number for number in self._streams if number > latest]:
            self._streams.pop(number).not_begun()

    def _lose(self) -> None:
        self._wire = None
        self._note()
        for relayed in list(self._streams.values()):
            relayed.home_lost()
        self._streams.clear()

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # What is asked on it.

    @property
    def is_open(self) -> bool:
        return self._wire is not None

    @property
    def has_room(self) -> bool:
        return len(self._streams) < MAX_STREAMS

    async def wait_open(self) -> bool:
        """Wait until it is open for the first time; False if the other worker cannot be reached now."""
        while self._wire is None and not self._has_failed:
            await self._changed.wait()
        return self._wire is not None

    def try_ask(self, relayed: RelayedRequest) -> bool:
        """Send a request, if that needs no waiting. False if it does: then nothing was sent."""
        wire = self._wire
        if wire is None or self.hangs or not self.has_room or len(relayed.body) > MAX_PIECE // 2:
            return False
        request = write_forwarded(relayed.head, relayed.body, relayed.principal, relayed.response.peer)
        stream = next(self._numbers)
        if len(request) > MAX_PIECE or not wire.send_soon(write_frame(stream, REQUEST, request)):
            return False
        self._join(relayed, stream)
        return True

    async def ask(self, relayed: RelayedRequest) -> None:
        """Send a request. Raises `trio.BrokenResourceError` if the link ended before all of it was sent."""
        wire = self._wire
        if wire is None:
            raise trio.BrokenResourceError("the link is closed")
        request = write_forwarded(relayed.head, relayed.body, relayed.principal, relayed.response.peer)
        stream = next(self._numbers)
        self._join(relayed, stream)
        for frame in write_frames(stream, REQUEST, request):
            await wire.send(frame)

    def _join(self, relayed: RelayedRequest, stream: int) -> None:
        self._streams[stream] = relayed
        relayed.link, relayed.stream = self, stream
        self.sent += 1

    def say(self, relayed: RelayedRequest, kind: int, payload: bytes = b"") -> None:
        """Say a small thing of a request that is on its way."""
        wire = self._wire
        frame = write_frame(relayed.stream, kind, payload)
        if wire is None or wire.send_soon(frame):
            return
        with suppress(SupervisorClosed):  # this worker ends, and the link with it
            self.supervisor.spawn(_Word(wire, frame), name=f"{self.name}-word-{next(self._numbers)}")

    def forget(self, relayed: RelayedRequest) -> None:
        if self._streams.get(relayed.stream) is relayed:
            del self._streams[relayed.stream]

    def facts(self) -> dict[str, Fact]:
        state = "hangs" if self.hangs else "open" if self.is_open else "closed"
        return {"state": state, "requests": len(self._streams), "sent": self.sent}


@attrs.define(eq=False)
class _Word(Actor[Never]):
    """Writes one frame on a connection that is busy."""

    mailbox = None

    wire: Wire
    frame: bytes

    async def run(self) -> None:
        try:
            await self.wire.send(self.frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the link ends, and says so itself


async def _opened(wire: Wire) -> bytes:
    """Turn an HTTP connection into a link. Returns what was read beyond that. Raises `BadAnswer`."""
    await wire.send(OPENING)
    parser = AnswerParser(may_switch=True)
    while data := await wire.receive():
        found = parser.feed(data)
        match found:
            case [AnswerHead(status=101), bytes(rest)]:
                return rest
            case [AnswerHead(status=status), *_]:
                raise BadAnswer(f"the other worker answered {status}")
    raise BadAnswer("the other worker closed the connection")
