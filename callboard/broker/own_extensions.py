"""Extensions of a broker itself: it declares them, and serves their methods and notifications before any backend."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from callboard.actors.broker.custom_told import OWN_METHODS
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.terms import Terms
from callboard.broker.no_news import NoNews
from callboard.codecs.bridge.transparent import OWN
from callboard.codecs.envelope import Notification
from callboard.codecs.revisions import Implementation, Revision, ServerCapabilities
from callboard.server.extension import Extension, ExtensionRun, added_by, checked_extensions
from callboard.server.extension_listeners import ExtensionListeners
from callboard.server.registry import CacheHint, Registry
from callboard.supervisor import Supervisor

THREADS: Final = 40
"""Plain functions of its extensions that run at once, each in a thread."""


@attrs.define(eq=False)
class _Host(NoNews):
    """The broker, as its extensions see it."""

    info: Implementation
    registry: Registry = attrs.field(factory=Registry)
    show_errors: bool = False
    lists_kept: CacheHint = attrs.field(factory=CacheHint)


class OwnExtensions:
    """One run of the extensions of a broker."""

    def __init__(
        self, info: Implementation, extensions: tuple[Extension, ...], guard: Callable[[Exchange], None]
    ) -> None:
        """Raises ValueError for two with one method."""
        limiter = trio.CapacityLimiter(THREADS)
        self._extensions = extensions
        self._run = ExtensionRun(server=_Host(info), lifespan=None, limiter=limiter, guard=guard)
        self._listeners = ExtensionListeners(extensions)
        self.methods: Mapping[str, AddedMethod] = added_by(extensions, self._run)

    def begin(self, root: Supervisor) -> None:
        """The broker begins to run."""
        for one in self._extensions:
            one.begin(root)

    def declared(self, revision: Revision, capabilities: ServerCapabilities) -> ServerCapabilities:
        """*capabilities* with the extensions. Their own settings count, whatever backends declare by their ids."""
        for one in self._extensions:
            capabilities = one.declared(revision, capabilities)
        return capabilities

    def hear(self, notification: Notification, terms: Terms | None) -> bool:
        """Tell them of a notification of a client with these *terms*. False if none of them knows it."""
        return self._listeners.hear_client(notification, terms)


def patterns_and_own(given: Iterable[str | Extension]) -> tuple[tuple[str, ...], tuple[Extension, ...]]:
    """The names of extensions that cross, and the extensions of the broker.

    Raises TypeError for what is neither, and ValueError for an id that is there twice, or that brokers have already.
    """
    if isinstance(given, str):
        raise TypeError("extensions: expected a list of names and Extension objects, not one str")
    items = tuple(given)
    own = checked_extensions((one for one in items if not isinstance(one, str)), is_client=False)
    for one in own:
        if one.id in OWN:
            raise ValueError(f"extension {one.id!r}: a broker has it already")
        for name in one.names():
            if name.startswith(OWN_METHODS):
                raise ValueError(f"extension {one.id!r}: a broker serves the method {name!r} itself")
    return tuple(one for one in items if isinstance(one, str)), own
