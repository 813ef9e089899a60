"""Hearing of changes at a server: by subscriptions of either era, seen as one stream of changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Never, Self, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.changes import ListChanged, ListName, ResourceUpdated
from callboard.actors.client.conversation import Conversation, Patience
from callboard.actors.client.hearer import OnChange
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    ResourceRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    read,
)
from callboard.errors import CallboardError, ConnectionLost, PeerError, RequestTimedOut
from callboard.supervisor import Actor, Address, Supervisor, get_logger

log = get_logger("callboard.client")

Change: TypeAlias = ListChanged | ResourceUpdated

MAX_CHANGES: Final = 1024
"""Different changes that wait to be looked at; the same one stands there once."""

ENDLESS: Final = Patience(timeout=10 * 365 * 86_400.0, cap=10 * 365 * 86_400.0)
"""A subscription has no end of its own."""

ACKNOWLEDGED: Final = 30.0
"""Seconds for a server to say that it has begun to listen for us."""

FAREWELL: Final = 2.0
"""Seconds in which a legacy server is told of an unsubscribe; then it is not told."""

_LISTS: Final[Mapping[str, ListName]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


@attrs.define(eq=False)
class ChangeStream:
    """Changes, one after the other. Use it as a block: leaving that ends the subscription. Iterated at once, it goes on
    for as long as the client does."""

    switchboard: "ClientSubscriptions"
    lists: frozenset[ListName]
    uris: tuple[str, ...]
    granted: SubscriptionFilter | None = attrs.field(default=None, init=False)
    """The subscriptions that the server acknowledged. A legacy server does not acknowledge."""
    _waiting: dict[Change, None] = attrs.field(factory=dict, init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _address: Address[Never] | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> Self:
        await self.switchboard.begin(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.switchboard.end(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """The next change. Raises `ConnectionLost` when none can come any more."""
        await self.switchboard.begin(self)
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                raise StopAsyncIteration
            self._woken = trio.Event()
            await self._woken.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change

    def tell(self, change: Change, *, is_own: bool = False) -> None:
        """Take a change in, if it is one that was asked for. One that came as *is_own* names what the server likes."""
        wanted = change.name in self.lists if isinstance(change, ListChanged) else is_own or self._covers(change.uri)
        if wanted and len(self._waiting) < MAX_CHANGES:
            self._waiting[change] = None
            self._woken.set()

    def finish(self, failure: Exception | None) -> None:
        """End of the subscription."""
        if not self._is_over:
            self._is_over, self._failure = True, failure
            self._woken.set()

    def _covers(self, uri: str) -> bool:
        """A server may name a part of what was asked for."""
        return any(uri == asked or uri.startswith(asked.rstrip("/") + "/") for asked in self.uris)


@attrs.define(eq=False)
class ClientSubscriptions:
    """The subscriptions at one server."""

    conversation: Conversation
    background: Supervisor
    on_change: OnChange
    """Hears of every change, of any subscription."""
    _listening: dict[ChangeStream, None] = attrs.field(factory=dict, init=False)
    _subscribed: dict[str, int] = attrs.field(factory=dict, init=False)

    def listen(self, *, tools: bool, prompts: bool, lists: bool, resources: Sequence[str]) -> ChangeStream:
        flags: tuple[tuple[ListName, bool], ...] = (("tools", tools), ("prompts", prompts), ("resources", lists))
        return ChangeStream(self, frozenset(name for name, flag in flags if flag), tuple(dict.fromkeys(resources)))

    async def begin(self, listening: ChangeStream) -> None:
        """Subscribe, once. Raises what the server or the link raises."""
        if listening in self._listening or listening._is_over:  # noqa: SLF001  # one of us
            return
        self._listening[listening] = None
        is_begun = False
        try:
            if self.conversation.revision.dialect.has_listen:
                await self._listen(listening)
            else:
                await self._subscribe(listening)
            is_begun = True
        finally:
            if not is_begun:
                self._listening.pop(listening, None)

    async def _listen(self, listening: ChangeStream) -> None:
        listener = SubscriptionReader(self, listening)
        address = self.background.spawn(listener, name=f"listen-{id(listening):x}")
        listening._address = address  # noqa: SLF001
        is_begun = False
        try:
            with trio.move_on_after(ACKNOWLEDGED):
                await listener.started.wait()
            if not listener.started.is_set():
                raise RequestTimedOut(after=ACKNOWLEDGED)
            if listener.failure is not None and listening.granted is None:
                raise listener.failure
            is_begun = True
        finally:
            if not is_begun:
                address.kill("the subscription is not open")

    async def _subscribe(self, listening: ChangeStream) -> None:
        for index, uri in enumerate(listening.uris):
            self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
            is_subscribed = False
            try:
                if self._subscribed[uri] == 1:
                    await self.conversation.request("resources/subscribe", ResourceRequestParams(uri=uri))
                is_subscribed = True
            finally:
                if not is_subscribed:
                    free = self._let_go(listening.uris[: index + 1])
                    await self._unsubscribe([each for each in free if each != uri])

    def _let_go(self, uris: Sequence[str]) -> Sequence[str]:
        """One subscriber less for *uris*: those that have none any more."""
        for uri in uris:
            self._subscribed[uri] -= 1
        free = [uri for uri in uris if not self._subscribed[uri]]
        for uri in free:
            del self._subscribed[uri]
        return free

    async def end(self, listening: ChangeStream) -> None:
        if listening not in self._listening:
            return
        del self._listening[listening]
        is_alive = not listening._is_over  # noqa: SLF001
        listening.finish(None)
        if listening._address is not None:  # noqa: SLF001
            listening._address.kill("the subscription was closed")  # noqa: SLF001
            return
        free = self._let_go(listening.uris)
        if is_alive:
            await self._unsubscribe(free)

    async def _unsubscribe(self, uris: Sequence[str]) -> None:
        """Also for a task that is cancelled: that is how most subscriptions end."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + FAREWELL):
            for uri in uris:
                try:
                    await self.conversation.request("resources/unsubscribe", ResourceRequestParams(uri=uri))
                except CallboardError as error:
                    log.info("unsubscribe_failed", uri=uri[:200], reason=str(error)[:200])

    async def begin_again(self) -> None:
        """A new session knows nothing of what the old one was asked for. Raises what the server or the link raises."""
        for uri in list(self._subscribed):
            await self.conversation.request("resources/subscribe", ResourceRequestParams(uri=uri))

    def lose(self, failure: Exception) -> None:
        """End of all subscriptions."""
        for listening in self._listening:
            listening.finish(failure)
        self._listening.clear()
        self._subscribed.clear()

    def changed(self, method: str, params: Mapping[str, Raw]) -> None:
        """A notification of the server's: for its subscriptions."""
        self.on_change(method, params)
        change = _change(method, params)
        if change is not None:
            for listening in list(self._listening):
                listening.tell(change)


@attrs.define(eq=False)
class SubscriptionReader(Actor[Never]):
    """Holds one modern subscription open."""

    mailbox = None

    switchboard: ClientSubscriptions
    listening: ChangeStream
    started: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The server has acknowledged it, or will not."""
    failure: Exception | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        wanted, conversation = self.listening, self.switchboard.conversation
        flags: dict[str, Any] = {f"{name}_list_changed": True for name in wanted.lists}
        chosen = SubscriptionFilter(resource_subscriptions=wanted.uris or UNSET, **flags)
        params = SubscriptionsListenRequestParams(notifications=chosen)
        self.failure = ConnectionLost("the subscription ended")
        try:
            await conversation.once("subscriptions/listen", params, patience=ENDLESS, on_told=self._told)
            self.failure = None
        except CallboardError as error:  # the subscriber gets it, by its own name
            self.failure = error
        finally:
            self.started.set()
            wanted.finish(self.failure)

    def _told(self, method: str, params: Mapping[str, Raw]) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledged(params)
            return
        self.switchboard.on_change(method, params)
        change = _change(method, params)
        if change is not None:
            self.listening.tell(change, is_own=True)

    def _acknowledged(self, params: Mapping[str, Raw]) -> None:
        wanted = self.listening
        try:
            told = read(
                self.switchboard.conversation.revision,
                SubscriptionsAcknowledgedNotificationParams,
                write_members(params),
            )
        except PeerError as error:
            log.warning("unreadable_acknowledgement", failure=str(error)[:200])
            return
        granted = wanted.granted = told.notifications
        refused: list[str] = [
            name for name in sorted(wanted.lists) if getattr(granted, f"{name}_list_changed") is not True
        ]
        refused += sorted(set(wanted.uris) - set(granted.resource_subscriptions or ()))
        if refused:
            log.warning("subscription_not_granted", what=[name[:200] for name in refused[:16]])
        self.started.set()


def _change(method: str, params: Mapping[str, Raw]) -> Change | None:
    if method in _LISTS:
        return ListChanged(_LISTS[method])
    if method == "notifications/resources/updated" and "uri" in params:
        uri = msgspec.json.decode(params["uri"])
        return ResourceUpdated(uri) if isinstance(uri, str) else None
    return None
