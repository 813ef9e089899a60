"""How a server ends in peace: no new work, listeners sent away gently, and time for what is in flight."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.actors.exchange import Exchange
from callboard.actors.host import Host
from callboard.actors.life import Act, Event, State
from callboard.actors.reader import Carried, Reader
from callboard.actors.request import RequestActor
from callboard.actors.subscription import Subscription
from callboard.errors import Draining
from callboard.supervisor import WHY_DRAIN, Address, Supervisor, get_logger

MANY: Final = 100
"""Most peers that are sent away all at once. More would come back all at once, to somebody who has just started."""

FAREWELL: Final = 2.0
"""Seconds in which the last words are written to whoever still reads."""

log = get_logger("callboard.actors")


@attrs.frozen
class _InFlight:
    """What had begun before the end did: those who listen, and those who wait for an answer."""

    listening: list[Address[Any]]
    waiting: list[tuple[Address[Any], Exchange]]
    carried: list[Carried]
    """Errands that wait with the reader of a connection which others share."""


async def drain(
    host: Host,
    *,
    close_doors: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    edges: Sequence[Address[Any]] = (),
    errands: Sequence[Callable[[], Awaitable[object]]] = (),
    within: float,
    spread: float,
) -> None:
    """Come to an end: new requests are refused, doors are closed, subscriptions get their closing result, and
    what is in flight gets *within* seconds, *errands* too, which edges run by themselves: each waits for its end.
    What is not ready by then is answered that the server ends. Then the sessions end, and last the *edges*.

    More than `MANY` subscriptions, or sessions, are ended one after the other until *spread* seconds from now. What is
    parked is not waited for: nobody could come back for it.
    """
    host.begin_drain()
    found = _find(host)
    waiting = len(found.waiting) + len(found.carried)
    if found.listening or waiting:
        log.info("draining", listening=len(found.listening), waiting=waiting, within=within)
    started = trio.current_time()
    until = started + min(spread, within / 2)  # the last one needs time to hear of it, too
    with trio.move_on_after(within):
        await close_doors()
        await _end_all(found.listening, until)
        for ending in (*found.listening, *(address for address, _ in found.waiting)):
            await ending.wait_ended()
        for wait_done in (*errands, *(carried.over.wait for carried in found.carried)):
            await wait_done()
    await _cut([exchange for address, exchange in found.waiting if address.ended is None])
    for carried in found.carried:
        with trio.move_on_after(FAREWELL):
            await carried.slot.fail(Draining())
        if not carried.over.is_set():
            carried.end()
    sessions = [address for address, _ in host.root.supervisor_of("sessions").actors()]
    await _end_all(sessions, until)
    await _wait_gone(sessions, 0)
    await _end_all(edges, 0)
    await _wait_gone(edges, started + within)
    for parked, _ in host.root.supervisor_of("requests").actors():
        parked.kill(WHY_DRAIN)


async def _end_all(leaving: Sequence[Address[Any]], until: float) -> None:
    """Stop them all: at once, or if they are many evenly, the first one now and the last one then."""
    started = trio.current_time()
    step = (until - started) / (len(leaving) - 1) if len(leaving) > MANY else 0.0
    for number, address in enumerate(leaving):
        if step > 0:
            await trio.sleep_until(started + number * step)
        address.begin_stop()


async def _cut(exchanges: Sequence[Exchange]) -> None:
    """Answer what takes too long, as far as the peers can take it in, and end it."""
    owed = [exchange for exchange in exchanges if exchange.life.meet(Event.DEADLINE) is Act.ANSWER]
    if owed:
        log.warning("drain_time_passed", unfinished=len(owed))
    with trio.move_on_after(FAREWELL):
        async with trio.open_nursery() as nursery:
            for exchange in owed:
                nursery.start_soon(exchange.slot.fail, Draining())
    for exchange in owed:
        exchange.kill(WHY_DRAIN)


async def _wait_gone(leaving: Sequence[Address[Any]], until: float) -> None:
    """Wait for those who were asked to leave, until then or for a farewell at least; the rest is cut off."""
    with trio.CancelScope(deadline=max(until, trio.current_time() + FAREWELL)):
        for address in leaving:
            await address.wait_ended()
    for address in leaving:
        address.kill(WHY_DRAIN)


def _find(host: Host) -> _InFlight:
    found = _InFlight([], [], [])
    for place in _places(host.root):
        for address, actor in place.actors():
            if isinstance(actor, Subscription):
                found.listening.append(address)
            elif isinstance(actor, RequestActor) and actor.exchange.life.state is State.WAITING:
                found.waiting.append((address, actor.exchange))
            elif isinstance(actor, Reader) and actor.carried is not None:
                found.carried.append(actor.carried)
    return found


def _places(root: Supervisor) -> Iterator[Supervisor]:
    """Where requests live: a modern one under the root, a legacy one under its session."""
    yield root.supervisor_of("requests")
    for _, session in root.supervisor_of("sessions").actors():
        if isinstance(session, Supervisor):
            yield session
