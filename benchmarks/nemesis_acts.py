"""What is done to a broker and its backends: the load, and the faults."""

import math
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import trio

from benchmarks.nemesis_fronts import Asked, Front, Outcome
from benchmarks.nemesis_history import History, share
from benchmarks.nemesis_stand import Stand, StandFailed

PATIENCE: Final = 15.0
"""Seconds after which a request counts as hung. A backend that says nothing is given up after `SILENCE`."""

SILENCE: Final = 1.0
"""Seconds that a backend may be silent here."""

NOTICED: Final = 5.0
"""Seconds in which those who wait for a killed backend hear of it, for the act to go on; the checker is stricter."""


@attrs.define(eq=False)
class Run:
    """One broker, one front, one history."""

    stand: Stand
    front: Front
    history: History
    draw: random.Random

    async def ask(self, backend: str, tool: str, **arguments: Any) -> Outcome | None:
        """Ask, and wait for the outcome. None, if there is none in time: the checker will say so."""
        return await self.wait(await self.front.send(backend, tool, **arguments))

    async def wait(self, asked: Asked, within: float = PATIENCE) -> Outcome | None:
        with trio.move_on_after(within):
            await asked.over.wait()
        return asked.outcome

    async def wait_up(self, backend: str) -> None:
        """Ask until it answers: a broker waits for one that is about to come back. Raises StandFailed."""
        with trio.move_on_after(PATIENCE):
            while True:
                outcome = await self.ask(backend, "echo")
                if outcome is not None and outcome.is_result:
                    return
                await trio.sleep(0.02)
        raise StandFailed(f"{backend} is not up:\n{self.stand.words[-4000:]}")

    def kill(self, backend: str) -> None:
        self.history.note("death", self.stand.signal(backend), backend=backend)

    def note_state(self, state: dict[str, float]) -> None:
        self.history.note("state", time.monotonic(), **state)


# Promise 1: kill after kill, each with many in flight.


async def kill_once(run: Run, backend: str, in_flight: int) -> None:
    """Have so many requests wait at a backend, kill it, and see them all end."""
    await run.wait_up(backend)
    waiting = [await run.front.send(backend, "hold") for _ in range(in_flight)]
    await run.ask(backend, "meet", count=in_flight)
    run.kill(backend)
    for asked in waiting:
        await run.wait(asked, NOTICED)


async def kills(run: Run, *, count: int, in_flight: int) -> None:
    """Kill backends in turn, and compare what the broker holds before and after."""
    names = run.stand.names
    for name in names:  # once each, so that everything has been used that is kept
        await kill_once(run, name, in_flight)
    before: dict[str, float] = {}
    for number in range(count):
        if number == count // 2:
            before = await _rested(run, math.inf)
        await kill_once(run, names[number % len(names)], in_flight)
        run.history.note("note", time.monotonic(), **run.stand.state())
    await _rested(run, 10.0, before)


async def _rested(run: Run, within: float, wanted: dict[str, float] | None = None) -> dict[str, float]:
    """Note what the broker holds when all backends are up and nothing is in flight."""
    for name in run.stand.names:
        await run.wait_up(name)
    state = run.stand.state() if wanted is None else await run.stand.wait_state(wanted, within)
    run.note_state(state)
    return state


# Promise 22: one that misbehaves, and its neighbours.

Fault = Callable[[Run, str, float], Awaitable[None]]


async def _silenced(run: Run, bad: str, seconds: float) -> None:
    run.stand.signal(bad, signal.SIGSTOP)
    await _press(run, bad, seconds)
    run.stand.signal(bad, signal.SIGCONT)


async def _killed(run: Run, bad: str, seconds: float) -> None:
    with trio.move_on_after(seconds):
        while True:
            run.kill(bad)
            await run.ask(bad, "echo")


async def _crashes(run: Run, bad: str, seconds: float) -> None:
    """It comes up, and dies of the first call, over and over."""
    with trio.move_on_after(seconds):
        while True:
            await run.ask(bad, "fault", how="crash")
            await run.ask(bad, "echo")


async def _press(run: Run, bad: str, seconds: float) -> None:
    """Ask the bad one all the time, and large things: more than its pipe holds."""
    with trio.move_on_after(seconds):
        while True:
            asked = [await run.front.send(bad, "echo", filler="x" * 20_000) for _ in range(16)]
            for one in asked:
                await run.wait(one, seconds)


def _told(how: str, **more: Any) -> Fault:
    async def fault(run: Run, bad: str, seconds: float) -> None:
        given = {"seconds": seconds, **more} if how in ("flood", "complain") else more
        await run.ask(bad, "fault", how=how, **given)
        await _press(run, bad, seconds)

    return fault


FAULTS: Final[dict[str, Fault]] = {
    "killed": _killed,
    "stopped": _silenced,
    "crash": _crashes,
    "hang": _told("hang"),
    "deaf": _told("deaf"),
    "mute": _told("mute"),
    "orphan": _told("orphan"),
    "garbage": _told("garbage"),
    "no_answer": _told("no_answer"),
    "twice": _told("twice"),
    "other_id": _told("other_id"),
    "drip": _told("drip"),
    "giant": _told("giant"),
    "flood": _told("flood", of="lines"),
    "flood_newlines": _told("flood", of="newlines"),
    "flood_junk": _told("flood", of="junk"),
    "flood_long": _told("flood", of="long"),
    "flood_stderr": _told("complain"),
}


@attrs.define(eq=False)
class Load:
    """Workers that ask the good backends, one request after the other."""

    run: Run
    names: Sequence[str]
    pace: float = 0.002
    seconds: list[float] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)

    async def work(self) -> None:
        draw = self.run.draw
        while True:
            name = draw.choice(self.names)
            kind = draw.random()
            if kind < 0.1:
                outcome = await self.run.ask(name, "read")
            else:
                outcome = await self.run.ask(name, "echo", steps=3 if kind < 0.2 else 0, pad=draw.choice((0, 50, 5000)))
            if outcome is None or not outcome.is_result:
                self.errors.append(f"{name}: {'hung' if outcome is None else outcome.body}")
            else:
                self.seconds.append(outcome.seconds)
            await trio.sleep(draw.random() * 2 * self.pace)

    def figures(self) -> tuple[int, float, float]:
        """How many answers there were since the last look, and what their p50 and p99 took."""
        taken, self.seconds = sorted(self.seconds), []
        return len(taken), share(taken, 0.5), share(taken, 0.99)


@attrs.frozen
class Neighbours:
    """What the good ones were like while the bad one had one fault."""

    fault: str
    answers: int
    p50: float
    p99: float
    errors: tuple[str, ...]

    def line(self) -> str:
        ms = f"p50 {self.p50 * 1000:6.2f} ms, p99 {self.p99 * 1000:6.2f} ms"
        return f"{self.fault:16} {self.answers:6} answers, {ms}, {len(self.errors)} errors"


async def neighbours(run: Run, *, faults: Sequence[str], seconds: float, workers: int = 8) -> list[Neighbours]:
    """Give the first backend one fault after the other, and watch the others. The first figure is without a fault."""
    bad, *good = run.stand.names
    load = Load(run, good)
    found: list[Neighbours] = []

    def look(fault: str) -> None:
        found.append(Neighbours(fault, *load.figures(), tuple(load.errors)))
        load.errors.clear()

    async with trio.open_nursery() as nursery:
        for _ in range(workers):
            nursery.start_soon(load.work)
        await trio.sleep(seconds)
        look("none")
        for fault in faults:
            run.history.note("note", time.monotonic(), fault=fault)
            await FAULTS[fault](run, bad, seconds)
            look(fault)
            run.kill(bad)
            await run.wait_up(bad)
            load.figures()
        nursery.cancel_scope.cancel()
    return found


# All at once, for as long as one likes.


async def storm(run: Run, *, seconds: float, every: float, workers: int = 8) -> list[Neighbours]:
    """Faults drawn by lot on all but the last two backends, while everybody is asked. The last two must not notice."""
    *bad, one, other = run.stand.names
    load, rough = Load(run, (one, other)), Load(run, bad, pace=0.01)
    for name in run.stand.names:
        await run.wait_up(name)
    run.note_state(run.stand.state())
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number in range(workers):
                nursery.start_soon((load, rough)[number % 2].work)
            while True:
                name, fault = run.draw.choice(bad), run.draw.choice(list(FAULTS))
                run.history.note("note", time.monotonic(), fault=fault, backend=name)
                await FAULTS[fault](run, name, every)
                run.kill(name)
    return [Neighbours("storm", *load.figures(), tuple(load.errors))]
