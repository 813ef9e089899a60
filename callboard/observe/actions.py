"""What an operator may do to a running server, beside looking at it."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from callboard import tree
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.server.host import Host
from callboard.codecs.approval import DIGITS
from callboard.observe.rows import MOST, Row, clip, edges
from callboard.server.served import Hosted

if TYPE_CHECKING:
    from callboard.broker.pins import Pins

ACTIONS: Final = {
    "restart": "End the connections of a server, and its process if there is one, and begin anew.",
    "try": "Try a server now that is left alone after it failed.",
    "refresh": "Read the lists of a server again.",
    "approve": "Show a tool or skill of a pinned server as it is defined now.",
    "approve_call": "Let a call begin that waits for an operator.",
    "deny_call": "Refuse it.",
    "disconnect": "End a session, or a connection of a client.",
    "drain": "Have `/readyz` say no, so that balancers go elsewhere. What comes is still served.",
    "resume": "End that.",
}
"""What there is. The first three are for a server by its name, the last two for the whole server, and the others for
what the view calls it."""


SETTLE_CALL: Final = ("approve_call", "deny_call")


@attrs.frozen(eq=False)
class Actions:
    """Does it, in this process."""

    host: Host
    server: Hosted

    async def act(self, action: str, subject: str) -> bool:
        """Whether there was such a server, tool or client."""
        if action == "disconnect":
            return await self._disconnect(subject)
        if action in SETTLE_CALL:
            return self.host.approvals.settle(subject, is_approved=action == "approve_call")
        offer = self.host.offer
        if not isinstance(offer, BrokerOffer):
            return False
        if action == "approve":
            return await self._approve(subject)
        backend = offer.backends.get(subject)
        return backend is not None and backend.act(action)

    def approvals(self) -> list[Row]:
        """The tools and skills that wait for the operator, and what to call each of them."""
        return [
            {"server": clip(one.server), "tool": clip(one.tool), "pinned": one.pinned, "subject": one.subject}
            for one in ([] if self._pins is None else self._pins.waiting()[:MOST])
        ]

    def waiting_calls(self) -> list[Row]:
        """The calls that wait for the operator, the oldest first. Their arguments are here and in no other table: the
        operator decides by them."""
        now = trio.current_time()
        return [
            {
                "id": one.id,
                "age": round(now - one.since, 1),
                "server": one.call.server,
                "tool": one.call.tool,
                "principal": clip(one.principal),
                "arguments": one.call.arguments,
                "more": one.call.more,
                "digest": one.call.digest[:DIGITS],
            }
            for one in self.host.approvals.waiting.values()
        ]

    @property
    def _pins(self) -> "Pins | None":
        if not isinstance(self.host.offer, BrokerOffer):
            return None
        from callboard.broker.broker import Broker  # which runs: a server does without

        return self.server.pins if isinstance(self.server, Broker) else None

    async def _approve(self, subject: str) -> bool:
        pins = self._pins
        if pins is None:
            return False
        found = [one for one in pins.waiting() if one.subject == subject]
        if len(found) != 1:  # names may have slashes: what could be another tool is not approved
            return False
        await pins.approve_aside(found[0])
        return True

    async def _disconnect(self, name: str) -> bool:
        places = [self.host.root.supervisor_of(tree.SESSIONS), *edges(self.host.root)]
        for place in places:
            with suppress(LookupError):
                await place.child(name).stop()
                return True
        return False
