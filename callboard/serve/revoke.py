"""Revocation of a token: ends the sessions and subscriptions that were opened with it."""

from collections.abc import Set
from typing import Any

import trio

from callboard import tree
from callboard.actors.server.host import Host
from callboard.actors.server.session import Session
from callboard.actors.server.subscription import Subscription
from callboard.supervisor import Address, Supervisor


async def end_all_of(host: Host, principals: Set[str]) -> int:
    """End the sessions and subscriptions of *principals*, as at the server's own end. Returns how many there were."""
    ending: list[Address[Any]] = [
        address
        for address, place in host.root.supervisor_of(tree.SESSIONS).actors()
        if isinstance(place, Supervisor) and _principal(place) in principals
    ]
    ending += [
        address
        for address, actor in host.root.supervisor_of(tree.REQUESTS).actors()
        if isinstance(actor, Subscription) and actor.exchange.terms.principal in principals
    ]
    async with trio.open_nursery() as nursery:
        for address in ending:
            nursery.start_soon(address.stop)
    return len(ending)


def _principal(place: Supervisor) -> str | None:
    return next((actor.principal for _, actor in place.actors() if isinstance(actor, Session)), None)
