"""Generations of workers that follow each other under load: SCALE's target 11."""

import os
import signal

import trio

from tests.figures import BUSY, LONG, figure
from tests.transports.server.http.stage import Answer
from tests.workers.crowd import Crowd, crowd, wait_until
from tests.workers.kept_alive import KeptAlive, SteadyLoad, p99

RESTARTS = 3 if LONG else 1
CALLS = 50_000 if LONG else 200
CLIENTS = 6 if LONG else 2
"""With a session; as many without one."""
ROUNDS = 20 if LONG else 4
"""Calls that are asked for input before each restart, and given it after."""


async def test_11_generations_follow_each_other_without_a_failed_call() -> None:
    kept = list[str]()
    async with crowd("--spread", "0.5", patience=600.0) as many:
        clients = [await KeptAlive.open(many) for _ in range(2 * CLIENTS)]
        for client in clients[:CLIENTS]:
            client.session = await client.open_session()
            await client.reopen()  # so that some of these sessions are another worker's
        load = SteadyLoad(pause=0.002 if LONG else 0.02)
        async with load.by(clients):
            for number in range(RESTARTS):
                await _restart(many, load, kept)
                await wait_until(lambda number=number: load.calls >= CALLS * (number + 1) / RESTARTS, 300.0)  # type: ignore[misc]  # its own
    slow = p99(load.took)
    figure(
        "target 11",
        f"{RESTARTS} restarts, {load.calls:,} calls on connections that are kept, {len(load.failed)} failed,"
        f" p99 {slow * 1e3:.0f} ms; {len(kept)} of {ROUNDS * RESTARTS} calls that waited for input went on;"
        f" {sum(client.reopened for client in clients)} connections were opened anew",
        "0 failed, 50 ms, all",
    )
    assert load.failed == []
    assert kept == ["Ada"] * ROUNDS * RESTARTS
    assert all(client.reopened >= RESTARTS for client in clients)
    assert slow <= 0.05 * BUSY


async def _restart(many: Crowd, load: SteadyLoad, kept: list[str]) -> None:
    """Start a new generation. What was asked for input before is told it when that serves, by any connection, and goes
    on where it waits."""
    before = set(many.workers())
    asked = list[Answer]()
    for _ in range(ROUNDS):
        asked.append(await many.modern("tools/call", name="ask", arguments={}))
    load.workers.clear()
    os.kill(many.pid, signal.SIGHUP)
    await wait_until(lambda: load.workers - before)
    async with trio.open_nursery() as nursery:
        for one in asked:
            nursery.start_soon(_answer, many, before, one, kept)
    await wait_until(lambda: not before & set(many.workers()))


async def _answer(many: Crowd, before: set[int], asked: Answer, kept: list[str]) -> None:
    pid, name = await many.answer_ask(asked)
    assert pid in before
    kept.append(name)
