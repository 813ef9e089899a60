"""The file that audit lines are written to, by a thread: appended to, made for its owner alone, opened anew when it was
moved away."""

import os
import secrets
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from callboard.errors import CannotServe
from callboard.supervisor.audit import ON_STANDARD_ERROR

KEY_SUFFIX: Final = ".key"
KEY_SIZE: Final = 32

_PIPE_BUF: Final = 4096


@attrs.define(eq=False)
class AuditFile:
    """A file, or standard error. Used by one thread at a time, which holds the *lock*. Every method may raise OSError.

    Several processes may append to one file: each writes whole lines at once with O_APPEND, and the kernel lets no
    other write in between. A pipe promises that for 4096 bytes, so that much is written to one at once.
    """

    name: str
    lines: int = attrs.field(default=0, init=False)
    """Lines that are whole in the file: a thread that was not waited for has counted them, too."""
    lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _handle: int = attrs.field(default=-1, init=False)
    _is_torn: bool = attrs.field(default=False, init=False)
    _at_once: int = attrs.field(default=sys.maxsize, init=False)

    def open(self) -> None:
        """Open it anew."""
        with self.lock:
            self._open()

    def _open(self) -> None:
        if self.name == ON_STANDARD_ERROR:
            handle = os.dup(2)
        else:
            # A pipe that has no reader would be waited for, and so would a full one: it is an error, as a full disk is.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(self.name, flags, 0o600)
        self.close()
        self._handle = handle
        self._at_once = sys.maxsize if stat.S_ISREG(os.fstat(handle).st_mode) else _PIPE_BUF

    def close(self) -> None:
        handle, self._handle, self._is_torn = self._handle, -1, False
        if handle >= 0:
            os.close(handle)

    def write(self, lines: Sequence[bytes]) -> int:
        """Append *lines*; how many of them are whole in the file. If only a part of one fits, it is written once more
        by the next call, after an end of line: a reader finds one line that is no JSON."""
        if self._handle < 0 or self._is_moved():
            self.open()
        done = 0
        while done < len(lines):
            count, size = 0, int(self._is_torn)
            while done + count < len(lines) and (not count or size + len(lines[done + count]) <= self._at_once):
                size += len(lines[done + count])
                count += 1
            try:
                whole = self._write(lines[done : done + count])
            except OSError:
                if not done:
                    raise
                break  # the next call says it again
            done += whole
            self.lines += whole
            if whole < count:
                break
        return done

    def _write(self, lines: Sequence[bytes]) -> int:
        start = b"\n" if self._is_torn else b""
        data = start + b"".join(lines)
        try:
            written = os.write(self._handle, data)
        except BlockingIOError:  # a pipe that is not read
            return 0
        if written == len(data):
            self._is_torn = False
            return len(lines)
        part = data[:written]
        if part:
            self._is_torn = not part.endswith(b"\n")
        return part.count(b"\n", len(start))

    def _is_moved(self) -> bool:
        if self.name == ON_STANDARD_ERROR:
            return False
        try:
            return not os.path.samestat(Path(self.name).stat(), os.fstat(self._handle))
        except FileNotFoundError:
            return True


def read_audit_key(file: str) -> bytes:
    """The key of the digests, which lies beside the audit log; made by the first process that needs it. Raises
    `CannotServe`."""
    path = Path(file + KEY_SUFFIX)
    try:
        if not path.exists():
            _make_key(path)
        found = path.stat()
        if os.name == "posix" and found.st_mode & 0o077:
            raise CannotServe(f"{path}: other users can read it; run: chmod 600 {path}")
        key = bytes.fromhex(path.read_text("ascii").strip())
    except OSError as error:
        raise CannotServe(f"{path}: {error.strerror or error}") from None
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise CannotServe(f"{path}: expected {2 * KEY_SIZE} hexadecimal digits")
    return key


def _make_key(path: Path) -> None:
    """At once and whole: another worker may need it now."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(KEY_SIZE) + "\n")
        try:
            os.link(beside, path)
        except FileExistsError:
            return
    finally:
        beside.unlink()
