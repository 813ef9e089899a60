"""The other end of a link: requests that another worker has read are answered here."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from callboard.actors.outlet import Carrier
from callboard.actors.shares import account_of
from callboard.codecs.caller import MAX_CALLER
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory, RequestParser
from callboard.codecs.link import (
    ANSWER,
    BEGIN,
    CREDIT,
    CUT,
    END,
    JSON,
    LAST,
    LOST,
    MAX_PIECE,
    REQUEST,
    WINDOW,
    WRITE,
    LinkDecoder,
    LinkFrame,
    is_later,
    write_frame,
    write_frames,
    write_link_answer,
)
from callboard.errors import Overloaded
from callboard.supervisor import Fact
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.modern import answer_unread, asked_id
from callboard.transports.server.http.response import ScopeHeaders
from callboard.transports.server.http.upgraded import Reading
from callboard.transports.wire import MAX_READ, READ_SIZE, Wire
from callboard.workers.link_writer import LinkWriter
from callboard.workers.relay import CALLER, PEER, read_name, read_told

IN_A_ROW: Final = 4
"""Requests of one read that are served before others get a turn."""

MORE_HEADERS: Final = 8
"""Headers that a worker adds to a request, and half a kilobyte for each; more for the caller."""

_ACCEPTED: Final = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: callboard-link\r\n\r\n"


def _nobody_minds() -> None:
    """Used until a request wants to know that the client has left."""


class LinkResponse:
    """The answer to one request of a link: frames on it, written by any task."""

    extra: tuple[tuple[bytes, bytes], ...] = ()
    held: HeldBytes | None = None
    is_lost = False
    is_over = False
    is_forwarded = True
    carrier: Carrier | None = None
    scope_headers: ScopeHeaders | None = None
    on_lost: Callable[[], None] = staticmethod(_nobody_minds)

    def __init__(self, link: "LinkServer", stream: int, peer: str) -> None:
        self._link = link
        self._stream = stream
        self.peer = peer
        self._window = WINDOW
        self._granted: trio.Event | None = None

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        await self._finish(ANSWER, write_link_answer(status, [*headers, *self.extra], body))

    async def answer_json(self, body: bytes) -> None:
        if not self.try_json(body):
            await self._finish(JSON, body)

    def try_json(self, body: bytes) -> bool:
        if self.is_over or len(body) > MAX_PIECE or not self._link.try_say(self._stream, JSON, body):
            return False
        self._ended()
        return True

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        await self._send(BEGIN, write_link_answer(200, [*headers, *self.extra]))
        if data:
            await self.write(data)

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        if self.is_over:
            return True
        begun = self._link.try_say(self._stream, BEGIN, write_link_answer(200, [*headers, *self.extra]))
        return begun and (not data or self.try_write(data))

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), MAX_PIECE):
            piece = data[start : start + MAX_PIECE]
            if not self.try_write(piece):
                await self._wait_granted()
                await self._send(WRITE, piece)
                self._window -= len(piece)

    def try_write(self, data: bytes) -> bool:
        if self.is_over:
            return True
        if self._window <= 0 or len(data) > MAX_PIECE or not self._link.try_say(self._stream, WRITE, data):
            return False
        self._window -= len(data)
        return True

    async def end(self, data: bytes = b"") -> None:
        if not self.try_end(data):
            if data:
                await self.write(data)
            await self._finish(END, b"")

    def try_end(self, data: bytes) -> bool:
        if not self.is_over:
            if len(data) > MAX_PIECE or self._window <= 0 or not self._link.try_say(self._stream, END, data):
                return False
            self._ended()
        return True

    def cut(self) -> None:
        if not self.is_over:
            self._link.say_soon(self._stream, CUT)
            self._ended()

    def lose(self) -> None:
        """The client has left, or the worker that it reached."""
        if not self.is_over:
            self.is_lost = True
            self.on_lost()
            self._ended()

    def grant(self, size: int) -> None:
        """The client has taken *size* bytes."""
        self._window = min(self._window + size, WINDOW)
        if self._granted is not None and self._window > 0:
            self._granted.set()

    async def _wait_granted(self) -> None:
        with trio.move_on_after(self._link.endpoint.settings.write_time):
            while self._window <= 0 and not self.is_over:
                self._granted = trio.Event()
                await self._granted.wait()
        if self._window <= 0 and not self.is_over:
            self._link.say_soon(self._stream, CUT)
            self.lose()

    async def _send(self, kind: int, payload: bytes) -> None:
        if not self.is_over:
            await self._link.say(self._stream, kind, payload, lambda: not self.is_over)

    async def _finish(self, kind: int, payload: bytes) -> None:
        await self._send(kind, payload)
        self._ended()

    def _ended(self) -> None:
        self.is_over = True
        self._link.forget(self._stream)
        if self.held is not None:
            self.held.release()
        if self._granted is not None:
            self._granted.set()
        self.on_lost = _nobody_minds
        self.carrier = None


@attrs.define(eq=False)
class LinkServer:
    """Reads the requests of one other worker. What waits stays in its task, and another task reads on."""

    wire: Wire
    reading: Reading
    endpoints: Sequence[Endpoint]
    heads: HeadMemory
    served: int = attrs.field(default=0, init=False)
    _opening: bytes = attrs.field(default=_ACCEPTED, init=False)
    _frames: list[LinkFrame] = attrs.field(factory=list, init=False)  # and not dealt with yet, the next one last
    _decoder: LinkDecoder = attrs.field(factory=LinkDecoder, init=False)
    _parser: RequestParser = attrs.field(init=False)
    _writer: LinkWriter = attrs.field(init=False)
    _responses: dict[int, LinkResponse] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _latest: int = attrs.field(default=0, init=False)  # request that was begun, of the highest number

    def __attrs_post_init__(self) -> None:
        limits, requests = self.endpoint.settings, self.endpoint.host.requests
        self._writer = LinkWriter(self.wire, partial(requests.carry, name="link-writer"))
        self._parser = RequestParser(
            _admit,
            max_body=limits.max_frame,
            max_header=limits.max_header + MORE_HEADERS * 512 + MAX_CALLER * 4 // 3,
            max_headers=limits.max_headers + MORE_HEADERS,
            memory=self.heads,
        )

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoints[0]

    def begin_with(self, rest: bytes) -> None:
        self._frames = self._decoder.feed(rest)[::-1]

    async def run(self) -> None:
        turn = self.reading.turn
        try:
            if self._opening:
                opening, self._opening = self._opening, b""
                await self.wire.send(opening)
            await self._listen(turn)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ValueError):
            pass  # the other worker is gone, or is none
        finally:
            if self.reading.turn is turn:
                self._close()
                for response in list(self._responses.values()):
                    response.lose()

    async def _listen(self, turn: object) -> None:
        while True:
            count = 0
            while self._frames:
                stream, kind, payload = self._frames.pop()
                if kind == REQUEST:
                    await self._serve(stream, payload)
                    if self.reading.turn is not turn:
                        return
                    count += 1
                    if count % IN_A_ROW == 0:
                        await trio.lowlevel.checkpoint()
                else:
                    self._hear(stream, kind, payload)
            data = await self.wire.receive(MAX_READ)
            if not data:
                return
            self._frames = self._decoder.feed(data)[::-1]

    def _hear(self, stream: int, kind: int, payload: bytes) -> None:
        response = self._responses.get(stream)
        if response is None:
            return
        if kind == LOST:
            response.lose()
        elif kind == CREDIT:
            response.grant(int(payload))

    async def _serve(self, stream: int, request: bytes) -> None:
        if is_later(stream, self._latest):
            self._latest = stream
        (received,) = self._parser.feed(request)
        head, body = received.head, received.body
        peer = read_name(head.get(PEER) or b"")
        response = self._responses[stream] = LinkResponse(self, stream, peer)
        try:
            caller = read_told(head.get(CALLER))
        except ValueError:  # of this request alone: others on the link go on
            await self.endpoint.refuse(HttpRefusal(400, "unreadable caller"), response)
            return
        response.carrier = self.reading.carrier
        self.served += 1
        if len(body) > READ_SIZE:
            response.held = HeldBytes(self.endpoint.host.bodies, account_of(caller.key, peer))
            try:
                response.held.grow(len(body))
            except Overloaded as error:
                self.endpoint.host.count_refusal(error)
                await answer_unread(response, error, asked_id(head, body))
                return
        await self.endpoint.serve(head, body, response, caller)

    # What is said.

    def try_say(self, stream: int, kind: int, payload: bytes) -> bool:
        return self._writer.try_say(write_frame(stream, kind, payload))

    def say_soon(self, stream: int, kind: int) -> None:
        self._writer.say_soon(write_frame(stream, kind))

    async def say(self, stream: int, kind: int, payload: bytes, is_wanted: Callable[[], bool]) -> None:
        try:
            await self._writer.say(write_frames(stream, kind, payload), is_wanted, write_frame(stream, CUT))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.wire.close()  # the reader hears it

    def forget(self, stream: int) -> None:
        self._responses.pop(stream, None)
        if self._is_leaving and not self._responses:
            self._close()

    def _close(self) -> None:
        """End, and say which requests were not begun: they may be in the socket."""
        self._writer.close_after(write_frame(0, LAST, b"%d" % self._latest))

    def leave(self) -> None:
        self._is_leaving = True
        if not self._responses:
            self._close()

    def facts(self) -> dict[str, Fact]:
        return {"state": "link", "served": self.served, "requests": len(self._responses)}


def _admit(_: Head) -> None:
    """The worker that read it has admitted it."""
