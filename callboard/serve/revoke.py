"""Revocation of a principal: ends all that is open, waits, or runs for it. Others notice nothing."""

import sys
from collections.abc import Callable, Set
from typing import Any, Final

import trio

from callboard import tree
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.server.host import Host
from callboard.actors.server.request import RequestActor
from callboard.actors.server.session import Session
from callboard.actors.server.subscription import Subscription
from callboard.codecs.caller import Caller
from callboard.supervisor import Address, Supervisor

_REASON: Final = "the token was revoked"


async def end_all_of(host: Host, principals: Set[str]) -> int:
    """End the sessions and subscriptions of *principals* as at the server's own end; give up their other requests, the
    parked ones too, their tasks, and the connections to backends that are theirs alone.

    Returns how many sessions and subscriptions there were.
    """
    host.approvals.end_all_of(principals, _REASON)
    ended = await end_if(host, lambda caller: caller.key in principals)
    if host.offer.task_store is not None:
        host.offer.task_store.forget_all_of(principals)
    if isinstance(host.offer, BrokerOffer):
        host.offer.end_all_of(principals)
    return ended


async def end_if(host: Host, is_gone: Callable[[Caller], bool]) -> int:
    """End the sessions, subscriptions and requests of callers whose token *is_gone*: another one of theirs may be good.

    Returns how many sessions and subscriptions there were.
    """
    place = host.root.supervisor_of(tree.REQUESTS)
    ending: list[Address[Any]] = []
    for address, group in host.root.supervisor_of(tree.SESSIONS).actors():
        session = _session(group)
        if session is not None and is_gone(session.caller):
            session.hang_up()  # its end waits for nothing that runs
            ending.append(address)
    ending += [
        address
        for address, actor in place.actors()
        if isinstance(actor, Subscription) and is_gone(actor.exchange.terms.caller)
    ]
    async with trio.open_nursery() as nursery:
        for address in ending:
            nursery.start_soon(address.stop)
        for actor in list(place.some(sys.maxsize)):
            if isinstance(actor, RequestActor) and is_gone(actor.exchange.terms.caller):
                exchange = actor.exchange
                if exchange.cancel(RequestEvent.SESSION_ENDED, _REASON):
                    nursery.start_soon(exchange.give_up)
    return len(ending)


def _session(group: object) -> Session | None:
    several = group.actors() if isinstance(group, Supervisor) else ()
    return next((actor for _, actor in several if isinstance(actor, Session)), None)
