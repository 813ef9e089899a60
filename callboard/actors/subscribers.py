"""The table of subscribers: which of them wants to hear of which change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, ClassVar, Protocol, TypeAlias

import attrs

from callboard.actors.changes import Change, Hear, ListChanged, ResourceUpdated, folders
from callboard.actors.fan_out import FanOut
from callboard.codecs.revisions import ClientCapabilities

Following: TypeAlias = Mapping[str, Any]
"""The resources that a subscriber follows, by their URIs. The values are the audience's own."""


@attrs.define(eq=False)
class Subscribers:
    """Fan-out: each change goes to its subscribers."""

    fan_out: FanOut = attrs.field(factory=FanOut)
    on_published: Callable[[Change], None] = attrs.field(default=lambda _: None, init=False)
    """Tells the subscribers in other workers."""
    _hearers: dict[Change, dict[Hear, None]] = attrs.field(factory=dict, init=False)
    _changed: dict[Change, float] = attrs.field(factory=dict, init=False)  # when, of those that have subscribers
    _lengths: Counter[int] = attrs.field(factory=Counter, init=False)
    """Number of subscribed resources by length of the URI: only these prefixes of a URI are looked up."""

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
                    self._changed.pop(change, None)
                    if isinstance(change, ResourceUpdated):
                        self._unfollow(len(change.uri))

    def _unfollow(self, length: int) -> None:
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def publish(self, change: Change) -> int:
        """Tell every subscriber of *change*, or of what it is a part of. Returns how many there are in this process."""
        self.on_published(change)
        return self.publish_here(change)

    def publish_here(self, change: Change) -> int:
        """As `publish`, to those in this process alone."""
        if change in self._hearers:
            self._changed[change] = monotonic()
        return self.fan_out.publish(change, lambda: self._told(change), self, self)

    def _told(self, change: Change) -> dict[Hear, None]:
        told: dict[Hear, None] = {}
        for topic in (change, *self._wider(change)):
            told |= self._hearers.get(topic, {})
        return told

    def _wider(self, change: Change) -> Iterator[Change]:
        """Topics of a change: subscribers of a directory are notified of its files, with or without its
        slash."""
        if isinstance(change, ListChanged) or not self._lengths:
            return
        for cut in folders(change.uri):
            for end in (cut, cut + 1):
                if end in self._lengths:
                    yield ResourceUpdated(change.uri[:end])

    def followers(self) -> dict[Hear, None]:
        """All subscribers of any resource."""
        followers: dict[Hear, None] = {}
        for change, hearers in self._hearers.items():
            if isinstance(change, ResourceUpdated):
                followers |= hearers
        return followers

    def counts(self) -> Iterator[tuple[Change, int]]:
        """The changes that have a subscriber, and how many each has."""
        return ((change, len(hearers)) for change, hearers in self._hearers.items())

    def changed_at(self, change: Change) -> float | None:
        """When that last happened, as `time.monotonic` has it; None if not since it has subscribers."""
        return self._changed.get(change)

    def __iter__(self) -> Iterator[Change]:
        """The changes that have a subscriber."""
        return iter(self._hearers)

    def __len__(self) -> int:
        return len(self._hearers)


class Audience(Protocol):
    """The subscribers of a server: which client may follow what, and hears of which list."""

    follows_unknown: ClassVar[bool]
    """Whether a client may follow a URI that there is not: it may come."""

    @property
    def fan_out(self) -> FanOut:
        """How they are told."""

    @property
    def lists(self) -> Subscribers:
        """The subscribers of list changes."""

    def lists_for(self, lists: Iterable[ListChanged], can: ClientCapabilities) -> Sequence[ListChanged]:
        """*lists*, as clients with these capabilities hear of them."""

    async def follow(self, uris: Sequence[str], principal: str, hear: Hear) -> Following:
        """Have *hear* told of changes of these resources. Returns those that can be followed."""

    def unfollow(self, following: Following, hear: Hear) -> None:
        """Tell *hear* no more of these resources."""


@attrs.frozen(eq=False)
class HostedAudience:
    """The audience of a hosted server: all clients hear the same, and may follow any URI."""

    follows_unknown: ClassVar[bool] = True

    lists: Subscribers
    """Subscribers of resources, too."""

    @property
    def fan_out(self) -> FanOut:
        return self.lists.fan_out

    def lists_for(self, lists: Iterable[ListChanged], _: ClientCapabilities) -> Sequence[ListChanged]:
        return list(lists)

    async def follow(self, uris: Sequence[str], _: str, hear: Hear) -> Following:
        self.lists.join(hear, map(ResourceUpdated, uris))
        return dict.fromkeys(uris)

    def unfollow(self, following: Following, hear: Hear) -> None:
        self.lists.leave(hear, map(ResourceUpdated, following))
