"""Who is measured in `hosting.py`: each server in an environment and a process of its own, on one core."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import attrs
import psutil

from benchmarks.peers import HERE, environment
from tests.node import installed, node
from tests.served import free_port, is_accepting
from tests.shared import ROOT

START_TIME: Final = 60.0
"""Seconds until a server accepts. The slowest takes two or three, on a machine that does nothing else."""

FAST_UVICORN: Final = ("uvicorn", "uvloop", "httptools")
FASTMCP_NEEDS: Final = ("griffelib", "packaging", "pyyaml", "uncalled-for")
"""What its server imports. The whole of fastmcp asks for a certifi that may not be published yet."""


class NotStarted(AssertionError):
    """A server did not start; its own words are in the message."""


@attrs.frozen
class Contender:
    """A server to be measured, and how it is started."""

    name: str
    command: Callable[[int], list[str]]
    """Takes the port."""
    expected: str | None = None
    """What is in every answer, if it is not what a tool returns."""
    cwd: Callable[[], Path] = lambda: ROOT


def _python(folder: Callable[[], Path], application: str) -> Callable[[int], list[str]]:
    """An application of this folder on uvicorn, without its log of every request."""
    flags = ["--app-dir", str(HERE), "--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    tail = ["--factory", "--no-access-log"]
    return lambda port: [str(folder()), "-m", "uvicorn", application, "--port", str(port), *flags, *tail]


def _mcp() -> Path:
    return environment("mcp==2.3.0", *FAST_UVICORN)


def _fastmcp() -> Path:
    return environment("fastmcp-slim[client]==4.1.4", *FASTMCP_NEEDS, *FAST_UVICORN)


def _script(script: str, *more: str) -> Callable[[int], list[str]]:
    return lambda port: [str(node()), str(HERE / script), str(port), *more]


def _modules() -> Path:
    return installed(HERE / "hosting_node")


def _callboard(port: int) -> list[str]:
    app = str(HERE / "apps" / "hosting_app.py")
    return [sys.executable, "-m", "callboard", "run", app, "--http", str(port), "--json"]


def _floor(port: int) -> list[str]:
    return [sys.executable, str(HERE / "hosting_floor.py"), str(port)]


REFERENCE: Final = "mcp 2.3.0"
"""With the same answers as everybody's."""
AS_IT_COMES: Final = "mcp 2.3.0, structured, too"
"""With those that it gives unless told otherwise: every text a second time, as structured content."""
OURS: Final = "callboard"
FLOOR: Final = "bare Trio + httptools echo"
SDK: Final = "npm sdk 1.32"
SERVER: Final = "npm server 2.4"

callboard: Final = Contender(OURS, _callboard)
floor: Final = Contender(FLOOR, _floor, expected="tools/call")
mcp_json: Final = Contender(REFERENCE, _python(_mcp, "hosting_mcp:json_app"))
mcp_structured: Final = Contender(AS_IT_COMES, _python(_mcp, "hosting_mcp:structured_app"))
mcp_sse: Final = Contender(REFERENCE, _python(_mcp, "hosting_mcp:sse_app"))
fastmcp_json: Final = Contender("fastmcp 4.1", _python(_fastmcp, "hosting_fastmcp:json_app"))
fastmcp_sse: Final = Contender("fastmcp 4.1", _python(_fastmcp, "hosting_fastmcp:sse_app"))
npm_server_json: Final = Contender(SERVER, _script("hosting_server.mjs", "json"), cwd=_modules)
npm_server_sse: Final = Contender(SERVER, _script("hosting_server.mjs", "sse"), cwd=_modules)
npm_sdk_json: Final = Contender(SDK, _script("hosting_sdk.mjs", "json"), cwd=_modules)
npm_sdk_sse: Final = Contender(SDK, _script("hosting_sdk.mjs", "sse"), cwd=_modules)


def cores() -> tuple[set[int], set[int]]:
    """The core for the server and the one for the generator; nothing, where there are no two or no choice."""
    if not hasattr(os, "sched_getaffinity"):
        return set(), set()
    found = sorted(os.sched_getaffinity(0))
    return ({found[0]}, {found[1]}) if len(found) > 1 else (set(), set())


def pinned(core: set[int]) -> Callable[[], None] | None:
    """What a new process does first, to stay on *core* with all of its threads."""
    return (lambda: os.sched_setaffinity(0, core)) if core else None


_MOVE: Final = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"


def moved(core: set[int], command: Sequence[str]) -> list[str]:
    """*command*, for whoever starts it from another core: a child would stay where its parent was put."""
    return [sys.executable, "-c", _MOVE, str(min(core)), *command] if core else [*command]


@attrs.frozen
class Running:
    """A server that accepts."""

    name: str
    port: int
    process: psutil.Process

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> int:
        return int(self.process.memory_info().rss)


@contextmanager
def running(contender: Contender) -> Iterator[Running]:
    """Run *contender* until the block ends. Raises `NotStarted`."""
    port, (core, _) = free_port(), cores()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            contender.command(port),
            cwd=contender.cwd(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=pinned(core),
        )
        try:
            _wait_accepting(contender.name, port, process, said)
            yield Running(contender.name, port, psutil.Process(process.pid))
        finally:
            with suppress(ProcessLookupError):  # it never got far
                os.killpg(process.pid, signal.SIGKILL)  # nothing in it is worth a farewell
            process.wait()


def _wait_accepting(name: str, port: int, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    deadline = time.monotonic() + START_TIME
    while time.monotonic() < deadline and process.poll() is None:
        if is_accepting(port):
            return
        time.sleep(0.02)  # no event tells when another process listens
    said.seek(0)
    words = said.read().decode(errors="replace")
    raise NotStarted(f"{name} does not listen on port {port} (exit status {process.poll()}):\n{words}")
