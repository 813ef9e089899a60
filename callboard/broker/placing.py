"""Where the backends of a broker run: here, or in another process that several brokers share."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import attrs

from callboard.actors.broker.backend import Withdraw
from callboard.actors.broker.policy import BackendSettings
from callboard.client.routes import TransportRoutes
from callboard.config import BackendSpec, BackendTarget, UpstreamAuth
from callboard.server.server import Server
from callboard.supervisor import Actor


@attrs.frozen
class Placed:
    """A backend as this process reaches it. Two are equal if the same would run: then a reload leaves it as it is."""

    settings: BackendSettings
    target: BackendTarget | Server | TransportRoutes
    auth: UpstreamAuth | None = None
    withdraw: Withdraw | None = attrs.field(default=None, eq=False)


PlaceAnew: TypeAlias = Callable[[], Awaitable[None]]
"""Has each backend placed again; those for which nothing changed do not notice."""


class Placing(Protocol):
    """Decides it for each backend."""

    async def learn(self) -> None:
        """Find out what must be known, before the first backend is placed. Never waits for long, and never raises."""

    def place(self, spec: BackendSpec) -> Placed:
        """Where *spec* runs, as far as that is known. Raises `CannotServe`, `CannotConnect`."""

    def watcher(self, place_anew: PlaceAnew) -> Actor[Any] | None:
        """What calls *place_anew* when backends are elsewhere than they were; None if they stay where they are."""


@attrs.frozen
class Here:
    """All of them run in this process, or are reached from it."""

    async def learn(self) -> None:
        """There is nothing to learn."""

    def place(self, spec: BackendSpec) -> Placed:
        return Placed(spec.settings, spec.target, spec.auth)

    def watcher(self, place_anew: PlaceAnew) -> None:
        """They stay here."""
