"""Changes that clients may follow: of a list, of a resource; what belongs to what, and how much following one takes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs
from msgspec import UNSET

from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.revisions import SubscriptionFilter
from callboard.codecs.uri_template.match import MAX_URI
from callboard.errors import InvalidParams

ListName: TypeAlias = Literal["tools", "prompts", "resources"]
LISTS: Final[tuple[ListName, ...]] = ("tools", "prompts", "resources")

MAX_STEPS: Final = 32
"""Parent paths of a changed resource with subscribers that are notified, the innermost first."""


MAX_FOLLOWED_BYTES: Final = 32 * 1024 * 1024
"""Most bytes that followed resources of all clients may take: their URIs, and what is kept beside each."""

FOLLOWED_WEIGHT: Final = 1024
"""Bytes that are kept beside the URI of a followed resource, or about as many."""


def weight_of(uris: Iterable[str]) -> int:
    """Bytes that it takes to follow *uris*. Raises `InvalidParams` for one that is too long."""
    weight = 0
    for uri in uris:
        if len(uri) > MAX_URI:
            raise InvalidParams(f"a URI may have {MAX_URI} characters")
        weight += FOLLOWED_WEIGHT + len(uri)
    return weight


@attrs.frozen
class ListChanged:
    """One of the three lists is another one now."""

    name: ListName
    signature: Signature = attrs.field(default=NOTHING, repr=False)
    """For which clients, where lists are told apart: those that can be asked just this."""


@attrs.frozen
class ResourceUpdated:
    """A resource has another content now."""

    uri: str


@attrs.frozen
class MoreChanged:
    """Resources have other contents now, and which ones is no longer known."""


MORE: Final = MoreChanged()

Change: TypeAlias = ListChanged | ResourceUpdated
News: TypeAlias = Change | MoreChanged
Hear: TypeAlias = Callable[[News], None]
"""How a subscriber is told. Never waits."""


def folders(uri: str) -> Iterator[int]:
    """Ends of the parent paths of a URI, without their slashes: the innermost first, up to a limit."""
    root, cut = uri.find("://") + 2, len(uri)
    for _ in range(MAX_STEPS):
        cut = uri.rfind("/", 0, cut)
        if cut <= root:
            return
        yield cut


def wanted_lists(chosen: SubscriptionFilter) -> list[ListChanged]:
    """The list changes that a listen request asks for."""
    flags = (chosen.tools_list_changed, chosen.prompts_list_changed, chosen.resources_list_changed)
    return [ListChanged(name) for name, flag in zip(LISTS, flags, strict=True) if flag is True]


def count_of(chosen: SubscriptionFilter) -> int:
    """How many lists and resources a listen request asks for."""
    uris = () if chosen.resource_subscriptions is UNSET else chosen.resource_subscriptions
    return len(wanted_lists(chosen)) + len(uris)
