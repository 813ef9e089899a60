"""What is said of runs in which little or nothing was answered."""

import io
import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import attrs
import pytest
import structlog
import trio
from rich.console import Console
from trio.testing import MockClock

from callboard.bench.figures import percent, time
from callboard.bench.lanes import within
from callboard.bench.page import page
from callboard.bench.result import BenchResult
from callboard.bench.tally import UNANSWERED, Tally
from callboard.cli.bench import _tell, bench
from callboard.cli.bench_flags import Load
from callboard.cli.bench_view import Moment, histogram, line, live_rows, notes, page_rows, print_histogram, rows
from callboard.cli.client_run import ClientOptions
from callboard.cli.codes import Exit
from callboard.cli.compare import compare
from callboard.cli.screen import Screen
from callboard.errors import CannotConnect
from tests.bench.figures import result

DEAD = result(errors=6_000)
HANGING = "import time; time.sleep(60)"


def told(run: BenchResult) -> dict[str, str]:
    return dict(rows(run))


def over(*seconds: int, each: int = 100, of: float = 6.0, errors: int = 0, **settings: Any) -> BenchResult:
    """A run with answers in these seconds only."""
    tally = Tally()
    for second in seconds:
        for _ in range(each):
            tally.succeeded(0.001, second + 0.5)
    for _ in range(errors):
        tally.broke("CannotConnect", of - 0.5)
    run = result(seconds=of)
    return attrs.evolve(run, tally=tally, settings={**run.settings, **settings})


@pytest.mark.finding("newcomer-B1")
def test_there_are_no_percentiles_of_nothing() -> None:
    shown = told(DEAD)
    assert [shown[name] for name in ("p50", "p90", "p99", "p99.9", "max")] == ["-"] * 5
    assert shown["errors"] == "6,000 (100 %)"
    assert (shown["requests"], shown["requests/s"]) == ("6,000", "0.0 without an error")
    written = DEAD.as_json()
    assert set(written["latency_ms"].values()) == {None}
    json.dumps(written, allow_nan=False)
    assert DEAD.as_csv().splitlines()[1] == "1,0,,,,6000,,"
    drawn = page("t", {"": DEAD}, page_rows(DEAD))
    assert "<svg" not in drawn
    assert "No request was answered" in drawn
    now = Moment(elapsed=1.0, duration=10.0, rate=0.0, in_flight=1, result=DEAD)
    assert "p50 -, p99 -, max -" in line(now)
    assert dict(live_rows(now))["p50"] == "-"


@pytest.mark.finding("newcomer-B1")
def test_a_step_that_was_never_answered_has_no_percentiles_either() -> None:
    tally = Tally()
    tally.broke("ServerRefused", 0.5, step="save")
    written = attrs.evolve(result(), tally=tally).as_json()
    assert written["steps"]["save"]["p50_ms"] is None
    assert (written["steps"]["save"]["requests"], written["steps"]["save"]["answered"]) == (1, 0)


@pytest.mark.finding("newcomer-B2")
def test_requests_are_all_that_were_made() -> None:
    run = result(*[0.01] * 1696, errors=185)
    assert told(run)["requests"] == "1,881"
    assert told(run)["errors"] == "185 (9.8 %)"
    assert (run.as_json()["requests"], run.as_json()["answered"]) == (1881, 1696)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (100.0, "100 %"),
        (99.99, "99.9 %"),
        (55.55, "55.5 %"),
        (9.8, "9.8 %"),
        (0.4, "0.4 %"),
        (0.00001, "less than 0.001 %"),
    ],
)
def test_a_share_is_written_as_people_read_it(share: float, text: str) -> None:
    assert percent(share) == text


def test_no_time_is_written_as_such() -> None:
    assert time(float("nan")) == "-"


@pytest.mark.finding("newcomer-B1")
@pytest.mark.parametrize("bad", [DEAD, result(*[0.001] * 900, errors=100), over(0, 1, 2, errors=9)])
@pytest.mark.parametrize("is_after", [True, False])
def test_a_run_that_failed_is_never_called_better(
    bad: BenchResult, is_after: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json")]
    good = result(*[0.0118] * 1000)
    for file, run in zip(files, (good, bad) if is_after else (bad, good), strict=True):
        file.write_text(json.dumps(run.as_json()))
    assert compare(*files) == Exit.FINE
    out = capsys.readouterr().out
    changes = {row.split("\t")[0]: row.split("\t")[3] for row in out.splitlines() if row.count("\t") == 3}
    assert {changes[name] for name in ("p50", "p90", "p99", "p99.9", "max")} == {"-"}
    assert compare(*files, json=True) == Exit.FINE
    assert json.loads(capsys.readouterr().out)["ratios"]["p50"] is None


@pytest.mark.parametrize(
    ("kind", "silences"), [("ToolFailed", []), ("ServerRefused -31003", []), ("RequestTimedOut", [(2, 4)])]
)
def test_a_server_that_answers_by_errors_is_not_silent(kind: str, silences: list[tuple[int, int]]) -> None:
    run = over(0, 1, 4, 5)
    for _ in range(100):
        run.tally.broke(kind, 2.5)
        run.tally.broke(kind, 3.5)
    assert list(run.silences) == silences
    assert Tally.of_json(run.tally.as_json()).refused == +run.tally.refused


@pytest.mark.finding("newcomer-B2")
@pytest.mark.parametrize(
    ("run", "silences", "code"),
    [
        (over(0, 1, 2, errors=36), [(3, 6)], Exit.LOST),
        (over(0, 1, 2, 3, 4, errors=1), [(5, 6)], Exit.LOST),
        (over(0, 1, 2, 3, 4), [(5, 6)], Exit.FINE),
        (over(0, 3, 4, 5), [(1, 3)], Exit.LOST),
        (over(0, 2, 3, 4, 5), [(1, 2)], Exit.FINE),
        (over(0, 1, 2, 3, 4, 5), [], Exit.FINE),
        (over(0, 3, each=1), [], Exit.FINE),
        (over(2, 3, 4, 5, ramp=2), [], Exit.FINE),
        (over(0, 1, 5, profile="chaos"), [], Exit.FINE),
        (over(0, 1, of=2.9), [], Exit.FINE),
    ],
)
def test_a_server_that_died_or_stalled_is_told_of(
    run: BenchResult, silences: list[tuple[int, int]], code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(run.silences) == silences
    said = [note for note in notes(run) if note.startswith("no answer")]
    assert said == [f"no answer from second {start} to {end}" for start, end in silences]
    assert run.as_json()["silences"] == [list(span) for span in silences]
    assert _tell(run, Load(), Screen(), is_json=False) == code


@pytest.mark.finding("newcomer-B2")
def test_errors_are_not_taken_for_requests_that_were_never_made() -> None:
    run = result(*[0.01] * 1820, errors=180)
    said = list(notes(attrs.evolve(run, settings={**run.settings, "rate": 200})))
    assert said == ["9 % of the requests failed: the latencies are those of the other 91.0 %"]
    late = result(*[0.01] * 1000)
    assert list(notes(attrs.evolve(late, settings={**late.settings, "rate": 200}))) == [
        f"200 per second were due, {late.rate:,.1f} were answered"
    ]


def test_a_run_with_few_errors_has_no_note_and_one_with_many_says_so() -> None:
    assert list(notes(result(*[0.01] * 1000, errors=10))) == []
    assert list(notes(result(*[0.01] * 10, errors=9_990))) == [
        "99.9 % of the requests failed: the latencies are those of the other 0.1 %"
    ]


def test_requests_that_were_not_answered_are_no_answers() -> None:
    run = over(*range(6), each=80)
    run.tally.errors[UNANSWERED] = 120
    said = list(notes(attrs.evolve(run, settings={**run.settings, "rate": 100})))
    assert said[0] == "100 per second were due, 80.0 were answered"


def test_if_only_the_warm_up_was_answered_the_rate_was_too_high(capsys: pytest.CaptureFixture[str]) -> None:
    run = over(errors=600)
    run.tally.early.update({0: 100, 1: 100})
    assert _tell(run, Load(), Screen(), is_json=False) == Exit.REFUSED
    assert "only requests of the warm-up were answered: the rate is too high" in capsys.readouterr().err


@pytest.mark.finding("newcomer-B5")
async def test_a_server_that_hangs_is_given_up_after_the_time_it_has(autojump_clock: MockClock) -> None:
    with pytest.raises(CannotConnect, match="within 3 s"):
        async with within(3, _stuck)():
            pytest.fail("it is not there")
    assert trio.current_time() == 3


class _Stuck:
    async def __aenter__(self) -> None:
        await trio.sleep_forever()

    async def __aexit__(self, *_: object) -> None:
        pytest.fail("it was never entered")


def _stuck() -> Any:
    return _Stuck()


@pytest.mark.finding("newcomer-B5")
@pytest.mark.parametrize("load", [Load(), Load(tool=["x"]), Load(tool=["x"], profile="churn")])
def test_bench_of_a_command_that_hangs_ends_in_time(
    load: Load, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(structlog.reset_defaults)
    started = monotonic()
    target = json.dumps([sys.executable, "-S", "-c", HANGING])
    assert bench(target, load=load, options=ClientOptions(timeout=0.3)) == Exit.CANNOT_CONNECT
    assert monotonic() - started < 5  # it was 38 s; 0.7 s on an idle machine
    assert "within 0.3 s" in capsys.readouterr().err


# At a terminal.


@pytest.mark.finding("newcomer-B4")
def test_a_terminal_has_a_histogram_and_a_pipe_has_none() -> None:
    run = result(*[0.001] * 90, *[0.01] * 9, 0.1)
    found = histogram(run)
    assert len(found) == 10
    assert [count for _, count in found if count] == [90, 9, 1]
    assert found[-1] == ("up to 100 ms", 1)
    for is_terminal, sign in ((True, "\N{FULL BLOCK}" * 40), (False, "")):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), "utf-8"), force_terminal=is_terminal, width=100)
        print_histogram(console, found)
        console.file.seek(0)
        shown = console.file.read()
        assert sign in shown
        assert bool(shown) is is_terminal
    assert histogram(DEAD) == histogram(result(0.1)) == []
