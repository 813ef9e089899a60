"""A backend, as its parts need it."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Raw

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import Lease
from callboard.actors.broker.listing import BackendLists
from callboard.actors.broker.pool import BackendPool


class Upstream(Protocol):
    """A backend, as its views and its subscriptions know it."""

    name: str
    pool: BackendPool
    listings: BackendLists

    @property
    def personal(self) -> object | None:
        """Set if each caller has connections of its own there."""

    @property
    def is_up(self) -> bool:
        """Whether it can be asked."""

    async def wait_up(self) -> BackendConnection:
        """Wait for the shared connection. Raises `BackendGone`."""

    def give_back(self, connection: BackendConnection, use: Lease) -> None:
        """A connection is no longer used."""

    def changed(self, connection: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""

    def refresh(self) -> None:
        """Read all lists again."""

    def serves(self, uri: str) -> bool:
        """Whether clients find the resource *uri* at this backend."""
