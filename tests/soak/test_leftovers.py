"""Promise 19: start, stop and crash of the broker leave nothing: no process, no descriptor, no file, no task."""

import gc
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import trio

from benchmarks.nemesis_stand import BACKEND, Stand, standing
from callboard.testing import Peer
from callboard.transports.client.process import Command
from tests.broker.front import backend, brokered, peer
from tests.figures import BUSY, LONG, figure
from tests.soak.clients import ask, modern

CYCLES = 500 if LONG else 5


def living(pids: Iterable[int]) -> list[int]:
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


async def wait_gone(pids: Iterable[int], within: float) -> float:
    """Wait until none of them lives. Returns the seconds that it took; more than *within* if one stays."""
    began = time.monotonic()
    while living(pids) and time.monotonic() - began <= within:  # noqa: ASYNC110
        await trio.sleep(0.02)  # no event tells when a stranger's process ends
    return time.monotonic() - began


async def wait_started(stand: Stand) -> list[int]:
    with trio.fail_after(30):
        while not all(stand.journal(name).exists() and stand.pids(name) for name in stand.names):  # noqa: ASYNC110
            await trio.sleep(0.02)
    return [pid for name in stand.names for pid in stand.pids(name)]


def kill_all(pids: Iterable[int]) -> None:
    for pid in living(pids):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.finding("faults-M3", "security-24")
@pytest.mark.parametrize("flags", [(), ("--stay",)], ids=["ends with its input", "ignores the end of its input"])
async def test_19_a_broker_that_is_killed_leaves_no_process(flags: tuple[str, ...]) -> None:
    pids: list[int] = []
    try:
        async with standing(("b0", "b1", "b2"), flags=flags) as stand:
            pids = await wait_started(stand)
            stand.expected = -signal.SIGKILL
            stand.process.kill()
            await stand.process.wait()
            took = await wait_gone(pids, 2.0 * BUSY)
        left = living(pids)
    finally:
        kill_all(pids)
    figure("promise 19", f"kill -9, {len(pids)} backends {' '.join(flags)}: {len(left)} left after {took:.2f} s", "0")
    assert not left


@pytest.mark.finding("faults-M3")
async def test_19_a_grandchild_in_a_session_of_its_own_ends_with_the_broker() -> None:
    pids: list[int] = []
    try:
        async with standing(("b0",)) as stand:
            await wait_started(stand)
            frame = modern("tools/call", name="b0__fault", arguments={"key": "k", "how": "daemon"})
            with trio.fail_after(30):
                while not (answer := await ask(stand.http, frame)).message().get("result"):  # noqa: ASYNC110
                    await trio.sleep(0.05)  # it is not up yet
                while not (pids := [fact["daemon"] for fact in stand.facts("b0") if "daemon" in fact]):  # noqa: ASYNC110
                    await trio.sleep(0.02)
            assert answer.status == 200
        took = await wait_gone(pids, 1.0 * BUSY)
        left = living(pids)
    finally:
        kill_all(pids)
    figure("promise 19", f"stop, a grandchild with a session of its own: {len(left)} left after {took:.2f} s", "0")
    assert not left


async def once(command: Command) -> None:
    async with brokered(backend(command, "b0", prefix="b0")) as host, peer(host, capabilities={}) as client:
        await called(client)


async def called(client: Peer) -> None:
    await client.request("tools/call", name="b0__echo", arguments={"key": "k"})


def held(folder: Path) -> dict[str, int]:
    me = psutil.Process()
    return {
        "files": len(list(folder.iterdir())),
        "descriptors": me.num_fds(),
        "threads": me.num_threads(),
        "processes": len(me.children()),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


async def test_19_starts_and_stops_leave_nothing(tmp_path: Path) -> None:
    command = Command(args=(sys.executable, "-I", "-S", str(BACKEND), "b0", str(tmp_path / "journal")))
    await once(command)
    before = held(tmp_path)
    for _ in range(CYCLES):
        await once(command)
    gc.collect()
    after = held(tmp_path)
    figure("promise 19", f"{CYCLES} starts and stops: {before} before, {after} after", "nothing more")
    assert all(after[kind] <= before[kind] for kind in before)
