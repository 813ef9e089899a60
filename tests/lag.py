"""How long the event loop is kept by one task at a time: in seconds of CPU, which others on the machine do not add to."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

STALL = 0.05
"""Longest that one message may keep the event loop, in seconds."""


@attrs.define(eq=False)
class Lag(trio.abc.Instrument):
    """The longest step of any task."""

    longest: float = 0.0
    culprit: str = ""
    _began: float = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._began
        if took > self.longest:
            self.longest, self.culprit = took, task.name


@contextmanager
def lag() -> Iterator[Lag]:
    """Watch the loop for the length of the block."""
    watched = Lag()
    trio.lowlevel.add_instrument(watched)
    try:
        yield watched
    finally:
        trio.lowlevel.remove_instrument(watched)
