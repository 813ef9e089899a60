"""Promises 22 and 23: abandoned sessions, an unread stderr, no descriptor left, a hung backend harm themselves only."""

import fcntl
import os
import re
import resource
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.broker.test_admin import ask as ask_health
from tests.figures import BUSY, LONG, figure
from tests.served import free_port
from tests.soak.clients import ask, connect, frame_of, session_at
from tests.soak.probing import Probe, probing
from tests.soak.stage import Scene, scene

LIVE: Final = 0.1
"""Seconds in which /livez answers (promise 23)."""
UNRELATED: Final = 0.05
"""Seconds in which 99 of 100 calls of another backend are answered."""
ABANDONED: Final = 200 if LONG else 10
SECONDS: Final = 20.0 if LONG else 1.0
RESERVE: Final = 64
"""Soft limit of descriptors in the test that uses them up."""
LATE: Final = {"times": 0, "per": 1, "cool_down": 1.0}
"""A restart a second after the failure, so that there is time to see that nothing is ready."""
SILENT: Final = 0.5
"""Seconds that a hung backend may be silent for each call."""


def admin() -> str:
    return f"127.0.0.1:{free_port()}"


async def probes(stack: AsyncExitStack, folder: Path, here: Scene, at: str) -> tuple[Probe, Probe]:
    """One that calls b1, and one that asks whether the broker lives."""
    calls = await stack.enter_async_context(probing(folder, here.run.stand.http, tool="b1__echo"))
    lives = await stack.enter_async_context(probing(folder, f"http://{at}/livez", pause=0.02))
    await calls.wait_samples(20)
    await lives.wait_samples(5)
    return calls, lives


def check_unharmed(what: str, calls: Probe, lives: Probe, since: float, until: float) -> None:
    """Print what the two probes found, and hold it to the promises."""
    p99, most, live = (
        calls.p99(since, until),
        calls.seconds(since, until)[-1],
        lives.seconds(since, until)[-1],
    )
    wrong = [*calls.wrong(since, until), *lives.wrong(since, until)]
    found = f"{what}: another backend's p99 {p99 * 1000:.1f} ms, max {most * 1000:.0f} ms, {len(wrong)} errors"
    figure("promise 22", found, f"p99 <= {UNRELATED * 1000:.0f} ms, 0 errors")
    figure("promise 23", f"{what}: /livez max {live * 1000:.0f} ms", f"<= {LIVE * 1000:.0f} ms")
    assert not wrong
    assert p99 <= UNRELATED * BUSY
    assert live <= LIVE * BUSY


@pytest.mark.finding("faults-C2")
async def test_22_abandoned_sessions_and_a_busy_resource_harm_nobody(tmp_path: Path) -> None:
    at = admin()
    async with scene(("b0", "b1"), "--admin", at) as here, AsyncExitStack() as stack:
        run, url = here.run, here.run.stand.http
        await run.wait_up("b0")
        await run.wait_up("b1")
        calls, lives = await probes(stack, tmp_path, here, at)
        for _ in range(ABANDONED):
            session = await session_at(url)
            told = await ask(url, frame_of("resources/subscribe", uri="nemesis://b0"), session=session)
            assert told.status == 200
        # First all that waits for a session at most, so that the rest of the time is spent with full mailboxes.
        await run.ask("b0", "tell", count=1100, different=10_000)
        since = time.monotonic()
        await run.ask("b0", "stream", count=int(190 * SECONDS), different=10_000, rate=190)
        await trio.sleep(SECONDS)
        await calls.wait_samples(20)
        until = time.monotonic()
    check_unharmed(f"{ABANDONED} abandoned sessions", calls, lives, since, until)


@pytest.mark.finding("faults-H1")
async def test_22_a_backend_that_talks_harms_nobody_though_our_stderr_is_not_read(tmp_path: Path) -> None:
    at = admin()
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)  # full after a few lines
    try:
        async with scene(("b0", "b1"), "--admin", at, process={"stderr": writes}) as here, AsyncExitStack() as stack:
            os.close(writes)
            writes = -1
            run = here.run
            await run.wait_up("b0")
            await run.wait_up("b1")
            calls, lives = await probes(stack, tmp_path, here, at)
            since = time.monotonic()
            await run.front.send("b0", "fault", how="talk", seconds=SECONDS + 1)
            await trio.sleep(SECONDS + 1)
            await calls.wait_samples(20)
            until = time.monotonic()
            stopping = time.monotonic()
            run.stand.process.send_signal(signal.SIGTERM)
            with trio.move_on_after(15):
                await run.stand.process.wait()
            stopped = time.monotonic() - stopping
    finally:
        os.close(reads)
        if writes >= 0:
            os.close(writes)
    check_unharmed("stderr that is not read", calls, lives, since, until)
    figure("promise 18", f"SIGTERM with a stderr that is not read: over in {stopped:.1f} s", "<= 30 s")
    assert run.stand.process.returncode == 0


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (RESERVE, RESERVE))


@pytest.mark.finding("faults-M4", "security-20")
async def test_23_it_lives_and_restarts_backends_with_no_descriptor_left(tmp_path: Path) -> None:
    at = admin()
    async with (
        scene(("b0", "b1"), "--admin", at, process={"preexec_fn": few_descriptors}) as here,
        AsyncExitStack() as stack,
    ):
        run, url = here.run, here.run.stand.http
        await run.wait_up("b0")
        await run.wait_up("b1")
        calls, lives = await probes(stack, tmp_path, here, at)
        since = time.monotonic()
        for _ in range(2 * RESERVE):  # clients that say nothing
            await stack.enter_async_context(await connect(url))
        live = await ask_health(f"http://{at}", "/livez")
        run.kill("b1")
        with trio.move_on_after(5 * BUSY):
            while calls.samples()[-1][1] != 200:  # noqa: ASYNC110 -- no event tells what another process writes
                await trio.sleep(0.05)
        await calls.wait_samples(20)
        back = time.monotonic() - since
        until = time.monotonic()
    assert live[0] == 200
    assert calls.samples()[-1][1] == 200
    slowest = lives.seconds(since, until)[-1]
    figure("promise 23", f"no descriptor left: /livez max {slowest * 1000:.0f} ms", f"<= {LIVE * 1000:.0f} ms")
    figure("promise 1", f"no descriptor left: a killed backend is back after {back:.1f} s", "it is back")
    assert slowest <= LIVE * BUSY
    assert not lives.wrong(since, until)


@pytest.mark.finding("faults-H4")
@pytest.mark.skipif(not LONG, reason="it takes as long as a ping may: tests/broker has it in virtual time")
async def test_23_a_hung_backend_is_noticed_told_and_restarted() -> None:
    at, red = admin(), list[float]()

    async def look() -> None:
        while True:
            status, _ = await ask_health(f"http://{at}", "/readyz")
            red.extend([time.monotonic()] if status == 503 else [])
            await trio.sleep(0.05)

    async with scene(("b0",), "--admin", at, timeout=SILENT, restart=LATE) as here, trio.open_nursery() as nursery:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        [hung] = stand.pids("b0")
        nursery.start_soon(look)
        began = time.monotonic()
        stand.signal("b0", signal.SIGSTOP)
        codes = [0]
        with trio.move_on_after(40 * SILENT + 10):
            while True:
                outcome = await run.ask("b0", "echo")
                assert outcome is not None
                codes.append(outcome.code)
                if outcome.is_result:
                    break
        back, words = time.monotonic() - began, stand.words
        nursery.cancel_scope.cancel()
        assert codes[-1] == 0, f"no answer after {back:.1f} s: {set(codes)}"
        assert stand.pids("b0") != [hung]
    told = f"{red[0] - began:.1f} s" if red else "never"
    found = f"hung backend, timeout {SILENT} s: /readyz red after {told}, restarted after {back:.1f} s"
    figure("promise 23", found, "red; restarted")
    assert red
    assert re.search(r"hung|silent|no answer|not answer", words), words
