"""How long the event loop is kept from looking at its sockets: in seconds of CPU, to which others on the machine do not
add."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

STALL = 0.05
"""Longest that one message may keep the event loop, in seconds."""


@attrs.define(eq=False)
class Lag(trio.abc.Instrument):
    """The longest turn of the loop, and the task that took most of it."""

    longest: float = 0.0
    culprit: str = ""
    _turn: float = attrs.field(factory=time.thread_time)
    _step: float = attrs.field(factory=time.thread_time)
    _worst: tuple[float, str] = (0.0, "")

    def after_io_wait(self, timeout: float) -> None:
        self._turn, self._worst = time.thread_time(), (0.0, "")

    def before_io_wait(self, timeout: float) -> None:
        took = time.thread_time() - self._turn
        if took > self.longest:
            self.longest, self.culprit = took, self._worst[1]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._worst = max(self._worst, (time.thread_time() - self._step, task.name))


@contextmanager
def lag() -> Iterator[Lag]:
    """Watch the loop for the length of the block."""
    watched = Lag()
    trio.lowlevel.add_instrument(watched)
    try:
        yield watched
    finally:
        trio.lowlevel.remove_instrument(watched)
