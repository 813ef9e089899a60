"""Many connections, heard by one task: a generator that wakes a task for each answer spends most of its time on that.

The system tells of all connections that have something to say in one go, and each is looked at by a plain function,
which may well make its next request right there. Linux, macOS and the BSDs; elsewhere there is no such thing, and the
client makes the load.
"""

import select
import selectors
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from callboard.bench.work import Act
from callboard.errors import CallboardError
from callboard.supervisor.groups import own_nursery

IN_A_TURN: Final = 64
"""Connections that are heard before other tasks, such as the one that sends at a rate, get their turn."""

LONGEST_TURN: Final = 0.005
"""Seconds after which other tasks get their turn, in any case."""

LINGER: Final = 0.001
"""Seconds for which the next answer is waited for outside of Trio, unless a task has a moment to keep."""

COARSE: Final = 0.002
"""Seconds before a moment at which Trio is trusted to wake up in time. It rounds to milliseconds."""

MOST_DESCRIPTORS: Final = 1024
"""Descriptors beyond that cannot be waited for with a precise timeout."""

Settled: TypeAlias = Callable[[CallboardError | None], None]
"""Is called once, when a request has been answered, with what is wrong about it."""


class QuickLane(ABC):
    """A session in which a request is begun at once, and its end calls back: no task waits for it."""

    hub: "Hub"

    @property
    @abstractmethod
    def is_lost(self) -> bool: ...

    @abstractmethod
    def begin(self, act: Act, settled: Settled) -> None:
        """Make a request. *settled* is called unless the lane is closed before; at once only if the lane is lost."""

    async def do(self, act: Act) -> None:
        """For tasks that do wait. Raises what went wrong."""
        outcome = LaneOutcome()
        self.begin(act, outcome.settle)
        await outcome.wait()


class QuickWire(Protocol):
    """A socket or pipe, as the hub needs it: one task reads all of them."""

    def fileno(self) -> int: ...

    def receive_nowait(self) -> bytes | None: ...

    def write(self, data: bytes) -> bool: ...

    async def finish(self) -> None: ...


def is_possible() -> bool:
    """Whether this system has what a hub needs: something that tells of many descriptors, and is one itself."""
    return hasattr(selectors.DefaultSelector, "fileno")


@attrs.define(eq=False)
class Hub:
    """Hears of connections that have something to say, and tells their lanes."""

    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _descriptor: int = attrs.field(init=False)
    _heard_at: float = attrs.field(default=0.0, init=False)
    _sleepers: int = attrs.field(default=0, init=False)
    _is_turning: bool = attrs.field(default=False, init=False)
    _later: list[Callable[[], None]] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._descriptor = self._selector.fileno()  # type: ignore[attr-defined]  # see `is_possible`

    @property
    def _can_select(self) -> bool:
        return self._descriptor < MOST_DESCRIPTORS

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hear, for as long as the block lasts. What was begun in the background ends with it."""
        try:
            async with own_nursery() as self._nursery:
                self._nursery.start_soon(self._run)
                yield
                self._nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._selector.close()

    def add(self, descriptor: int, heard: Callable[[], None]) -> None:
        """From now on call *heard* whenever there is something to read; once more, perhaps, after it was removed."""
        self._selector.register(descriptor, selectors.EVENT_READ, heard)

    def remove(self, descriptor: int) -> None:
        """Before it is closed."""
        self._selector.unregister(descriptor)

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do in the background what cannot be done without waiting: an async function, which raises nothing."""
        if self._nursery is None:
            raise RuntimeError("the hub is not running")
        self._nursery.start_soon(work)

    def arrived(self) -> float:
        """When what is heard just now was there, on Trio's clock. It may have waited for others to be heard, and that
        is not the server's fault."""
        return self._heard_at if self._is_turning else trio.current_time()

    def at_the_end(self, work: Callable[[], None]) -> None:
        """Do it once all that is heard in this turn has been; at once, outside of a turn."""
        if self._is_turning:
            self._later.append(work)
        else:
            work()

    async def sleep_until(self, moment: float) -> None:
        """Wait for *moment* on Trio's clock, to some microseconds: Trio itself is up to a millisecond late, which would
        be counted as the server's. The last bit is waited for outside of Trio, with an ear to what comes."""
        self._sleepers += 1
        try:
            await self._sleep_until(moment)
        finally:
            self._sleepers -= 1

    async def _sleep_until(self, moment: float) -> None:
        while True:
            left = moment - trio.current_time()
            if left > COARSE or not self._can_select:
                await trio.sleep(left - COARSE if self._can_select else left)
            else:
                await trio.lowlevel.checkpoint()
                left = moment - trio.current_time()
            if left <= 0:
                return
            if left <= COARSE and select.select([self._descriptor], [], [], left)[0]:
                self._heard_at = trio.current_time()
                self._turn(self._selector.select(0))

    async def _run(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            begun = trio.current_time()
            # The next answer is mostly near. To wait for it here is cheaper than by way of Trio, and the server has its
            # next request sooner.
            while ready := self._selector.select(0 if self._sleepers else LINGER):
                self._heard_at = trio.current_time()
                for start in range(0, len(ready), IN_A_TURN):
                    if start:
                        await trio.lowlevel.checkpoint()
                    self._turn(ready[start : start + IN_A_TURN])
                if self._sleepers or trio.current_time() - begun > LONGEST_TURN:
                    await trio.lowlevel.checkpoint()
                    begun = trio.current_time()

    def _turn(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        self._is_turning = True
        for key, _ in ready:
            key.data()
        self._is_turning = False
        for work in self._later:  # which may bring about more of it
            work()
        self._later.clear()


@attrs.define(eq=False)
class LaneOutcome:
    """For tasks that do wait: woken when its request is over."""

    failure: CallboardError | None = attrs.field(default=None, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    def settle(self, failure: CallboardError | None) -> None:
        self.failure = failure
        self._over.set()

    async def wait(self) -> None:
        """Raises what went wrong."""
        await self._over.wait()
        if self.failure is not None:
            raise self.failure
