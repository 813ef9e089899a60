"""How changes reach many subscribers: in slices, and no faster than prompt readers can take them.

A change for a few subscribers is told at once. What is told to thousands, or told while a subscriber is behind, goes
through one queue, which an actor works off between other tasks. So a burst is kept once, and not once for each of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, Never, Protocol, TypeAlias

import attrs
import trio

from callboard.actors.changes import MORE, Change, Hear, News
from callboard.errors import SupervisorClosed
from callboard.supervisor import Actor, Fact, Lost, Supervisor, get_logger

SLICE: Final = 100
"""Subscribers that are told of changes before others get a turn: each writes in the next one, in 50 us or so."""

HELD: Final = 10_000
"""Different changes that wait for the subscribers of one server. Beyond that they hear only that more has changed."""

SOURCE_WAITS: Final = 500
"""Changes in the queue from which on a backend's connection is not read for a moment."""

BEHIND: Final = 256
"""Changes that wait for one subscriber from which on it is behind."""

PATIENCE: Final = 0.1
"""Seconds for which changes are held back for a subscriber that is behind, and a backend's connection is not read."""

NO_PATIENCE: Final = 30.0
"""Seconds for which a subscriber that was waited for in vain is not waited for again."""

log = get_logger("callboard.actors")

Tell: TypeAlias = Callable[[], Collection[Hear]]
"""The subscribers to tell, as of now."""


class Topics(Protocol):
    """A table of subscribers."""

    def followers(self) -> Iterable[Hear]:
        """All subscribers of any resource in it: if changes had to be given up, they hear that more has changed."""


@attrs.define(eq=False)
class SubscriberPace:
    """Whether one subscriber keeps up. It is waited for if it mostly does."""

    fan_out: "FanOut"
    _patience_from: float = attrs.field(default=0.0, init=False)

    def fall_behind(self) -> None:
        """More waits for it than it should."""
        if trio.current_time() >= self._patience_from:
            self.fan_out.behind[self] = None

    def catch_up(self) -> None:
        """No notification waits, or the relay has ended."""
        if self.fan_out.behind.pop(self, self) is None and not self.fan_out.behind:
            self.fan_out.ease()

    def give_up(self) -> None:
        """It was waited for in vain."""
        self._patience_from = trio.current_time() + NO_PATIENCE


@attrs.define(eq=False)
class FanOut:
    """The changes of one server that are not told yet, and the subscribers that are behind."""

    supervisor: Supervisor | None = None
    """Supervisor of the relay. Without one, all subscribers are notified at once."""
    behind: dict[SubscriberPace, None] = attrs.field(factory=dict, init=False)
    lost: int = attrs.field(default=0, init=False)
    _queue: OrderedDict[tuple[Hashable, Change], Tell] = attrs.field(factory=OrderedDict, init=False)
    _more: dict[Topics, None] = attrs.field(factory=dict, init=False)
    """The tables with subscribers that were not told of every change."""
    _relays: int = attrs.field(default=0, init=False)
    _is_running: bool = attrs.field(default=False, init=False)
    _eased: trio.Event | None = attrs.field(default=None, init=False)
    _source_patience_from: float = attrs.field(default=0.0, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether a change may be told at once."""
        return not self._is_running and not self.behind

    def publish(self, change: Change, told: Tell, topics: Topics, topic: Hashable) -> int:
        """Tell the subscribers of *topic*, one of *topics*, of *change*. Returns how many there are. Many subscribers
        are told later, and so are all while some are behind."""
        hearers = told()
        is_soon = len(hearers) <= SLICE and self.is_idle
        if is_soon or not hearers or not self._put(change, told, topics, topic):
            for hear in hearers:
                hear(change)
        return len(hearers)

    def _put(self, change: Change, told: Tell, topics: Topics, topic: Hashable) -> bool:
        """Tell of *change* in its turn. If too much waits already, it is lost, and the followers of *topics* are told
        once that more has changed. False if there is no relay to do it."""
        if self._is_running or self._begin():
            if (topic, change) in self._queue:
                return True
            if len(self._queue) >= HELD:
                self._lose(change, topics)
            else:
                self._queue[topic, change] = told
            return True
        return False

    def _begin(self) -> bool:
        try:
            if self.supervisor is not None:
                self._relays += 1
                self.supervisor.spawn(FanOutRelay(self), name=f"fan-out-{self._relays}", shutdown=0)
                self._is_running = True
        except SupervisorClosed:
            return False
        return self._is_running

    def _lose(self, change: Change, topics: Topics) -> None:
        self.lost += 1
        if self.supervisor is not None:
            self.supervisor.dead_letters.add(
                self.supervisor.address.path, change, Lost.OVERFLOWED, at=trio.current_time()
            )
        if topics not in self._more:
            self._more[topics] = None
            log.warning("changes_dropped", waiting=len(self._queue))

    # For the sources of changes.

    async def wait_source(self) -> None:
        """Wait while many changes are not told yet, but never for long: answers come on the same connection."""
        if len(self._queue) < SOURCE_WAITS or trio.current_time() < self._source_patience_from:
            return
        with trio.move_on_after(PATIENCE) as scope:
            while len(self._queue) >= SOURCE_WAITS:
                await self._wait_eased()
        if scope.cancelled_caught:
            self._source_patience_from = trio.current_time() + 10 * PATIENCE

    # For the relay.

    async def relay(self) -> None:
        """Tell of what waits, in order."""
        told = 0
        try:
            while self._queue or self._more:
                await self._wait_caught_up()
                change, hearers = self._next()
                for hear in hearers:
                    hear(change)
                    told += 1
                    if told % SLICE == 0:
                        await trio.lowlevel.checkpoint()
                        if self.behind:
                            await self._wait_caught_up()
                if len(self._queue) < SOURCE_WAITS:
                    self.ease()
        finally:
            self._is_running = False
            self._queue.clear()
            self.ease()

    def _next(self) -> tuple[News, list[Hear]]:
        if self._queue:
            (_, change), told = self._queue.popitem(last=False)
            return change, list(told())
        topics = next(iter(self._more))
        del self._more[topics]
        return MORE, list(topics.followers())

    async def _wait_caught_up(self) -> None:
        """Wait for the subscribers that are behind; one that does not catch up in time is on its own."""
        if self.behind:
            with trio.move_on_after(PATIENCE):
                while self.behind:
                    await self._wait_eased()
            for pace in list(self.behind):
                pace.give_up()
            self.behind.clear()

    async def _wait_eased(self) -> None:
        if self._eased is None:
            self._eased = trio.Event()
        await self._eased.wait()

    def ease(self) -> None:
        """Wake the waiters: something has changed for the better."""
        if self._eased is not None:
            self._eased.set()
            self._eased = None


@attrs.define(eq=False)
class FanOutRelay(Actor[Never]):
    """Works off the queue, and ends when it is empty."""

    mailbox = None

    fan_out: FanOut

    async def run(self) -> None:
        await self.fan_out.relay()

    def facts(self) -> dict[str, Fact]:
        return {"behind": len(self.fan_out.behind)}
