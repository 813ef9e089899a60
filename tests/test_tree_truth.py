"""The supervision tree tells the truth: what clients have, and nothing else.

Clients of all kinds come, ask, are parked, follow resources, cancel, break off and leave, many at once. Snapshots of
the tree are compared with the history of what they did: all the time with bounds, and exactly whenever no client moves.
The figure is printed (`pytest -s`); `CALLBOARD_LONG=1` takes the full size.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Final

import attrs
import pytest
import trio

from callboard.supervisor import Snapshot
from tests.figures import LONG, figure
from tests.serve.lines import Era
from tests.tree_crowd import CALLS, THREADS, Activity, Client, Crowd, crowd
from tests.tree_server import PLACES, Place
from tests.tree_things import Claim, Thing, difference, expected, found

Move = Callable[[], Awaitable[object]]

PATIENCE: Final = 600.0 if LONG else 60.0
ROUNDS: Final = 3 if LONG else 2
IN_FLIGHT_EACH: Final = 25
"""Requests of one client. A server takes 64 of one connection, and at its standard input there are two clients."""

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
            await here.all_at_once(partial(here.end, activity) for activity in sorted_activities(here))
            assert not await here.settled()
            await here.all_at_once(partial(here.leave, client) for client in here.clients[2:])
            assert not await here.settled()
            assert here.certain().total() == 1  # the session of standard input and output
    assert here.faults == []
    figure("promise 30", f"{here.snapshots} snapshots of {SIZE.sessions} sessions agree with their history ({place})")


def test_what_is_missing_is_seen_and_what_is_too_much_and_what_is_unknown() -> None:
    def node(kind: str, state: str = "running", *children: Snapshot, **facts: str) -> Snapshot:
        return Snapshot(name=kind, path=kind, kind=kind, state=state, age=0, facts=facts, children=children)

    call = {"method": "tools/call", "target": "echo", "revision": "2026-07-28"}
    tree = node("Supervisor", "running", node("RequestActor", "parked", **call), node("Progress"), node("Mystery"))
    parked, session = Thing("parked", **call), Thing("session", revision="none")
    assert found(tree) == Counter([parked, Thing("progress"), Thing("Mystery")])
    claims = [Claim(attrs.evolve(thing, client="c-1"), "http", False) for thing in (parked, session)]
    wanted = expected(claims)
    unlike = difference(found(tree), wanted, wanted)
    assert unlike.lacks == Counter([session])
    assert unlike.has_besides == Counter([Thing("progress"), Thing("Mystery")])
    assert not difference(wanted, wanted, wanted)


# Coming.


async def fill_up(here: Crowd, chance: random.Random) -> None:
    """Have clients come and ask until there are as many of each as there should be."""
    coming = cycle(COMING)
    lacking = SIZE.sessions - sum(client.has_session for client in here.clients)
    joining: list[Move] = []
    while lacking > 0:
        transport, era = next(coming)
        joining.append(partial(here.join, transport, era))
        lacking -= (transport, era) != ("http", "modern")
    await here.all_at_once(joining)
    await here.all_at_once(partial(here.begin, client, kind) for client, kind in beginning(here, chance))


def beginning(here: Crowd, chance: random.Random) -> Iterator[tuple[Client, str]]:
    """What is to begin, and whose it is."""
    busy = {
        client: IN_FLIGHT_EACH if asks_alone(here, client) else len(client.activities) - 1 for client in here.clients
    }

    def client_for(*eras: Era, alone: bool = False) -> Client:
        most = 1 if alone else IN_FLIGHT_EACH
        free: defaultdict[tuple[str, Era], list[Client]] = defaultdict(list)
        for client in here.clients[2:] if alone else here.clients:
            if client.line.era in eras and busy[client] < most:
                free[client.transport, client.line.era].append(client)
        chosen = chance.choice(free[chance.choice(list(free))])  # of each kind as many, though they are not as many
        busy[chosen] += IN_FLIGHT_EACH if alone else 1
        return chosen

    has = counted(here)
    threads = sum(activity.kind == "sync" for activity in here.activities)
    for _, kind in zip(range(SIZE.in_flight - has["in flight"]), cycle(CALLS), strict=False):
        if kind == "asks":
            yield client_for("legacy", alone=here.is_bridged), kind
        elif kind == "sync" and threads < THREADS:
            threads += 1
            yield client_for("modern", "legacy"), kind
        else:
            yield client_for("modern", "legacy"), "ctx" if kind == "sync" else kind
    for _ in range(SIZE.parked - has["parked"]):
        yield client_for("modern"), "asks"
    for _, kind in zip(range(SIZE.subscriptions - has["subscriptions"]), cycle(("listen", "follow")), strict=False):
        yield client_for("modern" if kind == "listen" else "legacy"), kind


def asks_alone(here: Crowd, client: Client) -> bool:
    """Whether a client waits to be asked that must have nothing else in flight: a legacy backend does not say which
    call its question belongs to, so that of a session which has several may end with any of them."""
    return here.is_bridged and any(activity.kind == "asks" and not activity.is_parked for activity in client.activities)


def counted(here: Crowd) -> dict[str, int]:
    activities = [activity for activity in here.activities if activity.kind != "session"]
    parked = sum(activity.is_parked for activity in activities)
    subscriptions = sum(activity.kind in ("listen", "follow") for activity in activities)
    return {"parked": parked, "subscriptions": subscriptions, "in flight": len(activities) - parked - subscriptions}


# Going.


def thinning(here: Crowd, chance: random.Random) -> Iterator[Move]:
    """A tenth of the clients leave, the connections of some others break, and much of what is in flight ends."""
    clients = here.clients[2:]
    leaving = set(chance.sample(clients, len(clients) // 10))
    breaking = {client for client in clients if client.line.era == "legacy" and chance.random() < 0.1} - leaving
    for client in clients:
        if client in leaving:
            yield partial(here.leave, client)
        elif client in breaking:
            yield partial(here.drop, client)
    for activity in sorted_activities(here):
        if activity.client not in leaving | breaking and chance.random() < 0.5:
            yield partial(here.end, activity, by_cancelling=chance.random() < 0.5)


def sorted_activities(here: Crowd) -> list[Activity]:
    """All that can be ended, in an order that chance does not change."""
    return sorted(
        (activity for activity in here.activities if activity.kind != "session"), key=lambda activity: activity.id
    )
