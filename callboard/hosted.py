"""Whatever can be served: a server, or a broker in front of many."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from callboard.actors.host import Host
from callboard.actors.parking import Parking
from callboard.codecs.revisions import Implementation


@attrs.frozen(kw_only=True)
class Standing:
    """How it stands with one server behind a broker. *why* it is not up, in a few words."""

    name: str
    state: str
    is_up: bool
    why: str = ""


@attrs.frozen(kw_only=True)
class Behind:
    """What a broker stands in front of."""

    servers: tuple[Standing, ...]
    tools: int
    example: str | None = None
    """A tool, with arguments, that anybody may call to see what happens."""

    @property
    def missing(self) -> tuple[Standing, ...]:
        """Those that nobody can use now."""
        return tuple(one for one in self.servers if not one.is_up)


class Hosted(Protocol):
    """What transports and commands need of it."""

    info: Implementation

    def host(self, *, parking: Parking | None = None) -> AbstractAsyncContextManager[Host]:
        """Run it, without any transport yet."""

    def is_ready(self) -> bool:
        """Whether a request could be answered now."""

    def behind(self) -> Behind | None:
        """What it stands in front of; None for a server, which answers by itself."""
