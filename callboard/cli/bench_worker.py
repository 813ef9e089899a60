"""One process of several that make load: `python -m callboard.cli.bench_worker`, or `callboard bench generator` where
another machine starts it.

It says its version first. Its order is the first line of its standard input, the moment at which to begin is the
second, and the end of the input is the end of it. What it has to say goes to its standard output, a line of JSON each.
"""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import structlog
import trio

from callboard._version import __version__
from callboard.bench.engine import portion_start
from callboard.bench.reports import Counted, CountedTally, Done, Failed, Hello, Met, Report
from callboard.bench.result import BenchResult
from callboard.bench.tally import Tally
from callboard.bench.work import Act, Work
from callboard.cli.arguments import BadArgument
from callboard.cli.bench import read_run
from callboard.cli.bench_flags import Load
from callboard.cli.bench_run import TICK, Driven, Run, settle_down
from callboard.cli.client_run import ClientOptions
from callboard.cli.complaints import MOST_LINES, code_of, told
from callboard.cli.screen import Screen
from callboard.client.client import Common
from callboard.errors import CallboardError

READ_SIZE: Final = 65_536
"""Bytes that are read at once."""


class WorkerOrder(msgspec.Struct):
    """The order of this worker."""

    target: str
    load: dict[str, Any]
    options: dict[str, Any]
    acts: list[dict[str, Any]]
    tokens: list[str]
    part: int
    of: int


def say(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


@attrs.define(eq=False)
class Input:
    """Standard input, by lines. Read as it is: a thread that waits in a buffered one cannot be left behind."""

    _rest: bytes = attrs.field(default=b"", init=False)

    def line(self) -> bytes:
        """The next one; nothing at the end. It may take for ever."""
        while b"\n" not in self._rest:
            data = os.read(sys.stdin.fileno(), READ_SIZE)
            if not data:
                return b""
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


@attrs.define(eq=False, kw_only=True)
class Part(Run):
    """A run that reports instead of showing, and is told when to begin and when to end."""

    input: Input
    _begin: float = attrs.field(default=0.0, init=False)
    _is_told: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.gate = self._wait_begin

    async def go(self) -> BenchResult | None:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            try:
                await super().go()
            except (CallboardError, BadArgument) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self.engine is not None:
            self._report(self.engine)
        return None

    async def _listen(self) -> None:
        line = await trio.to_thread.run_sync(self.input.line, abandon_on_cancel=True)
        if line:
            # The clock of another machine is not ours: it says how long from now.
            seconds = float(line[3:]) if line.startswith(b"in ") else float(line) - time.monotonic()
            self._begin = trio.current_time() + seconds
            self._is_told.set()
            await trio.to_thread.run_sync(self.input.line, abandon_on_cancel=True)
        self.stop()

    async def _wait_begin(self) -> float:
        say(Met(revision=self.revision, server=self.server, is_fast=self.is_fast, pids=sorted(self.pids)))
        await self._is_told.wait()
        return self._begin

    async def look(self, engine: Driven) -> None:
        await engine.begun.wait()
        settle_down()
        await trio.sleep_until(engine.started)
        self.watch.begin()
        at = engine.started
        while at < engine.until:
            at = min(at + TICK, engine.until)
            await trio.sleep_until(at)
            self.watch.look()
            self._report(engine)

    def _report(self, engine: Driven) -> None:
        counted, engine.tally = engine.tally, Tally()
        pids = sorted(self.pids)
        tally = msgspec.convert(counted.as_json(), CountedTally)
        say(Counted(tally=tally, in_flight=engine.in_flight, cpu=self.watch.own_cpu, pids=pids))


def _from(identities: Sequence[Common], start: int) -> Sequence[Common]:
    """All of them, beginning with that of this worker's first session: so the workers together take them in turn."""
    start %= len(identities) or 1
    return [*identities[start:], *identities[:start]]


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    heard = Input()
    say(Hello(__version__))
    line = heard.line()
    if not line:
        return 0
    order = msgspec.json.decode(line, type=WorkerOrder)
    said = deque[str](maxlen=MOST_LINES)
    try:
        load, options = Load(**order.load), ClientOptions(**order.options)
        make = partial(Part, input=heard)
        part = read_run(order.target, load, options, Screen(is_quiet=True), said.append, make, order.tokens)
        part.identities = _from(part.identities, portion_start(part.plan.sessions, order.part, order.of))
        part.plan, part.work = part.plan.share(order.part, order.of), Work(tuple(Act(**act) for act in order.acts))
        trio.run(part.go)
        if part.is_interrupted:
            return 1  # what it was to count is missing: the others must not pass for all
    except (CallboardError, BadArgument) as error:
        say(Failed(code=int(code_of(error)), text=told(error), said=list(said)))
        return 1
    say(Done(seconds=0.0 if part.engine is None else part.engine.until - part.engine.started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
