"""The process that has the client imported, and forks for each scenario: `python -m tests.conformance.forking PATH`.

It is single-threaded and runs no event loop, so a fork of it is as good as a new process.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from tests.conformance import client

ROOT: Final = Path(__file__).resolve().parents[2]
HAND_OVER: Final = Path(__file__).with_name("forked.py")

STREAMS: Final = 3
BACKLOG: Final = 64
"""Clients that are waiting to be forked: the suite starts all of them at once."""


@attrs.frozen
class Clients:
    """What the suite starts, to which it adds the address of its server."""

    path: str

    @property
    def command(self) -> str:
        return f"{sys.executable} -I -S {HAND_OVER} {self.path}"

    def ended(self) -> dict[str, int]:
        """The exit status of the last client of each scenario."""
        lines = _ended(self.path).read_text().splitlines()
        return {name: int(status) for name, status in (line.rsplit(" ", 1) for line in lines)}


def _ended(path: str) -> Path:
    return Path(f"{path}.ended")


def serve(path: str) -> None:
    """Fork for each connection, until a signal ends it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system collects the forks
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(BACKLOG)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connected, _ = door.accept()
            with connected:
                if os.fork() == 0:
                    door.close()
                    play(connected, _ended(path))


def play(connected: socket.socket, ended: Path) -> None:
    """Be the client of one scenario, and say at the end with which status, in *ended* too."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 1
    try:
        _, streams, _, _ = socket.recv_fds(connected, 1, STREAMS)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        with connected.makefile("rb") as said:
            url, given = json.loads(said.read())
        os.environ.update(given)
        sys.argv[1:] = [url]
        status = client.main()
    except BaseException:  # as the interpreter has it: what nothing caught is shown, and the status is 1
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with ended.open("a") as lines:  # a short line is appended whole, whichever forks write at once
            lines.write(f"{os.environ['MCP_CONFORMANCE_SCENARIO']} {status}\n")
        with suppress(OSError):  # the suite gave this client up
            connected.sendall(bytes([status]))
        os._exit(status)


@contextmanager
def forking() -> Iterator[Clients]:
    """The clients that can be started while the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "clients")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.forking", path],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield Clients(path)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # forks of clients that the suite gave up are in its group
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


if __name__ == "__main__":
    serve(sys.argv[1])
