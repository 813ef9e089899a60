"""One HTTP connection of the native engine: reads requests, one after the other, and passes each to the endpoint.

An answer is written by the task that has it, on the wire itself: no task has to wake another.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Never

import attrs
import trio

from callboard.actors.outlet import Carried, Carrier
from callboard.actors.shares import LOCAL
from callboard.actors.terms import Terms
from callboard.codecs.caller import Caller
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import ParserStage, Received, RequestParser
from callboard.codecs.http.status import RETRY_AFTER, NoRoom, refusal_of
from callboard.codecs.http.writer import CONTINUE, JSON, write_answer
from callboard.errors import Overloaded, SupervisorClosed
from callboard.supervisor import WHY_DEADLINE, Actor, Fact, Lifetime
from callboard.transports.held import HeldBytes
from callboard.transports.limits import Settings
from callboard.transports.server.http.handler import RequestHandler
from callboard.transports.server.http.response import WireResponse
from callboard.transports.server.http.slow_requests import SOON, SlowRequests
from callboard.transports.server.http.upgraded import Upgraded
from callboard.transports.wire import MAX_READ, READ_SIZE, Wire

SLACK: Final = 5.0
"""Seconds by which the end of an idle connection may come early: its deadline is not moved for every request."""

IN_A_ROW: Final = 2
"""Requests of one read that are served before others get a turn. Fifty may come in one, on each of many connections:
with 16, fifty such clients delayed a neighbour's call by 1.5 s, with 2 by 0.2 s."""

FULL_READ: Final = 2 * READ_SIZE
"""Bytes that are read at once from a client that has sent a large body: the next one may come whole. The buffer is made
before it is known how much there is."""

LINGER: Final = 1.0
"""Seconds for a refused client to hear why. Closed while it still sends, it would get a reset and no answer."""

SHORT_HEAD: Final = 2048
"""Bytes of a head that has not ended which are not counted: that much is in a connection's own weight."""

HEAD_WEIGHT: Final = 2
"""Bytes that are counted for each byte of a longer one: the parser holds what it has read, and the headers in it."""


_NO_MEMORY: Final = b'{"jsonrpc":"2.0","error":{"code":-31003,"message":"out of memory"}}'


@attrs.define(eq=False)
class HttpConnection(Actor[Never]):
    """Owns a wire, the parser of what comes in, and the answer that is on its way out, if any.

    Its task runs the requests that it reads. If one waits, the task stays with it, and the connection is passed on to
    another task, which hears when the client leaves: at once on a WebSocket, where others may come in between; else
    only if it takes a while, for no other request may overtake it.
    """

    mailbox = None

    endpoint: RequestHandler
    wire: Wire
    settings: Settings
    slow_requests: SlowRequests
    peer: str = LOCAL
    on_end: Callable[[], None] = attrs.field(default=lambda: None, kw_only=True)
    served: int = attrs.field(default=0, init=False)
    terms: Terms | None = attrs.field(default=None, init=False)
    _parser: RequestParser = attrs.field(init=False)
    _received: Iterator[Received] = attrs.field(factory=lambda: iter(()), init=False)  # and not served yet
    _response: WireResponse | None = attrs.field(default=None, init=False)
    _carried: Carried | None = attrs.field(default=None, init=False)  # waits in the task that runs this
    _until: float = attrs.field(default=math.inf, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    _caller: Caller | None = attrs.field(default=None, init=False)  # of the request whose body is being read
    _incoming: HeldBytes | None = attrs.field(default=None, init=False)  # what is held of that body
    _incoming_head: HeldBytes | None = attrs.field(
        default=None, init=False
    )  # what is held of a head that has not ended
    _usual: int = attrs.field(default=READ_SIZE, init=False)  # bytes that are read at once
    _reading: ParserStage = attrs.field(default=ParserStage.IDLE, init=False)
    _is_begun: bool = attrs.field(default=False, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)
    _is_left: bool = attrs.field(default=False, init=False)
    _ahead: bytes = attrs.field(default=b"", init=False)
    _early: trio.CancelScope | None = attrs.field(default=None, init=False)  # around a wait that the answer ends
    _upgraded: Upgraded | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        limits = self.settings
        self._parser = RequestParser(
            self.endpoint.admit,
            max_body=limits.max_frame,
            max_header=limits.max_header,
            max_headers=limits.max_headers,
            memory=self.endpoint.heads,
            upgrade=self.endpoint.upgrade_to,
        )

    async def run(self) -> None:
        turn = self.turn
        try:
            if self._upgraded is None:
                await self._read(turn)
            if self._upgraded is not None and self.turn is turn:
                await self._upgraded.run()
        except HttpRefusal as refusal:
            await self._refuse(refusal)
        except MemoryError:
            await self._refuse_without_room()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone, or the answer was the last one
        finally:
            if self.turn is turn:
                self._hang_up()

    async def _read(self, turn: object) -> None:
        """Read requests and serve them: to the end, or until another task does."""
        if not self._is_begun:
            self._is_begun = True
            if not self._ahead:
                self._wait_until(trio.current_time() + min(self.settings.first_byte_time, self.settings.keep_alive))
        node = self.lifetime
        while True:
            for count, received in enumerate(self._received, 1):
                await self._serve(received)
                if node.scope is not turn or self._upgraded is not None:
                    return
                del received  # its body is the request's to keep, and goes with it
                if count % IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
            wanted = self._usual
            if self._parser.stage is not ParserStage.IDLE or self._reading is not ParserStage.IDLE:
                await self._mind_the_body()
                await self._mind_the_time()
                if self._parser.missing:
                    self._usual = FULL_READ
                    wanted = max(FULL_READ, min(self._parser.missing, MAX_READ))
            response = self._response
            if self._ahead or self._is_left or (response is not None and not response.is_over):
                data = await self._receive()
            else:
                data = await self.wire.receive(wanted)
            if not data:
                return
            if self._reading is ParserStage.IDLE:
                self._allow_idling()  # a deadline that is close must not fall into what is served now
            self._received = iter(self._parser.feed(data))

    def begin_with(self, data: bytes) -> None:
        """Let *data*, which was read already, be the first that the client has said."""
        self._ahead = data

    def facts(self) -> dict[str, Fact]:
        if self._upgraded is not None:
            return self._upgraded.facts()
        return {"served": self.served, "state": "answering" if self.is_answering else f"reads {self._reading.value}"}

    def on_stop(self) -> None:
        """Finish the answer that is on its way, and end."""
        self._is_stopping = True
        if self._upgraded is not None:
            self._upgraded.leave()
        elif self._response is not None and self.is_answering:
            self._response.close_after()
        else:
            self.wire.close()

    @property
    def upgraded(self) -> Upgraded | None:
        """What it has turned into, if it has."""
        return self._upgraded

    @property
    def is_answering(self) -> bool:
        """Whether a request waits for its answer, or for the end of it."""
        return self._response is not None and not self._response.is_over

    async def _serve(self, received: Received) -> None:
        before = self._response
        if before is not None and not before.is_over:
            await self._wait_answered()
        if self._is_stopping or self._is_left or (before is not None and before.is_lost):
            raise trio.ClosedResourceError("the answer was the last one, or its client is gone")
        head = received.head
        self.served += 1
        if self._reading is not ParserStage.IDLE:
            self._reading = ParserStage.IDLE
            self._mind_the_head(0)  # it came whole in the end
            self._allow_idling()
        if received.rest is not None:
            self.expire(math.inf)
            self._upgraded = await self.endpoint.upgrade(head, received.rest + self._ahead, self.wire, self)
            return
        if self._caller is None and len(received.body) > READ_SIZE:
            self._caller, self._incoming = await self.endpoint.expect_body(head, self.peer)
        if self._caller is not None:
            self._hold(len(received.body))
        keeps_alive = head.keeps_alive and not self.endpoint.is_leaving and not self._is_stopping
        response = WireResponse(self.wire, keeps_alive=keeps_alive, chunked=head.version == "1.1", peer=self.peer)
        response.carrier = self
        self._response = response
        caller = None
        if self._caller is not None:
            response.held, self._incoming = self._incoming, None
            caller, self._caller = self._caller, None
        await self.endpoint.serve(head, received.body, response, caller)
        if not response.is_over and self._response is response:
            response.on_over = self._answered
            self.slow_requests.expect(self, self.served)  # to move the deadline costs more than most answers take

    def _answered(self) -> None:
        """The client may take its time, unless it has begun with the next request."""
        if self._early is not None:
            self._early.cancel()
        if self._until == math.inf and self._parser.stage is ParserStage.IDLE:
            self._allow_idling()

    # How it runs requests that wait.

    @property
    def carrier(self) -> Carrier:
        return self

    def carry(self, request: Carried) -> None:
        response = self._response
        if self._upgraded is not None or response is None or response.is_over:
            request.own(self.free())
            return
        response.on_over = self._answered
        if request.left <= 2 * SOON:
            request.own(self.free())
        else:
            self._carried = request
            self.slow_requests.expect(self, self.served)

    def mind(self, number: int) -> None:
        """If request *number* still waits: let another task read on if this one waits with it; and do not end the
        connection meanwhile."""
        if self.served != number:
            return
        if self._carried is not None:
            self._carried.own(self.free())
        elif self.is_answering and self._parser.stage is ParserStage.IDLE:
            self._wait_until(math.inf)

    def free(self) -> Lifetime:
        self._carried = None
        try:
            lifetime = self.pass_on()
        except SupervisorClosed:  # the end has begun: nothing more is read
            return self.lifetime
        self._until = math.inf  # the task that reads on has no deadline yet
        if self._upgraded is None and not self.is_answering:
            self._allow_idling()
        return lifetime

    def drop(self, request: Carried) -> None:
        if self._carried is request:
            self._carried = None

    # What the client says.

    async def _receive(self) -> bytes:
        """The next data of the client. What it says before its answer is written is kept, up to a limit."""
        while self._ahead or self._is_left:
            if not self.is_answering:
                ahead, self._ahead = self._ahead, b""
                return ahead
            await self._read_ahead()
        data = await self._hear()
        if not self.is_answering:
            return data
        self._keep(data)
        return await self._receive()

    async def _wait_answered(self) -> None:
        """Answers go out in the order of their requests."""
        while self.is_answering:
            self._wait_until(math.inf)
            await self._read_ahead()

    async def _read_ahead(self) -> None:
        """Wait until the answer is written, or the client says something, or leaves."""
        if self._is_left or len(self._ahead) >= READ_SIZE:
            if self._response is not None:
                await self._response.wait_over()
            return
        with trio.CancelScope() as self._early:
            self._keep(await self._hear())
        self._early = None

    async def _hear(self) -> bytes:
        try:
            return await self.wire.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if self.is_answering:
                return b""
            raise

    def _keep(self, data: bytes) -> None:
        """No data is the end of the client: what it asked for may be cancelled by that."""
        if data:
            self._ahead += data
            return
        self._is_left = True
        if self._response is not None:
            self._response.lose()

    async def _refuse(self, refusal: HttpRefusal) -> None:
        """Answer what could not be read as a request, after what was asked before it."""
        await self._wait_answered()
        self._reading = ParserStage.IDLE
        response = self._response = WireResponse(self.wire, keeps_alive=False, chunked=False, peer=self.peer)
        response.lingers = True
        await self.endpoint.refuse(refusal, response)
        self._wait_until(trio.current_time() + LINGER)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.wire.linger()

    async def _refuse_without_room(self) -> None:
        """There was no memory for a request. It is let go of and refused, and nothing else ends with it."""
        self._parser.close()
        response, headers = self._response, (*JSON, *RETRY_AFTER)
        if response is not None and self.is_answering:
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
        if self._caller is None:
            self._caller, self._incoming = await self.endpoint.expect_body(head, self.peer)
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
            if not self.is_answering:
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

    def _hang_up(self) -> None:
        if self.is_answering and self._response is not None:
            self._response.lose()
        elif self._reading is not ParserStage.IDLE and self.why_cut == WHY_DEADLINE:
            self.wire.send_nowait(write_answer(408, (), b"", closes=True))
        for held in (self._incoming, self._incoming_head):
            if held is not None:
                held.release()
        self._carried = self._response = self._upgraded = None
        self._received = iter(())
        self._parser.close()
        self.wire.close()
        self.on_end()


def _grow(held: HeldBytes, size: int) -> None:
    try:
        held.grow(size)
    except Overloaded as error:
        raise refusal_of(error) from None
