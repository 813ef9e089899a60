"""One run of `bench`, from connecting to its result, with a user that watches it and may end it."""

import gc
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard._version import __version__
from callboard.bench.crew import Crew
from callboard.bench.crew_member import CrewMember
from callboard.bench.engine import Drive, LoadPlan, OpenLane
from callboard.bench.found import Probe
from callboard.bench.hub import Hub
from callboard.bench.lanes import watched, within
from callboard.bench.machine import Watch
from callboard.bench.probes import LimitSearch
from callboard.bench.provenance import Provenance
from callboard.bench.reports import Failed, Met
from callboard.bench.result import BenchResult
from callboard.bench.search import Conditions
from callboard.bench.steps import Scenario
from callboard.bench.work import NothingToDo, Work, harmless
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_view import BenchView, Moment
from callboard.cli.codes import Exit
from callboard.cli.profiles import Profile, ProfileStage
from callboard.client.client import Client, Common, connect
from callboard.client.routes import Target
from callboard.config.entry import Remote
from callboard.errors import CallboardError, CannotConnect, CannotServe, ConnectionLost
from callboard.server.server import Server
from callboard.transports.bind import BindAddress
from callboard.transports.client.process import Command
from callboard.transports.signals import heed_signals

Driven: TypeAlias = Drive[Any, Any] | Crew
"""Makes the load, here or elsewhere."""

WORKER: Final = (sys.executable, "-m", "callboard.cli.bench_worker")

_FAILURES: Final[Mapping[int, Callable[[str], Exception]]] = {
    Exit.USAGE: BadArgument,
    Exit.CANNOT_CONNECT: CannotConnect,
    Exit.LOST: ConnectionLost,
}

TICK: Final = 1.0
"""Seconds between two looks at a run. Each takes a millisecond or two, which the requests of that moment feel."""


def settle_down() -> None:
    """Let what is there be looked for garbage once, now, and then no more: in the middle of a run that takes
    milliseconds, which the requests of that moment would feel."""
    gc.collect()
    gc.freeze()


@attrs.define(eq=False, kw_only=True)
class Run:
    """The order of the user, and its progress."""

    name: str
    there: Command | Remote | Server
    common: Common
    plan: LoadPlan
    work: Work | None
    settings: Mapping[str, Any]
    provenance: Provenance
    secrets: Collection[str] = attrs.field(default=(), repr=False)
    """What was sent as a credential. An error of the server may repeat it, and a report must not."""
    view: BenchView
    has_timeout: bool = False
    patience: float = math.inf
    """Seconds in which each session must open."""
    profile: Profile = "steady"
    scenario: Scenario | None = None
    every: float | None = None
    pids: set[int] = attrs.field(factory=set)
    """Processes of the server's: those that are known, and those that are started."""
    processes: int = 1
    order: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The order for each worker process. It may contain secrets."""
    generators: Sequence[Sequence[str]] = ()
    """Commands that start these processes on other machines; without them they run here."""
    identities: Sequence[Common] = attrs.field(default=(), repr=False)
    """Options for each identity, if there are several. *common* are those of the first."""
    conditions: Conditions | None = None
    """Of a search for the highest rate."""
    metrics: BindAddress | None = None
    """Where metrics are served while it lasts."""
    gate: Callable[[], Awaitable[float]] | None = None
    is_interrupted: bool = attrs.field(default=False, init=False)
    watch: Watch = attrs.field(init=False)
    engine: Driven | None = attrs.field(default=None, init=False)
    revision: str = attrs.field(default="", init=False)
    server: str = attrs.field(default="unnamed server", init=False)
    is_fast: bool = attrs.field(default=False, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _result: BenchResult | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.watch = Watch(self.pids)

    async def go(self) -> BenchResult | None:
        """Make the load. Ctrl-C ends it, and what was counted until then is the result; None if that is nothing.

        Raises `BadArgument` if it is not clear what to do, and the `CallboardError` that keeps it from beginning.
        """
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def wait_asked(asked: trio.Event) -> None:
                await asked.wait()
                self.is_interrupted = True
                self.stop()

            self._whole = nursery.cancel_scope
            with heed_signals(nursery.cancel_scope.cancel) as asked, self.view.shown():
                nursery.start_soon(wait_asked, asked)
                try:
                    async with self._telling():
                        await self._go(nursery)
                except (CallboardError, BadArgument) as error:
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return self._result

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Serve metrics meanwhile, if they are wanted. Raises `BadArgument` if that cannot be."""
        if self.metrics is None:
            yield
            return
        from callboard.bench.exporter import serving_metrics  # with a whole HTTP server, which few need
        from callboard.bench.live_metrics import LiveRun

        words = ("profile", "load", "label", "target", "version")
        found = {"target": self.name, "label": self.provenance.label, "version": __version__, **self.settings}
        about = {word: str(found.get(word) or "") for word in words}
        run = LiveRun(about=about, engine=lambda: self.engine, watch=self.watch)
        try:
            async with serving_metrics(self.metrics, run) as url:
                self.view.screen.say(f"callboard: metrics at {url}")
                yield
        except CannotServe as error:
            raise BadArgument(f"--metrics: {error}") from None

    def stop(self) -> None:
        """End it now. What was measured stays."""
        if self.engine is None:
            self._whole.cancel()
        else:
            self.engine.stop()

    async def _go(self, nursery: trio.Nursery) -> None:
        target: Target = self.there
        if isinstance(target, Command):
            target = watched(target, self.common.get("on_stderr"), self.pids)
        self.view.waits("connecting")
        hub = Hub()
        stage = ProfileStage(
            profile=self.profile,
            scenario=self.scenario,
            every=self.every,
            plan=self.plan,
            there=self.there,
            target=target,
            identities=self.identities or [self.common],
            on_open=self._opened,
            pids=self.pids,
            hub=hub,
            has_timeout=self.has_timeout,
            patience=self.patience,
            search=None if self.conditions is None else partial(self._search, self.conditions),
        )
        needs_work = self.scenario is None and self.profile != "idle"
        work = self.work or (await self._choose(target) if needs_work else None)
        engine: Driven
        if (self.processes > 1 or self.generators) and work is not None:
            if self.work is not None and isinstance(self.there, Remote) and not self.generators:
                await self._meet(target)  # so that a login happens once
            engine = self._crew(work)
        else:
            engine = stage.drive(work)
            engine.gate = self.gate
        self.engine = engine
        if not isinstance(engine, LimitSearch):
            nursery.start_soon(self.look, engine)
        async with hub.running():
            seconds = await engine.run()
        if isinstance(engine, LimitSearch):
            self._result = self._at_limit(engine)
            return
        if self.plan.requests is not None:
            self.watch.look()  # it may have ended between two looks
        engine.tally.hide(self.secrets)
        if seconds:
            self._result = self._shown(engine, seconds)

    def _search(self, conditions: Conditions, work: Work, open_lane: OpenLane) -> LimitSearch:
        def measured(seconds: float) -> BenchResult:
            self.watch.look()
            search.tally.hide(self.secrets)
            return self._shown(search, seconds)

        def on_probe(rate: float, probes: Sequence[Probe]) -> None:
            if not probes:
                settle_down()
            self.watch.begin()
            self.view.probe(rate, probes)

        search = LimitSearch(self.plan, work, open_lane, conditions=conditions, measured=measured, on_probe=on_probe)
        return search

    def _at_limit(self, search: LimitSearch) -> BenchResult | None:
        """The run at the highest rate that held, with the whole search."""
        if search.best is None:
            return None
        if search.probes:
            self.view.probe(None, search.probes)
        rate = search.found.rate
        return attrs.evolve(search.best, find_limit=search.found, settings={**search.best.settings, "rate": rate})

    def _opened(self, client: Client, is_fast: bool = False) -> None:
        info = client.server_info
        self.revision, self.is_fast = client.revision.value, is_fast
        self.server = "unnamed server" if info is None else f"{info.name} {info.version}".strip()

    def _crew(self, work: Work) -> Crew:
        acts = [attrs.asdict(act) for act in work.acts]
        orders = [{**self.order, "acts": acts, "part": part, "of": self.processes} for part in range(self.processes)]
        commands = self.generators or [WORKER] * self.processes
        names = [f"generator {number}" if self.generators else "" for number in range(1, self.processes + 1)]
        each = zip(commands, orders, names, strict=True)
        return Crew(
            plan=self.plan,
            work=work,
            members=[CrewMember(command, msgspec.json.encode(order), name) for command, order, name in each],
            on_met=self._met,
            failure_of=self._failure,
            pids=self.pids,
            is_elsewhere=bool(self.generators),
        )

    def _met(self, met: Met) -> None:
        self.revision, self.server, self.is_fast = met.revision, met.server, met.is_fast

    def _failure(self, failed: Failed) -> Exception:
        """The exception for the failure of a worker process, as if it had happened here."""
        on_stderr = self.common.get("on_stderr")
        if on_stderr is not None:
            for line in failed.said:
                on_stderr(line)
        return _FAILURES.get(failed.code, CallboardError)(failed.text)

    async def _meet(self, target: Target) -> None:
        async with within(self.patience, lambda: connect(target, **self.common))():
            pass

    async def _choose(self, target: Target) -> Work:
        async with within(self.patience, lambda: connect(target, **self.common))() as client:
            tools = () if client.server_capabilities.tools is UNSET else await client.tools()
        try:
            return Work((harmless(tools),))
        except NothingToDo as error:
            raise BadArgument(str(error)) from None

    async def look(self, engine: Driven) -> None:
        """See how it goes, once in a while, and at the end of the time."""
        await engine.begun.wait()
        self.view.waits("warming up")
        settle_down()
        await trio.sleep_until(engine.started)
        self.watch.begin()
        at, answered = engine.started, 0
        while at < engine.until:
            before, at = at, min(at + TICK, engine.until)
            await trio.sleep_until(at + engine.lag)
            self.watch.look()
            count = engine.tally.answers_so_far
            shown = self._shown(engine, engine.elapsed)
            self.view.show(
                Moment(
                    elapsed=at - engine.started,
                    duration=self.plan.duration,
                    rate=(count - answered) / (at - before),
                    in_flight=engine.in_flight,
                    result=shown,
                )
            )
            answered = count

    def _shown(self, engine: Driven, seconds: float) -> BenchResult:
        return BenchResult(
            target=self.name,
            work=str(engine.work),
            revision=self.revision,
            server=self.server,
            seconds=seconds,
            tally=engine.tally,
            figures=engine.figures,
            provenance=self.provenance,
            settings={
                **self.settings,
                "generator": "prepared requests" if self.is_fast else "client",
                **({"lost_generators": list(engine.losses)} if isinstance(engine, Crew) and engine.losses else {}),
            },
            generator_cpu=max(self.watch.own_cpu, engine.others_cpu),
            server_rss=self.watch.rss,
            # Of processes that are gone nothing is told.
            server_cpu=None if self.profile in ("churn", "chaos") else self.watch.server_cpu,
        )
