"""Profiles in virtual time: what storms, listeners, idle sessions and kills show of servers that are made for it."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.bench.chaos import JITTER, RECOVERY, Chaos
from callboard.bench.engine import Lane, LoadPlan, OpenLane
from callboard.bench.fanout import HEARD_WITHIN, NOT_DELIVERED, Fanout, NothingHeard, Publication
from callboard.bench.figures import FIGURES
from callboard.bench.idle import PING, Idle, Rest
from callboard.bench.lanes import by_client
from callboard.bench.limits import BadLimit, Limit
from callboard.bench.pace import Pace
from callboard.bench.result import BenchResult
from callboard.bench.seats import LOST, PAUSE, REOPENED
from callboard.bench.storm import CALM, Storm
from callboard.bench.work import Act, Work
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import Load
from callboard.cli.bench_view import notes, rows
from callboard.cli.profiles import check_profile
from callboard.client.client import Client, Common
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import Revision
from callboard.config.entry import Remote
from callboard.errors import ConnectionLost, ServerRefused
from callboard.transports.client.process import Command
from callboard.transports.memory import memory_pair
from tests.bench.figures import result

both_eras = pytest.mark.parametrize("revision", [Revision.V2025_11_25, Revision.V2026_07_28])


def ignore(_: Client) -> None:
    """Nobody is interested."""


# A storm.


@attrs.define(eq=False)
class Harbour:
    """A server whose tool takes its time; it counts those that were taken back."""

    seconds: float = 60.0
    begun: int = 0
    cancelled: int = 0

    def server(self) -> Server:
        server = Server("harbour", version="1")

        @server.tool
        async def wait() -> str:
            self.begun += 1
            try:
                await trio.sleep(self.seconds)
            except trio.Cancelled:
                self.cancelled += 1
                raise
            return "waited"

        return server


WAIT = Work((Act(kind="call", name="wait"),))


@both_eras
async def test_a_storm_cancels_all_calls_at_once_and_no_answer_comes_after(
    autojump_clock: MockClock, revision: Revision
) -> None:
    harbour = Harbour()
    lanes = by_client(harbour.server(), Common(revision=revision), ignore)
    drive = Storm(LoadPlan(sessions=2, concurrency=20, duration=5, warmup=0), WAIT, lanes, every=0.1)
    await drive.run()
    figures = drive.figures
    assert figures["storms"] == pytest.approx(50, abs=1)
    assert figures["cancelled"] == 20 * figures["storms"]
    assert harbour.cancelled == harbour.begun == figures["cancelled"] + 1, "and the one that was tried"
    assert (figures["late_answers"], figures["answered_before"]) == (0, 0)
    assert figures["cancelled_per_second"] == pytest.approx(200, rel=0.05)
    assert drive.tally.step(CALM).count == figures["storms"]
    assert drive.tally.count == pytest.approx(500, rel=0.05), "the bystander asks a hundred times a second"
    assert drive.tally.errors == {}


async def test_a_storm_tells_of_calls_that_were_answered_too_soon(autojump_clock: MockClock) -> None:
    lanes = by_client(Harbour(seconds=0.01).server(), Common(), ignore)
    drive = Storm(LoadPlan(concurrency=10, duration=2, warmup=0), WAIT, lanes, every=0.1, has_bystander=False)
    await drive.run()
    assert drive.figures["answered_before"] == 10 * drive.figures["storms"]
    shown = attrs.evolve(result(0.01), figures=drive.figures, settings={"profile": "storm"})
    assert any("takes longer than --every" in note for note in notes(shown))


@asynccontextmanager
async def deaf() -> AsyncIterator[Link]:
    """A server that answers each call after 0.15 s, whatever it is told meanwhile."""
    there, here = memory_pair()

    async def answer(request: Any, after: float) -> None:
        await trio.sleep(after)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "deaf", "version": "1"},
            },
            "tools/call": {"content": []},
        }
        told = {"jsonrpc": "2.0", "id": request["id"], "result": results.get(request["method"], {})}
        await here.send(json.dumps(told).encode())

    async def serve(nursery: trio.Nursery) -> None:
        async for frame in here:
            assert isinstance(frame, bytes)
            request = json.loads(frame)
            if "id" in request:
                nursery.start_soon(answer, request, 0.15 if request["method"] == "tools/call" else 0.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, nursery)
        yield DuplexLink(there)
        nursery.cancel_scope.cancel()


async def test_a_server_that_answers_cancelled_calls_is_found_out(autojump_clock: MockClock) -> None:
    lanes = by_client(
        TransportRoutes(None, (TransportRoute("deaf", deaf),)), Common(revision=Revision.V2025_11_25), ignore
    )
    plan = LoadPlan(concurrency=10, duration=5, warmup=0)
    drive = Storm(plan, WAIT, lanes, every=0.1, has_bystander=False)
    await drive.run()
    assert drive.figures["cancelled"] == 10 * drive.figures["storms"] > 100
    # Each answer comes while the next storm is on, and is counted behind that. The last one's come too late.
    assert drive.figures["late_answers"] == pytest.approx(drive.figures["cancelled"], abs=20)
    shown = attrs.evolve(result(0.01), figures=drive.figures)
    assert Limit.parse("late_answers>0", "storm").broken_by(shown)
    assert any("cancelled calls were answered" in note for note in notes(shown))


# Listeners.


@attrs.define(eq=False)
class Paper:
    """A server that tells of a change after some time, and only so often."""

    delay: float = 0.5
    left: float = float("inf")

    def server(self) -> Server:
        server = Server("paper", version="1")

        @server.tool
        async def publish(*, ctx: Context) -> str:
            await trio.sleep(self.delay)
            self.left -= 1
            if self.left >= 0:
                ctx.notify_updated("paper://today")
                ctx.notify_changed("tools")
            return "published"

        @server.resource("paper://today")
        async def today() -> str:
            return "news"

        return server


PUBLISH = Act(kind="call", name="publish")


@both_eras
@pytest.mark.parametrize("uri", ["paper://today", None])
async def test_every_listener_hears_of_every_change(
    autojump_clock: MockClock, revision: Revision, uri: str | None
) -> None:
    lanes = by_client(Paper().server(), Common(revision=revision), ignore)
    drive = Fanout(LoadPlan(sessions=5, duration=20, warmup=0), Publication(PUBLISH, uri), lanes, every=0.5)
    seconds = await drive.run()
    assert seconds == 20
    assert drive.figures["published"] == pytest.approx(20, abs=2)
    assert drive.tally.count == 5 * drive.figures["published"]
    assert drive.tally.percentile(50) == pytest.approx(0.5, rel=0.1), "from the begin of the call"
    assert (drive.figures["lost_deliveries"], drive.tally.errors) == (0, {})
    assert drive.tally.steps["call publish"].count == drive.figures["published"]


async def test_who_does_not_hear_in_time_is_counted_as_lost(autojump_clock: MockClock) -> None:
    lanes = by_client(Paper(left=12).server(), Common(), ignore)
    drive = Fanout(LoadPlan(sessions=3, duration=20, warmup=0), Publication(PUBLISH, "paper://today"), lanes, every=0.5)
    await drive.run()
    assert drive.tally.count == 3 * 10, "two were needed to try it"
    lost = drive.figures["lost_deliveries"]
    assert lost == 3 * (drive.figures["published"] - 10) > 3
    assert drive.tally.errors == {NOT_DELIVERED: lost}


async def test_changes_at_a_rate_are_late_if_somebody_hears_late(autojump_clock: MockClock) -> None:
    lanes = by_client(Paper(delay=1.0).server(), Common(), ignore)
    plan = LoadPlan(sessions=2, pace=Pace(rate=2), duration=10, warmup=0)
    drive = Fanout(plan, Publication(PUBLISH, "paper://today"), lanes)
    await drive.run()
    assert drive.tally.longest > 4, "each takes twice as long as there is time"


async def test_a_change_that_nobody_hears_of_is_told_before_there_is_load(autojump_clock: MockClock) -> None:
    lanes = by_client(Paper(left=0).server(), Common(), ignore)
    begun = trio.current_time()
    with pytest.raises(NothingHeard, match="no subscriber was notified of an update of paper://today"):
        await Fanout(LoadPlan(sessions=3), Publication(PUBLISH, "paper://today"), lanes).run()
    assert trio.current_time() - begun < HEARD_WITHIN + 2


async def test_a_publisher_that_fails_is_told_before_there_is_load(autojump_clock: MockClock) -> None:
    lanes = by_client(Paper().server(), Common(), ignore)
    wrong = Publication(Act(kind="call", name="print"), "paper://today")
    with pytest.raises(ServerRefused, match="print"):
        await Fanout(LoadPlan(sessions=3), wrong, lanes).run()


# Sessions that do nothing.


async def test_idle_sessions_are_opened_weighed_and_asked_at_the_end(autojump_clock: MockClock) -> None:
    weights = iter([1000, 5000, 9000])
    seconds = iter([1.0, 3.0])
    drive = Idle(
        LoadPlan(sessions=8, duration=20, warmup=1),
        Rest(),
        by_client(Harbour().server(), Common(), ignore),
        memory=lambda: next(weights),
        cpu=lambda: next(seconds),
    )
    assert await drive.run() == 20
    assert drive.tally.count == 8, "the latencies are those of opening"
    assert drive.tally.steps[PING].count == 8
    assert drive.figures["memory_each"] == 1000
    assert drive.figures["cpu_at_rest"] == pytest.approx(0.1)
    assert (drive.figures[LOST], drive.tally.errors) == (0, {})


async def test_what_cannot_be_known_is_not_guessed(autojump_clock: MockClock) -> None:
    drive = Idle(LoadPlan(sessions=2, duration=5, warmup=0), Rest(), by_client(Harbour().server(), Common(), ignore))
    await drive.run()
    assert not {"memory_each", "cpu_at_rest"} & drive.figures.keys()
    shown = attrs.evolve(result(0.01), figures=drive.figures, settings={"profile": "idle"})
    assert any("--pid" in note for note in notes(shown))
    assert Limit.parse("memory_each>100MB", "idle").broken_by(shown), "what is not known is not within its limit"


async def test_idle_sessions_that_are_lost_are_counted(autojump_clock: MockClock) -> None:
    opened: list[Client] = []
    lanes = by_client(Harbour().server(), Common(), opened.append)
    drive = Idle(LoadPlan(sessions=4, duration=10, warmup=0), Rest(), lanes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drive.run)
        await trio.sleep(3)
        opened[2]._conversation.link.lost = "the server went away"  # what a transport does
        opened[3]._renewals += 1  # what the client does where a session is no connection
    assert (drive.figures[LOST], drive.figures[REOPENED], len(opened)) == (2, 2, 5)


# Processes that die.


@attrs.define(eq=False)
class Victim:
    """A process that answers in a tenth of a second, until it is killed."""

    is_lost: bool = False
    waiting: set[trio.CancelScope] = attrs.field(factory=set)

    async def do(self, act: Act) -> None:
        with trio.CancelScope() as scope:
            self.waiting.add(scope)
            if not self.is_lost:
                await trio.sleep(0.1)
        self.waiting.discard(scope)
        if self.is_lost:
            raise ConnectionLost("the server was killed by SIGKILL")

    def kill(self) -> None:
        self.is_lost = True
        for scope in list(self.waiting):
            scope.cancel()


def victims(start_takes: float, opened: list[Victim]) -> OpenLane:
    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        await trio.sleep(start_takes)
        opened.append(Victim())
        yield opened[-1]

    return open_lane


def killing(at: list[float]) -> Callable[[Lane], None]:
    def kill(lane: Lane) -> None:
        assert isinstance(lane, Victim)
        at.append(trio.current_time())
        lane.kill()

    return kill


async def test_chaos_kills_by_a_schedule_and_tells_how_long_it_takes_to_recover(autojump_clock: MockClock) -> None:
    killed: list[float] = []
    opened: list[Victim] = []
    work = Work((Act(kind="call", name="anything"),))
    plan = LoadPlan(sessions=2, concurrency=4, duration=60, warmup=1)
    drive = Chaos(plan, work, victims(0.7, opened), kill=killing(killed), every=3.0)
    await drive.run()
    figures = drive.figures
    assert figures["kills"] == figures["recovered"] == len(killed) == pytest.approx(20, abs=3)
    assert figures[LOST] == figures[REOPENED] == figures["kills"]
    assert figures["recovery_p50"] == pytest.approx(PAUSE + 0.7 + 0.1, rel=0.05), "a pause, a start and an answer"
    assert figures["requests_lost"] == 2 * figures["kills"], "each session had two in flight"
    assert drive.tally.errors == {"ConnectionLost": figures["requests_lost"]}
    assert drive.tally.steps[RECOVERY].count == figures["kills"]
    gaps = [later - earlier for earlier, later in pairwise(killed)]
    assert all(3 * (1 - JITTER) <= gap <= 3 * (1 + JITTER) for gap in gaps)
    assert len({round(gap, 3) for gap in gaps}) > 5, "not like a clock"


async def test_the_same_seed_kills_at_the_same_times(autojump_clock: MockClock) -> None:
    schedules = []
    for seed in (1, 1, 2):
        killed: list[float] = []
        begun = trio.current_time()
        work = Work((Act(kind="call", name="anything"),))
        await Chaos(LoadPlan(duration=20, warmup=0, seed=seed), work, victims(0.1, []), kill=killing(killed)).run()
        schedules.append([round(at - begun, 6) for at in killed])
    assert schedules[0] == schedules[1] != schedules[2]


# What is typed.

URL = Remote(url="http://127.0.0.1:1/mcp")
COMMAND = Command.of(["server"])


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(profile="idle", lists=True), "it sends no requests"),
        (Load(profile="idle", rate=5), "it sends no requests"),
        (Load(profile="storm", tool=["a"], rate=5), "not --rate"),
        (Load(profile="fanout", tool=["a"], concurrency=5), "--sessions"),
        (Load(every="1s"), "--every is for --profile storm, fanout, chaos"),
        (Load(profile="storm", every="0"), "--every must be greater than 0"),
        (Load(profile="storm", every="often"), "is not a time"),
        (Load(scenario=Path("a.toml"), tool=["a"]), "--scenario excludes --tool"),
        (Load(scenario=Path("a.toml"), profile="churn"), 'session = "each"'),
        (Load(scenario=Path("a.toml"), concurrency=4), "--sessions"),
        (Load(scenario=Path("there/is/none.toml")), "none.toml: No such file"),
        (Load(fail_if=["late_answers>0"]), "only measured by --profile storm"),
        (Load(profile="chaos", fail_if=["recovery_max>3"]), "time without a unit"),
        (Load(profile="idle", fail_if=["memory_each>3"]), "memory without a unit"),
        (Load(fail_if=["sessions_lost>3s"]), "a number without a unit"),
    ],
)
def test_what_makes_no_sense_together_is_told(load: Load, said: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(said)):
        (load.plan(), load.pause(), load.script(), load.limits())


@pytest.mark.parametrize(
    ("load", "there", "said"),
    [
        (Load(profile="storm"), URL, "needs a --tool that takes longer"),
        (Load(profile="chaos"), URL, "the target must be a command"),
        (Load(profile="fanout", tool=["a"]), COMMAND, "callboard run FILE.py:NAME --http"),
        (Load(profile="fanout"), URL, "needs one --tool"),
        (Load(profile="fanout", tool=["a", "b"]), URL, "needs one --tool"),
        (Load(profile="fanout", tool=["a"], read=["r://1", "r://2"]), URL, "needs one --tool"),
        (Load(profile="fanout", tool=["a"], lists=True, read=["r://1"]), URL, "needs one --tool"),
    ],
)
def test_what_a_profile_lacks_is_told(load: Load, there: Remote | Command, said: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(said)):
        check_profile(load.profile, there, load.work())


def test_a_profile_has_as_many_as_it_needs_unless_it_is_said() -> None:
    assert Load(profile="idle").plan().sessions == 10
    assert Load(profile="fanout", sessions=3).plan().sessions == 3
    assert Load(profile="storm").plan().concurrency == 50
    assert Load(profile="storm", every="250ms").pause() == 0.25


# What comes out.


def test_figures_are_shown_written_read_and_held_to_limits(tmp_path: Path) -> None:
    figures = {"late_answers": 3.0, "calm_max": 0.25, "memory_each": 5e6, "cpu_at_rest": 0.031}
    shown = attrs.evolve(result(0.01), figures=figures)
    told = dict(rows(shown))
    assert told["answers after the cancel"] == "3"
    assert told["time to settle, max"] == "250 ms"
    assert told["server memory per session"] == "4.77 MiB"
    assert told["server CPU when idle"] == "3.1% of a core"
    broken = [
        Limit.parse(text, profile).broken_by(shown)
        for text, profile in [
            ("late_answers>0", "storm"),
            ("late_answers>3", "storm"),
            ("calm_max>200ms", "storm"),
            ("calm_max>1s", "storm"),
            ("memory_each>4MB", "idle"),
            ("memory_each>4.9MiB", "idle"),
            ("sessions_lost>0", "idle"),
        ]
    ]
    assert broken == [True, False, True, False, True, False, False]
    assert Limit.parse("memory_each>4MB", "idle").told(shown) == "4.77 MiB"
    shown.tally.succeeded(0.5, 1, step="a step")
    shown.tally.step("a step").counts["cancelled"] += 2
    file = tmp_path / "run.json"
    file.write_text(json.dumps(shown.as_json()))
    read = BenchResult.read(file)
    assert read.figures == figures
    assert read.tally.steps["a step"].count == 1
    assert shown.as_json()["steps"]["a step"]["cancelled"] == 2


def test_every_figure_is_in_a_profile_that_there_is() -> None:
    with pytest.raises(BadLimit, match="unknown figure"):
        Limit.parse("whatever>0")
    assert {figure.profile for figure in FIGURES.values()} == {"", "storm", "fanout", "idle", "chaos", "isolation"}
