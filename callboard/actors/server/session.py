"""One connection of either era, or one legacy session: what was agreed, what is in flight, and the way to the peer."""

import sys
from collections.abc import Callable, Container, Mapping
from typing import ClassVar, Final, TypeVar

import attrs
import trio

from callboard.actors.changes import LISTS, ListChanged
from callboard.actors.frames import error_frame
from callboard.actors.lifecycle import NOT_NEEDED, RequestEvent
from callboard.actors.outlet import CLOSED, BatchSink, Carrier, Outbound, Outlet, PostingSink, Sink
from callboard.actors.server.batch import Batch
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.dispatch import Dispatch
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.gathered import gathered
from callboard.actors.server.handshake import agree, welcome
from callboard.actors.server.host import Host
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.server.session_changes import SessionChanges
from callboard.actors.server.session_record import SessionRecord, write_record
from callboard.actors.shares import LOCAL, account_of
from callboard.actors.tape import Track
from callboard.actors.terms import Terms, is_meant_modern, is_modern, modern_terms
from callboard.codecs.bridge.tasks import ABOUT_TASKS
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.envelope import Envelope, Notification, Request, RequestId, decode, is_batch, split_batch
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    LATEST,
    LEGACY,
    UNSET,
    CancelledNotificationParams,
    ClientCapabilities,
    LoggingLevel,
    Model,
    ProgressNotificationParams,
    ResourceRequestParams,
    ResultMetaObject,
    Revision,
    ServerCapabilities,
    SetLevelRequestParams,
    UnsetType,
    declares,
    meta,
    read,
)
from callboard.codecs.revisions import Result as Empty
from callboard.codecs.routing import Route, read_route
from callboard.errors import InvalidParams, InvalidRequest, PeerError, RequestFailed
from callboard.supervisor import Actor, Fact, Lost, MailboxSpec, Snapshot, get_logger

M = TypeVar("M", bound=Model)

OUTBOX_SIZE: Final = 1024
"""Most frames that wait for one peer."""

OUTBOX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that wait for one peer. A larger answer waits alone, and counts among the bytes that wait to be read."""

MAX_REASON: Final = 200
"""Characters of a peer's reason that are logged."""

log = get_logger("callboard.actors")

_NOTHING: Final = ServerCapabilities()


@attrs.define(eq=False)
class Session(Actor[Outbound]):
    """Everything that one peer and this server know about each other.

    Its mailbox is the way out: an actor that has something to say to the peer tells the session, and `run` writes it.
    """

    mailbox = MailboxSpec[Outbound](
        size=OUTBOX_SIZE,
        overflow=lambda message: message.kind.overflow,
        key=lambda message: message.key,
        most_weight=OUTBOX_BYTES,
        weigh=lambda message: min(len(message.frame), OUTBOX_BYTES),
    )

    transport: ClassVar[str] = "stdio"

    own_methods: ClassVar[Container[str]] = frozenset(
        {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    )

    host: Host
    sink: Sink
    caller: Caller = TRUSTED
    on_end: Callable[[], None] = attrs.field(default=lambda: None)
    peer: str = attrs.field(default=LOCAL, kw_only=True)  # whose account it is if the client is anonymous
    account: str = attrs.field(init=False)
    terms: Terms | None = attrs.field(default=None, init=False)
    is_ready: bool = attrs.field(default=False, init=False)
    ignored: int = attrs.field(default=0, init=False)
    requests: Dispatch = attrs.field(init=False)
    key: SessionKey = attrs.field(factory=SessionKey, init=False)
    track: Track | None = attrs.field(default=None, init=False)  # only if it is recorded
    _gathering: BatchSink | None = attrs.field(init=False)
    _posting: PostingSink | None = attrs.field(init=False)
    _declared: ServerCapabilities = attrs.field(default=_NOTHING, init=False)  # at `initialize`, for the whole session
    hearing: SessionChanges | None = attrs.field(default=None, init=False)  # refers back: so not after its end

    def __attrs_post_init__(self) -> None:
        self.account = account_of(self.principal, self.peer)
        self.requests = Dispatch(self.host, self.principal, self.account, self.transport)
        # Asked once: a check of a protocol at run time costs more than the rest of a write.
        self._gathering = self.sink if isinstance(self.sink, BatchSink) else None
        self._posting = self.sink if isinstance(self.sink, PostingSink) else None

    @property
    def principal(self) -> str:
        """The key of the caller, which stays the same: a token may be renewed meanwhile."""
        return self.caller.key

    def renew(self, caller: Caller) -> None:
        """The client came with another token: from now on that one's scopes count."""
        before, self.caller = self.caller, caller
        if self.terms is not None:
            self.terms = attrs.evolve(self.terms, caller=caller)
        if self.hearing is not None and self.host.rules is not None:
            self.hearing.compare(self.host.rules, before)

    async def run(self) -> None:
        try:
            async for message in self.inbox:
                await self._write(message.frame)
        except trio.BrokenResourceError:
            pass  # the peer is gone, and the reader hears it too
        finally:
            self.end()

    def end(self) -> None:
        """End for good, and let go of the way out, which may hold the session: they would wait for the collector."""
        self.hang_up()
        self.on_end()
        self.on_end, self.sink, self._gathering, self._posting = lambda: None, CLOSED, None, None

    async def _write(self, frame: bytes) -> None:
        """Write a frame, and with it what waits behind it where the sink takes several at once."""
        frames = [frame] if self._gathering is None else gathered(frame, self.inbox)
        if self.track is not None:
            self.track.all_from_server(frames)
        if self._gathering is not None:
            await self._gathering.send_together(frames)
        else:
            await self.sink.send(frame)
        hearing = self.hearing
        if hearing is not None and hearing.is_behind and not self.inbox.coalesced:
            hearing.catch_up()

    @property
    def is_over(self) -> bool:
        """Whether the peer has left, and nothing more may begin."""
        return self.key.is_over

    @property
    def is_attached(self) -> bool:
        """Whether a client is there to read what is written."""
        return True

    def facts(self) -> Mapping[str, Fact]:
        return {
            "revision": "none" if self.terms is None else self.terms.revision.value,
            "in_flight": self.requests.count,
            "asked": len(self.key.questions),
            "ignored": self.ignored,
        }

    def snapshots(self, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        """What the client was asked, and what it follows: neither has a task."""
        path = self.path
        asked = self.key.questions.snapshots(path, now)
        return asked if self.hearing is None else (*asked, *self.hearing.snapshots(path, now, most))

    def hang_up(self) -> None:
        """The peer is gone: all that it had asked for is over."""
        self.key.end()
        hearing, self.hearing = self.hearing, None
        if hearing is not None:
            hearing.end()
        self.requests.cancel_all(RequestEvent.SESSION_ENDED)

    # The way out.

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        if hold is not None or not self.try_answer(frame):
            await self.send(Outbound(frame, hold=hold))

    def try_answer(self, frame: bytes) -> bool:
        """Mostly nothing else waits to be written: then it is written here, and no other task is woken for it."""
        is_sent = self._posting is not None and self.inbox.is_waited_for and self._posting.post(frame)
        if is_sent and self.track is not None:
            self.track.from_server(frame)
        return is_sent

    async def send(self, message: Outbound) -> None:
        if not self.try_send(message):
            await self.address.send(message)

    def send_nowait(self, message: Outbound) -> None:
        if not self.try_send(message):
            self.lose(message)

    def lose(self, message: object) -> None:
        """Count what does not fit into the mailbox, and is given up."""
        self.ignored += 1
        letters = self.supervisor.dead_letters
        letters.add(self.address.path, message, Lost.OVERFLOWED, at=trio.current_time())

    def try_send(self, message: Outbound) -> bool:
        try:
            self.address.send_nowait(message)
        except trio.WouldBlock:
            return False
        return True

    async def give_up(self) -> None:
        await trio.lowlevel.checkpoint()  # a client that cancels does not wait for a word

    async def close_stream(self, retry: float) -> None:
        await trio.lowlevel.checkpoint()  # the connection belongs to all requests on it

    # The way in.

    async def receive(self, frame: bytes | PeerError, carrier: Carrier | None, way: Outlet | None = None) -> bool:
        """Deal with one frame of the peer's. True if it is answered, or will be, on *way*: the session's own, or that
        of one HTTP response. *carrier* is the task that read it, if that can run a request that waits."""
        if isinstance(frame, PeerError):
            return await self._refuse(frame, way or self)
        if self.track is not None:
            self.track.to_server(frame)
        if self.takes_batches and is_batch(frame):
            return await self._receive_batch(frame, way or self)
        try:
            message = decode(frame)
            if isinstance(message, Request):  # as `take` has it, and a coroutine less: most messages are
                await self._request(message, way or self, carrier)
                return True
            return await self.take(message, way or self, carrier)
        except PeerError as error:
            return await self._refuse(error, way or self)

    @property
    def takes_batches(self) -> bool:
        return self.terms is not None and self.terms.revision.dialect.takes_batches

    async def _receive_batch(self, frame: bytes, way: Outlet) -> bool:
        try:
            members = split_batch(frame)
        except PeerError as error:
            return await self._refuse(error, way)
        batch, caller = Batch(way), self.caller
        for member in members:
            if self.caller is not caller:  # another message came, with another token
                self.renew(caller)
            await self.receive_member(member, batch)
        batch.is_read = True
        await batch.flush()
        return batch.is_answered

    async def receive_member(self, frame: bytes, batch: Batch) -> None:
        """Deal with one member of a batch, which is no batch itself. It gets a task of its own."""
        try:
            await self.take(decode(frame), batch, None)
        except PeerError as error:
            await self._refuse(error, batch)

    async def take(self, message: Envelope, way: Outlet, carrier: Carrier | None, route: Route | None = None) -> bool:
        """Deal with one message, as `receive` does. *route* is what was read of it already, if it was."""
        if isinstance(message, Request):
            try:
                await self._request(message, way, carrier, route)
            except PeerError as error:
                await self._refuse(error, way)
            return True
        if isinstance(message, Notification):
            await self._notification(message)
        else:
            self.ignored += not self.key.questions.settle(message)
        return False

    async def _refuse(self, error: PeerError, way: Outlet) -> bool:
        """Refuse a message. False if it was meant as an answer: then its question fails, and nothing is said to it."""
        if error.is_answer:
            self.ignored += not self.key.questions.fail(error)
            return False
        await self._refuse_as(error.request_id, error, way)
        return True

    async def _refuse_as(self, request_id: RequestId | None, error: PeerError | RequestFailed, way: Outlet) -> None:
        self.host.count_refusal(error)
        revision = LATEST if self.terms is None else self.terms.revision
        await way.answer(error_frame(request_id, revision, error), error)

    async def _request(
        self, request: Request, way: Outlet, carrier: Carrier | None, route: Route | None = None
    ) -> None:
        if request.id in self.requests.in_flight:
            self.ignored += 1
            # An error with that id would end the first one, which goes on untouched.
            raise InvalidRequest("the request id is already in use")
        try:
            route = read_route(request) if route is None else route
            if isinstance(way, Batch) and (is_modern(route) or request.method == "initialize"):
                raise InvalidRequest("not allowed in a batch")
            if request.method == "initialize" and not is_modern(route):
                await self._initialize(request, way)
                return
            terms = self._terms_of(request, route)
        except PeerError as error:
            error.request_id = request.id
            raise
        if self.host.search is not None:
            request, route = self.host.search.reword(request, route)
        slot = self._slot(request, terms, way)
        if self.host.observer is not None:
            self.host.observe(slot, request, route)
            self.requests.latest = terms
        if isinstance(way, Batch):
            way.expect(slot)
        try:
            method = self.host.method_for(request, terms, besides=self.own_methods)
            self.requests.check_token(terms.progress_token)
            exchange = self._exchange(request, route, slot, carrier)
            may_be_elsewhere = route.request_state is not None or request.method in ABOUT_TASKS  # few are: no call
            handler = self.host.handler_elsewhere(exchange, method) if may_be_elsewhere else None
            if handler is None:
                await self.host.serve(exchange, method, self)
            else:
                self.requests.check_room()  # rates are the other worker's to count
                if (rest := self.host.begin_serving(handler, exchange)) is not None:
                    await rest
        except (PeerError, RequestFailed) as error:
            await slot.fail(error)

    def _slot(self, request: Request, terms: Terms, way: Outlet) -> ReplySlot:
        host = self.host
        info = host.server_info(terms.revision)
        slot = ReplySlot(request.id, request.method, terms, way, info, self.requests, self.account, host.unread)
        slot.is_shared = way is self
        return slot

    def _exchange(self, request: Request, route: Route, slot: ReplySlot, carrier: Carrier | None) -> Exchange:
        """A modern request may outlive its connection; a legacy one ends with its session."""
        host = self.host
        if slot.terms.revision.dialect.has_sessions:
            exchange = Exchange(host, request, route, slot, self.supervisor)
            exchange.session = self.key
        else:
            exchange = Exchange(host, request, route, slot, host.requests)
        exchange.carrier = carrier
        if host.passes:
            exchange.passed = getattr(slot.outlet, "passed", ())
        return exchange

    def _terms_of(self, request: Request, route: Route) -> Terms:
        if is_modern(route):
            return modern_terms(route, self.host.offer.revisions, self.caller)
        if self.terms is not None:
            token = route.progress_token
            return self.terms if token is None else attrs.evolve(self.terms, progress_token=token)
        if request.method == "ping" and LEGACY & self.host.offer.revisions:
            latest = max(LEGACY & self.host.offer.revisions)
            return Terms(revision=latest, capabilities=ClientCapabilities(), caller=self.caller)
        if is_meant_modern(route) or not LEGACY & self.host.offer.revisions:
            raise InvalidParams(f"params._meta: {meta.PROTOCOL_VERSION} is required")
        raise InvalidRequest("not initialized, and no protocol version in _meta")

    async def _notification(self, notification: Notification) -> None:
        """Notifications are never answered, not even malformed ones."""
        if notification.method == "notifications/initialized":
            self._ready()
        elif notification.method == "notifications/cancelled":
            await self._cancelled(notification)
        elif notification.method == "notifications/progress":
            self._progressed(notification)
        elif notification.method == "notifications/roots/list_changed":
            self.key.tell_roots_changed()
        elif not self.host.take_notification(notification, self.terms, self.caller, self.key):
            self.ignored += 1

    async def _cancelled(self, notification: Notification) -> None:
        params = self._told(notification, CancelledNotificationParams)
        if params is None:
            return
        exchange = None if params.request_id is UNSET else self.requests.in_flight.get(params.request_id)
        reason = "" if params.reason is UNSET else params.reason[:MAX_REASON]
        if exchange is None or not exchange.cancel(RequestEvent.PEER_CANCELLED, reason):
            self.ignored += 1  # finished already, or never there: a race, not a fault
            return
        tell = log.debug if reason in ("", NOT_NEEDED) else log.info  # a storm of them is not news
        tell("request_cancelled", session=self.address.path, request=params.request_id, reason=reason)
        await exchange.give_up()

    def _progressed(self, notification: Notification) -> None:
        params = self._told(notification, ProgressNotificationParams)
        if params is not None:
            self.ignored += not self.key.questions.extend(params.progress_token)

    def _told(self, notification: Notification, model: type[M]) -> M | None:
        """The params of a notification; None if they are invalid, which is only counted."""
        try:
            members = notification.members
            check_modelled(members)
            return read(LATEST, model, write_members(members))
        except PeerError:
            self.ignored += 1
            return None

    # What a legacy session agrees on.

    async def _initialize(self, request: Request, way: Outlet) -> None:
        if self.terms is not None:
            raise InvalidRequest("the session is already initialized")
        if (refusal := self.host.session_refusal(self.caller, self.account)) is not None:
            await self._refuse_as(request.id, refusal, way)
            return
        self.terms, self._declared = agree(self.host.offer, request, self.caller)
        slot = ReplySlot(request.id, request.method, self.terms, way, admission=self.requests)
        if self.host.observer is not None:
            slot.watch(self.host.observer, None)
        self.key.home = ReplySlot(request.id, request.method, self.terms, self)
        await slot.answer(welcome(self.host, self.terms, self._declared, self.greeting()))

    def greeting(self) -> ResultMetaObject | UnsetType:
        """The `_meta` that a transport adds to the result of `initialize`."""
        return UNSET

    def _ready(self) -> None:
        if self.terms is None or self.is_ready:
            self.ignored += 1
            return
        self.is_ready = True
        self.key.questions.ready.set()
        self.hearing = self.hearing or SessionChanges(self)
        lists = [ListChanged(name) for name in LISTS if declares(self._declared, f"{name}.list_changed")]
        self.hearing.join(self.host.audience.lists_for(lists, self.terms.capabilities))
        self.noted()

    # What it answers itself.

    def own_answer(self, exchange: Exchange) -> Model | None:
        match exchange.request.method:
            case "ping":
                pass
            case "logging/setLevel":
                self._set_level(exchange.params(SetLevelRequestParams).level)
            case "resources/unsubscribe":  # also of what was never subscribed to
                if self.hearing is not None:
                    self.hearing.unfollow(exchange.params(ResourceRequestParams).uri)
                    self.noted()
            case _:
                return None
        return Empty()

    def own_handler(self, method: str) -> Handler | None:
        return self._subscribe if method == "resources/subscribe" else None

    def _set_level(self, level: LoggingLevel) -> None:
        """For the whole session."""
        if self.terms is not None:
            self.terms = attrs.evolve(self.terms, log_level=level)
            self.noted()

    async def _subscribe(self, exchange: Exchange) -> Model:
        """This session hears of one resource. Raises `ResourceNotFound` if it cannot."""
        if not self.is_over:
            self.hearing = self.hearing or SessionChanges(self)
            await self.hearing.follow(exchange.params(ResourceRequestParams).uri)
            self.noted()
        return Empty()

    # What is kept of it.

    def noted(self) -> None:
        """What is kept of the session has changed: called for those that may be opened again elsewhere."""

    def record(self) -> bytes:
        """What is kept of it."""
        if self.terms is None:
            raise LookupError("nothing was agreed yet")
        followed = [] if self.hearing is None else list(self.hearing.followed)
        return write_record(self.terms, followed, is_ready=self.is_ready, path=self.host.path)

    async def open_again(self, record: SessionRecord) -> None:
        """Go on with the session of another worker, which is gone. The client is told once that everything changed."""
        self.terms, self._declared = record.terms(), self.host.offer.capabilities(Revision(record.revision))
        self.key.home = ReplySlot("", "initialize", self.terms, self)
        if not record.is_ready:
            return
        self._ready()
        if self.hearing is not None:
            await self.hearing.follow_again(record.followed)
