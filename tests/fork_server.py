"""A fork server: one process imports callboard, and each command of a test is a fork of it.

A new interpreter needs half a second of CPU time to import callboard, and the tests start about a thousand commands.
Each pytest worker has one fork server, started on first use. It is single-threaded and runs no event loop, so a fork
of it behaves like a new process: streams, exit status, signals, environment and working directory are the command's.
`tests/test_fork_server.py` compares the two. Tests about the process itself (its pid, its terminal, closed streams,
PYTHON* variables) start a new interpreter with `tests.process.CALLBOARD`.
"""

import atexit
import gc
import importlib
import io
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import F_DUPFD, fcntl
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs

import callboard
from tests.fork_client import NAME

ROOT: Final = Path(__file__).resolve().parents[1]
CLIENT: Final = Path(__file__).with_name("fork_client.py")

MAIN: Final = "callboard.cli.main"
"""The module with the `main` of `python -m callboard`."""

BACKLOG: Final = 64
"""Connections that wait to be accepted: the conformance suite starts forty clients at once."""
MAX_DESCRIPTORS: Final = 64
"""Descriptors that a command may inherit: its standard streams, and what a parent of workers passes on."""
PARENT_CHECK: Final = 1.0
"""Seconds between checks that the pytest worker is alive: it may be killed without running its exit handlers."""
START_TIME: Final = 30.0
"""Seconds until the server must listen. It takes one on an idle machine."""

PIDS: Final[set[str]] = set()
"""The process id of the fork server, once it is started. It outlives tests, and is no leftover of any."""


def forked(module: str = MAIN) -> tuple[str, ...]:
    """The start of a command line that runs `main` of *module* in a fork; the arguments of `main` follow."""
    return _command(_socket_path(), module)


def behind(pid: int) -> int:
    """The process that a test means by *pid*: the fork, if *pid* is of a client of the fork server."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
        name = Path(f"/proc/{pid}/comm").read_text()
        if name.startswith(NAME):
            return int(name.removeprefix(NAME))
    return pid


def _command(path: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(CLIENT), path, *arguments)


@cache
def _socket_path() -> str:
    """Start the fork server, which runs until this process ends. Returns the path of its socket."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", path], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    PIDS.add(str(process.pid))

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    deadline = time.monotonic() + START_TIME
    while not path.exists():
        assert process.poll() is None, f"the fork server exited with {process.returncode}"
        assert time.monotonic() < deadline, f"the fork server does not listen after {START_TIME:g} s"
        time.sleep(0.02)  # there is no event for a socket that another process opens
    return str(path)


# The server process.


@attrs.frozen
class ForkRequest:
    """A command to run, as `tests/fork_client.py` sends it."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    descriptors: dict[int, int]
    """What the command inherits: each as it is here, by its number in the command."""

    @classmethod
    def received(cls, connected: socket.socket) -> "ForkRequest":
        """Read a request. Raises ConnectionError."""
        _, received, _, _ = socket.recv_fds(connected, 1, MAX_DESCRIPTORS)
        length = int.from_bytes(_exactly(connected, 4), "big")
        numbers, count, *words = _exactly(connected, length).decode(errors="surrogateescape").split("\0")
        descriptors = dict(zip(map(int, numbers.split()), received, strict=True))
        arguments, folder, pairs = words[: int(count)], words[int(count)], words[int(count) + 1 :]
        return cls(arguments, folder, dict(pair.split("=", 1) for pair in pairs), descriptors)


def _exactly(connected: socket.socket, length: int) -> bytes:
    data = connected.recv(length, socket.MSG_WAITALL)
    if len(data) < length:
        raise ConnectionError("the client left before its request was complete")
    return data


@attrs.define(eq=False)
class ForkServer:
    """Accepts requests, forks for each, and sends back the status of each fork."""

    listener: socket.socket
    _running: dict[int, socket.socket] = attrs.field(factory=dict, init=False)
    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector, init=False)

    def serve(self) -> ForkRequest:
        """Serve until the pytest worker is gone. In the server this never returns; in a fork it returns its request."""
        ended, wakes = os.pipe()
        for end in (ended, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._selector.register(ended, selectors.EVENT_READ)
        parent = os.getppid()
        while os.getppid() == parent:
            for key, _ in self._selector.select(PARENT_CHECK):
                if key.fileobj is self.listener:
                    if (request := self._accept()) is not None:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for descriptor in (ended, wakes):
                            os.close(descriptor)
                        return request
                elif key.fileobj == ended:
                    os.read(ended, 4096)
                    self._collect()
                elif key.data in self._running:  # the client was killed: its fork must not outlive it
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
        os._exit(0)

    def _accept(self) -> ForkRequest | None:
        """Read one request and fork. Returns the request in the fork, and None in the server."""
        connected, _ = self.listener.accept()
        try:
            request = ForkRequest.received(connected)
        except ConnectionError:
            connected.close()
            return None
        if not (pid := os.fork()):
            self._selector.close()
            for other in (self.listener, connected, *self._running.values()):
                other.close()
            return request
        for descriptor in request.descriptors.values():
            os.close(descriptor)
        self._running[pid] = connected
        self._selector.register(connected, selectors.EVENT_READ, pid)
        with suppress(OSError):
            connected.sendall(pid.to_bytes(4, "big"))
        return None

    def _collect(self) -> None:
        """Wait for forks that have ended, and send each status to its client."""
        for pid, status in _ended():
            with self._running.pop(pid) as connected:
                with suppress(KeyError):  # the client was killed, and is not watched any more
                    self._selector.unregister(connected)
                with suppress(OSError):
                    connected.sendall(status.to_bytes(4, "big"))


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):  # no fork is left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _become(request: ForkRequest, path: str) -> None:
    """Turn this fork into the command: its own session, descriptors, working directory, environment and arguments."""
    os.setsid()
    top = max(request.descriptors) + 1
    aside = {number: fcntl(one, F_DUPFD, top) for number, one in request.descriptors.items()}
    for one in request.descriptors.values():
        os.close(one)  # it may have the number of another
    for number, one in aside.items():
        os.dup2(one, number)
        os.close(one)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _opened(1, "strict")
    sys.stderr = _opened(2, "backslashreplace")
    sys.path[0] = request.folder
    sys.argv[:] = request.arguments
    sys.orig_argv[:] = _command(path, *request.arguments)  # with which a parent starts its workers: they are forks, too


def _opened(number: int, errors: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it. The server's own streams belong to other files."""
    file = io.FileIO(number, "w", closefd=False)
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    by_line = number == 2 or file.isatty()
    return io.TextIOWrapper(io.BufferedWriter(file), errors=errors, line_buffering=by_line, write_through=is_unbuffered)


def _run(command: Callable[[], Any]) -> None:
    """Run *command* and end as an interpreter does, but for the end of all modules: to take a whole package apart would
    touch, and so copy, all pages of the server, which takes longer than most commands."""
    try:
        sys.exit(command())
    except SystemExit as ended:
        if not (ended.code is None or isinstance(ended.code, int)):
            raise  # the interpreter prints it
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any end
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                raise ended from None  # the interpreter tells of it, and has a status for it
        os._exit((ended.code or 0) & 0xFF)


def _import_all() -> None:
    """Import every module of the package, and those of the tests that `forked` is used with."""
    for found in pkgutil.walk_packages(callboard.__path__, "callboard."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    importlib.import_module("tests.conformance.noted")


def main(path: str) -> None:
    _import_all()
    gc.freeze()  # a collection in a fork would otherwise touch, and so copy, all pages of the server
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(BACKLOG)
        Path(f"{path}.new").rename(path)  # a path that exists accepts connections
        request = ForkServer(listener).serve()
    _become(request, path)
    _run(importlib.import_module(request.arguments[0]).main)


if __name__ == "__main__":
    main(sys.argv[1])
