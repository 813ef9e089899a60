"""The audience of a broker: clients hear of the merged lists, and follow resources at the backends that own them."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from types import MappingProxyType
from typing import ClassVar, Final, Never, TypeAlias

import attrs
import trio

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.leases import sharer
from callboard.actors.broker.upstream_subscriptions import UpstreamSubscription
from callboard.actors.changes import LISTS, Hear, ListChanged, ListName
from callboard.actors.fan_out import FanOut
from callboard.actors.subscribers import Following, Subscribers
from callboard.codecs.bridge.askable import Signature
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.revisions import ClientCapabilities
from callboard.errors import CallboardError, SupervisorClosed
from callboard.supervisor import Actor, get_logger

log = get_logger("callboard.broker")

AT_ONCE: Final = 32
"""Resources of one subscriber that backends are asked for at a time: each takes tasks and a message."""

Find: TypeAlias = Callable[[str], tuple[Backend, str]]
"""The backend that owns a resource, and the URI it has there. Raises a `CallboardError` if no backend does."""


@attrs.define(eq=False)
class BrokerAudience:
    """Lists are the same for all clients of one signature. A resource is followed at its backend, on a connection that
    the subscriber's principal may share: what one principal's connection hears reaches no other principal."""

    follows_unknown: ClassVar[bool] = False

    find: Find
    fan_out: FanOut = attrs.field(factory=FanOut)
    transparent: Transparent = attrs.field(factory=Transparent)
    tells_all: bool = attrs.field(default=False, init=False)
    """Whether each change is told to all: to brokers, which have clients of any signature."""
    on_up: Callable[[Backend], None] | None = attrs.field(default=None, init=False)
    lists: Subscribers = attrs.field(init=False)
    _leaving: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.lists = Subscribers(self.fan_out)

    # Lists.

    def lists_for(self, lists: Iterable[ListChanged], can: ClientCapabilities) -> Sequence[ListChanged]:
        signature = self.transparent.signature_of(can)
        return [ListChanged(one.name, signature) for one in lists]

    def lists_changed(
        self,
        lists: Iterable[ListName],
        signature: Signature | None = None,
        but: Mapping[Signature, Set[ListName]] = MappingProxyType({}),
    ) -> None:
        """The merged lists are others now: news for clients of *signature*; or for all, *but* for clients to which
        these lists are the same as before."""
        if self.tells_all:
            signature, but = None, {}
        for name in lists:
            for one in list(self.lists):
                is_it = isinstance(one, ListChanged) and one.name == name and name not in but.get(one.signature, ())
                if is_it and (signature is None or ListChanged(name, signature) == one):
                    self.lists.publish(one)

    def came_up(self, backend: Backend) -> None:
        """A backend is up (again). What it shows may be different now, to any client."""
        if self.on_up is not None:
            self.on_up(backend)
        if self.tells_all:
            self.lists_changed(LISTS)

    # Resources.

    async def follow(self, uris: Sequence[str], principal: str, hear: Hear) -> Following:
        """Follow at the backends what can be followed there, all at once."""
        following: dict[str, UpstreamSubscription] = {}
        waiting = iter(dict.fromkeys(uris))

        async def some() -> None:
            for uri in waiting:
                found = await self._follow(uri, principal, hear)
                if found is not None:
                    following[uri] = found
                await trio.lowlevel.checkpoint()

        is_done = False
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(AT_ONCE, len(uris))):
                    nursery.start_soon(some)
            is_done = True
        finally:
            if not is_done:
                self.unfollow(following, hear)
        return {uri: following[uri] for uri in uris if uri in following}

    async def _follow(self, uri: str, principal: str, hear: Hear) -> UpstreamSubscription | None:
        try:
            backend, there = self.find(uri)
            who = sharer(backend.settings.share, principal)
            return await backend.subscriptions.follow(there, who, uri, hear)
        except CallboardError as error:
            log.info("subscribe_failed", uri=uri[:200], reason=str(error)[:200])
            return None

    def unfollow(self, following: Following, hear: Hear) -> None:
        """Follow them no longer; of many, most a little later."""
        left = iter(following.items())
        supervisor = self.fan_out.supervisor
        unfollow(islice(left, AT_ONCE), hear)
        if len(following) > AT_ONCE and supervisor is not None:
            self._leaving += 1
            try:
                supervisor.spawn(Unfollow(dict(left), hear), name=f"leaving-{self._leaving}", shutdown=0)
            except SupervisorClosed:  # so are the backends
                left = iter(list(following.items())[AT_ONCE:])
        unfollow(left, hear)


@attrs.define(eq=False)
class Unfollow(Actor[Never]):
    """A subscriber that has left, and followed much: others get their turns in between."""

    mailbox = None

    following: Following
    hear: Hear

    async def run(self) -> None:
        left = iter(self.following.items())
        try:
            for _ in range(0, len(self.following), AT_ONCE):
                unfollow(islice(left, AT_ONCE), self.hear)
                await trio.lowlevel.checkpoint()
        finally:
            unfollow(left, self.hear)


def unfollow(following: Iterable[tuple[str, UpstreamSubscription]], hear: Hear) -> None:
    """*hear* is told no more of these."""
    for uri, subscription in following:
        subscription.remove(uri, hear)
