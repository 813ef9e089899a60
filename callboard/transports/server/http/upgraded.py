"""A connection that turns into another protocol, and the task that reads it."""

from typing import Protocol

from callboard.actors.outlet import Carrier
from callboard.supervisor import Fact


class Reading(Carrier, Protocol):
    """The actor of a connection: another task may run it when a request waits."""

    peer: str
    """The account of its client if it is anonymous."""

    @property
    def turn(self) -> object:
        """Stands for the task that reads now."""


class Upgraded(Protocol):
    """A connection that turned into another protocol."""

    async def run(self) -> None:
        """Read it, to its end or until another task does; that one calls this again."""

    def leave(self) -> None:
        """The server ends."""

    def facts(self) -> dict[str, Fact]: ...
