"""Signals that ask a process to end: the first is a request, the second an order. What a system lacks is left out."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import attrs
import trio

LAST_RESORT: Final = 1.5
"""Seconds after the second signal in which everything may end by itself; then the kernel ends the process."""

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGBREAK")


@attrs.define(eq=False)
class _Heed:
    """What was heard so far. Called by Python itself, and not by Trio: an author's function may block the loop."""

    token: trio.lowlevel.TrioToken
    asked: trio.Event
    insist: Callable[[], None]
    heard: int = 0

    def __call__(self, _: int, __: FrameType | None) -> None:
        self.heard += 1
        if self.heard == 1:
            self.token.run_sync_soon(self.asked.set, idempotent=True)
            return
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, LAST_RESORT)
        self.token.run_sync_soon(self.insist, idempotent=True)


@contextmanager
def heed_signals(insist: Callable[[], None]) -> Iterator[trio.Event]:
    """The event that the first signal sets; the second calls *insist*. Only the main thread can hear them."""
    asked = trio.Event()
    heed = _Heed(trio.lowlevel.current_trio_token(), asked, insist)
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in _NAMES if is_main and hasattr(signal, name)]
    before = {number: signal.signal(number, heed) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
