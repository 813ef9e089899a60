"""The audience of a broker: which clients hear of which change. Principals are apart, behind shared subscriptions."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, Never, TypeAlias

import attrs
import trio

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.leases import EVERYBODY
from callboard.actors.changes import Change, ListChanged, ListName, ResourceUpdated
from callboard.actors.fan_out import FanOut
from callboard.actors.subscribers import Subscribers
from callboard.actors.terms import ANYBODY
from callboard.codecs.bridge.askable import NOTHING, Signature, signature_of
from callboard.codecs.revisions import ClientCapabilities
from callboard.errors import CallboardError, SupervisorClosed
from callboard.supervisor import Actor, get_logger

log = get_logger("callboard.broker")

AT_ONCE: Final = 32
"""Resources of one subscriber that backends are asked for at a time: each takes tasks and a message."""

Find: TypeAlias = Callable[[str], tuple[Backend, str]]
"""The backend that owns a resource, and the URI it has there. Raises a `CallboardError` if no backend does."""

Held: TypeAlias = tuple[Backend, str, Hashable]
"""What is followed: at which backend, by which URI, and the key of the shared connection."""


@attrs.define(eq=False)
class BrokerAudience:
    """Topics by principal: what one principal's connection hears reaches no other principal."""

    find: Find
    fan_out: FanOut = attrs.field(factory=FanOut, init=False)
    _topics: dict[str, Subscribers] = attrs.field(factory=dict, init=False)
    _signatures: dict[str, set[Signature]] = attrs.field(factory=dict, init=False)
    """What clients of a principal can be asked, where any can be: dozens of signatures at most."""
    _followed: dict[tuple[str, str], list[Held]] = attrs.field(factory=dict, init=False)
    _hearers: dict[Held, Counter[tuple[str, str]]] = attrs.field(factory=dict, init=False)
    _names: int = attrs.field(default=0, init=False)

    def topics(self, principal: str) -> Subscribers:
        found = self._topics.get(principal)
        if found is None:
            found = self._topics[principal] = Subscribers(self.fan_out)
        return found

    async def follow(self, uris: Sequence[str], principal: str) -> Sequence[str]:
        """Follow at the backends what can be followed there, all at once."""
        granted: dict[str, bool] = dict.fromkeys(uris, False)
        waiting = iter(list(granted))

        async def some() -> None:
            for uri in waiting:
                granted[uri] = await self._follow(uri, principal)
                await trio.lowlevel.checkpoint()

        is_done = False
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(AT_ONCE, len(granted))):
                    nursery.start_soon(some)
            is_done = True
        finally:
            if not is_done:
                self.unfollow([uri for uri, is_followed in granted.items() if is_followed], principal)
        return [uri for uri, is_followed in granted.items() if is_followed]

    def unfollow(self, uris: Iterable[str], principal: str) -> None:
        """Follow them no longer; of many, most a little later."""
        left = list(uris)
        self._unfollow(left[:AT_ONCE], principal)
        rest, supervisor = left[AT_ONCE:], self.fan_out.supervisor
        if rest and supervisor is not None:
            try:
                self._names += 1
                supervisor.spawn(Unfollow(self, rest, principal), name=f"leaving-{self._names}", shutdown=0)
            except SupervisorClosed:  # so are the backends
                self._unfollow(rest, principal)
        else:
            self._unfollow(rest, principal)

    def _unfollow(self, uris: Iterable[str], principal: str) -> None:
        for uri in uris:
            held = self._followed.get((principal, uri))
            if held:
                backend, there, who = last = held.pop()
                backend.interests.unfollow(there, who)
                self._hears(last, principal, uri, -1)
                if not held:
                    del self._followed[principal, uri]
        topics = self._topics.get(principal)
        if principal != ANYBODY and topics is not None and not len(topics):
            del self._topics[principal]
            self._signatures.pop(principal, None)

    async def leave(self, uris: Sequence[str], principal: str) -> None:
        """Unfollow many, with turns for others in between."""
        is_done, start = False, 0
        try:
            while start < len(uris):
                self._unfollow(uris[start : start + AT_ONCE], principal)
                start += AT_ONCE
                await trio.lowlevel.checkpoint()
            is_done = True
        finally:
            if not is_done:
                self._unfollow(uris[start:], principal)

    def updated(self, backend: Backend, uri: str, followed: str, who: Hashable) -> None:
        """A resource has changed. Clients hear of it by the URI that they know it by; of a part of it by its own URI,
        if that is the backend's to speak of."""
        is_part = uri != followed and self._serves(backend, uri)
        for principal, known in list(self._hearers.get((backend, followed, who), ())):
            shown = uri if is_part else known
            self.topics(principal).publish(ResourceUpdated(shown), also=[ResourceUpdated(known)])

    def _serves(self, backend: Backend, uri: str) -> bool:
        try:
            return self.find(uri)[0] is backend
        except CallboardError:
            return False

    def replace(self, before: Backend, after: Backend) -> None:
        """A backend is configured anew: what was followed there still is, as soon as it is up."""
        after.interests.inherit(before.interests)
        for held in self._followed.values():
            held[:] = [(after, *one[1:]) if one[0] is before else one for one in held]
        for one in [one for one in self._hearers if one[0] is before]:
            self._hearers[after, one[1], one[2]] = self._hearers.pop(one)

    def heard_by(self, changes: Sequence[Change], principal: str, can: ClientCapabilities) -> Sequence[Change]:
        signature = signature_of(can)
        if not signature:
            return changes
        self._signatures.setdefault(principal, set()).add(signature)
        return [ListChanged(one.name, signature) if isinstance(one, ListChanged) else one for one in changes]

    def lists_changed(
        self,
        lists: Iterable[ListName],
        signature: Signature | None = None,
        but: Mapping[Signature, Set[ListName]] = MappingProxyType({}),
    ) -> None:
        """The merged lists are others now: news for clients of *signature*; or for all, *but* for clients to which
        these lists are the same as before."""
        for name in lists:
            for principal, topics in list(self._topics.items()):
                those = (NOTHING, *self._signatures.get(principal, ())) if signature is None else (signature,)
                for one in those:
                    if name not in but.get(one, ()):
                        topics.publish(ListChanged(name, one))

    async def _follow(self, uri: str, principal: str) -> bool:
        try:
            backend, there = self.find(uri)
            is_shared = backend.settings.share == "all" or principal == ANYBODY
            who: Hashable = EVERYBODY if is_shared else principal
            if not await backend.interests.follow(there, who):
                return False
        except CallboardError as error:
            log.info("subscribe_failed", uri=uri[:200], reason=str(error)[:200])
            return False
        self._followed.setdefault((principal, uri), []).append((backend, there, who))
        self._hears((backend, there, who), principal, uri, 1)
        return True

    def _hears(self, held: Held, principal: str, uri: str, more: int) -> None:
        hearers = self._hearers.setdefault(held, Counter())
        hearers[principal, uri] += more
        if not hearers[principal, uri]:
            del hearers[principal, uri]
        if not hearers:
            del self._hearers[held]


@attrs.define(eq=False)
class Unfollow(Actor[Never]):
    """A subscriber that has left, and followed much."""

    mailbox = None

    listeners: BrokerAudience
    uris: Sequence[str]
    principal: str

    async def run(self) -> None:
        await self.listeners.leave(self.uris, self.principal)
