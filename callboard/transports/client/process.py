"""A server that is a process of ours: spoken to over its pipes, watched, and never left behind.

Its death is noticed twice: by the end of its output, and by its exit. A child of its own that keeps the pipe open hides
the first. POSIX only where it speaks of groups; elsewhere the process itself is all there is.
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self, TypeAlias, TypeVarTuple, Unpack

import attrs
import trio

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Hear
from callboard.actors.rate import Rate, RateLimit
from callboard.codecs.lines import MAX_ANSWER, without_blank
from callboard.errors import CannotConnect
from callboard.supervisor import get_logger
from callboard.supervisor.groups import own_nursery
from callboard.transports.client.orphans import GUARD, MARK, end_marked, new_mark
from callboard.transports.lines import LineConnection
from callboard.transports.pipe import line_end, line_start

if sys.platform == "linux":
    import fcntl
    import termios

log = get_logger("callboard.client")

GRACE: Final = 2.0
"""Seconds that a server has to end by itself when its input ends, and once more when it is asked to."""

HURRY: Final = 0.3
"""Seconds that it has when the caller is in a hurry."""

LAST_WORDS: Final = 0.05
"""Seconds between the two signs of a server's death, its exit and the end of what it writes, that are waited for."""

TAIL: Final = 64
"""Lines of a server's stderr that are kept."""

MAX_LINE: Final = 1000
"""Characters of such a line that are kept."""

SAID: Final = Rate(100)
"""How many of them are passed on, to the log or a callback. A server may write nothing else."""

INHERITED: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "USER",
    "SYSTEMROOT",
    "APPDATA",
)
"""Variables of our environment that every server gets: enough to run, and none that could be a secret."""

Args = TypeVarTuple("Args")
OnStderr: TypeAlias = Callable[[str], None]

_HAS_GROUPS: Final = os.name == "posix"
_NAMES: Final = {number.value: number.name for number in signal.Signals}  # not all have one


@attrs.frozen(kw_only=True)
class Command:
    """A program to run: an argument list, never a shell's line."""

    args: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str | None = None

    @classmethod
    def of(cls, args: Sequence[str]) -> Self:
        """Raises `CannotConnect` for an empty one."""
        if not args:
            raise CannotConnect("empty command")
        return cls(args=tuple(args))


@attrs.define(eq=False)
class ProcessLink(DuplexLink):
    """A link to a process. When it dies, every waiter hears how."""

    process: trio.Process = attrs.field(kw_only=True)
    tail: deque[str] = attrs.field(factory=lambda: deque(maxlen=TAIL), init=False)

    async def listen(self, hear: Hear) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._wait_exited, nursery.cancel_scope)
                await self.read(hear)
                with trio.move_on_after(LAST_WORDS):  # how it ended is worth a moment
                    await self.process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.lose(self._how())

    async def why_broken(self, error: str) -> str:
        with trio.move_on_after(LAST_WORDS):
            await self.process.wait()
        self.is_unread = True
        self.lose(self._how())
        return self.lost

    def lose(self, why: str) -> None:
        self.is_unread = self.is_unread or _holds_bytes(self.process.stdin)
        super().lose(why)

    async def _wait_exited(self, whole: trio.CancelScope) -> None:
        await self.process.wait()
        await trio.sleep(LAST_WORDS)  # what it wrote before it died may still be read
        whole.cancel()

    def _how(self) -> str:
        code = self.process.returncode
        if code is None:
            return "the server closed its output"
        if code < 0:
            return f"the server was killed by {_NAMES.get(-code) or f'signal {-code}'}"
        return f"the server exited with {code}"


@asynccontextmanager
async def running(command: Command, on_stderr: OnStderr | None = None) -> AsyncIterator[ProcessLink]:
    """Run *command* for as long as the block lasts; *on_stderr* is given each line of its standard error.

    Raises `CannotConnect` if it cannot be started.
    """
    mark = new_mark()
    env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(command.env) | {MARK: mark}
    try:
        process = await trio.lowlevel.open_process(
            list(command.args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=command.cwd,
            start_new_session=_HAS_GROUPS,
        )
    except OSError as error:
        culprit = command.cwd if command.cwd is not None and error.filename == command.cwd else command.args[0]
        raise _not_started(
            f"{culprit}: {error.strerror or error}", error.strerror or "operating system error"
        ) from None
    except ValueError as error:
        told = f"{command.args[0]}: invalid arguments: {error}"
        raise _not_started(told, "invalid arguments") from None
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise CannotConnect(f"{command.args[0]}: no pipes")
    connection = LineConnection(line_start(process.stdout), line_end(process.stdin), MAX_ANSWER)
    link = ProcessLink(connection, command.args[0], process=process)
    heard = trio.Event()

    async def hear(stderr: trio.abc.ReceiveStream) -> None:
        try:
            async with stderr:
                await _read_stderr(stderr, link.tail, command.args[0], on_stderr)
        finally:
            heard.set()

    async with own_nursery() as nursery:
        nursery.start_soon(hear, process.stderr)
        try:
            if _HAS_GROUPS:
                await _in_thread(GUARD.watch, process.pid)
            yield link
        finally:
            await _stop(process, mark)  # heard meanwhile: it may say why, and blocks for ever if it is not read
            with trio.move_on_after(LAST_WORDS):  # a child that left its group may hold the pipe open
                await heard.wait()
        nursery.cancel_scope.cancel()


def _holds_bytes(stdin: trio.abc.SendStream | None) -> bool:
    """Whether something in the pipe has not been read. Only Linux can tell at this end of it; elsewhere: no."""
    if sys.platform != "linux" or not isinstance(stdin, trio.lowlevel.FdStream) or stdin.fileno() < 0:
        return False
    unread = fcntl.ioctl(stdin.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(unread, sys.byteorder) > 0


async def _read_stderr(stderr: trio.abc.ReceiveStream, tail: deque[str], name: str, on_stderr: OnStderr | None) -> None:
    def say(text: str) -> None:
        if on_stderr is None:
            log.debug("server_stderr", peer=name, text=text)
        else:
            on_stderr(text)

    partial, meters, left_out = b"", RateLimit(SAID), 0
    async for data in stderr:
        *lines, partial = without_blank(partial + data).split(b"\n")
        partial = partial[-MAX_LINE:]
        tail.extend(_text(line) for line in lines[-TAIL:])
        now = trio.current_time()
        for number, line in enumerate(lines):
            if not meters.allow(None, now):
                left_out += len(lines) - number
                break
            if left_out:
                say(f"({left_out} lines omitted)")
                left_out = 0
            say(_text(line))
    if partial:
        tail.append(_text(partial))
        say(_text(partial))


def _text(line: bytes) -> str:
    return line[:MAX_LINE].decode("utf-8", "replace").rstrip()


async def _stop(process: trio.Process, mark: str) -> None:
    """End its input, then ask it, then make it: with its whole group. Never leaves a child behind, and has not much
    patience with one if it is cancelled: a caller in such a hurry may be gone in a moment."""
    try:
        await _ask_to_end(process)
    finally:
        with trio.CancelScope(shield=True):  # bounded: a short grace, then SIGKILL
            if process.returncode is None:
                _signal(process, signal.SIGTERM)
                with trio.move_on_after(HURRY):
                    await process.wait()
            _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))  # grandchildren too; harmless if all are gone
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
            if _HAS_GROUPS:
                await _in_thread(_sweep, process.pid, mark)


def _not_started(told: str, brief: str) -> CannotConnect:
    """The text for the operator, and *brief*, without paths, for clients."""
    failure = CannotConnect(told)
    failure.for_operator = told
    failure.brief = f"cannot start the server: {brief}"
    return failure


async def _in_thread(act: Callable[[Unpack[Args]], None], *args: *Args) -> None:
    """With a limiter of its own: all threads may be busy with handlers, for as long as those like."""
    await trio.to_thread.run_sync(act, *args, limiter=trio.CapacityLimiter(1))


def _sweep(pid: int, mark: str) -> None:
    """See to what the server has left behind. In a thread."""
    end_marked(mark)
    GUARD.forget(pid)


async def _ask_to_end(process: trio.Process) -> None:
    if process.stdin is not None:
        await process.stdin.aclose()
    for asks in (False, True):
        if asks:
            _signal(process, signal.SIGTERM)
        with trio.move_on_after(GRACE):
            await process.wait()
            break


def kill(process: trio.Process) -> None:
    """End it at once, and with it all that it has started: as if it had crashed."""
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _signal(process: trio.Process, number: signal.Signals) -> None:
    try:
        if _HAS_GROUPS:
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.send_signal(number)
    except (ProcessLookupError, PermissionError):
        return  # the process is gone
