"""Standard error for log lines: written at once where that cannot block, else by a thread, and bounded.

The parent process may not read the standard error of this one. A blocking write would then stop every actor.
"""

import os
import select
import stat
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final

from callboard.supervisor.quiet_threads import leave_signals_to_main

WHOLE: Final = 4096
"""Bytes that a pipe which is ready takes in one piece, without blocking (PIPE_BUF)."""

MOST_KEPT: Final = 256 * 1024
"""Bytes of log lines that wait for a reader of standard error. Later lines are counted, and left out."""

FAREWELL: Final = 0.5
"""Seconds in which what waits is written when the process ends."""


class StandardError:
    """A file of text or bytes for one logger after the other. Never raises, never blocks."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._left_out = 0
        self._line = b""
        self._fd = -1
        self._writer: threading.Thread | None = None
        self._change = threading.Condition()  # its lock is held by one log line at a time

    def write(self, text: str | bytes) -> int:
        """Write *text*, now or later, or leave it out. What does not end a line waits for the rest, or for `flush`."""
        with self._change:
            self._line += _encoded(text)
            if self._line.endswith(b"\n"):
                self._end_line()
        return len(text)

    def flush(self) -> None:
        with self._change:
            if self._line:
                self._end_line()

    def _end_line(self) -> None:
        line, self._line = self._line, b""
        file = sys.stderr
        with suppress(OSError, ValueError):  # it has no reader, or is closed
            if file is not None:
                fd = _descriptor(file)
                if fd is None:
                    file.write(line.decode(errors="backslashreplace"))
                    file.flush()
                else:
                    self._put(line, fd)

    def _put(self, data: bytes, fd: int) -> None:
        if not self._kept and not self._left_out and self._writer is None and _takes(fd, len(data)):
            data = data[os.write(fd, data) :]
            if not data:
                return
        if self._left_out or self._bytes + len(data) > MOST_KEPT:
            self._left_out += 1  # until all that is kept is written: one gap, and not many
            return
        self._kept.append(data)
        self._bytes += len(data)
        self._fd = fd
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_kept, name="callboard-log", daemon=True)
            self._writer.start()

    def _write_kept(self) -> None:
        """The thread: it ends when nothing is left to write."""
        leave_signals_to_main()
        while True:
            with self._change:
                data = self._next()
                if data is None:
                    self._writer = None
                    self._change.notify_all()
                    return
                fd = self._fd
            try:
                _write_all(fd, data)
            except OSError:  # its reader is gone: nothing that follows would arrive
                with self._change:
                    self._kept.clear()
                    self._bytes = self._left_out = 0

    def _next(self) -> bytes | None:
        if self._kept:
            data = self._kept.popleft()
            self._bytes -= len(data)
            return data
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            return b"(%d log lines left out: standard error was not read)\n" % left_out
        return None

    def drain(self, within: float = FAREWELL) -> None:
        """Wait until all is written, but not for long."""
        until = time.monotonic() + within
        with self._change:
            while self._writer is not None and (left := until - time.monotonic()) > 0:
                self._change.wait(left)


def _descriptor(file: object) -> int | None:
    """The descriptor to write to; None where *file* is not the process's own, as in a test."""
    try:
        return int(file.fileno())  # type: ignore[attr-defined]  # else it has none
    except (AttributeError, OSError, ValueError):
        return None


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="backslashreplace")


def _takes(fd: int, size: int) -> bool:
    """Whether a write of *size* bytes cannot block. Files have no reader to wait for."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return True
    if size > WHOLE or not hasattr(select, "poll"):
        return False
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return bool(ready.poll(0))


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:  # another program has made it non-blocking
            if hasattr(select, "poll"):
                ready = select.poll()
                ready.register(fd, select.POLLOUT)
                ready.poll(1000)


STANDARD_ERROR: Final = StandardError()
