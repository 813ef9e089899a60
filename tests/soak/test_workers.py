"""Workers that are killed again and again: nothing is lost, and nothing stays. SCALE's target 8."""

import os
import signal
import time
from pathlib import Path

import psutil

from tests.figures import LONG, figure
from tests.process import CALLBOARD
from tests.workers.crowd import Crowd, CrowdSession, crowd, wait_until

KILLS = 100 if LONG else 2
SESSIONS = 200 if LONG else 20


async def test_a_worker_that_is_killed_again_and_again_leaves_nothing_behind() -> None:
    async with crowd(program=CALLBOARD, patience=600.0) as many:
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
        "target 8",
        f"{KILLS} times: {SESSIONS} sessions go on, the next call takes {slowest * 1e3:.0f} ms at most, a new worker"
        f" serves after {served:.1f} s at most; descriptors of the parent {before['descriptors']} ->"
        f" {after['descriptors']}, memory {before['memory'] / 2**20:.1f} -> {after['memory'] / 2**20:.1f} MiB",
    )


async def _use(sessions: list[CrowdSession]) -> None:
    for session in sessions:
        await session.call("where")


def _held(parent: psutil.Process) -> dict[str, float]:
    return {"descriptors": parent.num_fds(), "memory": parent.memory_info().rss}


def _folder(many: Crowd) -> Path:
    """Where the sockets of the workers are."""
    paths = [one.laddr for child in psutil.Process(many.pid).children() for one in child.net_connections("unix")]
    return next(Path(str(path)).parent for path in paths if "callboard-" in str(path))
