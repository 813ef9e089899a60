"""Signals that ask a process to end, first as a request, then as an order; and the one that asks it to read its files
anew. What a system lacks is left out."""

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

import attrs
import trio

LAST_RESORT: Final = 1.5
"""Seconds after the second signal in which everything may end by itself; then the kernel ends the process."""

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGBREAK")
_HANGUP: Final = "SIGHUP"
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


@attrs.define(eq=False)
class _Heed:
    """Counts signals. Called by Python itself, not by Trio: the author's code may block the loop."""

    token: trio.lowlevel.TrioToken
    asked: trio.Event
    insist: Callable[[], None]
    on_first: Callable[[int], None] | None = None
    heard: int = 0

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.heard += 1
        if self.heard == 1:
            if self.on_first is not None:
                self.token.run_sync_soon(self.on_first, number)
            self.token.run_sync_soon(self.asked.set, idempotent=True)
            return
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, LAST_RESORT)
        self.token.run_sync_soon(self.insist, idempotent=True)


@contextmanager
def heed_signals(
    insist: Callable[[], None], *, ends_with_terminal: bool = False, on_first: Callable[[int], None] | None = None
) -> Iterator[trio.Event]:
    """The event that the first signal sets, after *on_first* was called with its number; the second calls *insist*.
    Only the main thread can hear them.

    SIGHUP is one of them for a program that *ends_with_terminal*, and does not ignore it, as nohup has it.
    """
    asked = trio.Event()
    names = (*_NAMES, _HANGUP) if ends_with_terminal and not _ignores_hangups() else _NAMES
    with _handled(names, _Heed(trio.lowlevel.current_trio_token(), asked, insist, on_first)):
        yield asked


@attrs.define(eq=False)
class _Hangups:
    """Every part of this process that reads its files anew at a SIGHUP. Python has room for one handler."""

    tells: list[Callable[[], None]] = attrs.field(factory=list)
    main: int = 0
    """How many of them listen in the main thread, which alone can handle signals."""
    before: Any = None
    ends_with_terminal: bool = False
    at_terminal: Sequence[int] = ()
    is_ending: bool = False

    def begin(self, tell: Callable[[], None]) -> None:
        self.tells.append(tell)
        if _can_handle(_HANGUP):
            if not self.main:
                self.ends_with_terminal = _has_terminal() and not _ignores_hangups()
                self.at_terminal = [descriptor for descriptor in range(3) if os.isatty(descriptor)]
                self.is_ending = False
                self.before = signal.signal(signal.SIGHUP, self)
            self.main += 1

    def end(self, tell: Callable[[], None]) -> None:
        self.tells.remove(tell)
        if _can_handle(_HANGUP):
            self.main -= 1
            if not self.main:
                signal.signal(signal.SIGHUP, signal.SIG_DFL if self.before is None else self.before)

    def __call__(self, _: int, __: FrameType | None) -> None:
        if self.is_ending:
            return  # the shell has said so, and the kernel does, too: a second SIGTERM would be an order
        if self.ends_with_terminal and not _has_terminal():
            self.is_ending = True
            _write_no_more(self.at_terminal)
            signal.raise_signal(signal.SIGTERM)
        else:
            for tell in tuple(self.tells):
                tell()


_hangups: Final = _Hangups()


@contextmanager
def heed_hangups() -> Iterator[trio.MemoryReceiveChannel[None]]:
    """Where each SIGHUP is heard; several that were not taken yet are one. Where there is none, nothing comes. Any
    number of parts of a process may listen.

    One that came because the terminal was closed is no request: then the process is asked to end, as people expect.
    """
    token = trio.lowlevel.current_trio_token()
    send, receive = trio.open_memory_channel[None](1)

    def tell() -> None:
        with suppress(trio.WouldBlock, trio.BrokenResourceError):
            send.send_nowait(None)

    def tell_soon() -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(tell, idempotent=True)

    with send, receive:
        _hangups.begin(tell_soon)
        try:
            yield receive
        finally:
            _hangups.end(tell_soon)


def _ignores_hangups() -> bool:
    """Whether SIGHUP is ignored, as nohup has it."""
    return hasattr(signal, _HANGUP) and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def _has_terminal() -> bool:
    """Whether there is a terminal that this process belongs to. Without a free descriptor that cannot be told, and then
    it counts as there: a reload too many does less harm than an end that was not asked for."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except AttributeError:
        return False
    except OSError as error:
        return error.errno in _NO_DESCRIPTOR
    return True


def _write_no_more(descriptors: Sequence[int]) -> None:
    """Have what is written to a terminal that is gone end nowhere, instead of in an error. Never raises: it runs in a
    signal handler, and what that raises comes out of any line of the program."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            for descriptor in descriptors:
                os.dup2(nowhere, descriptor)
        finally:
            os.close(nowhere)


def _can_handle(name: str) -> bool:
    return threading.current_thread() is threading.main_thread() and hasattr(signal, name)


@contextmanager
def _handled(names: Sequence[str], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have *handler* called for those signals that there are. Python lets only the main thread do this."""
    numbers = [getattr(signal, name) for name in names if _can_handle(name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
