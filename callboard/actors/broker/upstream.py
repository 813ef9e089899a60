"""What the parts of a backend need of the whole."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Raw

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import Lease
from callboard.actors.broker.listing import BackendLists
from callboard.actors.broker.pool import BackendPool

OnUpdated: TypeAlias = Callable[[str, str, object], None]
"""Told of a resource that changed: its URI, the one it was followed by, and the key of the connection it came on."""


class Upstream(Protocol):
    """A backend, as its views and its subscriptions know it."""

    name: str
    legs: BackendPool
    listings: BackendLists

    @property
    def is_up(self) -> bool:
        """Whether it can be asked."""

    async def wait_up(self) -> BackendConnection:
        """Wait for the shared connection. Raises `BackendGone`."""

    def give_back(self, leg: BackendConnection, use: Lease) -> None:
        """A connection is no longer used."""

    def changed(self, leg: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""

    def refresh(self) -> None:
        """Read all lists again."""

    @property
    def on_updated(self) -> OnUpdated:
        """Is told of a resource that has changed: its URI, what was followed, and the key of the connection."""
