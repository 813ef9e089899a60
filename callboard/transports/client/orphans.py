"""No process is left behind by a server: not if this process is killed, nor by a child that left the server's group.

If this process dies, of SIGKILL too, the kernel closes the pipe to a guard: a small shell, in a session of its own. It
then ends the groups of all servers that still run. (Linux could send a signal to a child when its parent dies, but
means the thread that started it, and forgets about the child's own children.)

Processes that leave the group are found by a mark in their environment, where `/proc` shows it: on Linux.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import IO, Final

import attrs

from callboard.supervisor import get_logger

log = get_logger("callboard.client")

MARK: Final = "CALLBOARD_SERVER"
"""The environment variable by which a server and all processes that it starts are known."""

GRACE: Final = 0.3
"""Seconds that processes which left their server's group have between SIGTERM and SIGKILL."""

_RUN: Final = secrets.token_hex(8)
_NUMBERS: Final = count(1)
_SHELL: Final = "/bin/sh"
_IS_LINUX: Final = sys.platform == "linux"

# Standard input has lines of "+ PID" and "- PID". Its end, with servers left, is the death of this process: they get a
# second to notice by themselves. $1 is what every mark begins with. The shell that is started ends at once, and leaves
# another one: that is no child of ours, and its end need not be waited for.
_GUARD: Final = r"""
exec 3<&0
{
exec 3<&-
trap '' INT TERM HUP
pids=
while read -r what pid; do
    case $what in
    +) pids="$pids $pid" ;;
    -) rest=
       for one in $pids; do [ "$one" = "$pid" ] || rest="$rest $one"; done
       pids=$rest ;;
    esac
done
[ -n "$pids" ] || exit 0
sleep 1
for one in $pids; do kill -KILL -- "-$one"; done
for file in /proc/[0-9]*/environ; do
    grep -qsF "$1" "$file" || continue
    one=${file#/proc/}
    kill -KILL "${one%/environ}"
done
} <&3 &
"""


def new_mark() -> str:
    """A mark for one server."""
    return f"{_RUN}.{next(_NUMBERS)}."


@attrs.define(eq=False)
class ProcessGuard:
    """The shell that outlives this process. It runs while there are servers to be ended."""

    _pids: set[int] = attrs.field(factory=set, init=False)
    _pipe: IO[bytes] | None = attrs.field(default=None, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def watch(self, pid: int) -> None:
        """End the group of *pid* if this process dies. Takes a moment: to be called in a thread."""
        with self._lock:
            self._pids.add(pid)
            if not self._tell(f"+ {pid}\n"):
                self._start()

    def forget(self, pid: int) -> None:
        """*pid* has ended. To be called in a thread."""
        with self._lock:
            self._pids.discard(pid)
            self._tell(f"- {pid}\n")
            if not self._pids and self._pipe is not None:
                self._pipe.close()
                self._pipe = None

    def _start(self) -> None:
        try:
            shell = subprocess.Popen(  # noqa: S603  # nothing in it comes from outside
                [_SHELL, "-c", _GUARD, "callboard-guard", f"{MARK}={_RUN}."],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            log.warning("orphan_guard_failed", shell=_SHELL, failure=error.strerror)
            return
        shell.wait()
        self._pipe = shell.stdin
        self._tell("".join(f"+ {pid}\n" for pid in self._pids))

    def _tell(self, text: str) -> bool:
        """False if there is no guard (any more)."""
        if self._pipe is None:
            return False
        try:
            self._pipe.write(text.encode())
        except OSError:  # another process has ended it
            self._pipe.close()
            self._pipe = None
            return False
        return True


GUARD: Final = ProcessGuard()
"""This process's."""


def end_marked(mark: str) -> None:
    """End all processes that bear *mark*. Waits for them, but not for long: to be called in a thread."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = list(_marked(mark))
        for pid in found:
            _kill(pid, number)
        until = time.monotonic() + GRACE
        while found and time.monotonic() < until:
            time.sleep(0.01)
            found = [pid for pid in found if _bears(pid, mark)]
        if not found:
            return


def _marked(mark: str) -> list[int]:
    if not _IS_LINUX:
        return []
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if re.fullmatch("[0-9]+", entry.name)]
    return [pid for pid in pids if pid != os.getpid() and _bears(pid, mark)]


def _bears(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it has ended, or is another user's
    return f"{MARK}={mark}".encode() in environment


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
