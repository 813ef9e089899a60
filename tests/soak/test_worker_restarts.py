"""A worker that was just started: what clients get there is known to all others at once."""

import os
import signal
from collections import Counter

import trio

from tests.figures import LONG, figure
from tests.transports.server.http.stage import Gone
from tests.workers.crowd import Crowd, CrowdSession, crowd

RESTARTS = 20 if LONG else 1
SEEN = 20 if LONG else 8
"""Sessions of the new worker that are used before the next one is killed."""


async def test_a_session_of_a_worker_that_was_just_started_is_found_by_all_others() -> None:
    used, failed = Counter[int](), list[object]()
    async with crowd("--spread", "0.5", workers=3 if LONG else 2, patience=300.0) as many:
        for _ in range(RESTARTS):
            before = set(many.workers())
            os.kill(min(before), signal.SIGKILL)
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(_open_on, many, before, used, failed)
    figure(
        "a worker that starts",
        f"{RESTARTS} restarts, {used.total()} requests for its sessions at once, {len(failed)} failed",
        "0 failed",
    )
    assert failed == []


async def _open_on(many: Crowd, before: set[int], used: Counter[int], failed: list[object]) -> None:
    """Open sessions, and use each at once by connections of its own, until the new worker has had enough of them."""
    seen = 0
    while seen < SEEN / 4:
        try:
            session = await many.session()
        except (AssertionError, Gone, OSError, KeyError, trio.BrokenResourceError):
            continue  # it reached the worker that was killed
        homes = Counter[int]()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(_use, session, homes, failed)
        new = set(homes) - before
        seen += bool(new)
        await trio.sleep(0 if new else 0.02)  # while it starts, the processor is its
        used.update({pid: homes[pid] for pid in new})


async def _use(session: CrowdSession, homes: Counter[int], failed: list[object]) -> None:
    try:
        homes[await session.call("where")] += 1
    except (AssertionError, Gone, OSError, trio.BrokenResourceError) as error:
        failed.append(error)
