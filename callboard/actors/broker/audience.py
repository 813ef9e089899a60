"""Who hears of which change: each principal on his own, behind subscriptions that are shared."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

import attrs
import trio

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.leg import EVERYBODY
from callboard.actors.terms import ANYBODY
from callboard.actors.topics import ListChanged, ListName, ResourceUpdated, Topics
from callboard.errors import CallboardError
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

Find: TypeAlias = Callable[[str], tuple[Backend, str]]
"""Whose a resource is, and what it is called there. Raises a `CallboardError` if nobody's."""


@attrs.define(eq=False)
class Listeners:
    """Topics by principal: what one principal's connection hears is for nobody else."""

    find: Find
    _topics: dict[str, Topics] = attrs.field(factory=dict, init=False)
    _followed: dict[tuple[str, str], list[tuple[Backend, str, Hashable]]] = attrs.field(factory=dict, init=False)

    def topics(self, principal: str) -> Topics:
        return self._topics.setdefault(principal, Topics())

    async def follow(self, uris: Sequence[str], principal: str) -> Sequence[str]:
        """Follow at the backends what can be followed there, all at once."""
        granted: dict[str, bool] = {}

        async def one(uri: str) -> None:
            granted[uri] = await self._follow(uri, principal)

        async with trio.open_nursery() as nursery:
            for uri in dict.fromkeys(uris):
                nursery.start_soon(one, uri)
        return [uri for uri in dict.fromkeys(uris) if granted[uri]]

    def unfollow(self, uris: Iterable[str], principal: str) -> None:
        for uri in uris:
            held = self._followed.get((principal, uri))
            if held:
                backend, there, who = held.pop()
                backend.interests.unfollow(there, who)
                if not held:
                    del self._followed[principal, uri]
        topics = self._topics.get(principal)
        if principal != ANYBODY and topics is not None and not len(topics):
            del self._topics[principal]

    def updated(self, backend: Backend, uri: str, followed: str, who: Hashable) -> None:
        """A resource has changed. Clients hear of it by the URI that they know it by."""
        for (principal, known), held in list(self._followed.items()):
            if any(one == (backend, followed, who) for one in held):
                shown = known if uri == followed else uri
                self.topics(principal).publish(ResourceUpdated(shown), also=[ResourceUpdated(known)])

    def lists_changed(self, lists: Iterable[ListName]) -> None:
        """The merged lists are others now: news for everybody."""
        for name in lists:
            for topics in list(self._topics.values()):
                topics.publish(ListChanged(name))

    async def _follow(self, uri: str, principal: str) -> bool:
        try:
            backend, there = self.find(uri)
            is_shared = backend.settings.share == "all" or principal == ANYBODY
            who: Hashable = EVERYBODY if is_shared else principal
            if not await backend.interests.follow(there, who):
                return False
        except CallboardError as error:
            log.info("not_followed", uri=uri[:200], reason=str(error)[:200])
            return False
        self._followed.setdefault((principal, uri), []).append((backend, there, who))
        return True
