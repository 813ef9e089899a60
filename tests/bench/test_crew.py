"""Several processes that make load as one: what each does, when they begin, and that none is left behind."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard._version import __version__
from callboard.bench.crew import Crew
from callboard.bench.crew_member import CrewMember, WorkerLost
from callboard.bench.engine import LoadPlan, portion
from callboard.bench.pace import Pace
from callboard.bench.reports import Failed
from callboard.bench.work import Act, Work
from callboard.errors import CannotConnect
from tests.at_terminal import piped
from tests.observe.test_show_room import Place
from tests.process import CALLBOARD, PATIENCE, Process, started
from tests.served import served
from tests.shared import APPS

APP: Final = str(APPS / "steady.py")
ECHO: Final = ("--tool", "echo", "--args", '{"text": "hello"}')
SECRET: Final = "token-that-nobody-sees"  # noqa: S105
WORK: Final = Work((Act(kind="list"),))

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc to look at")


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_portions_make_up_the_whole_and_are_even(whole: int, of: int) -> None:
    portions = [portion(whole, part, of) for part in range(of)]
    assert sum(portions) == whole
    assert max(portions) - min(portions) <= 1


@given(st.floats(0.1, 10_000), st.floats(0, 20), st.integers(1, 8))
def test_together_they_send_when_one_would(rate: float, ramp: float, of: int) -> None:
    pace = Pace(rate=rate, ramp=ramp)
    shares = [pace.share(part, of) for part in range(of)]
    together = sorted(share.due(number) for share in shares for number in range(20))
    assert together[: 20 * of] == pytest.approx([pace.due(number) for number in range(20 * of)])


def test_of_a_plan_each_has_its_part() -> None:
    plan = LoadPlan(sessions=5, concurrency=9, duration=3, warmup=2)
    parts = [plan.share(part, 4) for part in range(4)]
    assert sum(part.sessions for part in parts) == 5
    assert sum(part.concurrency for part in parts) == 9
    assert {(part.duration, part.warmup) for part in parts} == {(3, 2)}
    assert len({part.seed for part in parts}) == 4


# Processes that are written for it.

HELLO: Final = f"""
import json, os, sys, time
def say(**what): print(json.dumps(what), flush=True)
say(type="hello", version={__version__!r})
order = json.loads(sys.stdin.readline())
def met(): say(type="met", revision="r", server="s", is_fast=True, pids=[])
"""


def crew(script: str, orders: Sequence[Any] = ({}, {}), plan: LoadPlan | None = None) -> Crew:
    def failure_of(failed: Failed) -> Exception:
        return CannotConnect(failed.text)

    return Crew(
        plan=plan or LoadPlan(duration=0.1, warmup=0),
        work=WORK,
        members=[CrewMember([sys.executable, "-c", HELLO + script], json.dumps(order).encode()) for order in orders],
        on_met=lambda _: None,
        failure_of=failure_of,
        pids=set(),
    )


def floats_in(file: str) -> list[float]:
    return [float(word) for word in Path(file).read_text().split()]


async def test_all_are_told_the_same_moment_and_not_before_all_are_ready(tmp_path: Path) -> None:
    script = """
if order["waits"]:
    while not os.path.exists(order["file"] + ".other"): time.sleep(0.01)
else:
    open(order["file"] + ".other", "w").close()
open(order["file"] + order["name"], "w").write(f"{time.monotonic()} ")
met()
open(order["file"] + order["name"], "a").write(sys.stdin.readline())
say(type="done")
"""
    file = str(tmp_path / "told")
    orders = [{"waits": True, "name": "a", "file": file}, {"waits": False, "name": "b", "file": file}]
    with trio.fail_after(PATIENCE):
        await crew(script, orders).run()
    ready, told = zip(*(floats_in(file + name) for name in "ab"), strict=True)
    assert told[0] == told[1]
    assert told[0] > max(ready)


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("met(); sys.stdin.readline(); os.kill(os.getpid(), 9)", WorkerLost, "killed by signal 9"),
        ("sys.exit(3)", WorkerLost, "exit code 3"),
        ("print('what?', flush=True); sys.stdin.read()", WorkerLost, "sent an invalid message"),
        ('say(type="failed", code=3, text="nobody is there", said=[]); sys.exit(1)', CannotConnect, "nobody is there"),
    ],
)
async def test_one_that_fails_is_the_end_of_all(script: str, error: type[Exception], said: str) -> None:
    with trio.fail_after(PATIENCE):
        with pytest.raises(error, match=said):
            await crew(f"if order: \n  met(); sys.stdin.read()\n{script}", [{"stays": 1}, {}]).run()


async def test_one_that_does_not_end_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.bench.crew_member.GRACE", 0.2)
    found = crew("met(); sys.stdin.read(); time.sleep(600)", [{}])
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.run)
            await found.begun.wait()
            nursery.cancel_scope.cancel()


# As a whole.


def test_two_do_what_was_asked_of_one() -> None:
    with served(f"{APP}:server") as house:
        load = ("--rate", "200", "--processes", "2", "--duration", "2s", "--warmup", "200ms", "--json")
        done = piped("bench", house.http, *ECHO, *load)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["requests"] == pytest.approx(400, abs=8)
    assert (told["errors"], told["server"], told["work"]) == ({}, "steady 1.0.0", "call echo")
    assert told["settings"]["processes"] == 2
    assert told["settings"]["load"] == "2 sessions in 2 processes, 200 per second (open loop)"
    assert told["settings"]["generator"] == "prepared requests"
    assert 0 < told["generator_cpu"] < 1.5


@on_linux
def test_those_of_a_command_have_servers_which_are_watched() -> None:
    load = ("--processes", "2", "--duration", "500ms", "--warmup", "100ms", "--json")
    done = piped("bench", f"{APP}:server", *ECHO, *load)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["requests"] > 20
    assert told["server_rss"] > 2**20
    assert told["server_cpu"] > 0


def test_what_is_wrong_is_told_once() -> None:
    done = piped("bench", APP, "--tool", "fail", "--processes", "2")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1] == "callboard: the tool fail failed: it did not work"


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


async def wait_gone(pids: Sequence[int]) -> None:
    """They are nobody's children here, so no event tells."""
    while any(psutil.pid_exists(pid) for pid in pids):  # noqa: ASYNC110
        await trio.sleep(0.01)


@attrs.frozen
class Running:
    """A command with its processes."""

    process: Process
    workers: Sequence[int]


async def running(process: Process) -> Running:
    await process.wait_said(b"1/600 s: ")
    return Running(process, children_of(process.process.pid))


def long_run(url: str) -> Sequence[str]:
    load = ("--processes", "2", "--rate", "100", "--duration", "10m", "--warmup", "0")
    return (*CALLBOARD, "bench", url, *ECHO, *load, "--header", f"X-Secret: {SECRET}")


async def test_ctrl_c_ends_all_of_them_and_what_they_measured_is_shown() -> None:
    with served(f"{APP}:server") as house:
        async with started(*long_run(house.http), "--metrics", "0") as process:
            found = await running(process)
            shown_at = process.words.partition("callboard: metrics at ")[2].split()[0]
            now = await Place({"admin": shown_at}).samples()
            assert now["callboard_bench_request_duration_seconds_count", frozenset()] > 20, "of both processes"
            assert now["callboard_bench_target_rate", frozenset()] == 100
            assert len(found.workers) == 2
            for pid in found.workers:
                assert SECRET not in " ".join(psutil.Process(pid).cmdline())
            process.signal(signal.SIGINT)
            shown = []
            while (line := await process.line()) is not None:
                shown.append(line.decode())
            await wait_gone(found.workers)
    assert process.process.returncode == 130
    rows = dict(line.split("\t") for line in shown)
    assert int(rows["requests"].replace(",", "")) > 20
    assert rows["errors"] == "0"


async def test_none_outlives_whoever_started_it() -> None:
    with served(f"{APP}:server") as house:
        async with started(*long_run(house.http)) as process:
            found = await running(process)
            process.signal(signal.SIGKILL)
            await process.wait()
            await wait_gone(found.workers)


async def test_one_that_is_killed_is_told() -> None:
    with served(f"{APP}:server") as house:
        async with started(*long_run(house.http)) as process:
            found = await running(process)
            os.kill(found.workers[0], signal.SIGKILL)
            assert await process.wait() == 5
            await wait_gone(found.workers)
    assert process.words.splitlines()[-1] == (
        "callboard: a load generator process ended too early (killed by signal 9)"
    )
