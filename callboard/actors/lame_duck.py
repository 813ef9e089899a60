"""How a server ends in peace: no new work, listeners sent away gently, and time for what is in flight."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.actors.exchange import Exchange
from callboard.actors.host import Host
from callboard.actors.life import Act, Event, State
from callboard.actors.outlet import Outbound
from callboard.actors.request import RequestActor
from callboard.actors.subscription import Subscription
from callboard.actors.wire import error_frame
from callboard.errors import Draining
from callboard.supervisor import Address, Supervisor, get_logger

MANY: Final = 100
"""Most subscriptions that are ended all at once. More come back all at once, to somebody who has just started."""

log = get_logger("callboard.actors")


@attrs.frozen
class _InFlight:
    """What had begun before the end did: those who listen, and those who wait for an answer."""

    listening: list[Address[Any]]
    waiting: list[tuple[Address[Any], Exchange]]


async def drain(host: Host, edges: Sequence[Address[Any]] = (), *, within: float, spread: float) -> None:
    """Come to an end: new requests are refused, *edges* stop accepting, subscriptions get their closing result, and
    what is in flight gets *within* seconds. What is not ready by then is answered that the server ends.

    More than `MANY` subscriptions are ended one after the other, over *spread* seconds. What is parked is not waited
    for: nobody could come back for it.
    """
    host.begin_drain()
    found = _find(host)
    if found.listening or found.waiting:
        log.info("draining", listening=len(found.listening), waiting=len(found.waiting), within=within)
    with trio.move_on_after(within):
        for edge in edges:
            edge.begin_stop()
        await _end_all(found.listening, min(spread, within / 2))  # the last one needs time to hear of it, too
        for ending in (*found.listening, *(address for address, _ in found.waiting), *edges):
            await ending.wait_ended()
    cut = sum([_cut(exchange) for address, exchange in found.waiting if address.ended is None])
    if cut:
        log.warning("drain_time_passed", unfinished=cut)


async def _end_all(listening: Sequence[Address[Any]], spread: float) -> None:
    """Stop them all: at once, or if they are many evenly, the last one *spread* seconds after the first."""
    started = trio.current_time()
    step = spread / (len(listening) - 1) if len(listening) > MANY else 0.0
    for number, address in enumerate(listening):
        if step:
            await trio.sleep_until(started + number * step)
        address.begin_stop()


def _find(host: Host) -> _InFlight:
    found = _InFlight([], [])
    for place in _places(host.root):
        for address, actor in place.actors():
            if isinstance(actor, Subscription):
                found.listening.append(address)
            elif isinstance(actor, RequestActor) and actor.exchange.life.state is State.WAITING:
                found.waiting.append((address, actor.exchange))
    return found


def _places(root: Supervisor) -> Iterator[Supervisor]:
    """Where requests live: a modern one under the root, a legacy one under its session."""
    yield root.supervisor_of("requests")
    for _, session in root.supervisor_of("sessions").actors():
        if isinstance(session, Supervisor):
            yield session


def _cut(exchange: Exchange) -> bool:
    """Answer what takes too long, if the peer can take it in, and end it."""
    is_owed = exchange.life.meet(Event.DEADLINE) is Act.ANSWER
    slot = exchange.slot
    if is_owed and slot.is_open:
        error = Draining()
        frame = error_frame(slot.request_id, slot.terms.revision, error)
        slot.close()
        slot.outlet.send_nowait(Outbound(frame, ends=True, error=error))
    exchange.kill("drain time passed")
    return is_owed
