"""Processes that a server leaves behind: none, however this process or the server ends."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest
import trio

from callboard.transports.client.orphans import _RUN, MARK
from callboard.transports.client.process import Command, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows who left a group")

# A server that ignores the end of its input and SIGTERM, with a child in its group and one that left it.
STUBBORN = """
trap '' TERM HUP
sleep 300 &
setsid sleep 300 &
echo "$$ $!" >"$0"
while :; do sleep 1; done
"""
# The server ends by itself, but for a child that left its group.
LEAVES = 'setsid sleep 300 & echo "$!" >"$0"'

BROKER = """
import sys, trio
from callboard.transports.client.process import Command, running
async def main():
    first, second, file = sys.argv[1:]
    async with running(Command.of(["/bin/sh", "-c", first, file + "1"])):
        async with running(Command.of(["/bin/sh", "-c", second, file + "2"])):
            print("up", flush=True)
            await trio.sleep_forever()
trio.run(main)
"""


def wait_for(holds: Callable[[], bool], within: float = 10.0) -> bool:
    until = time.monotonic() + within
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def written(file: Path) -> list[int]:
    assert wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(word) for word in file.read_text().split()]


def living(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.finding("faults-M3", "security-24")
def test_servers_and_their_children_end_when_this_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKER, STUBBORN, LEAVES, str(tmp_path / "pids")]
    with Popen(command, stdout=PIPE, start_new_session=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"up\n"
        pids = [*written(tmp_path / "pids1"), *written(tmp_path / "pids2")]
        started = [*pids, *(one.pid for one in psutil.Process(broker.pid).children(recursive=True))]
        os.killpg(broker.pid, signal.SIGKILL)
    assert len(pids) == 3
    assert wait_for(lambda: not living(started)), living(started)


@pytest.mark.finding("faults-M3")
@pytest.mark.parametrize("text", [STUBBORN, LEAVES], ids=["stubborn", "leaves a child"])
async def test_children_that_left_their_group_end_with_the_server(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery, running(Command.of(["/bin/sh", "-c", text, str(file)])):
            pids = await trio.to_thread.run_sync(written, file)
            nursery.cancel_scope.cancel()  # in a hurry
    assert living(pids) == []


def guards() -> list[psutil.Process]:
    """The guards of this process: shells that bear what all its marks begin with."""
    known = f"{MARK}={_RUN}."
    return [one for one in psutil.process_iter(["cmdline"]) if known in (one.info["cmdline"] or ())]


@pytest.mark.finding("faults-M3")
async def test_the_guard_ends_with_the_last_server() -> None:
    with trio.fail_after(20):
        async with running(Command.of(["/bin/sh", "-c", "read line"])):
            async with running(Command.of(["/bin/sh", "-c", "read line"])):
                assert len(guards()) == 1
            assert len(guards()) == 1
    assert await trio.to_thread.run_sync(wait_for, lambda: not guards())


async def test_a_guard_that_was_ended_is_replaced() -> None:
    with trio.fail_after(20):
        async with running(Command.of(["/bin/sh", "-c", "read line"])):
            [guard] = guards()
            guard.kill()
            assert await trio.to_thread.run_sync(wait_for, lambda: not guards())
            async with running(Command.of(["/bin/sh", "-c", "read line"])):
                assert len(guards()) == 1
    assert await trio.to_thread.run_sync(wait_for, lambda: not guards())
