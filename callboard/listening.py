"""Hearing of changes at a server: by subscriptions of either era, seen as one stream of changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Never, Self, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.caller import Caller, Patience
from callboard.actors.topics import ListChanged, ListName, ResourceUpdated
from callboard.codecs.revisions import (
    MODERN,
    ResourceRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
)
from callboard.errors import ConnectionLost
from callboard.supervisor import Actor, Address, Supervisor

Change: TypeAlias = ListChanged | ResourceUpdated

MAX_CHANGES: Final = 1024
"""Different changes that wait to be looked at; the same one stands there once."""

ENDLESS: Final = Patience(timeout=10 * 365 * 86_400.0, cap=10 * 365 * 86_400.0)
"""A subscription has no end of its own."""

_LISTS: Final[Mapping[str, ListName]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


@attrs.define(eq=False)
class Listening:
    """Changes, one after the other. Use it as a block, or iterate at once; leaving ends the subscription."""

    switchboard: "Switchboard"
    lists: frozenset[ListName]
    uris: tuple[str, ...]
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

    def tell(self, change: Change) -> None:
        """Take a change in, if it is one that was asked for."""
        wanted = change.name in self.lists if isinstance(change, ListChanged) else self._covers(change.uri)
        if wanted and len(self._waiting) < MAX_CHANGES:
            self._waiting[change] = None
            self._woken.set()

    def finish(self, failure: Exception | None) -> None:
        """Nothing more will come."""
        self._is_over, self._failure = True, failure
        self._woken.set()

    def _covers(self, uri: str) -> bool:
        """A server may name a part of what was asked for."""
        return any(uri == asked or uri.startswith(asked.rstrip("/") + "/") for asked in self.uris)


@attrs.define(eq=False)
class Switchboard:
    """Who listens to what at one server."""

    caller: Caller
    background: Supervisor
    _listening: dict[Listening, None] = attrs.field(factory=dict, init=False)
    _subscribed: dict[str, int] = attrs.field(factory=dict, init=False)

    def listen(self, *, tools: bool, prompts: bool, lists: bool, resources: Sequence[str]) -> Listening:
        flags: tuple[tuple[ListName, bool], ...] = (("tools", tools), ("prompts", prompts), ("resources", lists))
        return Listening(self, frozenset(name for name, flag in flags if flag), tuple(resources))

    async def begin(self, listening: Listening) -> None:
        """Subscribe, once. Raises what the server or the link raises."""
        if listening in self._listening or listening._is_over:  # noqa: SLF001  # one of us
            return
        self._listening[listening] = None
        if self.caller.revision in MODERN:
            started = trio.Event()
            name = f"listen-{id(listening):x}"
            listening._address = self.background.spawn(Listener(self, listening, started), name=name)  # noqa: SLF001
            await started.wait()
            return
        for uri in listening.uris:
            self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
            if self._subscribed[uri] == 1:
                await self.caller.request("resources/subscribe", ResourceRequestParams(uri=uri))

    async def end(self, listening: Listening) -> None:
        if self._listening.pop(listening, self) is self:
            return
        listening.finish(None)
        if listening._address is not None:  # noqa: SLF001
            listening._address.kill("no longer listening")  # noqa: SLF001
            return
        for uri in listening.uris:
            self._subscribed[uri] -= 1
            if not self._subscribed[uri]:
                del self._subscribed[uri]
                try:
                    await self.caller.request("resources/unsubscribe", ResourceRequestParams(uri=uri))
                except ConnectionLost:
                    return  # it ended with the connection

    def changed(self, method: str, params: Mapping[str, Raw]) -> None:
        """A notification of the server's: for whoever asked for it."""
        change = _change(method, params)
        if change is not None:
            for listening in list(self._listening):
                listening.tell(change)


@attrs.define(eq=False)
class Listener(Actor[Never]):
    """Holds one modern subscription open."""

    mailbox = None

    switchboard: Switchboard
    listening: Listening
    started: trio.Event

    async def run(self) -> None:
        wanted = self.listening
        flags: dict[str, Any] = {f"{name}_list_changed": True for name in wanted.lists}
        chosen = SubscriptionFilter(resource_subscriptions=wanted.uris or UNSET, **flags)
        failure: Exception | None = ConnectionLost("the subscription ended")
        try:
            params = SubscriptionsListenRequestParams(notifications=chosen)
            self.started.set()
            await self.switchboard.caller.once("subscriptions/listen", params, patience=ENDLESS)
            failure = None
        except Exception as error:  # whoever listens hears of it, by its own name
            failure = error
        finally:
            self.started.set()
            wanted.finish(failure)


def _change(method: str, params: Mapping[str, Raw]) -> Change | None:
    if method in _LISTS:
        return ListChanged(_LISTS[method])
    if method == "notifications/resources/updated" and "uri" in params:
        uri = msgspec.json.decode(params["uri"])
        return ResourceUpdated(uri) if isinstance(uri, str) else None
    return None
