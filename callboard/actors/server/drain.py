"""How a server ends in peace: no new work, listeners sent away gently, and time for what is in flight."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from callboard import tree
from callboard.actors.server.host import Host
from callboard.supervisor import WHY_DRAIN, Address, Unfinished, get_logger

MANY: Final = 100
"""Most peers that are sent away all at once. More would come back all at once, to a server that has just started."""

FAREWELL: Final = 2.0
"""Seconds, of the drain time or a quarter of it, in which the last words are written to clients that still read."""

log = get_logger("callboard.actors")


async def drain(
    host: Host,
    *,
    close_doors: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    edges: Sequence[Address[Any]] = (),
    tell: Callable[[int], None] = lambda _: None,
    within: float,
    spread: float,
) -> None:
    """Shut down in *within* seconds: new requests are refused, listeners are closed, subscriptions get their closing
    result, and what is in flight may finish. What is not ready when only the time for last words is left is answered
    that the server ends. Then the sessions end, and last the *edges*.

    More than `MANY` subscriptions, or sessions, are ended one after the other until *spread* seconds from now. What is
    parked is not waited for: its retry could not come back. *tell* hears how many requests are waited for, if any are.
    """
    host.begin_drain()
    unfinished = list(host.root.unfinished())
    waiting = [work for work in unfinished if work.begin_stop is None]
    listening = [work.begin_stop for work in unfinished if work.begin_stop is not None]
    if unfinished:
        log.info("draining", listening=len(listening), waiting=len(waiting), within=within)
    if waiting:
        tell(len(waiting))
    started = trio.current_time()
    last = started + max(within, FAREWELL)
    until = started + min(spread, within / 2)  # the last one needs time to hear of it, too
    with trio.move_on_after(within - min(FAREWELL, within / 4)):
        await close_doors()
        await stop_all(listening, until)
        for work in unfinished:
            await work.wait_over()
    await _cut(waiting, _half(last))
    sessions = [address for address, _ in host.root.supervisor_of(tree.SESSIONS).actors()]
    await stop_all([session.begin_stop for session in sessions], until)
    await _wait_gone(sessions, _half(last))
    await stop_all([edge.begin_stop for edge in edges], 0)
    await _wait_gone(edges, last)
    for request, _ in host.root.supervisor_of(tree.REQUESTS).actors():
        request.kill(WHY_DRAIN)


def _half(last: float) -> float:
    """The end of the closing messages: the next step needs some of the time, too."""
    now = trio.current_time()
    return now + min(FAREWELL, max(last - now, 0) / 2)


async def stop_all(leaving: Sequence[Callable[[], None]], until: float) -> None:
    """Stop them all: at once, or if they are many evenly, the first one now and the last one then."""
    started = trio.current_time()
    step = (until - started) / (len(leaving) - 1) if len(leaving) > MANY else 0.0
    for number, stop in enumerate(leaving):
        if step > 0:
            await trio.sleep_until(started + number * step)
        stop()


async def _cut(waiting: Sequence[Unfinished], until: float) -> None:
    """Answer what takes too long, as far as the peers can take it in, and end it."""
    late = [work for work in waiting if work.cut_short()]
    if late:
        log.warning("drain_timed_out", unfinished=len(late))
    with trio.CancelScope(deadline=until):
        async with trio.open_nursery() as nursery:
            for work in late:
                nursery.start_soon(work.part)


async def _wait_gone(leaving: Sequence[Address[Any]], until: float) -> None:
    """Wait until then for the actors that were asked to end; the rest is cut off."""
    with trio.CancelScope(deadline=until):
        for address in leaving:
            await address.wait_ended()
    for address in leaving:
        address.kill(WHY_DRAIN)
