"""The official client does not open a session again by itself: so its session must outlive workers."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from benchmarks.peers import environment
from tests.process import Process
from tests.shared import ROOT
from tests.workers.crowd import crowd


@asynccontextmanager
async def official(url: str) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
    """What the client says of its next call."""
    program = await trio.to_thread.run_sync(environment, "mcp==2.3.0")
    process = Process(
        await trio.lowlevel.open_process(
            [str(program), "-m", "tests.workers.official_client", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
    )
    try:
        yield process.hear
    finally:
        process.process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        for stream in (process.process.stdin, process.process.stdout):
            assert stream is not None
            await trio.aclose_forcefully(stream)


async def test_its_session_goes_on_through_a_restart_and_through_the_death_of_its_worker() -> None:
    async with crowd() as many, official(f"http://127.0.0.1:{many.port}/mcp") as calls:
        first = await calls()
        before = set(many.workers())
        assert first["pid"] in before
        os.kill(many.pid, signal.SIGHUP)
        home = first["pid"]
        while home in before:
            said = await calls()
            assert "error" not in said, said
            home = said["pid"]
        os.kill(home, signal.SIGKILL)
        lost = 0
        while (said := await calls()).get("pid", home) == home:
            lost += "error" in said
        assert lost <= 1, "only the call that was in flight may fail"
        for _ in range(20):
            assert (await calls())["pid"] == said["pid"]
