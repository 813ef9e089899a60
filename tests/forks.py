"""callboard's commands as forks of one process which has everything imported.

A new interpreter imports for half a second of processor time before a command begins, and the tests start a thousand
of them. Each worker of pytest has one process that imports once, and forks for each command: it is single-threaded and
runs no event loop, so a fork of it is as good as a new process. Streams, exit status, signals, environment and folder
are the command's own. What is about starting a process itself (terminals, descriptors, what the system says of it)
starts a real one, by `tests.process.CALLBOARD`.
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
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import attrs

import callboard

ROOT: Final = Path(__file__).resolve().parents[1]
HAND_OVER: Final = Path(__file__).with_name("hand_over.py")

MAIN: Final = "callboard.cli.main"
"""The module whose `main` is done, as if it had been started with `-m`."""

BACKLOG: Final = 64
STREAMS: Final = 3
LOOK_AROUND: Final = 1.0
"""Seconds between looks whether the worker is still there, which may have been killed."""
START_TIME: Final = 30.0
"""Seconds until the first fork can be had. It takes one, on a machine that does nothing else."""

PIDS: Final[set[str]] = set()
"""The process that forks, once there is one: no test has left it over."""


def forked(module: str = MAIN) -> tuple[str, ...]:
    """The beginning of a command line: what *module*'s `main` does with the rest of it, in a fork."""
    return (sys.executable, "-I", "-S", str(HAND_OVER), _door(), module)


@cache
def _door() -> str:
    """Where forks are had, until this process ends."""
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "door")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forks", path], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    PIDS.add(str(process.pid))

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    deadline = time.monotonic() + START_TIME
    while not Path(path).exists():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.02)  # no event tells when another process listens
    return path


# The process that forks.


@attrs.frozen
class Told:
    """What a fork shall do."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


def _heard(connected: socket.socket) -> Told:
    """What `tests/hand_over.py` says. Raises ConnectionError."""
    _, streams, _, _ = socket.recv_fds(connected, 1, STREAMS)
    length = int.from_bytes(_exactly(connected, 4), "big")
    count, *words = _exactly(connected, length).decode(errors="surrogateescape").split("\0")
    arguments, folder, pairs = words[: int(count)], words[int(count)], words[int(count) + 1 :]
    return Told(arguments, folder, dict(pair.split("=", 1) for pair in pairs), list(streams))


def _exactly(connected: socket.socket, length: int) -> bytes:
    data = connected.recv(length, socket.MSG_WAITALL)
    if len(data) < length:
        raise ConnectionError("it did not say all")
    return data


@attrs.define(eq=False)
class Forking:
    """The forks that run, each by the connection of the command that it is."""

    door: socket.socket
    _running: dict[int, socket.socket] = attrs.field(factory=dict, init=False)
    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector, init=False)

    def serve(self) -> Told:
        """Fork for each command, for ever. Returns in each fork, with what it shall do."""
        ended, wakes = os.pipe()
        for end in (ended, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._selector.register(self.door, selectors.EVENT_READ)
        self._selector.register(ended, selectors.EVENT_READ)
        parent = os.getppid()
        while os.getppid() == parent:
            for key, _ in self._selector.select(LOOK_AROUND):
                if key.fileobj is self.door:
                    if (told := self._forked()) is not None:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for descriptor in (ended, wakes):
                            os.close(descriptor)
                        return told
                elif key.fileobj == ended:
                    os.read(ended, 4096)
                    self._collect()
                elif key.data in self._running:  # it was killed, and its fork ends with it
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
        os._exit(0)

    def _forked(self) -> Told | None:
        connected, _ = self.door.accept()
        try:
            told = _heard(connected)
        except ConnectionError:
            connected.close()
            return None
        if not (pid := os.fork()):
            self._selector.close()
            for other in (self.door, connected, *self._running.values()):
                other.close()
            return told
        for stream in told.streams:
            os.close(stream)
        self._running[pid] = connected
        self._selector.register(connected, selectors.EVENT_READ, pid)
        with suppress(OSError):
            connected.sendall(pid.to_bytes(4, "big"))
        return None

    def _collect(self) -> None:
        for pid, status in _ended():
            with self._running.pop(pid) as connected, suppress(OSError, KeyError):
                connected.sendall(status.to_bytes(4, "big"))
                self._selector.unregister(connected)


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):  # there is none left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def become(told: Told) -> None:
    """Be the command: its streams, its folder, its environment, its arguments, and a session of its own."""
    os.setsid()
    for number, stream in enumerate(told.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(told.folder)
    os.environ.clear()
    os.environ.update(told.environment)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _written_to(1, "strict")
    sys.stderr = _written_to(2, "backslashreplace")
    sys.path[0] = told.folder
    sys.argv[:] = told.arguments


def _written_to(number: int, errors: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter makes it. This process's own have been told what they lead to."""
    file = io.FileIO(number, "w", closefd=False)
    is_told_at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    by_line = number == 2 or file.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(file), errors=errors, line_buffering=by_line, write_through=is_told_at_once
    )


def import_all() -> None:
    """Whatever a command may import."""
    for found in pkgutil.walk_packages(callboard.__path__, "callboard."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    importlib.import_module("tests.conformance.noted")


def main(path: str) -> None:
    import_all()
    gc.freeze()  # no fork copies what the collector would only look at
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{path}.new")
        door.listen(BACKLOG)
        Path(f"{path}.new").rename(path)  # what is found there can be connected to
        told = Forking(door).serve()
    become(told)
    sys.exit(importlib.import_module(told.arguments[0]).main())


if __name__ == "__main__":
    main(sys.argv[1])
