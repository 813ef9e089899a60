"""The supervision tree tells the truth: what clients have, and nothing else.

Clients of all kinds come, ask, are parked, follow resources, cancel, break off and leave, many at once. Snapshots of
the tree are compared with the history of what they did: all the time with bounds, and exactly whenever no client moves.
The figure is printed (`pytest -s`); `CALLBOARD_LONG=1` takes the full size.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Final

import attrs
import pytest
import trio

from tests.figures import LONG, figure
from tests.serve.lines import Era
from tests.tree_crowd import CALLS, PLACES, THREADS, Crowd, Deed, Guest, Place, crowd

Move = Callable[[], Awaitable[object]]

PATIENCE: Final = 600.0 if LONG else 60.0
ROUNDS: Final = 3
IN_FLIGHT_EACH: Final = 40
"""Requests of one client. A server takes 64."""

COMING: Final[tuple[tuple[str, Era], ...]] = (
    *(("http", "legacy"), ("http", "legacy"), ("websocket", "legacy"), ("websocket", "modern"), ("http", "legacy")),
    *(("http", "legacy"), ("http", "legacy"), ("websocket", "legacy"), ("websocket", "modern"), ("http", "modern")),
)
"""Over and over. The last one has no session."""


@attrs.frozen
class Size:
    """How many of each there are, as soon as all have come."""

    sessions: int
    parked: int
    in_flight: int
    subscriptions: int


SIZE: Final = Size(1000, 200, 500, 100) if LONG else Size(100, 20, 50, 10)


@pytest.mark.parametrize("place", PLACES)
async def test_30_the_tree_has_what_clients_have_and_nothing_else(place: Place) -> None:
    chance = random.Random(30)
    with trio.fail_after(PATIENCE):
        async with crowd(place) as here:
            for _ in range(ROUNDS):
                await fill_up(here, chance)
                assert not await here.settled()
                await here.all_at_once(thinning(here, chance))
                assert not await here.settled()
            await fill_up(here, chance)
            await here.all_at_once(partial(here.end, deed) for deed in sorted_deeds(here))
            assert not await here.settled()
            await here.all_at_once(partial(here.leave, guest) for guest in here.guests[2:])
            assert not await here.settled()
            assert here.certain().total() == 1  # the session of standard input and output
    assert here.faults == []
    figure("promise 30", f"{here.snapshots} snapshots of {SIZE.sessions} sessions agree with their history ({place})")


# Coming.


async def fill_up(here: Crowd, chance: random.Random) -> None:
    """Have clients come and ask until there are as many of each as there should be."""
    coming = cycle(COMING)
    lacking = SIZE.sessions - sum(guest.has_session for guest in here.guests)
    joining: list[Move] = []
    while lacking > 0:
        transport, era = next(coming)
        joining.append(partial(here.join, transport, era))
        lacking -= (transport, era) != ("http", "modern")
    await here.all_at_once(joining)
    await here.all_at_once(partial(here.begin, guest, kind) for guest, kind in beginning(here, chance))


def beginning(here: Crowd, chance: random.Random) -> Iterator[tuple[Guest, str]]:
    """What is to begin, and whose it is."""
    busy = {guest: IN_FLIGHT_EACH if asks_alone(here, guest) else len(guest.deeds) - 1 for guest in here.guests}

    def guest_of(*eras: Era, alone: bool = False) -> Guest:
        most = 1 if alone else IN_FLIGHT_EACH
        chosen = chance.choice([guest for guest in here.guests if guest.line.era in eras and busy[guest] < most])
        busy[chosen] += IN_FLIGHT_EACH if alone else 1
        return chosen

    has = counted(here)
    threads = sum(deed.kind == "sync" for deed in here.deeds)
    for _, kind in zip(range(SIZE.in_flight - has["in flight"]), cycle(CALLS), strict=False):
        if kind == "asks":
            yield guest_of("legacy", alone=here.is_bridged), kind
        elif kind == "sync" and threads < THREADS:
            threads += 1
            yield guest_of("modern", "legacy"), kind
        else:
            yield guest_of("modern", "legacy"), "ctx" if kind == "sync" else kind
    for _ in range(SIZE.parked - has["parked"]):
        yield guest_of("modern"), "asks"
    for _, kind in zip(range(SIZE.subscriptions - has["subscriptions"]), cycle(("listen", "follow")), strict=False):
        yield guest_of("modern" if kind == "listen" else "legacy"), kind


def asks_alone(here: Crowd, guest: Guest) -> bool:
    """Whether a client waits to be asked that must have nothing else in flight: a legacy backend does not say which
    call its question belongs to, so that of a session which has several may end with any of them."""
    return here.is_bridged and any(deed.kind == "asks" and not deed.is_parked for deed in guest.deeds)


def counted(here: Crowd) -> dict[str, int]:
    deeds = [deed for deed in here.deeds if deed.kind != "session"]
    parked = sum(deed.is_parked for deed in deeds)
    subscriptions = sum(deed.kind in ("listen", "follow") for deed in deeds)
    return {"parked": parked, "subscriptions": subscriptions, "in flight": len(deeds) - parked - subscriptions}


# Going.


def thinning(here: Crowd, chance: random.Random) -> Iterator[Move]:
    """A tenth of the clients leave, the connections of some others break, and much of what is in flight ends."""
    guests = here.guests[2:]
    leaving = set(chance.sample(guests, len(guests) // 10))
    breaking = {guest for guest in guests if guest.line.era == "legacy" and chance.random() < 0.1} - leaving
    for guest in guests:
        if guest in leaving:
            yield partial(here.leave, guest)
        elif guest in breaking:
            yield partial(here.drop, guest)
    for deed in sorted_deeds(here):
        if deed.guest not in leaving | breaking and chance.random() < 0.5:
            yield partial(here.end, deed, by_cancelling=chance.random() < 0.5)


def sorted_deeds(here: Crowd) -> list[Deed]:
    """All that can be ended, in an order that chance does not change."""
    return sorted((deed for deed in here.deeds if deed.kind != "session"), key=lambda deed: deed.id)
