"""Two releases side by side: workers and a parent that say more than the others know: SCALE's target 25."""

import os
import signal
import sys

from tests.figures import LONG, figure
from tests.workers.crowd import crowd, wait_until
from tests.workers.kept_alive import KeptAlive, SteadyLoad

NEWER = (sys.executable, "-m", "tests.workers.newer")
CALLS = 20_000 if LONG else 100
RESTARTS = 3 if LONG else 1


async def test_25_workers_of_two_releases_serve_beside_each_other() -> None:
    """In each generation one worker of two is newer, and so is the parent; at SIGHUP each forwards to each."""
    async with crowd("--spread", "0.5", program=NEWER, patience=300.0) as many:
        pids = many.workers()
        clients = list[KeptAlive]()
        for home in pids:
            for edge in pids:
                session = await (opening := await KeptAlive.open(many, home)).open_session()
                await opening.client.aclose()
                clients.append(await KeptAlive.open(many, edge, session))
        clients.append(await KeptAlive.open(many))
        asked = await many.modern("tools/call", name="ask", arguments={})
        load = SteadyLoad(pause=0.002 if LONG else 0.02)
        async with load.by(clients):
            for number in range(1, RESTARTS + 1):
                await wait_until(lambda number=number: load.calls >= CALLS * number / RESTARTS, 120.0)  # type: ignore[misc]
                before = set(many.workers())
                load.workers.clear()
                os.kill(many.pid, signal.SIGHUP)
                await wait_until(lambda before=before: load.workers - before)  # type: ignore[misc]
                if number == 1:
                    assert (await many.answer_ask(asked))[1] == "Ada"
                await wait_until(lambda before=before: not before & set(many.workers()))  # type: ignore[misc]
    unknown = many.process.words.count("unknown_message")
    figure(
        "target 25",
        f"{load.calls:,} calls at workers of two releases, {RESTARTS} generations, {len(load.failed)} failed",
        "0 failed",
    )
    assert load.failed == []
    assert unknown > 0
