"""Metrics equal the history: of a storm of calls, exactly as many ended in each way as its clients know."""

import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from callboard import Server
from callboard.broker import Broker
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.server.served import Hosted
from callboard.transports.limits import Settings
from tests.broker.front import backend
from tests.figures import LONG, figure
from tests.observe.storm import REFUSED, History, Storm, settled
from tests.observe.test_show_room import Place
from tests.process import CALLBOARD, started
from tests.shared import ROOT

APP: Final = ROOT / "tests" / "apps" / "stormy.py"
ROUNDS: Final = 60 if LONG else 4
CROWD: Final = 12 if LONG else 3
LIMITS: Final = Settings(max_in_flight=CROWD * 5)
PATIENCE: Final = 600 if LONG else 60


def stormy() -> Server:
    server: Server = runpy.run_path(str(APP))["server"]
    return server


@asynccontextmanager
async def served(server: Hosted) -> AsyncIterator[Place]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                await serve(server, http=0, ws=0, admin=0, settings=LIMITS, task_status=task_status)

            yield Place(await nursery.start(run))
            nursery.cancel_scope.cancel()


def check(where: str, storm: Storm, found: History, *, is_brokered: bool) -> None:
    known = storm.known
    assert found.refused == known.refused
    assert found.front == known.front
    if is_brokered:
        assert found.behind == known.behind
    errors = {error for _, _, error in found.front}
    figure("B22", f"{where}: {sum(known.front.values())} requests and {sum(known.refused.values())} refused, {errors}")


async def test_counts_of_a_server_equal_what_its_clients_know() -> None:
    async with served(stormy()) as place:
        storm = Storm(place, ROUNDS)
        await storm.run(crowd=CROWD)
        found = await settled(storm)
    check("hosted", storm, found, is_brokered=False)
    assert {"", "tool_error", "cancelled", "-32602", REFUSED} == {error for _, _, error in found.front}
    assert found.refused.keys() == {"host", "invalid", "quota"}


async def test_counts_of_a_broker_equal_what_its_clients_know() -> None:
    broker = Broker([backend(stormy(), timeout=0.5)])
    async with served(broker) as place:
        storm = Storm(place, ROUNDS, tools=("echo", "fail", "sleep"), completes=False)
        await storm.run(crowd=CROWD)
        found = await settled(storm)
    check("brokered", storm, found, is_brokered=True)
    assert {"", "tool_error", "cancelled", "-32602", "-31002", REFUSED} == {error for _, _, error in found.front}


async def test_counts_of_workers_are_added_up_to_what_clients_know() -> None:
    flags = ["--http", "0", "--ws", "0", "--admin", "0", "--workers", "2", "--json"]
    flags += ["--max-in-flight", str(CROWD * 3), "--log-level", "error"]
    async with started(*CALLBOARD, "run", str(APP), *flags, patience=PATIENCE) as process:
        said: Any = await process.hear()
        storm = Storm(Place({one["transport"]: one["url"] for one in said["listening"]}), ROUNDS)
        await storm.run(crowd=CROWD)
        found = await settled(storm)
        process.signal()
    check("two workers", storm, found, is_brokered=False)
