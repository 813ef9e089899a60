"""Several processes that make load together: each does its share, and says every second what it has counted."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import trio

from callboard.bench.crew_member import LAST_WORDS, SILENCE, CrewMember, WorkerLost
from callboard.bench.engine import LAST_WAIT, LoadPlan
from callboard.bench.reports import BadReport, Counted, Done, Failed, Met, Report, tally_of
from callboard.bench.tally import Tally
from callboard.bench.work import Work
from callboard.supervisor.groups import first_leaf

HEAD_START: Final = 0.2
"""Seconds from the moment at which all are ready to the one at which all begin: each has heard of it by then."""

LAG: Final = 0.1
"""Seconds until what all have counted in a second has been heard."""

LAG_ELSEWHERE: Final = 0.5
"""The same for other machines."""

SPARE: Final = 10
"""Reports that may come beside one for each second: the last ones, and those that a network kept back."""


@attrs.define(eq=False)
class Crew:
    """The processes of one run, which can be looked at and stopped as if it were one."""

    plan: LoadPlan
    work: Work
    members: Sequence[CrewMember]
    on_met: Callable[[Met], None]
    failure_of: Callable[[Failed], Exception]
    pids: set[int]
    """Of the servers that they have started."""
    is_elsewhere: bool = False
    """Whether they may be on other machines. Then their processes and clocks are not ours, and one that is lost after
    the start does not end the others."""
    losses: list[str] = attrs.field(factory=list, init=False)
    """Which were lost, when and why."""
    tally: Tally = attrs.field(factory=Tally, init=False)
    started: float = attrs.field(default=0.0, init=False)
    until: float = attrs.field(default=0.0, init=False)
    begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    stopped: trio.Event = attrs.field(factory=trio.Event, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _begin: float = attrs.field(default=0.0, init=False)
    _seconds: float = attrs.field(default=0.0, init=False)

    async def run(self) -> float:
        """As `Drive.run`. Raises what keeps one of them from beginning, and `WorkerLost`."""
        failure: Exception | None = None
        with self._whole:
            try:
                async with trio.open_nursery() as nursery:
                    for member in self.members:
                        nursery.start_soon(self._employ, member)
            except* Exception as group:  # as `failure_of` has it
                failure = first_leaf(group)
        if failure is not None and not self.stopped.is_set():
            raise failure
        if self.plan.requests is not None and self._seconds:
            self.until = min(self.until, self.started + self._seconds)  # the slowest of them was done then
        return self.elapsed

    def stop(self) -> None:
        """End it now. What was counted stays; what the others say last is waited for."""
        self.stopped.set()
        self.until = min(self.until, trio.current_time())
        for member in self.members:
            member.wait_at_most(LAST_WORDS)
        if not self.begun.is_set():
            self._whole.cancel()

    @property
    def lag(self) -> float:
        return LAG_ELSEWHERE if self.is_elsewhere else LAG

    @property
    def elapsed(self) -> float:
        return max(0.0, min(trio.current_time(), self.until) - self.started) if self.started else 0.0

    @property
    def in_flight(self) -> int:
        return sum(member.in_flight for member in self.members)

    @property
    def others_cpu(self) -> float:
        """Of one core: that of the process which used most."""
        return max(member.cpu for member in self.members)

    @property
    def figures(self) -> Mapping[str, float]:
        return {name: float(count) for name, count in self.tally.counts.items()}

    @property
    def when(self) -> bytes:
        """A moment on the clock that all processes of a machine share; elsewhere, so many seconds from now."""
        return b"in %f\n" % HEAD_START if self.is_elsewhere else b"%f\n" % self._begin

    async def _employ(self, member: CrewMember) -> None:
        try:
            await member.run(self)
        except* WorkerLost as group:
            lost = first_leaf(group)
            if not self.is_elsewhere or not self.begun.is_set():
                raise lost from None
            self.losses.append(f"second {self.elapsed:.0f}: {lost}")
            if len(self.losses) == len(self.members):
                self.until = min(self.until, trio.current_time())

    def hear(self, member: CrewMember, report: Report) -> None:
        """Raises `BadReport`, `WorkerLost`, and what `failure_of` makes of a failure."""
        match report:
            case Met() if not member.is_ready:
                self.on_met(report)
                self._note(member, report.pids)
                member.is_ready = True
                member.be_patient()
                if all(one.is_ready for one in self.members):
                    self._start()
            case Counted() if self.begun.is_set():
                self._count(member, report)
            case Failed():
                if self.is_elsewhere and self.begun.is_set():
                    raise member.lost(f"failed: {report.text}")
                raise self.failure_of(report)
            case Done() if self.begun.is_set():
                member.in_flight = 0
                member.wait_at_most(LAST_WORDS)
                self._seconds = max(self._seconds, report.seconds)
            case _:
                raise BadReport

    def _count(self, member: CrewMember, report: Counted) -> None:
        member.reports += 1
        if member.reports > max(0.0, trio.current_time() - self.started) + SPARE:
            raise member.lost("sent more reports than there were seconds")
        last = int(self.plan.duration + LAST_WAIT) + SPARE
        self.tally.add(tally_of(report.tally, last))
        member.in_flight, member.cpu = report.in_flight, report.cpu
        self._note(member, report.pids)
        member.wait_at_most(LAST_WORDS if self.stopped.is_set() else SILENCE)

    def _note(self, member: CrewMember, pids: Sequence[int]) -> None:
        """The processes of the server, as far as this process has started them."""
        if not self.is_elsewhere:
            self.pids -= member.pids
            member.pids = set(pids)
            self.pids |= member.pids

    def _start(self) -> None:
        self._begin = time.monotonic() + HEAD_START
        self.started = trio.current_time() + HEAD_START + self.plan.warmup
        self.until = self.started + self.plan.duration
        for member in self.members:
            member.wait_at_most(HEAD_START + self.plan.warmup + SILENCE)
        self.begun.set()
