"""Streams of a legacy session that a client may leave and come back to: what it missed is kept, within bounds."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import attrs
import trio

from callboard.actors.outlet import Outbound
from callboard.actors.tape import Track
from callboard.codecs.http.head import Head, HeaderList
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import status_of_legacy
from callboard.codecs.http.writer import JSON, STREAM
from callboard.codecs.replay_budget import ReplayBudget
from callboard.codecs.sse import encode_event
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.modern import headers_of
from callboard.transports.server.http.response import Response


def _nothing() -> None:
    """Callback of a stream without a session."""


def _nobody(_: "LegacyStream") -> None:
    """The same, for what is told of a stream."""


class _Kept(NamedTuple):
    stream: "LegacyStream"
    number: int
    event: bytes


@attrs.define(eq=False)
class EventStore:
    """The latest events of one session, of all its streams together."""

    most: int
    most_bytes: int
    budget: ReplayBudget
    sent: int = attrs.field(default=0, init=False)
    """Bytes of all messages of the session, of answers too, which are not kept."""
    kept_bytes: int = attrs.field(default=0, init=False)
    _events: deque[_Kept] | None = attrs.field(default=None, init=False)

    def add(self, stream: "LegacyStream", number: int, event: bytes) -> None:
        """Keep one event, and let go of the oldest: of this one, too, if it alone is too large."""
        if self._events is None:  # most sessions never stream, and an empty deque has a weight
            self._events = deque()
            self.budget.join(self)
        self._events.append(_Kept(stream, number, event))
        self.kept_bytes += len(event)
        self.budget.total += len(event)
        while self.kept_bytes > self.most_bytes or len(self) > self.most:
            self.forget_oldest()
        self.budget.trim()

    def __len__(self) -> int:
        return 0 if self._events is None else len(self._events)

    def forget_oldest(self) -> None:
        if self._events:
            self._let_go(self._events.popleft())
        if not self._events:
            self._events = None
            self.budget.leave(self)

    def forget(self, stream: "LegacyStream") -> None:
        """Let go of all events of one stream."""
        kept, self._events = self._events or (), None
        rest: deque[_Kept] = deque()
        for one in kept:
            if one.stream is stream:
                self._let_go(one)
            else:
                rest.append(one)
        self._events = rest or None
        if self._events is None:
            self.budget.leave(self)

    def clear(self) -> None:
        """The session is over."""
        while self._events is not None:
            self.forget_oldest()

    def _let_go(self, kept: _Kept) -> None:
        self.kept_bytes -= len(kept.event)
        self.budget.total -= len(kept.event)
        kept.stream.forgotten = max(kept.number, kept.stream.forgotten)

    def after(self, stream: "LegacyStream", number: int) -> list[tuple[int, bytes]]:
        """The events of *stream* that followed *number*. Raises `HttpRefusal` if some of them are not here any more."""
        if number < stream.forgotten:
            raise HttpRefusal(400, "events after this one are no longer available for replay")
        return [(one.number, one.event) for one in self._events or () if one.stream is stream and one.number > number]


@attrs.define(eq=False)
class LegacyStream:
    """The answer to one POST, or what is unrelated to any (GET). It goes on while it has no reader.

    A single answer is JSON; the stream begins when something must be said before it.
    """

    number: int
    store: EventStore
    pulse: KeepAlive
    response: Response | None
    retry: float
    is_polled: bool = False
    poll_after: float = 0.0  # seconds without an event until it is closed, for its client to come back; 0: never
    headers: tuple[tuple[bytes, bytes], ...] = ()
    incarnation: str = ""
    on_plain_end: Callable[[], None] = _nothing  # it was no stream to come back to
    on_told: Callable[["LegacyStream"], None] = _nobody  # all of it, the end included, was written to the client
    on_left: Callable[[], None] = _nothing  # it has no reader now
    head: Head | None = attrs.field(default=None, init=False)  # of the request, until that has begun; for its trace
    passed: HeaderList = attrs.field(default=(), init=False)  # headers of the request that some backend gets
    track: Track | None = attrs.field(default=None, init=False)  # if it is recorded, and not by the session itself
    held: HeldBytes | None = attrs.field(default=None, init=False)  # what is held of a large request
    forgotten: int = attrs.field(default=0, init=False)  # the latest event that is no longer kept
    is_over: bool = attrs.field(default=False, init=False)
    is_told: bool = attrs.field(default=False, init=False)  # its end was written
    _is_stream: bool = attrs.field(default=False, init=False)
    _last: int = attrs.field(default=0, init=False)
    _quiet_since: float = attrs.field(default=0.0, init=False)  # if it is closed for that
    _coming: Response | None = attrs.field(default=None, init=False)  # the one that is being told what it missed

    def take_head(self) -> Head | None:
        head, self.head = self.head, None
        return head

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        response = self.response
        self._finish()
        if self._is_stream:
            await self._end(self._keep(frame))
            return
        self.on_plain_end()
        if response is not None:
            await self._answer(response, frame, error)

    def try_answer(self, frame: bytes) -> bool:
        response = self.response
        if self._is_stream or self.headers or response is None or not response.try_json(frame):
            return False
        self._sent(frame)
        self._finish()
        self.on_plain_end()
        return True

    async def send(self, message: Outbound) -> None:
        await self._begin(self.retry)
        await self._write(self._keep(message.frame))

    async def send_together(self, frames: Sequence[bytes]) -> None:
        """Send what ends nothing, in one piece."""
        await self._begin(self.retry)
        await self._write(b"".join([self._keep(frame) for frame in frames]))

    async def _answer(self, response: Response, frame: bytes, error: Exception | None) -> None:
        status = status_of_legacy(error)
        self._sent(frame)
        if status != 200:
            await response.answer(status, (*JSON, *headers_of(response, status, error)), frame)
        elif self.headers and error is None:
            await response.answer(200, (*JSON, *self.headers), frame)
        else:
            await response.answer_json(frame)

    def send_nowait(self, message: Outbound) -> None:
        if self._is_stream and not self.is_over:
            event = self._keep(message.frame)
            if self.response is not None:
                self.response.try_write(event)

    def try_send(self, message: Outbound) -> bool:
        response = self.response
        if not self._is_stream:
            if response is not None and not response.try_begin((*STREAM, *self.headers), b""):
                return False
            primer, self._is_stream = self._primer(self.retry), True
            if response is not None:
                self.pulse.add(response)
                if primer:  # an empty chunk would be the last one
                    response.try_write(primer)
        event = self._event(message.frame)
        if response is not None and not response.try_write(event):
            self._last -= 1
            return False
        self.store.add(self, self._last, event)
        return True

    async def give_up(self) -> None:
        """Cancelled: a stream without an event, and its end."""
        self._finish()
        if self.response is not None and not self._is_stream:
            self._is_stream = True
            await self.response.begin((*STREAM, *self.headers))
        await self._end()

    def watch_quiet(self) -> float:
        """Begin to count how long nothing is sent. Returns `closes_at`."""
        self._quiet_since = trio.current_time()
        return self.closes_at

    @property
    def closes_at(self) -> float:
        """When it is to be closed if nothing is sent until then."""
        if not self.poll_after or self.response is None or self.is_over:
            return math.inf
        return self._quiet_since + self.poll_after

    async def close_stream(self, retry: float) -> None:
        if self.is_polled and not self.is_over:
            if self._is_stream:
                # With its place: some clients forget the one that they came back to, if the stream has told no other.
                await self._write(self._encode(b"", round(retry * 1000)))
            await self._begin(retry)
            await self._end()

    def cut(self) -> None:
        """The session is over."""
        self._finish()
        for response in (self.response, self._coming):
            if response is not None:
                self.pulse.discard(response)
                response.cut()
        self.response = self._coming = None
        self.on_told = _nobody
        self.on_plain_end = self.on_left = _nothing  # all three hold the session, which holds its streams

    def _finish(self) -> None:
        self.is_over = True
        if self.held is not None:
            self.held.release()

    # Coming and going.

    def detach(self) -> None:
        """The client has left. That cancels nothing: it may come back."""
        if self.response is not None:
            self.pulse.discard(self.response)
            self.response = None
            self.on_left()

    async def resume(self, response: Response, last: int) -> None:
        """The client is back, and has seen everything up to *last*. Raises `HttpRefusal` if that is too long ago."""
        if last > self._last:
            raise HttpRefusal(400, "unknown event id")
        missed = self.store.after(self, last)
        self._take(response)
        self._coming = response
        await response.begin(STREAM)
        while missed and self._coming is response:
            for number, event in missed:
                await response.write(event)
                last = number
            if last < self.forgotten:  # it reads too slowly for what is said meanwhile
                response.cut()
            missed = [] if response.is_over else self.store.after(self, last)
        if self._coming is response:
            self._coming = None
            await self._go_on(response)

    async def _go_on(self, response: Response) -> None:
        if response.is_over:
            return
        self.response = response
        self.pulse.add(response)
        if self.is_over:
            await self._end()

    async def attach(self, response: Response) -> None:
        """Begin to stream to *response* what comes from now on."""
        self._take(response)
        self.response = response
        self._is_stream = False
        await self._begin(self.retry)

    def _take(self, response: Response) -> None:
        """The newest counts: a client that comes back has often not noticed yet that the old one is dead."""
        for left in (self.response, self._coming):
            if left is not None:
                self.pulse.discard(left)
                left.cut()
        self.response = self._coming = None
        response.on_lost = lambda: self._lost(response)

    def _lost(self, response: Response) -> None:
        if self.response is response:
            self.detach()

    async def _begin(self, retry: float) -> None:
        if self._is_stream:
            return
        primer, self._is_stream = self._primer(retry), True
        response = self.response
        if response is not None:
            self.pulse.add(response)
            await response.begin((*STREAM, *self.headers), primer)

    def _primer(self, retry: float) -> bytes:
        """The first event of a stream that is polled: from it on, the client can come back."""
        return self._keep(b"", round(retry * 1000)) if self.is_polled and not self._is_stream else b""

    def _keep(self, frame: bytes, retry: int | None = None) -> bytes:
        event = self._event(frame, retry)
        self.store.add(self, self._last, event)
        return event

    def _event(self, frame: bytes, retry: int | None = None) -> bytes:
        self._last += 1
        if self.poll_after:
            self._quiet_since = trio.current_time()
        self._sent(frame)
        return self._encode(frame, retry)

    def _encode(self, frame: bytes, retry: int | None) -> bytes:
        return encode_event(frame, event_id=f"{self.incarnation}{self.number}-{self._last}", event=None, retry=retry)

    def _sent(self, frame: bytes) -> None:
        self.store.sent += len(frame)
        if self.track is not None and frame:  # the first event of a stream may be empty
            self.track.from_server(frame)

    async def _write(self, event: bytes) -> None:
        if self.response is not None:
            await self.response.write(event)

    async def _end(self, event: bytes = b"") -> None:
        response, self.response = self.response, None
        if response is not None:
            self.pulse.discard(response)
            self.on_left()
            await response.end(event)
            if self.is_over and not response.is_lost:
                self.is_told = True
                self.on_told(self)
