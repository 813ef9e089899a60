"""Signals that ask a process to end, first as a request, then as an order; and the one that asks it to read its files
anew. What a system lacks is left out."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import attrs
import trio

LAST_RESORT: Final = 1.5
"""Seconds after the second signal in which everything may end by itself; then the kernel ends the process."""

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGBREAK")
_HANGUP: Final = "SIGHUP"


@attrs.define(eq=False)
class _Heed:
    """What was heard so far. Called by Python itself, and not by Trio: an author's function may block the loop."""

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

    SIGHUP is one of them for whoever *ends_with_terminal*, and does not ignore it, as nohup has it.
    """
    asked = trio.Event()
    names = (*_NAMES, _HANGUP) if ends_with_terminal and not _ignores_hangups() else _NAMES
    with _handled(names, _Heed(trio.lowlevel.current_trio_token(), asked, insist, on_first)):
        yield asked


@contextmanager
def heed_hangups() -> Iterator[trio.MemoryReceiveChannel[None]]:
    """Where each SIGHUP is heard; several that nobody has taken yet are one. Where there is none, nothing comes.

    One that came because the terminal was closed is no request: then the process is asked to end, as people expect.
    """
    token = trio.lowlevel.current_trio_token()
    ends_with_terminal = _has_terminal() and not _ignores_hangups()
    at_terminal = [descriptor for descriptor in range(3) if os.isatty(descriptor)]
    is_ending = False
    send, receive = trio.open_memory_channel[None](1)

    def tell() -> None:
        with suppress(trio.WouldBlock, trio.BrokenResourceError):
            send.send_nowait(None)

    def hear(_: int, __: FrameType | None) -> None:
        nonlocal is_ending
        if is_ending:
            return  # the shell has said so, and the kernel does, too: a second SIGTERM would be an order
        if ends_with_terminal and not _has_terminal():
            is_ending = True
            _write_no_more(at_terminal)
            signal.raise_signal(signal.SIGTERM)
        else:
            token.run_sync_soon(tell, idempotent=True)

    with send, receive, _handled((_HANGUP,), hear):
        yield receive


def _ignores_hangups() -> bool:
    """Whether somebody has said so, as nohup does."""
    return hasattr(signal, _HANGUP) and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def _has_terminal() -> bool:
    """Whether there is a terminal that this process belongs to."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except (OSError, AttributeError):
        return False
    return True


def _write_no_more(descriptors: Sequence[int]) -> None:
    """Nobody reads there any more, and whoever wrote would hear an error where he meant to say good-bye."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def _handled(names: Sequence[str], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have *handler* called for those signals that there are. Python lets only the main thread do this."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in names if is_main and hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
