"""One publisher, and many subscribers: how long it takes until all have heard.

An update does not say which change it tells of. So there is one at a time: the next is published when all have heard
of the last, or will not any more.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from callboard.bench.engine import Drive, kind_of
from callboard.bench.lanes import ClientLane
from callboard.bench.seats import PAUSE, Seat
from callboard.bench.work import Act
from callboard.client.subscriptions import ChangeStream
from callboard.errors import CallboardError

BETWEEN: Final = 0.05
"""Seconds between two changes, by default. An update that comes meanwhile was one too many."""

HEARD_WITHIN: Final = 2.0
"""Seconds after which a delivery is lost."""

LISTEN_WITHIN: Final = 60.0
"""Seconds in which all subscribers must listen."""

NOT_DELIVERED: Final = "not delivered"


class NothingHeard(CallboardError):
    """No subscriber hears of what is published. One line says of what."""


@attrs.frozen
class Publication:
    """The tool to call and the expected notification: an update of a resource, or a changed list."""

    act: Act
    uri: str | None = None

    def __str__(self) -> str:
        return f"{self.act}, heard as {f'an update of {self.uri}' if self.uri else 'a changed list'}"


@attrs.define(eq=False)
class _Round:
    """One publication, and the subscribers that have not heard of it yet."""

    due: float
    waiting: set[int]
    all_heard: trio.Event = attrs.field(factory=trio.Event, init=False)


@attrs.define(eq=False)
class Fanout(Drive[Publication, ClientLane]):
    """The last session publishes, all others listen."""

    every: float = BETWEEN
    _round: _Round | None = attrs.field(default=None, init=False)
    _listening: int = attrs.field(default=0, init=False)
    _all_listen: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def sessions(self) -> int:
        return self.plan.sessions + 1

    @property
    def figures(self) -> Mapping[str, float]:
        return {
            "published": 0.0,
            "listeners": float(self.plan.sessions),
            "lost_deliveries": 0.0,
            **super().figures,
        }

    async def rehearse(self, seats: Sequence[Seat[ClientLane]]) -> None:
        """All subscribers must hear of one change, or it is the wrong one."""
        async with trio.open_nursery() as nursery:
            for seat in seats[:-1]:
                nursery.start_soon(self._try_listening, seat)
        async with trio.open_nursery() as nursery:
            for seat in seats[:-1]:
                nursery.start_soon(self._listen, seat)
            with trio.move_on_after(LISTEN_WITHIN) as scope:
                await self._all_listen.wait()
            if scope.cancelled_caught:
                raise NothingHeard(f"not all sessions could subscribe within {LISTEN_WITHIN:g} s")
            await (await seats[-1].lane()).do(self.work.act)  # raises what makes it fail
            unheard = await self._publish(seats[-1], trio.current_time())
            nursery.cancel_scope.cancel()
        self._listening = 0
        if len(unheard) == self.plan.sessions:
            what = f"an update of {self.work.uri}" if self.work.uri else "a changed list"
            raise NothingHeard(
                f"{self.work.act} succeeded, but no subscriber was notified of {what} within {HEARD_WITHIN:g} s: "
                "--tool must change something, and --read URI must be the resource that it changes"
            )

    async def load(self, seats: Sequence[Seat[ClientLane]], begun: float) -> None:
        self._all_listen = trio.Event()
        async with trio.open_nursery() as nursery:
            for seat in seats[:-1]:
                nursery.start_soon(self._listen, seat)
            await self._all_listen.wait()
            for number in itertools.count():
                pace = self.plan.pace
                due = trio.current_time() if pace is None else begun + pace.due(number)
                if max(due, trio.current_time()) >= self.until:
                    break
                await trio.sleep_until(due)
                await self._publish(seats[-1], due)
                await trio.sleep(self.every if pace is None else 0)
            nursery.cancel_scope.cancel()

    async def _publish(self, seat: Seat[ClientLane], due: float) -> set[int]:
        """One change. The subscribers that did not hear of it."""
        this = self._round = _Round(due, set(range(self.plan.sessions)))
        self.in_flight = len(this.waiting)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._call, seat, due)
            with trio.move_on_after(HEARD_WITHIN):
                await this.all_heard.wait()
        self._round, self.in_flight = None, 0
        if self.is_counted(due):
            self.tally.counts["published"] += 1
            self.tally.counts["lost_deliveries"] += len(this.waiting)
            for _ in this.waiting:
                self.failed(NOT_DELIVERED, due)
        return this.waiting

    async def _call(self, seat: Seat[ClientLane], due: float) -> None:
        lane = await seat.lane()
        began, label = trio.current_time(), str(self.work.act)
        try:
            await lane.do(self.work.act)
            now = trio.current_time()
            if self.is_counted(due):
                self.tally.step(label).succeeded(now - began, now - self.started, is_late=now > self.until)
        except CallboardError as error:
            if self.is_counted(due):
                self.failed(kind_of(error), due, label, str(error))
            if lane.is_lost:
                seat.lose(lane)

    async def _try_listening(self, seat: Seat[ClientLane]) -> None:
        """Raises why that cannot be."""
        async with self._ear(await seat.lane()):
            pass

    async def _listen(self, seat: Seat[ClientLane]) -> None:
        while True:
            lane = await seat.lane()
            try:
                async with self._ear(lane) as changes:
                    self._listening += 1
                    if self._listening >= self.plan.sessions:
                        self._all_listen.set()
                    async for _ in changes:
                        self._heard(seat.number)
            except CallboardError as error:
                self.failed(kind_of(error), trio.current_time(), "listen", str(error))
            if lane.is_lost:
                seat.lose(lane)
            await trio.sleep(PAUSE)

    def _ear(self, lane: ClientLane) -> ChangeStream:
        if self.work.uri is not None:
            return lane.client.listen(resources=[self.work.uri])
        return lane.client.listen(tools=True, prompts=True, lists=True)

    def _heard(self, number: int) -> None:
        this, now = self._round, trio.current_time()
        if this is None or number not in this.waiting:
            if self.is_counted(now):
                self.tally.counts["extra_updates"] += 1
            return
        this.waiting.discard(number)
        self.in_flight = len(this.waiting)
        if self.is_counted(this.due):
            self.tally.succeeded(now - this.due, now - self.started, is_late=now > self.until)
        if not this.waiting:
            this.all_heard.set()
