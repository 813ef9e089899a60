"""The link to one other worker: one connection, on which all requests to it go, and all answers come back."""

import ssl
from typing import Final, Never

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead, AnswerParser
from callboard.codecs.link import LAST, LOST, MAX_PIECE, NUMBERS, REQUEST, LinkDecoder, write_frame, write_frames
from callboard.errors import BadAnswer, CannotConnect
from callboard.supervisor import Actor, Fact, get_logger
from callboard.transports.client.pool import Dial, Origin, reach
from callboard.transports.server.http.write_batch import WriteBatch
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import MAX_READ, SocketWire, Wire
from callboard.workers.link_writer import Carry, LinkWriter
from callboard.workers.relay import UPGRADE, RelayedRequest, write_forwarded

OPENING: Final = b"GET /link HTTP/1.1\r\nhost: worker\r\n" + UPGRADE + b"\r\n"

MAX_STREAMS: Final = 1024
"""Requests that one worker has at another at once. For more there is a 503."""

MAX_LISTENING: Final = 16_384
"""Streams of one worker's clients that wait for what another one's sessions say (GET), beside those: 2 KiB each. For
more there is a 503."""

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
    carry: Carry
    tls: ssl.SSLContext | None = None
    dial: Dial = reach
    hangs: bool = attrs.field(default=False, init=False)
    """Whether the other worker does not answer its parent."""
    sent: int = attrs.field(default=0, init=False)
    _writer: LinkWriter | None = attrs.field(default=None, init=False)
    _has_failed: bool = attrs.field(default=False, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _streams: dict[int, RelayedRequest] = attrs.field(factory=dict, init=False)
    _listening: int = attrs.field(default=0, init=False)  # how many of them are streams that wait
    _latest: int = attrs.field(default=0, init=False)  # number of the latest request, from which frames have the rest

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
            self._writer, self._has_failed, self._latest = LinkWriter(wire, self.carry), False, 0
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
        self._writer = None
        begun = self._latest - (self._latest - latest) % NUMBERS
        for relayed in [relayed for relayed in self._streams.values() if relayed.stream > begun]:
            self.forget(relayed)
            relayed.not_begun()

    def _lose(self) -> None:
        self._writer = None
        self._note()
        lost, self._streams, self._listening = list(self._streams.values()), {}, 0
        for relayed in lost:
            relayed.home_lost()

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # What is asked on it.

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def has_room(self, relayed: RelayedRequest) -> bool:
        if relayed.listens:
            return self._listening < MAX_LISTENING
        return len(self._streams) - self._listening < MAX_STREAMS

    async def wait_open(self) -> bool:
        """Wait until it is open for the first time; False if the other worker cannot be reached now."""
        while self._writer is None and not self._has_failed:
            await self._changed.wait()
        return self._writer is not None

    def try_ask(self, relayed: RelayedRequest) -> bool:
        """Send a request, if that needs no waiting. False if it does: then nothing was sent."""
        writer = self._writer
        if writer is None or self.hangs or not self.has_room(relayed) or len(relayed.body) > MAX_PIECE // 2:
            return False
        request = write_forwarded(relayed.head, relayed.body, relayed.caller, relayed.response.peer)
        number = self._next_number()
        if len(request) > MAX_PIECE or not writer.try_say(write_frame(number % NUMBERS, REQUEST, request)):
            return False
        self._join(relayed, number)
        return True

    async def ask(self, relayed: RelayedRequest) -> None:
        """Send a request. Raises `trio.BrokenResourceError` if the link ended before all of it was sent."""
        writer = self._writer
        if writer is None:
            raise trio.BrokenResourceError("the link is closed")
        request = write_forwarded(relayed.head, relayed.body, relayed.caller, relayed.response.peer)
        number = self._next_number()
        self._join(relayed, number)
        stream = number % NUMBERS
        await writer.say(
            write_frames(stream, REQUEST, request),
            lambda: self._streams.get(stream) is relayed,
            write_frame(stream, LOST),
        )

    def _next_number(self) -> int:
        number = self._latest + 1
        while not number % NUMBERS or number % NUMBERS in self._streams:
            number += 1
        return number

    def _join(self, relayed: RelayedRequest, number: int) -> None:
        self._latest = number
        self._streams[number % NUMBERS] = relayed
        self._listening += relayed.listens
        relayed.link, relayed.stream = self, number
        self.sent += 1

    def say(self, relayed: RelayedRequest, kind: int, payload: bytes = b"") -> None:
        """Say a small thing of a request that is on its way."""
        if self._writer is not None:
            self._writer.say_soon(write_frame(relayed.stream % NUMBERS, kind, payload))

    def forget(self, relayed: RelayedRequest) -> None:
        if self._streams.get(relayed.stream % NUMBERS) is relayed:
            del self._streams[relayed.stream % NUMBERS]
            self._listening -= relayed.listens

    def facts(self) -> dict[str, Fact]:
        state = "hangs" if self.hangs else "open" if self.is_open else "closed"
        requests = len(self._streams) - self._listening
        return {"state": state, "requests": requests, "listening": self._listening, "sent": self.sent}


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
