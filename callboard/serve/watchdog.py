"""A watchdog for the event loop: names the handler that blocks it.

A function that blocks (`time.sleep`, a driver without `await`) in an `async def` stops every other call. The watchdog
is a thread that looks a few times a second whether the loop still turns: calls are not slower for it.
"""

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

import attrs
import trio

from callboard.server.served import Hosted
from callboard.supervisor import get_logger
from callboard.supervisor.quiet_threads import leave_signals_to_main

BLOCKED: Final = 0.5
"""Seconds without a turn of the loop that are worth a line: clients notice them."""

BEAT: Final = 0.2
"""Seconds between two beats of the loop, and between two looks at it."""

MAX_FRAMES: Final = 200
"""Frames of a stack that are looked at: a recursion has thousands."""

_LIBRARIES: Final = ("site-packages", "dist-packages", "<frozen")
_OURS: Final = str(Path(__file__).resolve().parents[1])
_STANDARD: Final = str(Path(threading.__file__).resolve().parent)

log = get_logger("callboard.watchdog")

Handlers: TypeAlias = Callable[[], Mapping[CodeType, str]]
"""The names of the handlers, by their code."""


@attrs.define(eq=False)
class Watchdog:
    """Looks after the loop of one thread, from another one."""

    handlers: Handlers
    clock: Callable[[], float] = time.monotonic
    thread: int = attrs.field(factory=threading.get_ident, init=False)
    _beat: float = attrs.field(default=0.0, init=False)
    _told: float = attrs.field(default=-1.0, init=False)  # the beat after which it was told
    _looked: float = attrs.field(default=0.0, init=False)
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False)

    def beat(self) -> None:
        """The loop turns."""
        self._beat = self.clock()

    def run(self) -> None:
        """Look, until `stop`."""
        leave_signals_to_main()
        self._looked = self.clock()
        while not self._stopped.wait(BEAT):
            self.look()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> None:
        """Say which code runs, if the loop did not turn for too long. Once for each time that it is stuck."""
        now, before = self.clock(), self._looked
        self._looked, beat = now, self._beat
        if now - before > BLOCKED:  # this thread was late, too: the machine, or the whole process, stood still
            return
        if now - beat <= BLOCKED + BEAT or beat == self._told:
            return
        self._told = beat
        frame = sys._current_frames().get(self.thread)  # noqa: SLF001  # there is no other way to a thread's stack
        self._tell(frame, now - beat)

    def _tell(self, frame: FrameType | None, seconds: float) -> None:
        stack = list(islice(_outwards(frame), MAX_FRAMES))
        names = self.handlers()
        handler = next((names[one.f_code] for one in stack if one.f_code in names), None)
        at = next((one for one in stack if _is_authors(one)), None)
        if handler is None and at is None:
            return  # no code of an author: a long answer of our own, or a collection of garbage
        place = "" if at is None else f"{Path(at.f_code.co_filename).name}:{at.f_lineno} {at.f_code.co_name}"
        facts = {} if handler is None else {"handler": handler}
        log.warning(
            "loop_blocked",
            **facts,
            where=place,
            seconds=round(seconds, 1),
            hint="all other calls wait: use await, or a plain `def`, which runs in a thread",
        )


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_authors(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not (any(part in file for part in _LIBRARIES) or file.startswith((_OURS, _STANDARD, "<")))


def handlers_of(server: Hosted) -> Handlers:
    """The names of a server's handlers, when they are needed. A broker has none."""
    registry: Any = getattr(server, "registry", None)

    def found() -> Mapping[CodeType, str]:
        if registry is None:
            return {}
        kinds = (registry.tools, registry.resources, registry.templates, registry.prompts)
        entries = [(name, entry.function) for kind in kinds for name, entry in list(kind.entries.items())]
        # Of a mounted server's the author's own function, and not the one that passes the request on.
        codes = ((name, getattr(inspect.unwrap(function), "__code__", None)) for name, function in entries)
        return {code: name for name, code in codes if code is not None}

    return found


@contextmanager
def watched_loop(server: Hosted) -> Iterator[None]:
    """Watch the loop of this Trio run."""
    dog, scope = Watchdog(handlers_of(server)), trio.CancelScope()

    async def beat() -> None:
        with scope:
            while True:
                dog.beat()
                await trio.sleep(BEAT)

    dog.beat()
    trio.lowlevel.spawn_system_task(beat)
    thread = threading.Thread(target=dog.run, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        dog.stop()
        scope.cancel()
        thread.join(1.0)
