"""stdio: the process itself is the server, its standard input and output are the connection.

Standard output belongs to the protocol. So both descriptors are taken away from all else first: what a handler, a
C library or a child process prints goes to standard error, and what they read is empty.
"""

import io
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Never, TextIO

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.actors.server.session_tree import open_session
from callboard.codecs.lines import MAX_FRAME
from callboard.errors import CannotServe
from callboard.supervisor import Actor, Supervisor, get_logger
from callboard.supervisor.standard_error import STANDARD_ERROR
from callboard.transports.lines import ByteStream, LineConnection
from callboard.transports.pipe import PipeEnd

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

IN: Final = 0
OUT: Final = 1
ERR: Final = 2

log = get_logger("callboard.transports")


@attrs.frozen
class Pipes:
    """The descriptors that lead to the parent process."""

    incoming: int
    outgoing: int


@contextmanager
def claim_stdio() -> Iterator[Pipes]:
    """Have standard input and output for the protocol alone, until the block ends. Raises `CannotServe`."""
    with ExitStack() as stack:
        try:
            pipes = Pipes(os.dup(IN), os.dup(OUT))
        except OSError:
            raise CannotServe("stdio: standard input or output is closed") from None
        for fd in attrs.astuple(pipes):
            stack.callback(os.close, fd)
        stack.enter_context(_others_elsewhere(pipes))
        yield pipes


@contextmanager
def _others_elsewhere(pipes: Pipes) -> Iterator[None]:
    """Redirect prints to standard error, and reads to an empty file, also for child processes."""
    printed = sys.stdout
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, IN)
    try:
        os.dup2(ERR, OUT)
    except OSError:  # there is no standard error
        os.dup2(nothing, OUT)
    os.close(nothing)
    _flush(printed)  # what was printed before, and not written yet, is no frame either
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Stray(OUT, "w", closefd=False)), "utf-8", line_buffering=True)
    try:
        yield
    finally:
        _flush(sys.stdout)
        sys.stdout = printed
        _flush(printed)
        os.dup2(pipes.incoming, IN)
        os.dup2(pipes.outgoing, OUT)


def _flush(file: TextIO | None) -> None:
    if file is not None:
        with suppress(OSError, ValueError):  # it has no reader, or is closed
            file.flush()


class _Stray(io.FileIO):
    """Standard output as handlers see it: it leads to standard error, and says so once. A handler that prints does not
    block all others where that is not read."""

    has_said_so = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if not self.has_said_so:
            self.has_said_so = True
            log.warning("stdout_redirected", hint="stdout is used by the protocol: printed text goes to stderr")
        data = bytes(data)
        STANDARD_ERROR.write(data)
        STANDARD_ERROR.flush()
        return len(data)


class ThreadStream:
    """A descriptor that cannot be waited for, or must not be made non-blocking: threads read and write it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await trio.to_thread.run_sync(os.read, self._fd, max_bytes or 1, abandon_on_cancel=True)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from None

    async def send_all(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[await trio.to_thread.run_sync(os.write, self._fd, left, abandon_on_cancel=True) :]
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from None


@asynccontextmanager
async def open_fd(fd: int) -> AsyncIterator[ByteStream]:
    """A stream over *fd*, which stays open.

    Pipes and sockets are made non-blocking meanwhile. Files cannot be waited for; and a terminal shares its flags with
    the shell and with standard error, where a log line would fail in the middle.
    """
    mode = os.fstat(fd).st_mode
    if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        stream = trio.lowlevel.FdStream(os.dup(fd))
        try:
            yield PipeEnd(stream)
        finally:
            stream.close()  # and its flags are as they were
    else:
        yield ThreadStream(fd)


@attrs.define(eq=False)
class Stdio(Actor[Never]):
    """Serves the one peer at the other end of the pipes. Ends when that peer does."""

    mailbox = None

    host: Host
    pipes: Pipes
    limit: int = MAX_FRAME
    _session: Supervisor | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        async with open_fd(self.pipes.incoming) as incoming, open_fd(self.pipes.outgoing) as outgoing:
            connection = LineConnection(incoming, outgoing, self.limit)
            self._session = await open_session(self.host, connection, "stdio")
            await self._session.address.wait_ended()

    def on_stop(self) -> None:
        if self._session is not None:
            self._session.address.begin_stop()
