"""callboard as its users start it: a process of its own, on free ports of this machine."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import IO, Final

import attrs

from tests.fork_server import forked
from tests.shared import ROOT

START_TIME: Final = 30.0
"""Seconds until the ports accept. A start takes less than one, on a machine that does nothing else."""
STOP_TIME: Final = 15.0
"""Seconds from SIGTERM to the end. Whoever is still connected is let go long before."""


class NotServed(AssertionError):
    """The server did not start, or did not end as it should; its own words are in the message."""


@attrs.frozen
class Addresses:
    """Where one process serves."""

    http: str
    ws: str
    sse: str


_PORTS: Final = cycle(range(10_000, 32_000))
"""Below those that the system gives to clients: between the look for a port and the start of its server, a connection
of another test would take it."""
_TESTERS: Final = 97
"""Processes that look for ports begin at so many places."""


@cache
def _ports() -> Iterator[int]:
    """The ports from where this process begins: others of its kind begin elsewhere."""
    return islice(_PORTS, os.getpid() % _TESTERS * (22_000 // _TESTERS), None)


def free_port() -> int:
    """A port of this machine that no process listens on, and that no other caller was given of late."""
    for port in _ports():
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there are ports for ever")


@contextmanager
def served(target: str, *flags: str, ws: bool = False, command: str = "run") -> Iterator[Addresses]:
    """*target* (FILE.py:NAME) over HTTP, and over WebSocket if asked, until the block ends. Raises NotServed."""
    ports = {"--http": free_port()} | ({"--ws": free_port()} if ws else {})
    places = [word for flag, port in ports.items() for word in (flag, f"127.0.0.1:{port}")]
    with tempfile.TemporaryFile() as said:
        # A group of its own: whatever it starts ends with it.
        process = subprocess.Popen(
            [*forked(), command, target, *places, *flags],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            for port in ports.values():
                _wait_accepting(port, process, said)
            yield Addresses(
                http=f"http://127.0.0.1:{ports['--http']}/mcp",
                ws=f"ws://127.0.0.1:{ports.get('--ws', 0)}/mcp",
                sse=f"http://127.0.0.1:{ports['--http']}/sse",
            )
            _stop(process, said)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def brokered(target: str, transport: str = "stdio", *flags: str, front: tuple[str, ...] = ()) -> Iterator[Addresses]:
    """*target* behind a broker, which reaches it by *transport*; its names stay as they are. *flags* are the backend's,
    *front* the broker's own."""
    with ExitStack() as stack:
        entry: dict[str, object]
        if transport == "stdio":
            program, *arguments = forked()
            entry = {"command": program, "args": [*arguments, "run", str(ROOT / target), *flags]}
        else:
            at = stack.enter_context(served(target, *flags, ws=True))
            entry = {"url": at.http if transport == "http" else at.ws}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"only": {**entry, "callboard": {"prefix": ""}}}}))
        yield stack.enter_context(served(str(config), *front, ws=True, command="serve"))


def is_accepting(port: int) -> bool:
    """Whether a process listens on *port* of this machine.

    The port may be one that the system gives to clients: while no process listens there, a connection to it can get
    that very port at its own end, and is connected to itself. That is no answer.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connected:
            return bool(connected.getsockname() != connected.getpeername())
    except OSError:
        return False


def _wait_accepting(port: int, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    deadline = time.monotonic() + START_TIME
    while time.monotonic() < deadline and process.poll() is None:
        if is_accepting(port):
            return
        time.sleep(0.02)  # no event tells when another process listens
    raise NotServed(f"nothing listens on port {port} (exit status {process.poll()}):\n{_words(said)}")


def _stop(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """End the server as an operator does, and hold it to leaving in peace."""
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(STOP_TIME)
    except subprocess.TimeoutExpired:
        raise NotServed(f"still running {STOP_TIME:g} s after SIGTERM:\n{_words(said)}") from None
    words = _words(said)
    if status != 0 or "Traceback" in words:
        raise NotServed(f"ended with status {status}:\n{words}")


def _words(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode(errors="replace")
