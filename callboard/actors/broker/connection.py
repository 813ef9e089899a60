"""One connection to a backend: opened, used by many requests, and ended when it is not needed or breaks."""

import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from itertools import count
from typing import Any, Final, Never, TypeAlias

import attrs
import msgspec
import trio
from msgspec import Raw
from trio.lowlevel import ParkingLot

from callboard.actors.broker.client_meta import ClientMeta, written_capabilities
from callboard.actors.broker.leases import ConnectionKey, GivenUp, Lease, are_of_one_client, is_one_session
from callboard.actors.broker.question_relay import KnownTask, QuestionRelay
from callboard.actors.broker.visits import UrlVisits
from callboard.actors.client.answerer import question_bytes
from callboard.actors.client.conversation import Conversation, Patience, WaitChange
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.hearer import OnQuestion
from callboard.actors.client.link import Link
from callboard.actors.client.negotiate import Agreed
from callboard.actors.client.pace import ReadPace
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.log_levels import LEVELS
from callboard.actors.shares import Shares
from callboard.codecs.bridge.askable import Signature, declared_by, words_for
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.revisions import (
    Implementation,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Revision,
    declares,
    meta,
)
from callboard.errors import CallboardError, ConnectionLost, NotAuthorized, SupervisorClosed
from callboard.supervisor import Actor, Address, Fact, Snapshot, Supervisor, get_logger
from callboard.supervisor.groups import first_leaf

log = get_logger("callboard.broker")

Begin: TypeAlias = Callable[[Link], Conversation]
Reach: TypeAlias = Callable[[Begin], AbstractAsyncContextManager[tuple[Conversation, Agreed]]]
"""Opens a connection to a backend. Called with a function that begins a conversation on a link."""

SAID: Final = Rate(10)
"""How many log messages that belong to no request are noted in the broker's own log."""

LAST_WORDS: Final = 20
"""Lines on standard error that are kept of a server which was lost."""

_NAMES: Final = count(1)


@attrs.define(eq=False)
class BackendConnection(Actor[Never]):
    """A connection, from the handshake to the end. If opening fails, waiters get the failure."""

    mailbox = None

    backend: str
    key: ConnectionKey
    reach: Reach
    info: Implementation
    answers: Supervisor
    on_change: Callable[["BackendConnection", str, Mapping[str, Raw]], None]
    on_end: Callable[["BackendConnection"], None]
    roots: tuple[str, ...] = ()
    wait_change: WaitChange | None = None
    transparent: Transparent = attrs.field(factory=Transparent)
    asked: Shares = attrs.field(factory=question_bytes)
    """Bytes of what the backend asks, on all its connections."""
    uses: dict[Lease, None] = attrs.field(factory=dict, init=False)
    given_up: GivenUp = attrs.field(factory=GivenUp, init=False)
    tasks: dict[str, KnownTask] = attrs.field(factory=dict, init=False)
    """Tasks that began here and are a client's, by what the backend calls them."""
    timeouts: int = attrs.field(default=0, init=False)
    """Requests in a row that were not answered in time."""
    is_checked: bool = attrs.field(default=False, init=False)
    """Whether the server is being asked if it is there."""
    account: str = attrs.field(default="", init=False)
    """The account that it was opened for; none of the shared one."""
    used: float = attrs.field(default=0.0, init=False)
    notes_use: bool = attrs.field(default=True, init=False)
    """Whether it matters when it was used last. A connection that stays in any case does without."""
    is_taken_away: bool = attrs.field(default=False, init=False)
    """Whether others needed it more than requests that waited for their clients."""
    failure: CallboardError | None = attrs.field(default=None, init=False)
    opened: trio.Event = attrs.field(factory=trio.Event, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    is_broken: bool = attrs.field(default=False, init=False)
    """Whether its server died, hung or did not start: not one that is ended since it is not needed any more."""
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _conversation: Conversation | None = attrs.field(default=None, init=False)
    _link: Link | None = attrs.field(default=None, init=False)  # the latest that was tried
    _agreed: Agreed | None = attrs.field(default=None, init=False)
    _metas: ClientMeta | None = attrs.field(default=None, init=False)
    _level: LoggingLevel | None = attrs.field(default=None, init=False)
    visits: UrlVisits = attrs.field(factory=UrlVisits, init=False)
    _asked: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _last_said: str = attrs.field(default="", init=False)  # why the link was lost, when that is gone
    _said: RateLimit = attrs.field(factory=lambda: RateLimit(SAID), init=False)
    _telling: Address[Never] | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                async with self.reach(lambda link: self._begin(link, nursery)) as (conversation, agreed):
                    self._conversation, self._agreed = conversation, agreed
                    self._metas = ClientMeta(agreed, self.info, self.transparent)
                    if conversation.link.lost:
                        self.retire()
                    await self._listen(conversation, agreed, nursery)
                    self.opened.set()
                    if self._session is not None and agreed.revision.dialect.tells_root_changes:
                        self._session.on_roots_changed.add(self._roots_changed)
                    await self._over.wait()
                    with trio.CancelScope(shield=True):  # bounded by the link
                        await conversation.link.aclose()
                nursery.cancel_scope.cancel()
        except CallboardError as error:
            self._break(error)
        except BaseExceptionGroup as group:
            failures, rest = group.split(CallboardError)
            if rest is not None or failures is None:
                raise
            self._break(_opening_failed(first_leaf(failures)))
        finally:
            self._end()

    def facts(self) -> Mapping[str, Fact]:
        return {
            "revision": "none" if self._agreed is None else self._agreed.revision.value,
            "in_flight": len(self.uses),
            "can_be_asked": words_for(self.key.signature) or "nothing",
            "ignored": self.ignored,
        }

    def snapshots(self, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        return () if self._conversation is None else self._conversation.snapshots(self.path, now)

    # What others ask of it.

    @property
    def conversation(self) -> Conversation:
        """Raises `ConnectionLost` if there is none (any more)."""
        if self._conversation is None or self.is_over:
            raise ConnectionLost(self.lost)
        return self._conversation

    @property
    def agreed(self) -> Agreed:
        """Raises `ConnectionLost` before the handshake is done."""
        if self._agreed is None:
            raise ConnectionLost(self.lost)
        return self._agreed

    @property
    def revision(self) -> Revision:
        """Raises `ConnectionLost` before the handshake is done."""
        if self._agreed is None:
            raise ConnectionLost(self.lost)
        return self._agreed.revision

    @property
    def metas(self) -> ClientMeta:
        """Raises `ConnectionLost` before the handshake is done."""
        if self._metas is None:
            raise ConnectionLost(self.lost)
        return self._metas

    @property
    def speaks_for_all(self) -> bool:
        """Whether what it says of its lists is for all clients: each request names its client, not the connection.

        False too before the handshake is done: a server may send notifications before its answer is read.
        """
        return self._agreed is not None and self._agreed.revision.dialect.terms_per_request

    @property
    def lost(self) -> str:
        """Why it cannot be used."""
        if self.failure is not None:
            return self.failure.brief or str(self.failure)
        said = self._last_said if self._conversation is None else self._conversation.link.lost
        return said or "the connection is not open"

    @property
    def ignored(self) -> int:
        """Messages of the backend that no request waits for: late, doubled, unreadable, or out of place."""
        return 0 if self._conversation is None else self._conversation.ignored + self._conversation.link.ignored

    @property
    def heard(self) -> int:
        """Messages of any kind that have come from the server; of an HTTP server they are not counted."""
        return 0 if self._conversation is None else self._conversation.link.heard

    @property
    def is_lost(self) -> bool:
        """Whether it is of no use any more, even if it has not ended yet."""
        return self.is_over or (self._conversation is not None and bool(self._conversation.link.lost))

    @property
    def link(self) -> Link | None:
        """The way to the server, while there is one."""
        return None if self._conversation is None else self._conversation.link

    @property
    def is_http(self) -> bool:
        return self._conversation is not None and self._conversation.link.is_http

    @property
    def is_process(self) -> bool:
        """Whether it is a server of its own: what happens in one, another does not hear of."""
        return self._conversation is not None and self._conversation.link.process is not None

    @property
    def pid(self) -> int | None:
        """The server's process, if there is one of ours."""
        process = None if self._conversation is None else self._conversation.link.process
        return None if process is None else process.pid

    @property
    def exit_code(self) -> int | None:
        """How its process ended, if it had one and that has ended."""
        process = None if self._link is None else self._link.process
        return None if process is None else process.returncode

    def last_words(self) -> list[str]:
        """The last lines of its process on standard error, also if it never opened. For the log and the operator, never
        for a client."""
        return [] if self._link is None else list(self._link.tail)[-LAST_WORDS:]

    async def wait_open(self) -> None:
        """Raises what kept it from opening."""
        await self.opened.wait()
        if self.failure is not None:
            raise self.failure
        if self.is_over:
            raise ConnectionLost(self.lost)

    @property
    def waits_for_clients(self) -> bool:
        """Whether everything that is under way here waits for the answer of a client."""
        return bool(self.uses) and all(use.exchange is not None and use.exchange.waits_for_client for use in self.uses)

    def note(self, event: str, **facts: object) -> None:
        """Log an event of this connection, but not too often."""
        self._relaying.note(event, **facts)

    def begin(self, use: Lease) -> None:
        self.uses[use] = None
        if self.notes_use:
            self.used = trio.current_time()
        if use.may_ask:
            self._asked.unpark_all()

    def end(self, use: Lease) -> None:
        self.uses.pop(use, None)
        if self.notes_use:
            self.used = trio.current_time()

    def retire(self) -> None:
        """End it: it is not needed, or of no use any more."""
        self.is_over = True
        self._over.set()

    def take_away(self) -> None:
        """End it: other clients need the place more than its own, which do not answer."""
        self.is_taken_away = True
        self.retire()

    def fail(self, error: CallboardError) -> None:
        """End it, for this reason."""
        self.failure = self.failure or _lost(error)
        self.retire()

    def on_stop(self) -> None:
        self.retire()

    def send(
        self,
        method: str,
        body: dict[str, Any],
        use: Lease,
        patience: Patience,
        header_map: HeaderMap = NO_HEADERS,
    ) -> Coroutine[Any, Any, ResultResponse | ErrorResponse]:
        """Ask the backend. Raises as `Conversation.send` does."""
        exchange = use.exchange
        if exchange is None:
            return self.conversation.send(method, body, patience=patience, header_map=header_map, wants_progress=False)
        wants = exchange.slot.terms.progress_token is not None
        return self.conversation.send(
            *(method, body),
            patience=patience,
            hearer=use,
            header_map=header_map,
            wants_progress=wants,
            trace=use.trace_headers,
        )

    def said_for(self, signature: Signature) -> dict[str, Raw]:
        """The members of `_meta` of a request by the broker itself, for clients of *signature*."""
        spoken = dict(self.conversation.said())
        if signature and self.revision.dialect.terms_per_request:
            spoken[meta.CLIENT_CAPABILITIES] = written_capabilities(self.revision, signature)
        return spoken

    # Log levels of a legacy backend: one for the whole connection.

    async def want_level(self, exchange: Exchange) -> None:
        """Have the backend say as much as *exchange* wants to hear, and no less than others do."""
        if self.revision.dialect.level_per_request or exchange.terms.log_level is None:
            return
        if not declares(self.agreed.capabilities, "logging"):
            return
        levels = [use.exchange.terms.log_level for use in self.uses if use.exchange is not None]
        wanted = min((level for level in levels if level is not None), key=LEVELS.index, default=None)
        if wanted is not None and wanted != self._level:
            self._level = wanted
            is_heard = False
            try:
                await self.conversation.send("logging/setLevel", {"level": wanted}, wants_progress=False)
                is_heard = True
            finally:
                if not is_heard:
                    self._level = None  # unknown: the next request asks again

    # What it hears.

    def relay_of(self, exchange: Exchange) -> OnQuestion | None:
        """What takes the questions that the backend asks on the way of a request; None if it has no such way."""
        if not self.is_http or self.revision.dialect.asks_in_results:
            return None
        return lambda request: self._relaying.relay(request, exchange, self.conversation.link)

    def _logged(self, params: LoggingMessageNotificationParams) -> None:
        """A log message that came on no request's way. It may speak of any request that is under way here, so it is
        passed on only if all of them are of one client; to the latest that wants log messages."""
        listening = [
            use.exchange for use in self.uses if use.exchange is not None and use.exchange.terms.log_level is not None
        ]
        if listening and (self.key.is_of_one_client or are_of_one_client(self.uses)):
            listening[-1].log_nowait(params)
        elif self._said.allow(None, trio.current_time()):
            log.debug("backend_log", backend=self.backend, level=params.level)

    def whose(self, task: str | None = None) -> Exchange | None:
        """The exchange that an unattributed question belongs to: that of the *task* it names; the only one that may
        ask, or the latest of several that are one session's. None where that would be a guess."""
        for use in self.uses:
            if task is not None and use.task == task and use.exchange is not None:
                return use.exchange
        asking = [use.exchange for use in self.uses if use.may_ask and use.exchange is not None]
        if len(asking) == 1 or (asking and is_one_session(asking)):
            return asking[-1]
        return None

    async def wait_asker(self, within: float) -> Exchange | None:
        """Wait for an exchange that may ask. None if none comes in time."""
        with trio.move_on_after(within):
            while (found := self.whose()) is None:
                if any(use.may_ask for use in self.uses):
                    return None  # several: waiting does not make it clearer
                await self._asked.park()
            return found
        return None

    def _told(self, method: str, params: Mapping[str, Raw]) -> None:
        if method == "notifications/tasks/status":
            self._stands(params)
        elif method == "notifications/elicitation/complete":
            self.visits.add(params.get("elicitationId"))
        else:
            self.on_change(self, method, params)

    def _stands(self, params: Mapping[str, Raw]) -> None:
        named = msgspec.json.decode(params.get("taskId", b"null"))
        known = self.tasks.get(named) if isinstance(named, str) else None
        if known is not None:
            known.hear(params)

    # Its life.

    @property
    def _relaying(self) -> QuestionRelay:
        answering = self.conversation.answering
        if not isinstance(answering, QuestionRelay):
            raise TypeError("this connection answers by itself")
        return answering

    def _begin(self, link: Link, nursery: trio.Nursery) -> Conversation:
        if isinstance(link, DuplexLink):
            link.peer = self.backend
        self._link = link
        relaying = QuestionRelay(
            *({}, self.answers, self.backend, self.key.signature),
            *(self.whose, self.wait_asker, self.roots, self.tasks),
            asked=self.asked,
        )
        relaying.session = self._session
        conversation = Conversation(link, relaying, self.info, declared_by(self.key.signature), on_log=self._logged)
        conversation.on_change, conversation.wait_change = self._told, self.wait_change
        conversation.pace = ReadPace()
        relaying.conversation = conversation
        nursery.start_soon(link.attend)
        if not link.is_http:
            nursery.start_soon(self._read, conversation)
        return conversation

    async def _listen(self, conversation: Conversation, agreed: Agreed, nursery: trio.Nursery) -> None:
        if conversation.link.is_http:
            nursery.start_soon(self._read, conversation)
            if agreed.revision.dialect.has_sessions:
                await conversation.link.wait_listening()

    async def _read(self, conversation: Conversation) -> None:
        try:
            await conversation.link.listen(conversation.hear)
        except CallboardError as error:
            if conversation is self._conversation:
                self.failure = self.failure or _lost(error)
        is_broken = bool(conversation.link.lost) or conversation.link.is_stale or self.failure is not None
        if is_broken and conversation is self._conversation:  # else it was tried, and there may be another way
            self._break(self.failure)
            self.retire()

    def _break(self, failure: CallboardError | None) -> None:
        self.failure = failure
        self.is_broken = self.is_broken or not self.is_over

    @property
    def _session(self) -> SessionKey | None:
        """The session of a legacy client that this connection belongs to, if it belongs to one."""
        return self.key.who if isinstance(self.key.who, SessionKey) else None

    def _roots_changed(self) -> None:
        """The client says so: the backend is told, unless it is being told already."""
        if self._telling is None and not self.is_lost and "roots.list_changed" in self.key.signature:
            with suppress(SupervisorClosed):  # the broker ends
                self._telling = self.answers.spawn(RootsNotice(self), name=f"roots-{next(_NAMES)}")

    def told_roots(self) -> None:
        """The backend has been told that the roots changed."""
        self._telling = None

    def _end(self) -> None:
        self.is_over = True
        if self._session is not None:
            self._session.on_roots_changed.discard(self._roots_changed)
        if self.failure is None and self._agreed is None:
            self.failure = ConnectionLost("the connection was not opened")
        self._over.set()
        self.opened.set()
        self.on_end(self)
        self._part()

    def _part(self) -> None:
        """Let go of what holds this in turn, so that nothing of it has to wait for the garbage collector."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            self._last_said = conversation.link.lost
            if isinstance(conversation.answering, QuestionRelay):
                conversation.answering.conversation = None


@attrs.define(eq=False)
class RootsNotice(Actor[Never]):
    """Tells a legacy backend that its client's roots have changed."""

    mailbox = None

    connection: BackendConnection

    async def run(self) -> None:
        try:
            await self.connection.conversation.notify("notifications/roots/list_changed")
        except CallboardError:
            return  # the connection is lost, and with it what the backend knew of roots
        finally:
            self.connection.told_roots()


def _opening_failed(error: CallboardError) -> CallboardError:
    """Why a connection came to nothing. That its credentials were refused is no fault of the way."""
    return NotAuthorized(str(error)) if isinstance(error, NotAuthorized) else _lost(error)


def _lost(error: CallboardError) -> ConnectionLost:
    lost = ConnectionLost(str(error))
    lost.brief, lost.for_operator = error.brief, error.for_operator
    return lost
