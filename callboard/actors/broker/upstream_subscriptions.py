"""The resources that clients follow at one backend: the backend is asked once, however many clients follow the same.

An `UpstreamSubscription` is the one record of it: how the backend tells, and which subscribers hear of it.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, Never

import attrs
import msgspec
import trio
from msgspec import Raw

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import EVERYBODY, ConnectionKey, Lease, StreamLease
from callboard.actors.broker.upstream import Upstream
from callboard.actors.changes import Hear, ResourceUpdated, folders
from callboard.actors.client.conversation import Patience
from callboard.actors.client.hearer import Hearer, NotificationHandler
from callboard.actors.fan_out import FanOut
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import declares
from callboard.errors import CallboardError, SupervisorClosed
from callboard.supervisor import Actor, Address, Supervisor, get_logger

log = get_logger("callboard.broker")

ACKNOWLEDGED: Final = 15.0
"""Seconds for a backend to say that it listens."""

AGAIN_FIRST, AGAIN_MOST = 0.1, 5.0
"""Seconds before a stream that ended is opened anew: at first, and at most."""

MAX_GUESSED: Final = 32
"""Resources followed on one connection up to which all of them count as changed when a backend names one that is none
of them, nor a part of one."""

BRIEF: Final = Patience(timeout=ACKNOWLEDGED, cap=ACKNOWLEDGED)
ENDLESS: Final = Patience(timeout=10 * 365 * 86_400.0, cap=10 * 365 * 86_400.0)
_LISTS: Final = ("tools", "prompts", "resources")
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"


@attrs.define(eq=False)
class UpstreamSubscription:
    """One resource that is followed, for all clients that share a connection."""

    uri: str
    who: Hashable
    source: "UpstreamSubscriptions"
    """The backend's subscriptions, which may be handed over to a later incarnation of the backend."""
    hearers: dict[str, Counter[Hear]] = attrs.field(factory=dict)
    """The subscribers, by the URI that each knows the resource by."""
    changed_at: float | None = None  # by `time.monotonic`: when the backend last told of a change
    is_granted: bool = False
    is_refused: bool = False
    """Whether it was asked for, in vain."""
    connection: BackendConnection | None = None
    others: dict[BackendConnection, None] = attrs.field(factory=dict)
    """Processes of the same server that tell, too: each knows only what happens in itself."""
    use: Lease = attrs.field(factory=Lease)
    stream: Address[Never] | None = None
    settled: trio.Event = attrs.field(factory=trio.Event)

    def add(self, known: str, hear: Hear) -> None:
        """One more subscriber, which calls the resource *known*."""
        self.hearers.setdefault(known, Counter())[hear] += 1

    def remove(self, known: str, hear: Hear) -> None:
        """Remove a subscriber. After the last one, unsubscribe at the backend."""
        hearers = self.hearers[known]
        hearers[hear] -= 1
        if not hearers[hear]:
            del hearers[hear]
        if not hearers:
            del self.hearers[known]
        if not self.hearers:
            self.source.end(self)

    def called(self, known: str) -> Sequence[Hear]:
        """The subscribers that call it *known*."""
        return tuple(self.hearers.get(known, ()))

    @property
    def is_unheard(self) -> bool:
        """Whether no connection reports its changes, although the backend had agreed to."""
        return self.is_granted and self.connection is None and self.stream is None

    def heard_on(self) -> list[BackendConnection]:
        """The connections to a legacy backend on which it is told of."""
        pool = self.others if self.connection is None else {self.connection: None, **self.others}
        return [connection for connection in pool if not connection.is_over]


@attrs.define(eq=False)
class UpstreamSubscriptions:
    """The subscriptions at one backend."""

    backend: Upstream
    supervisor: Supervisor
    fan_out: FanOut
    _followed: dict[tuple[Hashable, str], UpstreamSubscription] = attrs.field(factory=dict, init=False)
    _by_uri: dict[str, dict[UpstreamSubscription, None]] = attrs.field(
        factory=dict, init=False
    )  # without a slash at the end
    _granted: dict[Hashable, dict[UpstreamSubscription, None]] = attrs.field(factory=dict, init=False)
    _begun: dict[UpstreamSubscription, None] = attrs.field(factory=dict, init=False)  # and not settled yet
    _told_on: dict[BackendConnection, dict[UpstreamSubscription, None]] = attrs.field(factory=dict, init=False)
    _leaving: dict[tuple[BackendConnection, str], trio.Event] = attrs.field(factory=dict, init=False)
    _lost: trio.Event = attrs.field(factory=trio.Event, init=False)
    _names: int = attrs.field(default=0, init=False)

    def counts(self) -> Iterator[tuple[str, int, float | None]]:
        """The resources that are followed, how many subscribers each has, and when it last changed."""
        return ((one.uri, sum(map(len, one.hearers.values())), one.changed_at) for one in self._followed.values())

    async def follow(self, uri: str, who: Hashable, known: str, hear: Hear) -> UpstreamSubscription | None:
        """Have *hear* told of changes of *uri*, which the subscriber calls *known*. None if the backend refuses.

        Raises `BackendGone`.
        """
        while (mine := self._followed.get((who, uri))) is not None:
            await mine.settled.wait()
            if self._is_followed(mine) and mine.is_granted:
                mine.add(known, hear)
                return mine
            if self._is_followed(mine) or mine.is_refused:
                return None  # else its subscribers have left meanwhile, which is no refusal
        mine = UpstreamSubscription(uri, who, self)
        mine.add(known, hear)  # before the backend is asked: the first change may come with its answer
        return mine if await self._follow_first(mine) else None

    async def _follow_first(self, mine: UpstreamSubscription) -> bool:
        self._keep(mine)
        self._begun[mine] = None
        is_over = False
        try:
            await self._begin(mine)
            mine.is_refused = not mine.is_granted
            is_over = True
        except CallboardError:
            mine.is_refused = True
            raise
        finally:
            mine.settled.set()
            del self._begun[mine]
            self._note(mine)
            if not is_over or mine.is_refused:
                self.end(mine)
        return mine.is_granted

    def _keep(self, mine: UpstreamSubscription) -> None:
        self._followed[mine.who, mine.uri] = mine
        self._by_uri.setdefault(mine.uri.rstrip("/"), {})[mine] = None

    def _note(self, mine: UpstreamSubscription) -> None:
        """Whether it is granted may be another now."""
        granted = self._granted.setdefault(mine.who, {})
        if mine.is_granted and self._is_followed(mine):
            granted[mine] = None
        else:
            granted.pop(mine, None)
        if not granted:
            del self._granted[mine.who]

    def _hear_on(self, mine: UpstreamSubscription, connection: BackendConnection | None) -> None:
        """From now on *connection* tells of it first, or none does."""
        if mine.connection is not None and mine.connection is not connection and mine.connection not in mine.others:
            self._told_on.get(mine.connection, {}).pop(mine, None)
        mine.connection = connection
        if connection is not None:
            self._told_on.setdefault(connection, {})[mine] = None

    def followers(self) -> dict[Hear, None]:
        """All subscribers of any resource here."""
        return {hear: None for one in self._followed.values() for hearers in one.hearers.values() for hear in hearers}

    def publish(self, mine: UpstreamSubscription, uri: str) -> None:
        """A resource has changed. Clients hear of it by the URI that they know it by; of a part of it by its own URI,
        if that is the backend's to speak of."""
        mine.changed_at, is_part = monotonic(), uri != mine.uri and self.backend.serves(uri)
        for known in list(mine.hearers):
            change = ResourceUpdated(uri if is_part else known)
            self.fan_out.publish(change, partial(mine.called, known), self, (mine, known))

    def inherit(self, before: "UpstreamSubscriptions") -> None:
        """Go on with what was followed at the same server, as it was configured before."""
        for one in before.hand_over():
            if one.is_granted:
                one.source, one.connection, one.stream = self, None, None
                one.others.clear()
                self._keep(one)
                self._note(one)

    def hand_over(self) -> list[UpstreamSubscription]:
        """All subscriptions; the caller takes them over."""
        followed, self._followed = list(self._followed.values()), {}
        for index in (self._by_uri, self._granted, self._told_on):
            index.clear()
        return followed

    def needs(self, connection: BackendConnection) -> bool:
        """Whether a connection must stay because of what is heard on it."""
        return any(one.connection is connection for one in self._told_on.get(connection, ()))

    def heard(self, connection: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification on a connection to a legacy backend."""
        if method != _UPDATED:
            return
        uri = _uri(params)
        if uri is None:
            return
        told = self._told_on.get(connection, {})
        known = (uri.rstrip("/"), *(uri[:cut] for cut in folders(uri)), uri[: uri.find("://") + 1])
        exact = [one for name in dict.fromkeys(known) for one in self._by_uri.get(name, ()) if one in told]
        # A part of what was followed, under a name that was not, is not dropped; unless it may be a part of anything.
        for one in exact or (list(told) if len(told) <= MAX_GUESSED else ()):
            self.publish(one, uri)

    def lost(self, connection: BackendConnection) -> None:
        """A connection has ended, and what was heard on it is heard no more, until it is followed again."""
        for one in self._told_on.pop(connection, {}):
            one.others.pop(connection, None)
            if one.connection is connection:
                one.connection = None
                self._lost.set()

    def misses(self, connection: BackendConnection) -> bool:
        """Whether something is followed by those whose connection it is, of which it does not tell."""
        granted = self._granted.get(connection.key.whose) if self._granted else None
        if not granted or not connection.is_process or connection.revision.dialect.has_listen:
            return False
        told = self._told_on.get(connection, {})
        return len(granted) > len(told) - sum(one in told for one in self._begun)

    async def join(self, connection: BackendConnection) -> None:
        """Have one more process tell of what is followed."""
        for one in list(self._missed(connection)):
            await self._wait_left(connection, one.uri)
            if not self._is_followed(one):
                continue
            one.others[connection] = None
            self._told_on.setdefault(connection, {})[one] = None
            try:
                await connection.conversation.send("resources/subscribe", {"uri": one.uri}, wants_progress=False)
            except CallboardError as error:
                log.info("subscribe_failed", backend=self.backend.name, reason=str(error)[:200])

    def _missed(self, connection: BackendConnection) -> Iterator[UpstreamSubscription]:
        if connection.is_process and not connection.revision.dialect.has_listen:
            for one in self._granted.get(connection.key.whose, ()):
                if one.connection is not connection and connection not in one.others:
                    yield one

    async def keep_following(self) -> None:
        """Follow again all that was heard on a connection that is lost, for as long as the backend is there."""
        pause = AGAIN_FIRST
        while True:
            self._lost = trio.Event()
            is_complete = await self._begin_again()
            with trio.move_on_after(math.inf if is_complete else AGAIN_MOST):
                await self._lost.wait()
            await trio.sleep(pause)
            pause = min(2 * pause, AGAIN_MOST)

    async def _begin_again(self) -> bool:
        """Follow again what is unheard, and tell of it once: something may have changed meanwhile. False if that
        did not work for all."""
        for one in [one for one in self._followed.values() if one.is_unheard]:
            try:
                await self._begin(one)
            except CallboardError as error:
                log.warning("resubscribe_failed", backend=self.backend.name, reason=str(error)[:200])
                continue
            finally:
                self._note(one)
            if not self._is_followed(one):
                self.end(one)  # given up while the backend was asked
            elif one.connection is not None:  # a stream tells of it as soon as it is acknowledged
                self.publish(one, one.uri)
        return not any(one.is_unheard for one in self._followed.values())

    async def hear_lists(self, connection: BackendConnection, is_heard: trio.Event) -> None:
        """Have a modern backend tell when its lists change, for as long as the connection lasts. *is_heard* is set when
        no change is missed any more, or nothing is to be heard."""
        try:
            await self._hear_lists(connection, is_heard)
        finally:
            is_heard.set()

    async def _hear_lists(self, connection: BackendConnection, is_heard: trio.Event) -> None:
        if not connection.revision.dialect.has_listen:
            return
        flags = [name for name in _LISTS if declares(connection.agreed.capabilities, f"{name}.list_changed")]
        if not flags:
            return
        chosen: dict[str, Any] = {f"{name}ListChanged": True for name in flags}
        is_first, pause = True, AGAIN_FIRST
        while not connection.is_over:
            acknowledged = trio.Event()

            def told(method: str, params: Mapping[str, Raw], acknowledged: trio.Event = acknowledged) -> None:
                if method == _ACKNOWLEDGED:
                    acknowledged.set()
                    is_heard.set()
                else:
                    self.backend.changed(connection, method, params)

            if not is_first:
                self.backend.refresh()  # what was missed is unknown
            try:
                answer = await self.listen(connection, chosen, NotificationHandler(on_told=told))
                if isinstance(answer, ErrorResponse):
                    log.info("list_subscription_failed", backend=self.backend.name, code=answer.code)
                    return
            except CallboardError as error:
                log.info("list_subscription_failed", backend=self.backend.name, reason=str(error)[:200])
            pause = AGAIN_FIRST if acknowledged.is_set() else min(2 * pause, AGAIN_MOST)
            is_first = False
            await trio.sleep(pause)

    async def listen(self, connection: BackendConnection, chosen: dict[str, Any], hearer: Hearer) -> object:
        """Hold one subscription of a modern backend open, to its end."""
        body: dict[str, Any] = {"notifications": chosen, "_meta": dict(connection.conversation.said())}
        return await connection.conversation.send(
            "subscriptions/listen", body, patience=ENDLESS, hearer=hearer, wants_progress=False
        )

    async def _begin(self, mine: UpstreamSubscription) -> None:
        primary = await self.backend.wait_up()
        if self.backend.personal is not None or not declares(primary.agreed.capabilities, "resources.subscribe"):
            return  # a caller's own credentials come with each request, and this would outlive it
        if primary.revision.dialect.has_listen:
            await self._stream(mine, primary)
        else:
            await self._subscribe(mine)

    async def _subscribe(self, mine: UpstreamSubscription) -> None:
        """Subscribe at a legacy backend, on the connection that the subscribers share."""
        if mine.who == EVERYBODY:
            connection = await self.backend.wait_up()
            connection.begin(mine.use)
        else:
            connection = await self.backend.pool.take(ConnectionKey(mine.who), mine.use, str(mine.who), alone=False)
        try:
            await self._wait_left(connection, mine.uri)
            self._hear_on(mine, connection)  # also if this is given up: then the backend must be told
            answer = await connection.conversation.send("resources/subscribe", {"uri": mine.uri}, wants_progress=False)
            mine.is_granted = not isinstance(answer, ErrorResponse)
            if not mine.is_granted or connection.is_over:
                self._hear_on(mine, None)
        except CallboardError:
            self._hear_on(mine, None)
            raise
        finally:
            self.backend.pool.give_back(connection, mine.use)
        for other in self.backend.pool:
            if other.opened.is_set() and not other.is_over and self.misses(other):
                await self.join(other)

    async def _stream(self, mine: UpstreamSubscription, connection: BackendConnection) -> None:
        """One stream for each resource: an update may name a part of it, and the stream says whose it is."""
        stream = UpstreamStream(self, mine, connection)
        self._names += 1
        address = mine.stream = self.supervisor.spawn(stream, name=f"stream-{self._names}")
        is_settled = False
        try:
            with trio.move_on_after(ACKNOWLEDGED):
                await stream.settled.wait()
                is_settled = True
        finally:
            if not is_settled or not mine.is_granted:
                address.kill("not acknowledged")

    def _is_followed(self, mine: UpstreamSubscription) -> bool:
        return self._followed.get((mine.who, mine.uri)) is mine

    def end(self, mine: UpstreamSubscription) -> None:
        """The last subscriber has left: have the backend told so."""
        if self._is_followed(mine):
            del self._followed[mine.who, mine.uri]
            self._note(mine)
        same = self._by_uri.get(mine.uri.rstrip("/"), {})
        if same.pop(mine, mine) is None and not same:
            del self._by_uri[mine.uri.rstrip("/")]
        if mine.stream is not None:
            mine.stream.kill("no subscribers")
        for connection in mine.heard_on():
            self._names += 1
            self._leaving[connection, mine.uri] = trio.Event()
            try:
                self.supervisor.spawn(Unsubscribe(self, mine.uri, connection), name=f"farewell-{self._names}")
            except SupervisorClosed:  # the backend ends, and its subscriptions with it
                self._leaving.pop((connection, mine.uri)).set()
        for connection in mine.others:
            self._told_on.get(connection, {}).pop(mine, None)
        self._hear_on(mine, None)

    async def _wait_left(self, connection: BackendConnection, uri: str) -> None:
        """Let an unsubscribe of *uri* arrive first: in the other order, it would end the new subscription."""
        while (leaving := self._leaving.get((connection, uri))) is not None:
            await leaving.wait()

    def left(self, connection: BackendConnection, uri: str) -> None:
        """The backend has acknowledged the unsubscribe of *uri* on this connection."""
        self._leaving.pop((connection, uri)).set()


@attrs.define(eq=False)
class UpstreamStream(Actor[Never]):
    """Holds one resource's subscription at a modern backend open, and opens it anew when it ends."""

    mailbox = None

    subscriptions: UpstreamSubscriptions
    following: UpstreamSubscription
    connection: BackendConnection
    settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_acknowledged: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        connection, pause = self.connection, AGAIN_FIRST
        try:
            while await self._listen(connection):
                pause = AGAIN_FIRST if self._is_acknowledged else min(2 * pause, AGAIN_MOST)
                await trio.sleep(pause)
                connection = await self.subscriptions.backend.wait_up()
        except CallboardError as error:
            log.info("resource_subscription_failed", backend=self.subscriptions.backend.name, reason=str(error)[:200])
        finally:
            if self.following.stream is self.address:
                self.following.stream = None  # followed anew when the backend is back
            self.settled.set()

    async def _listen(self, connection: BackendConnection) -> bool:
        """Hear until the stream ends. True if it is worth another try."""
        self._is_acknowledged, is_refused = False, False
        hearer = StreamLease(self._told, self.following.who)
        try:
            answer = await self.subscriptions.listen(
                connection, {"resourceSubscriptions": [self.following.uri]}, hearer
            )
            is_refused = isinstance(answer, ErrorResponse)
        except CallboardError as error:  # it may be this stream alone that broke
            log.info("resource_subscription_failed", backend=self.subscriptions.backend.name, reason=str(error)[:200])
        return self._is_acknowledged or (self.settled.is_set() and not is_refused)

    def _told(self, method: str, params: Mapping[str, Raw]) -> None:
        mine = self.following
        if method == _ACKNOWLEDGED:
            was_granted, mine.is_granted = mine.is_granted, _grants(params, mine.uri)
            if was_granted and mine.is_granted:
                self.subscriptions.publish(mine, mine.uri)
            self._is_acknowledged = True
            self.settled.set()
        elif method == _UPDATED and (uri := _uri(params)) is not None:
            self.subscriptions.publish(mine, uri)


@attrs.define(eq=False)
class Unsubscribe(Actor[Never]):
    """Unsubscribes from a resource at a legacy backend."""

    mailbox = None

    subscriptions: UpstreamSubscriptions
    uri: str
    connection: BackendConnection

    async def run(self) -> None:
        try:
            await self.connection.conversation.send(
                "resources/unsubscribe", {"uri": self.uri}, patience=BRIEF, wants_progress=False
            )
        except CallboardError as error:
            log.info("unsubscribe_failed", backend=self.subscriptions.backend.name, reason=str(error)[:200])
        finally:
            self.subscriptions.left(self.connection, self.uri)


def _uri(params: Mapping[str, Raw]) -> str | None:
    try:
        found = msgspec.json.decode(params["uri"])
    except (KeyError, msgspec.DecodeError):
        return None
    return found if isinstance(found, str) else None


def _grants(params: Mapping[str, Raw], uri: str) -> bool:
    try:
        granted = msgspec.json.decode(params["notifications"])
    except (KeyError, msgspec.DecodeError):
        return False
    named = granted.get("resourceSubscriptions") if isinstance(granted, dict) else None
    return isinstance(named, list) and uri in named
