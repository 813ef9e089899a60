"""A worker that hangs: new connections go elsewhere, and its clients are told: SCALE's target 9."""

import os
import signal
import statistics
import time

import trio

from callboard.workers.process import HANGS_AFTER, PING_EVERY
from tests.figures import BUSY, LONG, figure
from tests.transports.server.http.stage import Answer
from tests.workers.crowd import Crowd, CrowdSession, crowd
from tests.workers.kept_alive import p99

CONNECTIONS = 1_000 if LONG else 40
LOOKED_EVERY = 0.2
"""Seconds that a session of the worker is waited for, before it is tried again."""


async def test_9_a_worker_that_hangs_swallows_no_connection() -> None:
    async with crowd("--spread", "0.5", patience=120.0) as many:
        stopped, other, session = await many.apart()
        usual = [await _call_anew(many, {stopped, other}) for _ in range(CONNECTIONS)]
        os.kill(stopped, signal.SIGSTOP)
        began = trio.current_time()
        try:
            took = [await _call_anew(many, {other}) for _ in range(CONNECTIONS)]
            while (answer := await _within(session, LOOKED_EVERY)) is None:
                assert trio.current_time() - began < 7 * BUSY
            refused = trio.current_time() - began
            assert answer.status == 503
            assert "retry-after" in answer.headers
            extra = p99(took) - statistics.median(usual)
            replaced = await _replaced(many, {stopped, other}) - began if LONG else 0.0
        finally:
            if not LONG:
                os.kill(stopped, signal.SIGCONT)
    figure(
        "target 9",
        f"{CONNECTIONS:,} new connections, 0 failed; {extra * 1e3:.1f} ms extra (p99; {max(took) * 1e3:.1f} ms at most,"
        f" {statistics.median(usual) * 1e3:.1f} ms before); its session gets 503 after {refused:.1f} s"
        + (f"; replaced after {replaced:.1f} s" if LONG else ""),
        "0 failed, 10 ms, 6 s, 35 s",
    )
    assert extra <= 0.01 * BUSY
    assert refused > HANGS_AFTER - PING_EVERY
    assert refused <= 6 * BUSY + LOOKED_EVERY
    assert replaced <= 35


async def _call_anew(many: Crowd, workers: set[int]) -> float:
    """Seconds for a call on a connection of its own."""
    began = time.monotonic()
    assert await many.call("where") in workers
    return time.monotonic() - began


async def _within(session: CrowdSession, seconds: float) -> Answer | None:
    with trio.move_on_after(seconds):
        return await session.answer_to("where")
    return None


async def _replaced(many: Crowd, before: set[int]) -> float:
    """When a worker answered that was not there before."""
    while await many.call("where") in before:  # noqa: ASYNC110  # another process
        await trio.sleep(0.1)
    return trio.current_time()
