"""What an operator may do to a running server, beside looking at it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import attrs

from callboard import tree
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.server.host import Host
from callboard.observe.rows import edges
from callboard.supervisor import get_logger

log = get_logger("callboard.admin")

ACTIONS: Final = {
    "restart": "End the connections of a server, and its process if there is one, and begin anew.",
    "try": "Try a server now that is left alone after it failed.",
    "refresh": "Read the lists of a server again.",
    "disconnect": "End a session, or a connection of a client.",
}
"""What there is, each for one server or client by its name."""


@attrs.frozen(eq=False)
class Actions:
    """Does it, in this process."""

    host: Host

    async def act(self, action: str, subject: str) -> bool:
        """Whether there was such a server or client."""
        done = await self._act(action, subject)
        if done:
            log.warning("operator_action", action=action, subject=subject)
        return done

    async def _act(self, action: str, subject: str) -> bool:
        if action == "disconnect":
            return await self._disconnect(subject)
        backend = self._backend(subject)
        verb = _VERBS.get(action)
        if backend is None or verb is None:
            return False
        verb(backend)
        return True

    def _backend(self, name: str) -> Backend | None:
        offer = self.host.offer
        return offer.backends.get(name) if isinstance(offer, BrokerOffer) else None

    async def _disconnect(self, name: str) -> bool:
        places = [self.host.root.supervisor_of(tree.SESSIONS), *edges(self.host.root)]
        for place in places:
            with suppress(LookupError):
                await place.child(name).stop()
                return True
        return False


_VERBS: Final[Mapping[str, Callable[[Backend], None]]] = {
    "restart": Backend.restart,
    "try": Backend.try_now,
    "refresh": Backend.refresh,
}
