"""Generators that other commands start: `--generator 'ssh HOST callboard'`. What they may not do, and how they end."""

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest
import trio

from callboard._version import __version__
from callboard.bench import crew as crews
from callboard.bench import crew_member
from callboard.bench.crew import Crew
from callboard.bench.crew_member import CrewMember, OtherVersion, WorkerLost
from callboard.bench.engine import LoadPlan
from callboard.bench.junit import cases
from callboard.bench.reports import Failed, Met
from callboard.bench.result import BenchResult
from callboard.bench.tally import Tally
from callboard.bench.work import Act, Work
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import Load
from callboard.cli.bench_view import notes
from callboard.errors import CannotConnect
from tests.at_terminal import piped
from tests.process import CALLBOARD, PATIENCE, started
from tests.served import served
from tests.shared import APPS

APP: Final = f"{APPS / 'steady.py'}:server"
SECRET: Final = "token-for-one-identity"  # noqa: S105
ECHO: Final = ("--tool", "echo", "--args", '{"text": "hello"}')

SAYS: Final = f"""
import json, os, sys, time
def say(**what): print(json.dumps(what), flush=True)
def hello(): say(type="hello", version={__version__!r}); return sys.stdin.readline()
def met(): say(type="met", revision="r", server="s", is_fast=True, pids=[1]); return sys.stdin.readline()
def counted(**more):
    tally = dict(latencies=EMPTY, late=0, errors={{}})
    tally |= dict(early={{}}, seconds={{}}, examples={{}}, failed={{}}, counts={{}})
    say(type="counted", tally=dict(tally, **more), in_flight=0, cpu=0.5, pids=[1])
EMPTY = "HISTOGRAM"
""".replace("HISTOGRAM", Tally().as_json()["latencies"])
"""What a script needs to take itself for a generator."""

GOOD: Final = """
hello(); told = met(); counted(errors={"asked": 1})
sys.stdin.read(); counted(counts={"leaks": 1}); say(type="done", seconds=1)
"""


def crew(*scripts: str, plan: LoadPlan | None = None) -> Crew:
    def failure_of(failed: Failed) -> Exception:
        return CannotConnect(failed.text)

    def on_met(met: Met) -> None:
        assert met.server == "s"

    members = [
        CrewMember([sys.executable, "-c", SAYS + script], b'{"secret": 1}', f"generator {number}")
        for number, script in enumerate(scripts, 1)
    ]
    return Crew(
        plan=plan or LoadPlan(duration=60, warmup=0),
        work=Work((Act(kind="list"),)),
        members=members,
        on_met=on_met,
        failure_of=failure_of,
        pids=set(),
        is_elsewhere=True,
    )


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("GREETING", 5.0), ("OPENING", 5.0), ("GRACE", 0.2)):
        monkeypatch.setattr(crew_member, name, seconds)
    monkeypatch.setattr(crews, "SILENCE", 1.0)


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        (
            'say(type="hello", version="0.0.1"); sys.stdin.read()',
            OtherVersion,
            f"generator 1 has callboard 0.0.1, and this is {__version__}: they must be equal",
        ),
        ('print("Welcome to host1!", flush=True); sys.stdin.read()', WorkerLost, "sent an invalid message"),
        ('say(type="met", revision="", server="", is_fast=True, pids=[]); sys.stdin.read()', WorkerLost, "an invalid"),
        ("hello(); hello()", WorkerLost, "sent an invalid message"),
        ("hello(); counted(); sys.stdin.read()", WorkerLost, "sent an invalid message"),
        (
            'print("\\033[31mssh: no route to host", file=sys.stderr); sys.exit(255)',
            WorkerLost,
            "generator 1 ended too early (exit code 255): \N{REPLACEMENT CHARACTER}[31mssh: no route to host",
        ),
        ('sys.stdout.write("x" * 10_000_000); sys.stdout.flush()', WorkerLost, "sent an invalid message"),
        ('hello(); say(type="failed", code=3, text="no \\n server", said=[])', CannotConnect, "no server"),
    ],
)
async def test_what_goes_wrong_before_the_start_ends_the_run(
    hasty: None, script: str, error: type[Exception], said: str
) -> None:
    with trio.fail_after(PATIENCE):
        with pytest.raises(error) as caught:
            await crew(script).run()
    assert said in str(caught.value)


async def test_no_secret_is_told_to_what_does_not_greet(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `cat`, which would repeat it."""
    monkeypatch.setattr(crew_member, "GREETING", 0.3)
    with trio.fail_after(PATIENCE):
        with pytest.raises(WorkerLost, match="sent no report in time"):
            await crew("print(sys.stdin.readline(), file=sys.stderr, flush=True); sys.stdin.read()").run()
    found = crew("")
    found.members[0].command = ["/no/ssh", "host"]
    with pytest.raises(WorkerLost, match=r"generator 1 cannot be started: No such file or directory: /no/ssh"):
        await found.run()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("hello(); met(); os.kill(os.getpid(), 9)", "ended too early (killed by signal 9)"),
        ("hello(); met(); print('{', flush=True); sys.stdin.read()", "sent an invalid message"),
        ("hello(); met()\nfor _ in range(10_000): counted()", "sent more reports than there were seconds"),
        ("hello(); met()\nwhile True: sys.stderr.write('x' * 65536)", "sent no report in time"),
        ('hello(); met(); say(type="failed", code=2, text="full", said=[])', "failed: full"),
        ("hello(); met(); counted(seconds={'123456': EMPTY}); sys.stdin.read()", "sent an invalid message"),
    ],
)
async def test_one_that_is_lost_during_the_run_is_told_and_the_others_go_on(
    hasty: None, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    found = crew("hello(); told = met(); counted(errors={told[:5]: 1})\nwhile True: time.sleep(0.1); counted()", script)
    monkeypatch.setattr(crews, "SPARE", 500)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.run)
            while not (found.losses and found.tally.errors):  # noqa: ASYNC110  # these have no event
                await trio.sleep(0.01)
            assert len(found.members) == 2
            nursery.cancel_scope.cancel()
    [loss] = found.losses
    assert loss.startswith("second ")
    assert f"generator 2 {said}" in loss
    assert found.tally.errors["in 0."] == 1, "a time from now on, and not one of a clock"
    assert found.pids == set(), "processes of another machine are none of this one"


async def test_when_all_are_lost_the_run_is_over_and_the_rest_of_a_stopped_one_is_heard(hasty: None) -> None:
    with trio.fail_after(PATIENCE):
        lost = crew("hello(); met(); sys.exit(1)", "hello(); met(); sys.exit(1)")
        assert await lost.run() < 60
        assert len(lost.losses) == 2
        async with trio.open_nursery() as nursery:
            fine = crew(GOOD, GOOD)
            nursery.start_soon(fine.run)
            while fine.tally.errors["asked"] < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
            fine.stop()
    assert (fine.losses, fine.tally.counts["leaks"]) == ([], 2)


def test_a_result_says_that_a_part_of_its_load_is_missing() -> None:
    settings = {"generators": 2, "lost_generators": ["second 3: generator 2 ended too early (exit code 255)"]}
    run = BenchResult(target="", work="", revision="", server="", seconds=9, tally=Tally(), settings=settings)
    assert "a part of the load is missing, from second 3: generator 2 ended too early (exit code 255)" in notes(run)
    assert not run.is_comparable
    [case] = [case for case in cases(run, ()) if case.name == "all generators work to the end"]
    assert "generator 2" in case.failure


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(generator=["ssh a callboard"], processes=2), "--generator excludes --processes"),
        (Load(generator=["ssh a callboard"], find_limit=["p99<1s"]), "--find-limit excludes"),
        (Load(generator=["ssh a callboard"], scenario=Path("x.toml")), "--generator is only for"),
        (Load(generator=["ssh a callboard"] * 3, sessions=2), "at least the number of generators"),
        (Load(generator=["ssh a callboard"] * 65), "64 times"),
    ],
)
def test_flags_that_do_not_go_together(load: Load, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        load.plan()


def test_no_shell_reads_the_command() -> None:
    load = Load(generator=["ssh -p 22 'my host' callboard; rm"])
    assert load.generators() == [["ssh", "-p", "22", "my host", "callboard;", "rm", "bench", "generator"]]
    for bad in ("'open", " "):
        with pytest.raises(BadArgument, match="--generator"):
            Load(generator=[bad]).generators()


# As a whole.

HERE: Final = ("--generator", f"env A=b {shlex.join(CALLBOARD)}")
SHELL: Final = ("--generator", shlex.join(("sh", "-c", f'exec {shlex.join(CALLBOARD)} "$@"', "sh")))


def test_two_make_the_load_of_one_with_the_identities_of_their_parent(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"{SECRET}\n")
    with served(APP) as house:
        load = ("--requests", "30", "--token-file", str(tokens), "--json", "--junit", str(tmp_path / "j.xml"))
        done = piped("bench", house.http, *ECHO, *load, *HERE, *SHELL)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["requests"], told["errors"], told["server"]) == (30, {}, "steady 1.0.0")
    assert told["settings"]["generators"] == 2
    assert told["settings"]["load"] == "30 requests, 2 sessions of 2 generators, 2 at once (closed loop)"
    assert 'tests="3" failures="0"' in (tmp_path / "j.xml").read_text()
    assert SECRET not in done.stdout


async def test_one_that_dies_is_said_and_ctrl_c_ends_the_others() -> None:
    with served(APP) as house:
        load = ("--rate", "100", "--duration", "10m", "--warmup", "0", *HERE, *HERE)
        async with started(*CALLBOARD, "bench", house.http, *ECHO, *load) as process:
            await process.wait_said(b"1/600 s: ")
            first, second = psutil.Process(process.process.pid).children()
            first.kill()
            await process.wait_said(b"2/600 s: ")
            process.signal(signal.SIGINT)
            shown = []
            while (line := await process.line()) is not None:
                shown.append(line.decode())
            assert await process.wait() == 130
            assert not second.is_running()
    assert int(dict(line.split("\t") for line in shown)["requests"].replace(",", "")) > 20
    assert "a part of the load is missing, from second" in process.words
    assert "ended too early (killed by signal 9)" in process.words


def test_a_generator_is_not_started_by_hand_and_ends_with_its_input() -> None:
    done = piped("bench", "generator")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"type": "hello", "version": __version__})
    assert done.stderr == ""
