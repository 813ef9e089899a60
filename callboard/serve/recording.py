"""Recordings: a thread writes what passes to a file, as JSON lines without secrets. Off unless a file is named."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from callboard.codecs.recording import Direction, RecordedMessage, redacted, write_line
from callboard.errors import CannotServe
from callboard.server.served import Hosted
from callboard.supervisor import get_logger
from callboard.supervisor.quiet_threads import leave_signals_to_main

log = get_logger("callboard.recording")

MAX_WAITING: Final = 32 * 1024 * 1024
"""Most bytes of messages that wait to be written: what a slow disk may hold up. More are dropped, and counted."""

MAX_RECORDING: Final = 1024 * 1024 * 1024
"""Largest recording, in bytes. A server that is left running must not fill the disk: the rest is dropped."""

ENTRY_WEIGHT: Final = 512
"""Bytes that a message takes up beside its frame while it waits."""

FAREWELL: Final = 5.0
"""Seconds in which what waits is written at the end."""


class _Taken(NamedTuple):
    at: float
    server: str
    session: str
    direction: Direction
    frame: bytes


class Recorder:
    """A `Tape` that writes to a file. `take` costs the loop a few microseconds; all else is the thread's."""

    def __init__(self, handle: int, name: str, most: int = MAX_RECORDING) -> None:
        self.name = name
        self.written = 0
        """Bytes in the file."""
        self.dropped = 0
        """Messages that were not recorded."""
        self._handle = handle
        self._most = most
        self._waiting: deque[_Taken] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_over = False
        self._is_full = False
        self._told = 0
        self._thread = threading.Thread(target=self._write, name="recording", daemon=True)

    def take(self, server: str, session: str, direction: Direction, frame: bytes) -> None:
        weight = len(frame) + ENTRY_WEIGHT
        with self._changed:
            if self._is_full or self._is_over or self._bytes + weight > MAX_WAITING:
                self.dropped += 1
                return
            self._bytes += weight
            self._waiting.append(_Taken(datetime.now(UTC).timestamp(), server, session, direction, bytes(frame)))
            self._changed.notify()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Write what waits, for a few seconds at most, and close the file."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join(FAREWELL)
        if self._thread.is_alive():
            log.error("recording_not_finished", file=self.name, waiting=len(self._waiting))
        else:
            os.close(self._handle)

    # The thread.

    def _write(self) -> None:
        leave_signals_to_main()
        while (taken := self._next()) is not None:
            data = b"".join(_lines(taken))
            if (missing := self.dropped - self._told) and not self._is_full:
                self._told = self.dropped
                data = msgspec.json.encode({"time": _time(taken.at), "dropped": missing}) + b"\n" + data
                log.warning("recording_dropped_messages", file=self.name, dropped=missing)
            self._append(data)

    def _next(self) -> _Taken | None:
        with self._changed:
            while not self._waiting:
                if self._is_over:
                    return None
                self._changed.wait()
            taken = self._waiting.popleft()
            self._bytes -= len(taken.frame) + ENTRY_WEIGHT
            return taken

    def _append(self, data: bytes) -> None:
        if self._is_full:
            self.dropped += 1
            return
        if self.written + len(data) > self._most:
            self._is_full = True
            self.dropped += 1
            log.warning("recording_full", file=self.name, limit=self._most)
            return
        left, failure = memoryview(data), ""
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError as error:
            self._is_full = True
            self.dropped += 1
            failure = error.strerror or str(error)
        if failure:
            log.error("recording_failed", file=self.name, reason=failure)
            self._take_back(len(data) - len(left))
        else:
            self.written += len(data)

    def _take_back(self, part: int) -> None:
        """Leave no half of a line behind: all that follows could not be read."""
        with suppress(OSError):  # a pipe has no end to take back
            if part:
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - part)


@contextmanager
def recording(file: str, most: int = MAX_RECORDING) -> Iterator[Recorder]:
    """Record to *file*, which is made for its owner alone, or appended to. Raises `CannotServe`."""
    path = Path(file).expanduser()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise CannotServe(f"{path}: {error.strerror or error}") from None
    recorder = Recorder(handle, str(path), most)
    recorder.written = os.fstat(handle).st_size
    recorder.begin()
    try:
        yield recorder
    finally:
        recorder.end()


@contextmanager
def record_behind(server: Hosted, file: str) -> Iterator[Recorder | None]:
    """Record the messages of *server* to *file*. Those of a broker and its servers are recorded there; of any other
    server, what is yielded takes those of its clients. Raises `CannotServe`."""
    from callboard.broker.broker import Broker  # most processes have none

    with recording(file) as recorder:
        if not isinstance(server, Broker):
            yield recorder
            return
        server.tape = recorder
        try:
            yield None
        finally:
            server.tape = None


def _lines(taken: _Taken) -> list[bytes]:
    """The lines of a frame: one, or one for each message of a batch."""
    try:
        value: Any = msgspec.json.decode(taken.frame)
    except (msgspec.DecodeError, RecursionError):  # refused by its receiver, and no message
        return []
    where = _time(taken.at), taken.server, taken.session, taken.direction
    messages = value if isinstance(value, list) else [value]
    return [write_line(RecordedMessage(redacted(one), *where)) for one in messages if isinstance(one, dict)]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
