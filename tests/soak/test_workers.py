"""Workers that are killed again and again, and generations that follow each other: nothing is lost, nothing stays.

The long form of SCALE's targets 7, 8 and 11.
"""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import trio

from tests.figures import LONG, figure
from tests.transports.server.http.stage import Gone
from tests.workers.crowd import Crowd, CrowdSession, crowd, wait_until

KILLS = 100 if LONG else 5
RESTARTS = 3 if LONG else 1
SESSIONS = 200 if LONG else 20


async def test_a_worker_that_is_killed_again_and_again_leaves_nothing_behind() -> None:
    async with crowd(patience=600.0) as many:
        parent = psutil.Process(many.pid)
        sessions = [await many.session() for _ in range(SESSIONS)]
        await _use(sessions)
        before, folder = _held(parent), _folder(many)
        slowest, served = 0.0, 0.0
        for _ in range(KILLS):
            victim, *_ = many.workers()
            os.kill(victim, signal.SIGKILL)
            began = time.monotonic()
            await wait_until(lambda victim=victim: victim not in many.workers())  # type: ignore[misc]  # its own victim
            for session in sessions[::7]:
                asked = time.monotonic()
                await session.call("where")
                slowest = max(slowest, time.monotonic() - asked)
            while len(await many.serving()) < 2:
                pass
            served = max(served, time.monotonic() - began)
        await _use(sessions)
        after = _held(parent)
        assert len(list(folder.iterdir())) == 2
        assert not [child for child in parent.children() if child.status() == psutil.STATUS_ZOMBIE]
        assert after["descriptors"] <= before["descriptors"] + 2
        assert after["memory"] <= before["memory"] * 1.05 + 4e6
    figure(
        "workers killed",
        f"{KILLS} times: {SESSIONS} sessions go on, the next call takes {slowest * 1e3:.0f} ms at most, a new worker"
        f" serves after {served:.1f} s at most; descriptors of the parent {before['descriptors']} ->"
        f" {after['descriptors']}, memory {before['memory'] / 2**20:.1f} -> {after['memory'] / 2**20:.1f} MiB",
    )


async def test_generations_follow_each_other_without_a_failed_call() -> None:
    async with crowd(patience=600.0) as many:
        sessions = [await many.session() for _ in range(20)]
        is_over, failed, took = trio.Event(), list[object](), list[float]()
        count = Counter[int]()

        async def call_on(session: CrowdSession | None) -> None:
            while not is_over.is_set():
                began = time.monotonic()
                try:
                    count[await (many if session is None else session).call("where")] += 1
                except (AssertionError, Gone, OSError, trio.BrokenResourceError) as error:
                    failed.append(error)
                took.append(time.monotonic() - began)

        async with trio.open_nursery() as nursery:
            for session in (*sessions, *[None] * 10):
                nursery.start_soon(call_on, session)
            for _ in range(RESTARTS):
                before = set(many.workers())
                os.kill(many.pid, signal.SIGHUP)
                await wait_until(lambda before=before: not before & set(many.workers()))  # type: ignore[misc]
                await trio.sleep(1)
            is_over.set()
        took.sort()
        assert failed == []
    p99 = took[int(len(took) * 0.99)]
    figure("generations", f"{RESTARTS} restarts, {len(took):,} calls, 0 failed, p99 {p99 * 1e3:.0f} ms")


async def _use(sessions: list[CrowdSession]) -> None:
    for session in sessions:
        await session.call("where")


def _held(parent: psutil.Process) -> dict[str, float]:
    return {"descriptors": parent.num_fds(), "memory": parent.memory_info().rss}


def _folder(many: Crowd) -> Path:
    """Where the sockets of the workers are."""
    paths = [one.laddr for child in psutil.Process(many.pid).children() for one in child.net_connections("unix")]
    return next(Path(str(path)).parent for path in paths if "callboard-" in str(path))
