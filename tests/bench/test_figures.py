"""What a run is as figures: pace, limits, tallies, files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bench.limits import BadLimit, Limit
from callboard.bench.pace import Pace
from callboard.bench.result import BenchResult, NotAResult
from callboard.bench.tally import MAX_KINDS, OTHERS, UNANSWERED, Tally
from callboard.bench.work import NothingToDo, harmless
from callboard.codecs.revisions import Tool, ToolAnnotations
from tests.bench.figures import result

# When requests go.


def test_a_pace_without_a_ramp_is_even() -> None:
    assert [Pace(rate=10).due(number) for number in range(4)] == [0, 0.1, 0.2, pytest.approx(0.3)]


def test_a_ramp_reaches_the_rate_at_its_end() -> None:
    pace = Pace(rate=100, ramp=10)
    assert pace.due(500) == pytest.approx(10)
    assert pace.due(600) == pytest.approx(11)
    assert pace.due(125) == pytest.approx(5), "a quarter of them in the first half"


@given(st.floats(0.1, 1e5), st.floats(0, 100), st.integers(0, 10**6))
def test_whoever_comes_later_is_due_later(rate: float, ramp: float, number: int) -> None:
    pace = Pace(rate=rate, ramp=ramp)
    assert pace.due(number) <= pace.due(number + 1)


# Limits.


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("p99>20ms", True),
        ("p50>20ms", False),
        ("p50 >= 10ms", True),
        ("max>1s", False),
        ("max>999us", True),
        ("errors>0", True),
        ("errors>2", False),
        ("errors>1%", True),
        ("errors>10%", False),
        ("rate<9.9/s", True),
        ("rate<9", False),
    ],
)
def test_a_limit_is_broken_or_not(text: str, is_broken: bool) -> None:
    shown = result(*[0.01] * 90, *[0.05] * 8, errors=2)
    assert Limit.parse(text).broken_by(shown) is is_broken


@pytest.mark.parametrize("text", ["", "p99", "p99>20", "p99>20%", "p100>1ms", "speed>1", "rate<5ms", "p99=1ms", ">1ms"])
def test_what_is_no_limit_is_told_how_it_could_be_one(text: str) -> None:
    with pytest.raises(BadLimit):
        Limit.parse(text)


def test_where_nothing_was_answered_no_latency_is_within_its_limit() -> None:
    assert Limit.parse("p99>20ms").broken_by(result(errors=3))
    assert Limit.parse("max>20s").broken_by(result())


# Tallies and files.


def test_those_who_still_wait_at_the_end_have_waited_longer_than_any() -> None:
    """A server that stalls for good answers nobody, and must not look well for it."""
    shown = result(*([0.001] * 970))
    for _ in range(30):
        shown.tally.broke(UNANSWERED, 9.0)
    assert not Limit.parse("p50>20ms").broken_by(shown)
    assert not Limit.parse("p96>20ms").broken_by(shown)
    assert Limit.parse("p99>20ms").broken_by(shown)
    assert Limit.parse("max>1s").broken_by(shown)
    assert Limit.parse("p99>20ms").told(shown) == "infinite: too many requests were not answered"


def test_errors_of_which_each_is_another_are_told_together() -> None:
    tally = Tally()
    for code in range(1000):
        tally.broke(f"ServerRefused {code}", 0.0)
    assert len(tally.errors) == MAX_KINDS + 1
    assert tally.errors[OTHERS] == 1000 - MAX_KINDS
    assert tally.error_count == 1000


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    before = result(*[0.001 * number for number in range(1, 1000)], errors=3)
    file = tmp_path / "a.json"
    file.write_text(json.dumps(before.as_json()))
    after = BenchResult.read(file)
    assert after.as_json() == before.as_json()
    assert after.percentile(99) == before.percentile(99) == pytest.approx(0.99, rel=0.01)
    assert (after.error_count, after.rate) == (3, 99.9)
    assert sorted(after.tally.seconds) == list(range(10))


def test_the_figures_stand_in_front_for_scripts() -> None:
    told = result(*[0.01] * 99, 0.5, errors=25).as_json()
    assert (told["requests"], told["answered"]) == (125, 100)
    assert told["requests_per_second"] == 10
    assert told["latency_ms"]["p50"] == pytest.approx(10, rel=0.01)
    assert told["latency_ms"]["max"] == pytest.approx(500, rel=0.01)
    assert (told["errors"], told["error_percent"]) == ({"ServerRefused -32603": 25}, 20.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "callboard-bench/1"}', "\x00"])
def test_another_file_is_no_result(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(NotAResult):
        BenchResult.read(file)
    with pytest.raises(NotAResult, match="No such file"):
        BenchResult.read(tmp_path / "none.json")


def test_what_several_processes_counted_adds_up() -> None:
    one, other = result(0.1, 0.2, errors=1).tally, result(0.3, errors=2).tally
    one.add(other)
    assert (one.count, one.error_count) == (3, 3)
    assert one.longest == pytest.approx(0.3, rel=0.01)
    assert one.failed == {1: 3}


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50))
def test_no_latency_is_lost_or_told_as_another(latencies: list[float]) -> None:
    tally = result(*latencies).tally
    assert tally.count == len(latencies)
    assert tally.longest == pytest.approx(min(max(latencies), 600), rel=0.002, abs=2e-6)


# What is safe to do.


def tool(name: str, *, only_reads: bool | None, required: tuple[str, ...] = ()) -> Tool:
    schema = {"type": "object", "required": list(required)} if required else {"type": "object"}
    if only_reads is None:
        return Tool(name=name, input_schema=schema)
    return Tool(name=name, input_schema=schema, annotations=ToolAnnotations(read_only_hint=only_reads))


def test_the_first_tool_that_only_reads_and_needs_nothing_is_safe() -> None:
    tools = [
        tool("wipe", only_reads=False),
        tool("get", only_reads=True, required=("id",)),
        tool("now", only_reads=True),
    ]
    assert harmless(tools).name == "now"


def test_a_tool_that_does_not_say_so_is_not_and_whoever_asks_learns_what_to_name() -> None:
    with pytest.raises(NothingToDo, match=r"--tool.*wipe, think"):
        harmless([tool("wipe", only_reads=False), tool("think", only_reads=None)])
    with pytest.raises(NothingToDo, match="no tools"):
        harmless([])
