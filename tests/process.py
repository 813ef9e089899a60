"""A command as its user starts it: a process, its pipes, its exit code."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import msgspec
import trio

from callboard.codecs.lines import LineDecoder
from tests.fork_server import forked

CALLBOARD: Final = (sys.executable, "-m", "callboard")

PATIENCE: Final = 90.0
"""Seconds for a whole test with processes. Each takes one or two, on a machine that does nothing else."""


@attrs.define(eq=False)
class Process:
    """A running process: lines of JSON go in and come out."""

    process: trio.Process
    _decoder: LineDecoder = attrs.field(factory=lambda: LineDecoder(64 * 1024 * 1024), init=False)
    _lines: list[bytes] = attrs.field(factory=list, init=False)
    _heard: trio.Event = attrs.field(factory=trio.Event, init=False)
    stderr: bytearray = attrs.field(factory=bytearray, init=False)

    async def say(self, *messages: dict[str, Any]) -> None:
        await self.write(b"".join(msgspec.json.encode({"jsonrpc": "2.0", **one}) + b"\n" for one in messages))

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(data)

    async def hear(self) -> Any:
        """The next message. A line that is no JSON fails the test: standard output belongs to the protocol."""
        line = await self.line()
        assert line is not None, f"it ended; {self.words}"
        return msgspec.json.decode(line)

    async def line(self) -> bytes | None:
        assert self.process.stdout is not None
        while not self._lines:
            data = await self.process.stdout.receive_some(65_536)
            if not data:
                return None
            self._lines += [line for line in self._decoder.feed(bytes(data)) if isinstance(line, bytes)]
        return self._lines.pop(0)

    async def rest(self) -> list[Any]:
        """All messages up to the end of its output."""
        found = []
        while (line := await self.line()) is not None:
            found.append(msgspec.json.decode(line))
        return found

    async def hang_up(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def wait(self) -> int:
        return await self.process.wait()

    async def wait_said(self, words: bytes) -> None:
        """Wait until it has said *words* on standard error."""
        while words not in self.stderr:
            self._heard = trio.Event()
            await self._heard.wait()

    @property
    def words(self) -> str:
        return self.stderr.decode(errors="replace")

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.stderr += data
            self._heard.set()


@asynccontextmanager
async def started(*command: str, patience: float = PATIENCE, **more: Any) -> AsyncIterator[Process]:
    """Run *command* until the block ends; what is left of it then is killed. All within *patience* seconds."""
    # What its own servers say on standard error is logged at level debug.
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "CALLBOARD_LOG_LEVEL": "debug"}
    with trio.fail_after(patience):
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        opened = await trio.lowlevel.open_process(command, env=environment, **{**pipes, **more})
        process = Process(opened)
        try:
            async with trio.open_nursery() as nursery:
                if opened.stderr is not None:
                    nursery.start_soon(process.read_stderr)
                yield process
                await opened.wait()
        finally:
            if opened.returncode is None:
                opened.kill()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                    await opened.wait()
            for stream in (opened.stdin, opened.stdout, opened.stderr):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


def callboard(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*forked(), *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
