"""`--scenario` and the profiles as people type them: real processes and sockets, each for a second or two."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.at_terminal import piped
from tests.served import Addresses, served
from tests.shared import ROOT

WEATHER: Final = f"{ROOT / 'examples' / 'weather.py'}:server"
CURIOUS: Final = f"{ROOT / 'tests' / 'apps' / 'curious.py'}:server"
SCENARIO: Final = str(ROOT / "examples" / "scenario.toml")
SHORT: Final = ("--duration", "1s", "--warmup", "100ms")


@pytest.fixture(scope="module")
def house() -> Iterator[Addresses]:
    with served(CURIOUS, ws=True) as addresses:
        yield addresses


def measured(*arguments: str) -> Any:
    done = piped("bench", "--json", *arguments, *SHORT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_example_of_a_scenario_is_played() -> None:
    with served(WEATHER) as weather:
        told = measured(weather.http, "--scenario", SCENARIO, "--sessions", "4")
    assert told["errors"] == {}
    assert told["work"] == "scenario: planner, passer-by"
    steps = told["steps"]
    assert list(steps)[:3] == ["list tools", "call forecast", "a long forecast"]
    assert steps["read weather://oslo/now"]["requests"] > steps["call forecast"]["requests"] > 0
    assert steps["call forecast"]["p50_ms"] <= steps["call forecast"]["p99_ms"]
    hasty = steps["a hasty forecast"]
    assert hasty["requests"] + hasty.get("cancelled", 0) > 0
    assert told["figures"]["scripts"] > 4
    assert told["figures"]["sessions_renewed"] > 0
    assert told["requests"] == sum(step["requests"] for label, step in steps.items() if label != "open session"), (
        "each request is in the whole, as well"
    )


def test_a_scenario_is_shown_by_step_in_a_pipe_and_on_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "play.toml", tmp_path / "report.html"
    file.write_text('steps = [{ call = "forecast", args = { city = "Oslo" }, label = "look" }, { think = "10ms" }]')
    done = piped("bench", WEATHER, "--scenario", str(file), "--rate", "20", "--html", str(page), *SHORT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "load\t1 session, scripts: 20 per second (open loop)" in lines
    assert lines[-2] == "step\tcount\tp50\tp99\tmax\terrors"
    assert lines[-1].startswith("look\t")
    assert "<th>look</th>" in page.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('steps = [\n  { call = "forecast" },\n  { thing = 1 },\n]', "play.toml:3: steps[1]: must have one of call, "),
        ("steps = [{ call = ", "play.toml:1: is not valid TOML: "),
    ],
)
def test_a_scenario_that_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "play.toml"
    file.write_text(text)
    done = piped("bench", WEATHER, "--scenario", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("callboard: ")
    assert said in line


def test_a_step_that_does_not_work_is_told_before_there_is_load(tmp_path: Path) -> None:
    file = tmp_path / "play.toml"
    file.write_text('[[script]]\nname = "lost"\nsteps = [{ call = "nothing" }]')
    done = piped("bench", WEATHER, "--scenario", str(file))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1].startswith("callboard: lost, call nothing: ")


@pytest.mark.parametrize(("way", "revision"), [("http", "2026-07-28"), ("ws", "2025-11-25")])
def test_listeners_hear_of_changes(house: Addresses, way: str, revision: str) -> None:
    told = measured(
        *(getattr(house, way), "--profile", "fanout", "--sessions", "5", "--revision", revision),
        *("--tool", "change", "--read", "curious://note"),
    )
    assert told["errors"] == {}
    assert told["requests"] == 5 * told["figures"]["published"] > 5
    assert told["steps"]["call change"]["requests"] > 1


@pytest.mark.parametrize("way", ["http", "ws"])
def test_a_storm_is_calm_again(house: Addresses, way: str) -> None:
    told = measured(getattr(house, way), "--profile", "storm", "--tool", "hang", "--concurrency", "20")
    assert told["errors"] == {}
    assert told["figures"]["cancelled"] == 20 * told["figures"]["storms"] > 20
    assert told["figures"]["late_answers"] == 0
    assert told["requests"] > 10, "of the bystander"


def test_idle_sessions_are_weighed() -> None:
    told = measured(CURIOUS, "--profile", "idle", "--sessions", "2")
    assert told["requests"] == 2
    assert told["figures"]["sessions_lost"] == 0
    if sys.platform == "linux":
        assert told["figures"]["memory_each"] > 2**20


def test_what_is_killed_comes_back() -> None:
    done = piped(
        *("bench", "--json", CURIOUS, "--profile", "chaos", "--every", "2s", "--tool", "echo"),
        *("--args", '{"text": "a"}', "--rate", "20", "--duration", "8s", "--warmup", "0", "--fail-if", "recovered<1"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["figures"]["kills"] >= told["figures"]["recovered"] >= 1
    assert told["figures"]["sessions_lost"] == told["figures"]["kills"]
    assert told["figures"]["recovery_max"] > 0
    assert set(told["errors"]) <= {"ConnectionLost", "CannotConnect", "no response before the end"}
