"""Whatever can be served: a server, or a broker in front of many."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from callboard.actors.host import Host
from callboard.actors.parking import Parking
from callboard.codecs.revisions import Implementation


class Hosted(Protocol):
    """What transports and commands need of it."""

    info: Implementation

    def host(self, *, parking: Parking | None = None) -> AbstractAsyncContextManager[Host]:
        """Run it, without any transport yet."""
