"""Who wants to hear of which change."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import attrs
from msgspec import UNSET

from callboard.codecs.revisions import SubscriptionFilter

ListName: TypeAlias = Literal["tools", "prompts", "resources"]
LISTS: Final[tuple[ListName, ...]] = ("tools", "prompts", "resources")


@attrs.frozen
class ListChanged:
    """One of the three lists is another one now."""

    name: ListName


@attrs.frozen
class ResourceUpdated:
    """A resource has another content now."""

    uri: str


Change: TypeAlias = ListChanged | ResourceUpdated
Hear: TypeAlias = Callable[[Change], None]
"""How a subscriber is told. Never waits: whoever cannot keep up coalesces."""


@attrs.define(eq=False)
class Topics:
    """Fan-out: each change goes to those who asked for it."""

    _hearers: dict[Change, dict[Hear, None]] = attrs.field(factory=dict, init=False)

    def join(self, hear: Hear, changes: Iterable[Change]) -> None:
        for change in changes:
            self._hearers.setdefault(change, {})[hear] = None

    def leave(self, hear: Hear, changes: Iterable[Change]) -> None:
        """Harmless for who has not joined."""
        for change in changes:
            hearers = self._hearers.get(change)
            if hearers is not None:
                hearers.pop(hear, None)
                if not hearers:
                    del self._hearers[change]

    def publish(self, change: Change, *, also: Iterable[Change] = ()) -> int:
        """Tell everybody who wants to hear of *change*, of what it is a part of, or of what it is *also* known as.
        Returns how many that are."""
        told: dict[Hear, None] = {}
        for topic in (*_widening(change), *also):
            told |= self._hearers.get(topic, {})
        for hear in told:
            hear(change)
        return len(told)

    def __len__(self) -> int:
        return len(self._hearers)


class Audience(Protocol):
    """Who may follow what: asked before somebody does, and told when he no longer does."""

    def topics(self, principal: str) -> Topics:
        """Where *principal*'s sessions and subscriptions listen."""

    async def follow(self, uris: Sequence[str], principal: str) -> Sequence[str]:
        """Which of *uris* can be followed: those are, until each is unfollowed."""

    def unfollow(self, uris: Iterable[str], principal: str) -> None:
        """Each is followed by one less."""


@attrs.frozen(eq=False)
class Everybody:
    """The audience of a hosted server: all hear the same, and may follow whatever they name."""

    all: Topics

    def topics(self, _: str) -> Topics:
        return self.all

    async def follow(self, uris: Sequence[str], _: str) -> Sequence[str]:
        return uris

    def unfollow(self, uris: Iterable[str], _: str) -> None:
        """Nobody need be told."""


def wanted(chosen: SubscriptionFilter) -> list[Change]:
    """The changes that a listen request asks for."""
    flags = (chosen.tools_list_changed, chosen.prompts_list_changed, chosen.resources_list_changed)
    lists: list[Change] = [ListChanged(name) for name, flag in zip(LISTS, flags, strict=True) if flag is True]
    uris = () if chosen.resource_subscriptions is UNSET else chosen.resource_subscriptions
    return lists + [ResourceUpdated(uri) for uri in uris]


def _widening(change: Change) -> list[Change]:
    """A change, and the wider ones it belongs to: a file that changed is news to whoever watches its folder."""
    if isinstance(change, ListChanged):
        return [change]
    steps: list[Change] = [change]
    uri = change.uri
    while (cut := uri.rfind("/")) > uri.find("://") + 2:
        uri = uri[:cut]
        steps += [ResourceUpdated(uri), ResourceUpdated(uri + "/")]
    return steps
