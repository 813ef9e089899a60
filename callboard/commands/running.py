"""One run of `bench`, from connecting to its result, with somebody who watches it and may end it."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio
from msgspec import UNSET

from callboard.bench.engine import Drive, Plan
from callboard.bench.hub import Hub
from callboard.bench.lanes import watched
from callboard.bench.machine import Watch
from callboard.bench.result import Result
from callboard.bench.steps import Scenario
from callboard.bench.work import NothingToDo, Work, harmless
from callboard.client import Client, Common, connect
from callboard.commands.arguments import BadArgument
from callboard.commands.measuring import Moment, View
from callboard.commands.profiles import Profile, Stage
from callboard.errors import CallboardError
from callboard.mcp_servers import Remote
from callboard.server import Server
from callboard.signals import heed_signals
from callboard.targets import Target
from callboard.transports.client.process import Command

TICK: Final = 1.0
"""Seconds between two looks at a run. Each takes a millisecond or two, which the requests of that moment feel."""


@attrs.define(eq=False, kw_only=True)
class Run:
    """What was asked for, and how far it has come."""

    name: str
    there: Command | Remote | Server
    common: Common
    plan: Plan
    work: Work | None
    settings: Mapping[str, Any]
    view: View
    has_timeout: bool = False
    profile: Profile = "steady"
    scenario: Scenario | None = None
    every: float | None = None
    pids: set[int] = attrs.field(factory=set)
    """Processes of the server's: those that are known, and those that are started."""
    is_interrupted: bool = attrs.field(default=False, init=False)
    _watch: Watch = attrs.field(init=False)
    _engine: Drive[Any, Any] | None = attrs.field(default=None, init=False)
    _client: Client | None = attrs.field(default=None, init=False)
    _is_fast: bool = attrs.field(default=False, init=False)
    _result: Result | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = Watch(self.pids)

    async def go(self) -> Result | None:
        """Make the load. Ctrl-C ends it, and what was counted until then is the result; None if that is nothing.

        Raises `BadArgument` if it is not clear what to do, and the `CallboardError` that keeps it from beginning.
        """
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def wait_asked(asked: trio.Event) -> None:
                await asked.wait()
                self.is_interrupted = True
                if self._engine is None:
                    nursery.cancel_scope.cancel()
                else:
                    self._engine.stop()

            with heed_signals(nursery.cancel_scope.cancel) as asked, self.view.shown():
                nursery.start_soon(wait_asked, asked)
                try:
                    await self._go(nursery)
                except (CallboardError, BadArgument) as error:
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return self._result

    async def _go(self, nursery: trio.Nursery) -> None:
        target: Target = self.there
        if isinstance(target, Command):
            target = watched(target, self.common.get("on_stderr"), self.pids)
        self.view.waits("connecting")
        hub = Hub()
        stage = Stage(
            profile=self.profile,
            scenario=self.scenario,
            every=self.every,
            plan=self.plan,
            there=self.there,
            target=target,
            common=self.common,
            on_open=self._opened,
            pids=self.pids,
            hub=hub,
            has_timeout=self.has_timeout,
        )
        needs_work = self.scenario is None and self.profile != "idle"
        engine = self._engine = stage.drive(self.work or (await self._choose(target) if needs_work else None))
        nursery.start_soon(self._look, engine)
        async with hub.running():
            seconds = await engine.run()
        if seconds:
            self._result = self._shown(engine, seconds)

    def _opened(self, client: Client, is_fast: bool = False) -> None:
        self._client, self._is_fast = client, is_fast

    async def _choose(self, target: Target) -> Work:
        async with connect(target, **self.common) as client:
            tools = () if client.server_capabilities.tools is UNSET else await client.tools()
        try:
            return Work((harmless(tools),))
        except NothingToDo as error:
            raise BadArgument(str(error)) from None

    async def _look(self, engine: Drive[Any, Any]) -> None:
        """See how it goes, once in a while, and at the end of the time."""
        await engine.begun.wait()
        self.view.waits("warming up")
        await trio.sleep_until(engine.started)
        self._watch.begin()
        at, answered = engine.started, 0
        while at < engine.until:
            before, at = at, min(at + TICK, engine.until)
            await trio.sleep_until(at)
            self._watch.look()
            count = engine.tally.count
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

    def _shown(self, engine: Drive[Any, Any], seconds: float) -> Result:
        info = None if self._client is None else self._client.server_info
        return Result(
            target=self.name,
            work=str(engine.work),
            revision="" if self._client is None else self._client.revision.value,
            server="a server without a name" if info is None else f"{info.name} {info.version}".strip(),
            seconds=seconds,
            tally=engine.tally,
            figures=engine.figures,
            settings={**self.settings, "generator": "prepared requests" if self._is_fast else "client"},
            generator_cpu=self._watch.own_cpu,
            server_rss=self._watch.rss,
            # Of processes that are gone nothing is told.
            server_cpu=None if self.profile in ("churn", "chaos") else self._watch.server_cpu,
        )
