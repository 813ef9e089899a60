"""What is typed, and what is meant by it."""

from pathlib import Path

import attrs
import pytest

from callboard.bench.lanes import is_here, resolved
from callboard.bench.pace import Pace
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import Load, seconds_in
from callboard.config.entry import Remote
from tests.shared import ROOT


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(duration="soon"), "is not a time"),
        (Load(duration="-1s"), "is not a time"),
        (Load(duration="0"), "--duration must be greater than 0"),
        (Load(rate=5, concurrency=5), "--rate and --concurrency exclude each other"),
        (Load(rate=0), "--rate must be greater than 0"),
        (Load(rate=float("nan")), "--rate must be greater than 0"),
        (Load(sessions=0), "--sessions"),
        (Load(processes=0), "--processes must be from 1 to"),
        (Load(processes=65), "from 1 to 64"),
        (Load(processes=4, sessions=2), "must be at least --processes"),
        (Load(processes=4, sessions=4, concurrency=2), "must be at least --processes"),
        (Load(processes=2, profile="storm"), "--processes is only for the profiles steady and churn"),
        (Load(processes=2, scenario=Path("play.toml")), "--processes is only for the profiles steady and churn"),
        (Load(concurrency=0), "--concurrency"),
        (Load(tool=["echo"], args=["[1]"]), "not a JSON object"),
        (Load(tool=["echo"], args=["{"]), "not a JSON object"),
        (Load(args=["{}"]), "belongs to a --tool"),
        (Load(lists=True, weight=[1, 2]), "2 --weight for 1 requests"),
        (Load(lists=True, weight=[0]), "greater than 0"),
        (Load(fail_if=["p99"]), "is not a limit"),
    ],
)
def test_what_makes_no_sense_is_told(load: Load, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        (load.plan(), load.work(), load.limits())


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("1.5s", 1.5), ("500ms", 0.5), ("2m", 120), ("0", 0)])
def test_a_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert seconds_in("--duration", text) == seconds


def test_there_are_as_many_requests_at_once_as_sessions_unless_it_is_said() -> None:
    assert Load(sessions=8).plan().concurrency == 8
    assert Load(sessions=8, concurrency=2).plan().concurrency == 2
    assert Load(processes=4).plan().sessions == Load(processes=4).plan().concurrency == 4
    assert Load(rate=10, ramp="5s").plan().pace == Pace(rate=10, ramp=5)


def test_everything_that_is_named_is_done_each_with_its_arguments_and_its_weight() -> None:
    work = Load(tool=["a", "b"], args=['{"x": 1}'], read=["r://1"], lists=True, weight=[1, 2, 3, 4]).work()
    assert work is not None
    assert str(work) == "call a, call b, read r://1, list tools"
    assert [act.arguments for act in work.acts] == [{"x": 1}, {}, {}, {}]
    assert [act.weight for act in work.acts] == [1, 2, 3, 4]
    assert Load().work() is None


@pytest.mark.parametrize(
    ("url", "is_ours"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://localhost/mcp", True),
        ("ws://[::1]:8000/mcp", True),
        ("http+unix://%2Ftmp%2Fa.sock/mcp", True),
        ("http://127.0.0.1.example.com/mcp", False),
        ("http://localhost@example.com/mcp", False),
        ("https://example.com/mcp", False),
        ("http://10.0.0.1/mcp", False),
        ("http://[broken/mcp", False),
    ],
)
def test_another_machine_is_told_from_this_one(url: str, is_ours: bool) -> None:
    assert is_here(Remote(url=url)) is is_ours
    assert is_here(resolved(["python", "server.py"]))


def test_the_page_of_commands_names_every_flag() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    flags = [{"lists": "list"}.get(field.name, field.name.replace("_", "-")) for field in attrs.fields(Load)]
    section = page.partition("## `callboard bench TARGET`")[2].partition("\n## ")[0]
    assert [flag for flag in flags if f"`--{flag}" not in section] == []


@pytest.mark.parametrize("place", ["0.0.0.0:9464", "[::]:9464", "example.org:9464", "nowhere", "70000"])
def test_metrics_are_only_for_this_machine(place: str) -> None:
    with pytest.raises(BadArgument, match=r"^--metrics"):
        Load(metrics=place).metrics_at()
