"""A connection that turns into another protocol, and the task that reads it."""

from typing import Protocol

import attrs

from callboard.actors.outlet import Carrier
from callboard.supervisor import Fact


class Reading(Protocol):
    """The task that reads a connection."""

    peer: str
    """The account of its client if it is anonymous."""

    @property
    def turn(self) -> object:
        """Stands for the task that reads now."""

    @property
    def carrier(self) -> Carrier | None:
        """The actor of the connection, if another task may run it when a request waits."""


@attrs.define(eq=False)
class GuestTask:
    """A task of another library's, which reads a connection to its end."""

    peer: str

    @property
    def turn(self) -> object:
        return self

    @property
    def carrier(self) -> None:
        """A request that waits gets a task of its own."""


class Upgraded(Protocol):
    """A connection that turned into another protocol."""

    async def run(self) -> None:
        """Read it, to its end or until another task does; that one calls this again."""

    def leave(self) -> None:
        """The server ends."""

    def facts(self) -> dict[str, Fact]: ...
