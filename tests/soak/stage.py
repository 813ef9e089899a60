"""A broker with its backends and one front, for what is more particular than an act of the nemesis."""

import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from benchmarks.nemesis import Plan, opened
from benchmarks.nemesis_acts import Run
from benchmarks.nemesis_history import Checker, History, Verdict
from benchmarks.nemesis_stand import NOTHING_SAID, standing


@attrs.define(eq=False)
class Scene:
    """One run, and its history in memory."""

    run: Run
    facts: io.StringIO

    def verdict(self) -> Verdict:
        """What the checker says of it so far."""
        for name in self.run.stand.names:
            self.run.history.take_in(self.run.stand.journal(name))
        return Checker().check([json.loads(line) for line in self.facts.getvalue().splitlines()])


@asynccontextmanager
async def scene(
    names: Sequence[str] = ("b0",),
    *options: str,
    front: str = "ws",
    flags: Sequence[str] = (),
    in_flight: int = 200,
    stdio: bool = False,
    process: Mapping[str, Any] = NOTHING_SAID,
    **settings: Any,
) -> AsyncIterator[Scene]:
    """A broker until the block ends. *options* are its own, *flags* and *settings* its backends', *process* is how it
    is started."""
    facts = io.StringIO()
    history = History(facts)
    plan = Plan(front=front, in_flight=in_flight)
    said = {"share": "all", **settings}
    async with (
        standing(names, "--grace", "1", *options, flags=flags, settings=said, stdio=stdio, process=process) as stand,
        opened(plan, stand, history) as run,
    ):
        yield Scene(run, facts)
