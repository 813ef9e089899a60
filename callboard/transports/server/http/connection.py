"""One HTTP connection of the native engine: reads requests, one after the other, and passes each to the endpoint.

Its task only reads. An answer is written by the task that has it, on the wire itself, while this one waits for the
next request: so it hears at once when the client leaves, and no task has to wake another.
"""

import math
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, Never, TypeVar

import attrs
import trio

from callboard import tree
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import InlinePolicy
from callboard.actors.server.adoption import run_noticing
from callboard.actors.shares import LOCAL
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import ParserStage, Received, RequestParser
from callboard.codecs.http.status import RETRY_AFTER, NoRoom, refusal_of
from callboard.codecs.http.writer import CONTINUE, JSON, STREAM, write_answer
from callboard.errors import Draining, Overloaded, RequestTimedOut, SupervisorClosed
from callboard.supervisor import WHY_DEADLINE, WHY_DRAIN, WHY_SUPERVISOR, Actor, Address, Fact, Unfinished
from callboard.transports.held import HeldBytes
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Upgraded
from callboard.transports.server.http.handler import RequestHandler
from callboard.transports.server.http.response import WireResponse
from callboard.transports.server.http.slow_requests import SOON, SlowRequests
from callboard.transports.wire import READ_SIZE, Wire

T = TypeVar("T")

SLACK: Final = 5.0
"""Seconds by which the end of an idle connection may come early: its deadline is not moved for every request."""

LINGER: Final = 1.0
"""Seconds for a refused client to hear why. Closed while it still sends, it would get a reset and no answer."""

SHORT_HEAD: Final = 2048
"""Bytes of a head that has not ended which are not counted: that much is in a connection's own weight."""

HEAD_WEIGHT: Final = 2
"""Bytes that are counted for each byte of a longer one: the parser holds what it has read, and the headers in it."""


_NO_MEMORY: Final = b'{"jsonrpc":"2.0","error":{"code":-31003,"message":"out of memory"}}'


@attrs.define(eq=False)
class HttpConnection(Actor[Never]):
    """Owns a wire, the parser of what comes in, and the answer that is on its way out, if any."""

    mailbox = None

    endpoint: RequestHandler
    wire: Wire
    settings: Settings
    slow_requests: SlowRequests
    peer: str = LOCAL
    on_end: Callable[[], None] = attrs.field(default=lambda: None, kw_only=True)
    served: int = attrs.field(default=0, init=False)
    _parser: RequestParser = attrs.field(init=False)
    _response: WireResponse | None = attrs.field(default=None, init=False)
    _until: float = attrs.field(default=math.inf, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    _since: float = attrs.field(default=0.0, init=False)  # when an inline call began to wait
    _principal: str | None = attrs.field(default=None, init=False)  # of the request whose body is being read
    _incoming: HeldBytes | None = attrs.field(default=None, init=False)  # what is held of that body
    _incoming_head: HeldBytes | None = attrs.field(
        default=None, init=False
    )  # what is held of a head that has not ended
    _reading: ParserStage = attrs.field(default=ParserStage.IDLE, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)
    _watch: Address[Never] | None = attrs.field(default=None, init=False)
    _is_left: bool = attrs.field(default=False, init=False)
    _ahead: bytes = attrs.field(default=b"", init=False)
    _custody: InlinePolicy | None = attrs.field(default=None, init=False)
    _parting: bytes = attrs.field(default=b"", init=False)
    _upgraded: Upgraded | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        limits = self.settings
        self._parser = RequestParser(
            self.endpoint.admit,
            max_body=limits.max_frame,
            max_header=limits.max_header,
            max_headers=limits.max_headers,
            memory=self.endpoint.heads,
        )

    async def run(self) -> None:
        try:
            if not self._ahead:
                self._wait_until(trio.current_time() + min(self.settings.first_byte_time, self.settings.keep_alive))
            while data := await self._receive():
                if self._reading is ParserStage.IDLE and not self._is_answering:
                    self._allow_idling()  # a deadline that is close must not fall into what is served now
                for received in self._parser.feed(data):
                    await self._serve(received)
                    del received  # its body is the request's to keep, and goes with it
                if self._parser.stage is not ParserStage.IDLE or self._reading is not ParserStage.IDLE:
                    await self._mind_the_body()
                    await self._mind_the_time()
        except HttpRefusal as refusal:
            await self._refuse(refusal)
        except MemoryError:
            await self._refuse_without_room()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone, or the answer was the last one
        finally:
            self._hang_up()

    def begin_with(self, data: bytes) -> None:
        """Let *data*, which was read already, be the first that the client has said."""
        self._ahead = data

    def facts(self) -> dict[str, Fact]:
        if self._upgraded is not None:
            return self._upgraded.facts()
        return {"served": self.served, "state": "answering" if self._is_answering else f"reads {self._reading.value}"}

    def on_stop(self) -> None:
        """Finish the answer that is on its way, and end."""
        self._is_stopping = True
        if self._upgraded is not None and self._upgraded.on_stop is not None:
            self._upgraded.on_stop()
        elif self._response is not None and self._is_answering:
            self._response.close_after()
        else:
            self.wire.close()

    # How an inline call that waits here is drained.

    begin_stop = None

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,) if self._has_errand else ()

    async def wait_over(self) -> None:
        if self._has_errand and self._response is not None:
            await self._response.wait_over()

    def cut_short(self) -> bool:
        return self._has_errand

    async def part(self) -> None:
        self.address.kill(WHY_DRAIN)  # which answers as well
        await self.wait_over()

    @property
    def _has_errand(self) -> bool:
        return self._custody is not None and self._is_answering

    @property
    def _is_answering(self) -> bool:
        return self._response is not None and not self._response.is_over

    async def _serve(self, received: Received) -> None:
        await self._wait_answered()
        if self._is_stopping:
            raise trio.ClosedResourceError("the answer was the last one")
        head = received.head
        self.served += 1
        self._custody = None
        if self._reading is not ParserStage.IDLE:
            self._reading = ParserStage.IDLE
            self._mind_the_head(0)  # it came whole in the end
            self._allow_idling()
        if received.rest is not None:
            self.expire(math.inf)
            await self._stop_watching()
            self._upgraded = Upgraded(self.peer)
            await self.endpoint.upgrade(head, received.rest + self._ahead, self.wire, self._upgraded)
            return
        keeps_alive = head.keeps_alive and not self._is_stopping
        response = WireResponse(self.wire, keeps_alive=keeps_alive, chunked=head.version == "1.1", peer=self.peer)
        response.adopt = self._adopt
        self._response = response
        principal = None
        if self._principal is not None:
            self._hold(len(received.body))
            response.held, self._incoming = self._incoming, None
            principal, self._principal = self._principal, None
        await self.endpoint.serve(head, received.body, response, principal)
        if not response.is_over:
            response.on_over = self._answered
            self._wait_until(math.inf)

    def _answered(self) -> None:
        """The client may take its time, unless it has begun with the next request."""
        if self._parser.stage is ParserStage.IDLE:
            self._allow_idling()

    async def _adopt(self, errand: Coroutine[Any, Any, T], custody: InlinePolicy) -> T:
        """Run an inline call here. If it waits for long, a `PeerWatch` reads the connection, to notice a disconnect."""

        def on_wait() -> None:
            self._custody, self._since = custody, trio.current_time()
            if self._watch is None and custody.cap > 2 * SOON:
                self.slow_requests.expect(self, self.served)
            else:
                self.mind(self.served)
            custody.on_wait(self._cancel_errand)

        try:
            outcome = await run_noticing(errand, on_wait)
        except Exception:  # its sender answers that; one that is cancelled is answered when this hangs up
            self._custody = None
            raise
        self._custody = None
        return outcome

    def mind(self, number: int) -> None:
        """If request *number* still waits here, bound its time, and notice if its client leaves."""
        if self.served == number and self._custody is not None:
            self._wait_until(self._since + self._custody.cap)
            self._begin_watching()

    def _begin_watching(self) -> None:
        """Start a `PeerWatch`, while this task is busy. Never raises: an inline call waits."""
        if self._watch is None:
            watches = self.supervisor.supervisor.supervisor_of(tree.WATCHES)
            with suppress(SupervisorClosed):  # the end has begun, and is heard of anyway
                self._watch = watches.spawn(PeerWatch(self), name=self.name)

    async def _stop_watching(self) -> None:
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.kill()
            await watch.wait_ended()

    async def _receive(self) -> bytes:
        """The next data of the client, also if the `PeerWatch` received it."""
        if self._watch is not None:
            await self._stop_watching()
            if not self._is_answering:
                self._allow_idling()
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        return b"" if self._is_left else await self.wire.receive()

    def hear(self, data: bytes) -> bool:
        """Take data of a client while its request runs; no data is its end, which cancels the request.

        Returns whether the client may send more: early data is kept, up to a limit.
        """
        if data:
            self._ahead += data
            return len(self._ahead) < READ_SIZE
        self._is_left = True
        if self._custody is None or self._custody.ends_with_client:
            self.address.kill(RequestEvent.DISCONNECTED.value)
        elif self._response is not None:
            self._response.lose()
        return False

    def _cancel_errand(self) -> None:
        """Answer nothing: a stream without an event. The connection ends with it."""
        self._parting = write_answer(200, STREAM, b"", closes=True)
        self.address.kill(RequestEvent.PEER_CANCELLED.value)

    async def _wait_answered(self) -> None:
        """Answers go out in the order of their requests."""
        if self._response is not None and not self._response.is_over:
            self._wait_until(math.inf)
            self._begin_watching()
            await self._response.wait_over()

    async def _refuse(self, refusal: HttpRefusal) -> None:
        """Answer what could not be read as a request, after what was asked before it."""
        await self._wait_answered()
        await self._stop_watching()
        self._reading = ParserStage.IDLE
        response = self._response = WireResponse(self.wire, keeps_alive=False, chunked=False)
        response.lingers = True
        await self.endpoint.refuse(refusal, response)
        self._wait_until(trio.current_time() + LINGER)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.wire.linger()

    async def _refuse_without_room(self) -> None:
        """There was no memory for a request. It is let go of and refused, and nothing else ends with it."""
        self._parser.close()
        response, headers = self._response, (*JSON, *RETRY_AFTER)
        if response is not None and self._is_answering:
            response.close_after()
            await response.answer(503, headers, _NO_MEMORY)
        else:
            await self._refuse(NoRoom(503, "out of memory", headers=RETRY_AFTER, closes=True))

    async def _mind_the_body(self) -> None:
        """A body that did not come with its head: ask for the token first, and count what is held of it.

        Raises `HttpRefusal`: 401, and 429 or 503 if too much is held already.
        """
        head = self._parser.head
        self._mind_the_head(self._parser.unfinished)
        if head is None:
            return
        if self._principal is None:
            self._principal, self._incoming = await self.endpoint.expect_body(head, self.peer)
        self._hold(self._parser.held)

    def _mind_the_head(self, size: int) -> None:
        """Count a long head while it has not ended. Raises `HttpRefusal`: 429 or 503."""
        if size > SHORT_HEAD and self._incoming_head is None:
            self._incoming_head = self.endpoint.expect_head(self.peer)
        if self._incoming_head is None:
            return
        if size:
            _grow(self._incoming_head, HEAD_WEIGHT * size)
        else:
            self._incoming_head.release()
            self._incoming_head = None

    def _hold(self, size: int) -> None:
        if self._incoming is not None:
            _grow(self._incoming, size)

    # How long it waits for what.

    async def _mind_the_time(self) -> None:
        limits, stage, was = self.settings, self._parser.stage, self._reading
        self._reading = stage
        if stage is ParserStage.IDLE:
            if not self._is_answering:
                self._allow_idling()
            return
        now = trio.current_time()
        if stage is not was:
            self._began = now
        if self._parser.is_waited_for:
            self._parser.is_waited_for = False
            await self._wait_answered()  # it is an answer too, and has its turn
            await self.wire.send(CONTINUE)
            now = self._began = trio.current_time()
        if stage is ParserStage.HEAD:
            self._wait_until(self._began + limits.header_time)
        else:
            self._wait_until(min(self._began + limits.body_time, now + limits.body_idle))

    def _allow_idling(self) -> None:
        keep_alive = self.settings.keep_alive
        until = trio.current_time() + keep_alive
        if not until - min(SLACK, keep_alive / 2) < self._until <= until:
            self._wait_until(until)

    def _wait_until(self, until: float) -> None:
        self._until = until
        self.expire(until)

    def _part(self, custody: InlinePolicy) -> None:
        """Answer an inline call that was cut short, unless its client disconnected."""
        if self.why_cut == WHY_DEADLINE:
            self._parting = write_answer(200, JSON, custody.failed(RequestTimedOut(after=custody.cap)), closes=True)
        elif self.why_cut in (WHY_DRAIN, WHY_SUPERVISOR):
            self._parting = write_answer(503, (*JSON, *RETRY_AFTER), custody.failed(Draining()), closes=True)

    def _hang_up(self) -> None:
        if self._custody is not None and not self._parting:
            self._part(self._custody)
        if self._parting:
            self.wire.send_nowait(self._parting)
        if self._is_answering and self._response is not None:
            self._response.lose()
        elif self._reading is not ParserStage.IDLE and self.why_cut == WHY_DEADLINE:
            self.wire.send_nowait(write_answer(408, (), b"", closes=True))
        for held in (self._incoming, self._incoming_head):
            if held is not None:
                held.release()
        self._custody = self._response = None
        self._parser.close()
        self.wire.close()
        self.on_end()


@attrs.define(eq=False)
class PeerWatch(Actor[Never]):
    """Listens in the place of a connection that is busy: the client may leave."""

    mailbox = None

    connection: HttpConnection

    async def run(self) -> None:
        while self.connection.hear(await self._next()):
            pass

    async def _next(self) -> bytes:
        try:
            return await self.connection.wire.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""


def _grow(held: HeldBytes, size: int) -> None:
    try:
        held.grow(size)
    except Overloaded as error:
        raise refusal_of(error) from None
