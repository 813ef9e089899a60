"""What a connection to a backend remembers, for several who wait at once."""

from typing import Any, cast

import trio
from msgspec import Raw
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import SHARED
from callboard.codecs.revisions import Implementation


def leg() -> BackendConnection:
    nothing: Any = cast("Any", None)
    info = Implementation(name="broker", version="1")
    return BackendConnection("back", SHARED, nothing, info, nothing, lambda *_: None, lambda _: None)


async def test_all_who_wait_for_a_user_to_have_been_somewhere_hear_of_it(autojump_clock: MockClock) -> None:
    mine = leg()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mine.visits.wait, ["a"], 20)
            nursery.start_soon(mine.visits.wait, ["b"], 20)
            await wait_all_tasks_blocked()
            for elicitation in (b'"a"', b'"b"'):
                mine._told("notifications/elicitation/complete", {"elicitationId": Raw(elicitation)})


async def test_a_connection_goes_on_remembering_visits_after_many_of_them(autojump_clock: MockClock) -> None:
    mine = leg()
    for number in range(5000):
        mine._told("notifications/elicitation/complete", {"elicitationId": Raw(b'"e-%d"' % number)})
    with trio.fail_after(1):
        await mine.visits.wait(["e-4999"], 20)
