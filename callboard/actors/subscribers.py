"""The table of subscribers: which of them wants to hear of which change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import attrs

from callboard.actors.changes import MORE, Change, Hear, ListChanged, ResourceUpdated, folders
from callboard.actors.fan_out import SLICE, FanOut
from callboard.codecs.revisions import ClientCapabilities


@attrs.define(eq=False)
class Subscribers:
    """Fan-out: each change goes to its subscribers."""

    fan_out: FanOut = attrs.field(factory=FanOut)
    _hearers: dict[Change, dict[Hear, None]] = attrs.field(factory=dict, init=False)
    _lengths: Counter[int] = attrs.field(factory=Counter, init=False)
    """How many resources are followed whose URI is so long: only these prefixes of a URI are looked up."""

    def join(self, hear: Hear, changes: Iterable[Change]) -> None:
        for change in changes:
            hearers = self._hearers.get(change)
            if hearers is None:
                hearers = self._hearers[change] = {}
                if isinstance(change, ResourceUpdated):
                    self._lengths[len(change.uri)] += 1
            hearers[hear] = None

    def leave(self, hear: Hear, changes: Iterable[Change]) -> None:
        """Harmless for a subscriber that has not joined."""
        for change in changes:
            hearers = self._hearers.get(change)
            if hearers is not None:
                hearers.pop(hear, None)
                if not hearers:
                    del self._hearers[change]
                    if isinstance(change, ResourceUpdated):
                        self._unfollow(len(change.uri))

    def _unfollow(self, length: int) -> None:
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def publish(self, change: Change, *, also: Sequence[Change] = ()) -> int:
        """Tell every subscriber of *change*, of what it is a part of, or of what it is *also* known as.
        Returns how many that are. Many are told later, and so are all while some are behind."""
        told = self._told(change, also)
        fan_out = self.fan_out
        if not told or (len(told) <= SLICE and fan_out.is_idle):
            is_put = False
        else:
            is_put = fan_out.put(self, change, lambda: self._told(change, also), (MORE, self._followers))
        if not is_put:
            for hear in told:
                hear(change)
        return len(told)

    def _told(self, change: Change, also: Sequence[Change]) -> dict[Hear, None]:
        told: dict[Hear, None] = {}
        for topic in (change, *self._wider(change), *also):
            told |= self._hearers.get(topic, {})
        return told

    def _wider(self, change: Change) -> Iterator[Change]:
        """What a change belongs to: a file that changed is news to subscribers of its folder, with or without its
        slash."""
        if isinstance(change, ListChanged) or not self._lengths:
            return
        for cut in folders(change.uri):
            for end in (cut, cut + 1):
                if end in self._lengths:
                    yield ResourceUpdated(change.uri[:end])

    def _followers(self) -> dict[Hear, None]:
        """All subscribers of any resource."""
        followers: dict[Hear, None] = {}
        for change, hearers in self._hearers.items():
            if isinstance(change, ResourceUpdated):
                followers |= hearers
        return followers

    def __len__(self) -> int:
        return len(self._hearers)


class Audience(Protocol):
    """Which client may follow what: asked before a subscription begins, and told when it has ended."""

    @property
    def fan_out(self) -> FanOut:
        """How they are told."""

    def topics(self, principal: str) -> Subscribers:
        """Where *principal*'s sessions and subscriptions listen."""

    def heard_by(self, changes: Sequence[Change], principal: str, can: ClientCapabilities) -> Sequence[Change]:
        """*changes*, as clients of *principal* hear of them that have these capabilities."""

    async def follow(self, uris: Sequence[str], principal: str) -> Sequence[str]:
        """Which of *uris* can be followed: those are, until each is unfollowed."""

    def unfollow(self, uris: Iterable[str], principal: str) -> None:
        """Each is followed by one less."""


@attrs.frozen(eq=False)
class Everybody:
    """The audience of a hosted server: all clients hear the same, and may follow any URI."""

    all: Subscribers

    @property
    def fan_out(self) -> FanOut:
        return self.all.fan_out

    def topics(self, _: str) -> Subscribers:
        return self.all

    def heard_by(self, changes: Sequence[Change], _: str, __: ClientCapabilities) -> Sequence[Change]:
        return changes

    async def follow(self, uris: Sequence[str], _: str) -> Sequence[str]:
        return uris

    def unfollow(self, uris: Iterable[str], _: str) -> None:
        """Nothing to tell."""
