"""How a server ends in peace: no new work, listeners sent away gently, and time for what is in flight."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import attrs
import trio

from callboard import tree
from callboard.actors.lifecycle import Consequence, RequestEvent, RequestState
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Host
from callboard.actors.server.reader import InlineCall, Reader
from callboard.actors.server.request import RequestActor
from callboard.actors.server.subscription import Subscription
from callboard.errors import Draining
from callboard.supervisor import WHY_DRAIN, Address, Supervisor, get_logger

MANY: Final = 100
"""Most peers that are sent away all at once. More would come back all at once, to a server that has just started."""

FAREWELL: Final = 2.0
"""Seconds, of the drain time or a quarter of it, in which the last words are written to clients that still read."""

log = get_logger("callboard.actors")


@attrs.frozen
class _InFlight:
    """The work from before the drain: subscriptions, and requests that wait for an answer."""

    listening: list[Address[Any]]
    waiting: list[tuple[Address[Any], Exchange]]
    carried: list[InlineCall]
    """Inline calls that wait in the reader of a shared connection."""


class Drainable(Protocol):
    """A request that an edge runs by itself."""

    async def wait_over(self) -> None:
        """Wait for its end."""

    def cut_short(self) -> bool:
        """Answer that the server ends. False if it has ended already."""


async def drain(
    host: Host,
    *,
    close_doors: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    edges: Sequence[Address[Any]] = (),
    errands: Sequence[Drainable] = (),
    tell: Callable[[int], None] = lambda _: None,
    within: float,
    spread: float,
) -> None:
    """Shut down in *within* seconds: new requests are refused, listeners are closed, subscriptions get their closing
    result, and what is in flight, *errands* of the edges too, may finish. What is not ready when only the time for
    last words is left is answered that the server ends. Then the sessions end, and last the *edges*.

    More than `MANY` subscriptions, or sessions, are ended one after the other until *spread* seconds from now. What is
    parked is not waited for: its retry could not come back. *tell* hears how many requests are waited for, if any are.
    """
    host.begin_drain()
    _end_parked(host)
    found = _find(host)
    waiting = len(found.waiting) + len(found.carried) + len(errands)
    if found.listening or waiting:
        log.info("draining", listening=len(found.listening), waiting=waiting, within=within)
    if waiting:
        tell(waiting)
    started = trio.current_time()
    last = started + max(within, FAREWELL)
    until = started + min(spread, within / 2)  # the last one needs time to hear of it, too
    with trio.move_on_after(within - min(FAREWELL, within / 4)):
        await close_doors()
        await _end_all(found.listening, until)
        for ending in (*found.listening, *(address for address, _ in found.waiting)):
            await ending.wait_ended()
        for errand in errands:
            await errand.wait_over()
        for carried in found.carried:
            await carried.over.wait()
    await _cut(found, errands, _half(last))
    sessions = [address for address, _ in host.root.supervisor_of(tree.SESSIONS).actors()]
    await _end_all(sessions, until)
    await _wait_gone(sessions, _half(last))
    await _end_all(edges, 0)
    await _wait_gone(edges, last)
    for request, _ in host.root.supervisor_of(tree.REQUESTS).actors():
        request.kill(WHY_DRAIN)


def _half(last: float) -> float:
    """The end of the closing messages: the next step needs some of the time, too."""
    now = trio.current_time()
    return now + min(FAREWELL, max(last - now, 0) / 2)


def _end_parked(host: Host) -> None:
    """Cancel what waits for a client's input, and what asked for it: a backend's question, for one."""
    for _, actor in host.root.supervisor_of(tree.REQUESTS).actors():
        if isinstance(actor, RequestActor) and actor.exchange.life.state is RequestState.PARKED:
            actor.exchange.cancel(RequestEvent.SESSION_ENDED)


async def _end_all(leaving: Sequence[Address[Any]], until: float) -> None:
    """Stop them all: at once, or if they are many evenly, the first one now and the last one then."""
    started = trio.current_time()
    step = (until - started) / (len(leaving) - 1) if len(leaving) > MANY else 0.0
    for number, address in enumerate(leaving):
        if step > 0:
            await trio.sleep_until(started + number * step)
        address.begin_stop()


async def _cut(found: _InFlight, errands: Sequence[Drainable], until: float) -> None:
    """Answer what takes too long, as far as the peers can take it in, and end it."""
    late = [exchange for address, exchange in found.waiting if address.ended is None]
    owed = [exchange for exchange in late if exchange.life.meet(RequestEvent.DEADLINE) is Consequence.ANSWER]
    carried = [one for one in found.carried if not one.over.is_set()]
    unfinished = len(owed) + len(carried) + sum([errand.cut_short() for errand in errands])
    if unfinished:
        log.warning("drain_timed_out", unfinished=unfinished)
    with trio.CancelScope(deadline=until):
        async with trio.open_nursery() as nursery:
            for slot in (*(exchange.slot for exchange in owed), *(one.slot for one in carried)):
                nursery.start_soon(slot.fail, Draining())
            for errand in errands:
                nursery.start_soon(errand.wait_over)
    for exchange in owed:
        exchange.kill(WHY_DRAIN)
    for one in carried:
        one.end()


async def _wait_gone(leaving: Sequence[Address[Any]], until: float) -> None:
    """Wait until then for the actors that were asked to end; the rest is cut off."""
    with trio.CancelScope(deadline=until):
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
            elif isinstance(actor, RequestActor) and actor.exchange.life.state is RequestState.WAITING:
                found.waiting.append((address, actor.exchange))
            elif isinstance(actor, Reader) and actor.carried is not None:
                found.carried.append(actor.carried)
    return found


def _places(root: Supervisor) -> Iterator[Supervisor]:
    """Supervisors of requests: a modern request is under the root, a legacy one under its session."""
    yield root.supervisor_of(tree.REQUESTS)
    for _, session in root.supervisor_of(tree.SESSIONS).actors():
        if isinstance(session, Supervisor):
            yield session
