"""Faults, and whether the broker keeps what it promises under them.

    python -m benchmarks.nemesis kills --kills 50         processes killed, 200 requests in flight each time
    python -m benchmarks.nemesis neighbours               one backend misbehaves in every way there is, others go on
    python -m benchmarks.nemesis storm --seconds 600      faults by lot, for as long as you like
    python -m benchmarks.nemesis check FILE               judge a history once more

A broker and its backends are started as processes of this machine, reached over loopback, and ended afterwards; nothing
else is touched. Every request that is sent, how it ended, and what the backends executed goes into a history, one fact
to a line, which a checker reads at the end: hung, doubled, misrouted, reordered, repeated, leaked must all be 0. The
history of a run that fails is kept, and its path printed. `--seed` repeats the draws (not the timing) of another run.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.nemesis_acts import FAULTS, PATIENCE, SILENCE, Neighbours, Run, kills, neighbours, storm
from benchmarks.nemesis_fronts import MOST, Scribe, posts, websockets
from benchmarks.nemesis_history import History, Verdict, check, read_history
from benchmarks.nemesis_stand import Stand, standing

MEMORY: Final = 0.05
"""Part of its memory by which the broker may have grown in the end."""
WARM: Final = 500
"""Deaths after which a broker has all that it keeps: what WebSockets may want again, and what an allocator holds."""
FEW_BYTES: Final = 12 << 20
"""What it may have grown by in a run that is shorter than that."""


@attrs.frozen(kw_only=True)
class Plan:
    """How large a run is. All of it is bounded."""

    seed: int = attrs.field(factory=lambda: random.randrange(1 << 32))
    backends: int = 4
    kills: int = 50
    in_flight: int = 200
    seconds: float = 1.0
    faults: tuple[str, ...] = tuple(FAULTS)
    front: str = "ws"
    is_legacy: bool = False
    keeps: bool = False
    """Whether the history stays, also of a run that went well."""
    kept: Path = attrs.field(factory=lambda: Path(tempfile.gettempdir()) / "callboard-nemesis")

    @property
    def lines(self) -> int:
        return -(-self.in_flight // (MOST - 10)) if self.front == "ws" else 1

    @property
    def names(self) -> list[str]:
        return [f"b{number}" for number in range(self.backends)]


@attrs.frozen
class Report:
    """What a run came to. *file* is its history, if that was kept."""

    verdict: Verdict
    neighbours: list[Neighbours]
    file: Path | None

    @property
    def is_well(self) -> bool:
        return not self.verdict.faults and not any(one.errors for one in self.neighbours)

    def text(self) -> str:
        lines = [self.verdict.line(), *(one.line() for one in self.neighbours)]
        lines += [f"{name}: {found[:5]}" for name, found in self.verdict.faults.items()]
        lines += [f"{one.fault}: {one.errors[:3]}" for one in self.neighbours if one.errors]
        return "\n".join(lines + ([] if self.file is None else [f"the history is kept: {self.file}"]))


async def play(act: str, plan: Plan) -> Report:
    """Do it: start everything, misbehave, end everything, and judge. The history stays if it is worth a look."""
    plan.kept.mkdir(parents=True, exist_ok=True)
    file = plan.kept / f"{act}-{plan.seed}-{plan.front}{'-legacy' if plan.is_legacy else ''}.jsonl"
    found: list[Neighbours] = []
    with file.open("w") as written:
        history = History(written)
        flags = ("--legacy",) if plan.is_legacy else ()
        settings: dict[str, Any] = {"share": "all"} | ({} if act == "kills" else {"timeout": SILENCE})
        async with standing(plan.names, "--grace", "1", flags=flags, settings=settings) as stand:
            async with opened(plan, stand, history) as run:
                found = await _act(act, run, plan)
            for name in plan.names:
                history.take_in(stand.journal(name))
            words = stand.words
    memory = MEMORY * _first_memory(file)
    verdict = check(file, memory=memory if plan.kills > WARM and act == "kills" else max(memory, FEW_BYTES))
    report = Report(verdict, found, file)
    if report.is_well and not plan.keeps:
        file.unlink()
        return attrs.evolve(report, file=None)
    file.with_suffix(".log").write_text(words)
    return report


def _first_memory(file: Path) -> float:
    return next((float(fact["memory"]) for fact in read_history(file) if fact["what"] == "state"), 0.0)


async def _act(act: str, run: Run, plan: Plan) -> list[Neighbours]:
    match act:
        case "kills":
            await kills(run, count=plan.kills, in_flight=plan.in_flight)
            return []
        case "neighbours":
            return await neighbours(run, faults=plan.faults, seconds=plan.seconds)
        case _:
            return await storm(run, seconds=plan.seconds, every=0.3)


@asynccontextmanager
async def opened(plan: Plan, stand: Stand, history: History) -> AsyncIterator[Run]:
    """A front to what stands. Leaving it waits for all that is in flight, but not for ever."""
    scribe, draw = Scribe(history), random.Random(plan.seed)
    front = websockets(scribe, stand.ws, max(plan.lines, 4)) if plan.front == "ws" else posts(scribe, stand.http)
    async with front as way:
        yield Run(stand, way, history, draw)
        await scribe.drain(PATIENCE)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nemesis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("act", choices=("kills", "neighbours", "storm", "check"))
    parser.add_argument("file", nargs="?", type=Path, help="the history to check")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="another run's, to repeat its draws"
    )
    parser.add_argument("--backends", type=int, default=4, help="how many there are (default 4)")
    parser.add_argument("--kills", type=int, default=50, help="how often one is killed (default 50)")
    parser.add_argument("--in-flight", type=int, default=200, help="requests that wait there each time (default 200)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each fault, or for the storm (default 1)")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--front", choices=("ws", "http"), default="ws", help="how clients come in (default ws)")
    parser.add_argument("--legacy", action="store_true", help="backends of the legacy era")
    parser.add_argument("--keep", action="store_true", help="keep the history in any case")
    given = parser.parse_args()
    if given.act == "check":
        verdict = check(given.file)
        print(verdict.line(), *verdict.faults.items(), sep="\n")
        return bool(verdict.faults)
    more: dict[str, Any] = {"faults": tuple(given.fault)} if given.fault else {}
    plan = Plan(
        seed=given.seed,
        backends=max(given.backends, 3),
        kills=given.kills,
        in_flight=given.in_flight,
        seconds=given.seconds,
        front=given.front,
        is_legacy=given.legacy,
        keeps=given.keep,
        **more,
    )
    print(f"seed {plan.seed}")
    report = trio.run(play, given.act, plan)
    print(report.text())
    return not report.is_well


if __name__ == "__main__":
    sys.exit(main())
