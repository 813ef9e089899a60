"""A link over one connection that carries everything in both directions: pipes, sockets, memory."""

import re
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.actors.client.link import Hear, OutgoingRequest
from callboard.actors.client.pace import ReadPace
from callboard.actors.deadlines import DeadlineTimer
from callboard.actors.end_of_turn import FEW, SMALL, EndOfTurn
from callboard.actors.frames import notification_frame
from callboard.actors.outlet import Begin, BeginTogether, Connection, ImmediateBatchSink, ImmediateSink
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.turnstile import wait_turn
from callboard.codecs.envelope import ErrorResponse, RequestId, ResultResponse, decode, is_batch, split_batch
from callboard.codecs.revisions import CancelledNotificationParams, Revision
from callboard.errors import BadAnswer, CallboardError, ConnectionLost, FrameTooLarge, PeerError
from callboard.supervisor import get_logger
from callboard.supervisor.groups import own_nursery

log = get_logger("callboard.actors")

FAREWELL: Final = 1.0
"""Seconds in which a server is told that a request is no longer wanted; then it is not told."""

MAX_FAREWELLS: Final = 64
"""Most such messages that wait for a server to read them. A server that does not read is not told of more."""

SAID: Final = Rate(10)
"""How often it is logged that a message cannot be read. Each is counted."""

BANNER: Final = 200
"""Bytes of what is no message that are logged."""

_NEVER_CANCELLED: Final = frozenset({"initialize"})

# The id of a response, if the response is written in the usual order.
_AT_THE_START: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"'
)
_AT_THE_END: Final = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
_TAIL: Final = 100


@attrs.define(eq=False)
class DuplexLink:
    """Sends on a connection; `listen` reads it, and wakes the request that an answer is for."""

    connection: Connection
    peer: str = ""
    """Name of the server in the log."""
    is_http: bool = attrs.field(default=False, init=False)
    is_stale: bool = attrs.field(default=False, init=False)
    ignored: int = attrs.field(default=0, init=False)
    heard: int = attrs.field(default=0, init=False)
    """Frames that have come: a server that sends any is not hung."""
    lost: str = attrs.field(default="", init=False)
    """Why nothing can be asked any more, once that is so."""
    process: trio.Process | None = attrs.field(default=None, init=False)
    tail: Sequence[str] = attrs.field(default=(), init=False)
    is_unread: bool = attrs.field(default=False, init=False)
    _farewells: int = attrs.field(default=0, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _waiting: dict[RequestId, OutgoingRequest] = attrs.field(factory=dict, init=False)
    _writing: dict[RequestId, trio.CancelScope] = attrs.field(factory=dict, init=False)  # requests not written yet
    _pace: ReadPace = attrs.field(factory=ReadPace, init=False)  # of what is of no use; the caller has one for the rest
    _times: DeadlineTimer = attrs.field(factory=DeadlineTimer, init=False)
    _said: RateLimit = attrs.field(factory=lambda: RateLimit(SAID), init=False)
    _begin: Begin = attrs.field(init=False)
    _begin_together: BeginTogether | None = attrs.field(init=False)
    _blocked: int = attrs.field(default=0, init=False)  # writes of several requests that the server does not read
    _together: dict[RequestId, bytes] = attrs.field(factory=dict, init=False)  # requests for the end of this turn
    _turn: EndOfTurn | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        connection = self.connection
        self._begin = connection.begin if isinstance(connection, ImmediateSink) else connection.send
        self._begin_together = connection.begin_together if isinstance(connection, ImmediateBatchSink) else None

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        if self.lost:
            raise ConnectionLost(self.lost)
        self._waiting[outgoing.id] = outgoing
        try:
            if self._turn is None or len(outgoing.frame) > SMALL or self._blocked or not self._turn.is_near():
                rest = self._begin(outgoing.frame)
            else:
                rest = None
                self._together[outgoing.id] = outgoing.frame
                if len(self._together) >= FEW:
                    self._write_together()
            if rest is None or await self._write(rest, outgoing):
                self._times.keep(outgoing)
                await outgoing.wait_over()
            if not outgoing.is_over:
                return None
        except trio.BrokenResourceError as error:
            raise ConnectionLost(await self.why_broken(str(error))) from None
        finally:
            self._times.forget(outgoing)
            del self._waiting[outgoing.id]
            if not outgoing.is_over and outgoing.method not in _NEVER_CANCELLED:
                self._take_back(outgoing)
        if outgoing.failure:
            raise BadAnswer(outgoing.failure)
        if outgoing.answer is None:
            await wait_turn()  # a thousand may have waited
            raise ConnectionLost(self.lost)
        return outgoing.answer

    async def _write(self, rest: Coroutine[Any, Any, None], outgoing: OutgoingRequest) -> bool:
        """Finish writing a request. False if its time has passed before it could be written."""
        with outgoing.scope() as writing:
            self._writing[outgoing.id] = writing
            try:
                await rest
            finally:
                del self._writing[outgoing.id]
        return outgoing.is_over or not writing.cancelled_caught

    def _write_together(self) -> bool:
        """Write the requests that wait for that. False if there are none."""
        frames, self._together = list(self._together.values()), {}
        if not frames or self._nursery is None or self._begin_together is None:
            return False
        try:
            rest = self._begin_together(frames)
        except trio.BrokenResourceError as error:
            rest = self._break(str(error))
        if rest is not None:
            self._blocked += 1
            self._nursery.start_soon(self._finish_together, rest)
        return True

    async def _finish_together(self, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except trio.BrokenResourceError as error:
            await self._break(str(error))
        finally:
            self._blocked -= 1

    async def _break(self, error: str) -> None:
        self.lose(await self.why_broken(error))

    def _take_back(self, outgoing: OutgoingRequest) -> None:
        """Tell the server that a request is no longer wanted. The client does not wait for that: its time is over."""
        if self._together.pop(outgoing.id, None) is not None:
            return  # it has not heard of it yet
        if self._nursery is None or self.lost or self._farewells >= MAX_FAREWELLS:
            return
        params = CancelledNotificationParams(request_id=outgoing.id, reason=outgoing.reason)
        try:
            rest = self._begin(notification_frame(outgoing.revision, "notifications/cancelled", params))
        except trio.BrokenResourceError:
            return  # the server is gone
        if rest is not None:
            self._farewells += 1
            self._nursery.start_soon(self._finish_farewell, rest)

    async def _finish_farewell(self, rest: Coroutine[Any, Any, None]) -> None:
        try:
            with trio.move_on_after(FAREWELL):
                await rest
        except (trio.BrokenResourceError, trio.ClosedResourceError, CallboardError):
            return  # the server is gone
        finally:
            self._farewells -= 1

    async def tell(self, frame: bytes, headers: bytes = b"") -> None:
        if self.lost:
            raise ConnectionLost(self.lost)
        try:
            await self.connection.send(frame)
        except trio.BrokenResourceError as error:
            raise ConnectionLost(await self.why_broken(str(error))) from None

    async def why_broken(self, error: str) -> str:
        """The error of a connection that accepts no more messages."""
        return error or "connection lost"

    async def listen(self, hear: Hear) -> None:
        try:
            await self.read(hear)
        finally:
            self.lose("connection closed by the server")

    async def read(self, hear: Hear) -> None:
        """Read to the end of what the server has to say."""
        async with own_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._times.run)
            if self._begin_together is not None:
                self._turn = EndOfTurn(self._write_together)
                nursery.start_soon(self._turn.run)
            try:
                await self._read(hear)
            finally:
                self._nursery = self._turn = None
            nursery.cancel_scope.cancel()

    async def _read(self, hear: Hear) -> None:
        try:
            async for frame in self.connection:
                self.heard += 1
                if isinstance(frame, FrameTooLarge):
                    self.lose(f"too much unread data from the server: {frame}")
                    return  # whose answer that is cannot be told, and how long it goes on neither
                await self._take_in(frame, hear)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the same end, less politely

    def lose(self, why: str) -> None:
        """End of the input: every waiter gets the failure at once."""
        self.lost = self.lost or why
        for waiting in self._waiting.values():
            waiting.end()
        for writing in self._writing.values():
            writing.cancel()  # another process may hold the other end, and never read it

    async def attend(self) -> None:
        """The reader does that."""

    async def wait_listening(self) -> None:
        """There is one way for everything: the reader of answers hears the rest."""

    async def wait_dropped(self) -> bool:
        return await trio.sleep_forever()  # the reader of answers notices the end

    def agree(self, revision: Revision) -> None:
        """Nothing to do: a duplex connection needs no headers."""

    async def aclose(self) -> None:
        self.lose("closed locally")
        await trio.lowlevel.checkpoint()

    async def _take_in(self, frame: bytes | PeerError, hear: Hear) -> None:
        try:
            if isinstance(frame, PeerError):
                raise frame
            for member in split_batch(frame) if is_batch(frame) else [frame]:
                message = decode(member)
                if not isinstance(message, (ResultResponse, ErrorResponse)):
                    await hear(message)
                elif not self._settle(message):
                    await self._pace.keep(len(member))
        except PeerError as error:
            self.ignored += 1
            if self._said.allow(None, trio.current_time()):  # a server may write nothing else
                text = _banner(frame)
                log.warning("unreadable_message", peer=self.peer, failure=str(error), text=text, ignored=self.ignored)
            waiting = self._waiting.get(_whose(frame, error))
            if waiting is not None and not waiting.is_over:
                waiting.failure = str(error)
                waiting.end()
            await self._pace.keep(0 if isinstance(frame, PeerError) else len(frame))

    def _settle(self, answer: ResultResponse | ErrorResponse) -> bool:
        """Give an answer to the request that waits for it. False if none does."""
        waiting = None if answer.id is None else self._waiting.get(answer.id)
        if waiting is None or waiting.answer is not None:
            self.ignored += 1  # cancelled meanwhile, answered twice, or never asked
            return False
        waiting.answer = answer
        waiting.end()
        return True


def _banner(frame: bytes | PeerError) -> str | None:
    """The beginning of what is no message at all, such as a banner on standard output. A message that is only not
    quite right may hold secrets."""
    if isinstance(frame, PeerError) or frame.lstrip()[:1] in (b"{", b"["):
        return None
    return frame[:BANNER].decode(errors="replace")


def _whose(frame: bytes | PeerError, error: PeerError) -> RequestId:
    """The request that an unreadable answer is to, as far as can be told; 0, which is none of ours, if it cannot."""
    if error.request_id is not None or isinstance(frame, PeerError):
        return error.request_id or 0
    found = _AT_THE_START.match(frame) or _AT_THE_END.search(frame, max(0, len(frame) - _TAIL))
    return 0 if found is None else int(found[1])
