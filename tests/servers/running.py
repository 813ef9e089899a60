"""Other people's servers, each in an environment and a process of its own; and a wire in between that can be cut."""

import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Final

import attrs
import trio

from benchmarks.peers import environment
from tests.node import installed, node
from tests.served import free_port, is_accepting

HERE: Final = Path(__file__).resolve().parent
EVERYTHING: Final = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
FASTMCP: Final = (
    "fastmcp-slim[client]==4.1.4",
    *("griffelib", "packaging", "pyyaml", "uncalled-for", "uvicorn", "uvloop", "httptools"),
)
"""What its server needs. The whole of fastmcp asks for a certifi that may not be published yet."""

FASTMCP_TASKS: Final = ("cryptography", "pydocket>=0.26.1", "redis!=8.1.0")
"""What fastmcp-tasks needs beside it, for the same reason."""

START_TIME: Final = 40.0
"""Seconds until a server accepts. The slowest takes two or three, on a machine that does nothing else."""


@attrs.frozen
class Library:
    """A library and its ways: over each, the eras that it speaks."""

    name: str
    command: Callable[[str], list[str]]
    """Takes `stdio`, `http` or `sse`; where that is not stdio the port follows."""
    ways: Sequence[str]
    is_modern: bool = False
    cwd: Callable[[], Path] = lambda: HERE.parents[1]
    lacks: frozenset[str] = frozenset()
    """Steps that the library has no means for, as `way-era-step`, `era-step` or `step`."""

    def takes(self, way: str, era: str, step: str) -> bool:
        return not {step, f"{era}-{step}", f"{way}-{era}-{step}"} & self.lacks


def python(script: str, *requirements: str) -> Callable[[str], list[str]]:
    return lambda way: [str(environment(*requirements)), str(HERE / script), way]


def fastmcp_with_tasks() -> Path:
    """The Python of fastmcp 4 with its extension of tasks."""
    return environment(*FASTMCP, *FASTMCP_TASKS, alone=("fastmcp-tasks==4.1.4",))


def packages() -> Path:
    return installed(HERE / "node")


LIBRARIES: Final = (
    Library(
        "mcp-2.3.0", python("mcp_two.py", "mcp==2.3.0"), ("stdio", "http"), True, lacks=frozenset({"legacy-watch"})
    ),
    Library("mcp-1.30.0", python("mcp_one.py", "mcp[ws]==1.30.0"), ("stdio", "http", "sse")),
    Library(
        "fastmcp-4.1.4", python("fast_mcp.py", *FASTMCP), ("stdio", "http"), True, lacks=frozenset({"watch", "resume"})
    ),
    Library(
        "npm-server-2.4.0",
        lambda way: [str(node()), str(HERE / "node" / "server.mjs"), way],
        ("stdio", "http"),
        True,
        cwd=packages,
        # Over HTTP its legacy requests stand alone, so that nothing can be asked back, cancelled or resumed.
        lacks=frozenset(
            {"legacy-watch", *(f"http-legacy-{step}" for step in ("ask", "think", "look", "cancel", "resume"))}
        ),
    ),
)


@asynccontextmanager
async def listening(library_command: list[str], cwd: Path, path: str, **variables: str) -> AsyncIterator[str]:
    """A server on a free port, until the block ends: its URL. `PORT` in the command is that port."""
    port = free_port()
    command = [str(port) if word == "PORT" else word for word in library_command]
    with tempfile.TemporaryFile() as said:
        process = await trio.lowlevel.open_process(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "PORT": str(port), **variables},
        )
        try:
            await _wait_accepting(port, process, said)
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5), suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _wait_accepting(port: int, process: trio.Process, said: IO[bytes]) -> None:
    with trio.move_on_after(START_TIME):
        while process.returncode is None:
            if is_accepting(port):
                return
            await trio.sleep(0.05)  # no event tells when another process listens
    said.seek(0)
    raise AssertionError(f"it does not listen:\n{said.read().decode(errors='replace')[-3000:]}")


@attrs.define(eq=False)
class Cutter:
    """Connections that lead elsewhere, and can all be cut at once, without a word."""

    target: int
    cuts: int = 0
    _open: set[trio.SocketStream] = attrs.field(factory=set)

    async def carry(self, here: trio.SocketStream) -> None:
        async with here, await trio.open_tcp_stream("127.0.0.1", self.target) as there:
            self._open |= {here, there}
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, here, there, nursery.cancel_scope)
                    await self._pump(there, here, nursery.cancel_scope)
            finally:
                self._open -= {here, there}

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
        try:
            while data := await source.receive_some():
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        both.cancel()

    def cut(self) -> None:
        self.cuts += 1
        for stream in self._open:
            stream.socket.close()


@asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[str, Cutter]]:
    """The same server behind a wire that can be cut."""
    port = int(url.split(":")[2].split("/")[0])
    cutter = Cutter(port)
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, cutter.carry, [listener])
        yield url.replace(str(port), str(listener.socket.getsockname()[1])), cutter
        nursery.cancel_scope.cancel()
