"""The page of benchmarks says what was found: what was reached, what was not, and what is missing."""

import json
import re
import socket
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks import growth, guarding, observing, report
from benchmarks.guarding import TARGETS as GUARDING
from benchmarks.hosting_load import Load
from benchmarks.hosting_shapes import SHAPES
from benchmarks.hosting_websocket import BY_HAND, ERAS, WAYS
from benchmarks.observing import TARGETS as OBSERVING
from benchmarks.report_page import UNJUDGED, Kept, Page, page
from benchmarks.report_section import Target, number, spread
from benchmarks.report_sections import MAKERS, MANY
from benchmarks.stages_worker import BY_ROOM, BY_TRIO, CODEC, REST, ROUTING, SESSION, TRIO, WIRE, stage
from benchmarks.workers import NODE_CPU, NODE_P50
from benchmarks.workers import TARGETS as WORKERS

FAST = [{"rate": rate, "p50": 900.0, "p99": 4000.0, "cpu": 70.0} for rate in (14_000.0, 13_000.0, 15_000.0)]
SLOW = [{"rate": rate, "p50": 700.0, "p99": 90_000.0, "cpu": 500.0} for rate in (2_000.0, 2_000.0, 2_000.0)]
CALLS = [{"seconds": 1e-4, "p50": 1e-4, "p99": 2e-4, "cpu": 5e-5}] * 3
SLOW_CALLS = [{"seconds": 2e-4, "p50": 2e-4, "p99": 4e-4, "cpu": 2e-4}] * 3
FIGURE = {"name": "ours", "seconds": 1e-5, "ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1}
SEEN = {"rate": 1000.0, "p50": 100.0, "p99": 300.0}
DEAR = [{"rate": 1_000.0, "p50": 900.0, "p99": 4000.0, "cpu": 630.0}] * 3
LISTENER = {"kib_each": 14.0, "cpu_at_rest": 0.5, "heard_p50": 0.1, "heard_p99": 0.2, "heard_by_all": 0.3}
CROWD = LISTENER | {"count": 100_000, "workers": 6, "opening": 90.0, "pss_mib": 2560.0, "resident_mib": 2700.0}
CROWD |= {"cpu_at_rest": 3.0, "least_descriptors": 16_600, "most_descriptors": 16_700, "heard_first": 0.01}
CROWD |= {"heard_by_all": 4.0, "heard_late": 5.0}

FOUND: Mapping[str, Any] = {
    "hosting": {
        "cells": [
            {
                "mode": "modern JSON",
                "tool": "noop",
                "connections": 32,
                "samples": {"callboard": FAST, "mcp 2.3.0": SLOW},
            }
        ],
        "shapes": [{"name": one.name, "samples": {"callboard": FAST, "mcp 2.3.0": DEAR}} for one in SHAPES],
        "websocket": [
            {"way": way.name, "era": era, "samples": {"callboard": FAST} | ({BY_HAND: FAST} if way.sockets else {})}
            for era in ERAS
            for way in WAYS
        ],
        "idle_session_kib": {"callboard": [17.0, 17.0, 18.0], "mcp 2.3.0": [36.0, 36.0, 36.0]},
    },
    "payload": [
        {"how": "hosted", "size": 100_000, "samples": {"callboard": FAST, "mcp 2.3.0": SLOW}},
        {"how": "brokered", "size": 100_000, "samples": {"callboard serve, stdio behind": DEAR}},
    ],
    "client": [{"title": "stdio, 1 at once", "samples": {"callboard": CALLS, "mcp 2.3.0": SLOW_CALLS}}],
    "broker": [
        {
            "backends": {"transport": "stdio", "count": 1, "port": 0},
            "era": "modern",
            "connections": connections,
            "samples": {"callboard serve": FAST, "fastmcp 4.1 proxy": SLOW, "no proxy": SLOW},
        }
        for connections in (32, 1)
    ],
    "stages": [
        {"name": "a server", "rate": 9e3, "cpu": 80.0, "by_kernel": 0.25, "counted": {"Trio": 30, "HTTP": 10}},
        {"name": "a client", "rate": 9e3, "cpu": 40.0, "by_kernel": None, "counted": {"pipes": 1}},
    ],
    "workers": {what: [wanted, wanted * 0.9] for what, wanted in WORKERS.items()},
    "nodes": {NODE_P50: [0.2, 0.3], NODE_CPU: [58.0]},
    "observing": {what: [wanted, wanted * 1.005] for what, wanted in OBSERVING.items()},
    "guarding": {what: [wanted * 0.9, wanted] for what, wanted in GUARDING.items()},
    "growth": [
        {
            "what": "backends of a broker: the last one is called",
            "unit": "backends",
            "rows": [{"size": size, "samples": FAST} for size in (1, 50)],
            "notes": [],
        },
        {
            "what": growth.IN_USE,
            "unit": "sessions",
            "rows": [{"size": 1, "samples": FAST}, {"size": 10_000, "samples": DEAR}],
            "notes": [],
        },
        {
            "what": "payload of requests, by a server",
            "unit": "B",
            "rows": [{"size": 100, "samples": FAST}],
            "notes": ["10,000,000 B: 413 too much"],
        },
    ],
    "listeners": [{"what": "WebSocket sessions", "count": 10_000, "opening": 1.5, **LISTENER}],
    "crowd": CROWD,
    "generator": {"HTTP": [{"rate": 25_000.0, "p99": 1.5, "cpu": 30.0}] * 3},
    "agreement": {"server": "callboard", "connections": 8, "rounds": [{"wrk": SEEN, "bench": SEEN}] * 3},
    "codec": {"40 kB, one text": [FIGURE]},
    "actors": {"times": {"spawn + ask + stop": [FIGURE]}, "idle_kib": {"actor": 3.5}},
    "sessions": {"sessions": 1000, "resident_kib": 14.0, "traced_kib": 12.0, "open_us": 400.0},
}

ABOUT: Mapping[str, Any] = {"form": "short", "command": "python -m benchmarks.x", "seconds": 60.0, "failed": ""}


def kept(**changes: Any) -> dict[str, Kept]:
    """All that a run leaves, but for *changes*."""
    about = {**ABOUT, **report.surroundings()}
    return {name: Kept(name, about, data) for name, data in {**FOUND, **changes}.items()}


def row(made: Page, begin: str) -> list[str]:
    [line] = [line for line in made.text.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_target_that_is_reached_and_one_that_is_missed_are_both_told_with_their_spread() -> None:
    made = page(kept())
    assert row(made, "hosting: calls/s")[1:] == ["at least 6", "7 (6.50 to 7.50)", "yes, by 17%"]
    assert row(made, "hosting: the same, the goal")[1:] == [
        "at least 10",
        "7 (6.50 to 7.50)",
        "**no**: 30% less than wanted",
    ]
    assert row(made, "client: calls/s")[-1] == "**no**: 60% less than wanted"
    assert row(made, "broker: added p50")[1:] == ["at most 0.35 ms", "0.20 (0.20 to 0.20) ms", "yes, by 43%"]
    assert row(made, "broker: calls/s (1 stdio backend")[1:] == [
        "at least 14,000",
        "14,000 (13,000 to 15,000)",
        "yes, by 0%",
    ]
    assert row(made, "memory of an idle session")[-1] == "yes, by 6%"
    assert row(made, "broker: calls/s with 50 backends")[-1] == "yes, by 11%"
    assert "where-the-time-goes" in made.text
    assert row(made, "Trio")[1:] == ["75%", "60"]
    assert row(made, "of that in the kernel")[1:] == ["25%", "20"]


def test_every_shape_of_a_tool_every_transport_and_every_payload_has_its_target() -> None:
    made = page(kept())
    wanted = {shape.name: f"at least {shape.wanted}" for shape in SHAPES}
    judged = {name: row(made, f"hosting: by CPU, times mcp 2.3.0 (`{name}`)") for name in wanted}
    assert {name: cells[1] for name, cells in judged.items()} == wanted
    assert judged["async def echo(text)"][2:] == ["9 (9 to 9)", "yes, by 0%"]
    for era in ERAS:
        for way in WAYS:
            found = row(made, f"hosting: CPU of a call ({way.name}, {era})")
            assert found[1:3] == [f"at most {way.wanted} us", "70 (70 to 70) us"]
    assert row(made, "payload: by CPU")[1:] == ["at least 5", "7.14 (7.14 to 7.14)", "yes, by 43%"]
    assert row(made, "payload: CPU of a call (hosted")[1] == "at most 200 us"
    assert row(made, "payload: CPU of a call (brokered")[-1] == "**no**: 80% more than wanted"
    assert row(made, "CPU of a call with 10,000 sessions")[-1] == "**no**: 620% more than wanted"
    assert row(made, "CPU of 10,000 idle WebSocket sessions")[-1] == "yes, by 50%"


def test_a_hundred_thousand_peers_are_judged_and_fewer_are_not() -> None:
    made = page(kept())
    assert row(made, "100,000 idle peers: memory")[1:] == ["at most 3 GiB", "2.50 GiB", "yes, by 17%"]
    assert row(made, "100,000 idle peers: CPU")[1:] == ["at most 2 %", "3 %", "**no**: 50% more than wanted"]
    assert row(made, "100,000 idle peers: one change")[1:] == ["at most 8 s", "4 s", "yes, by 50%"]
    assert row(made, "told at first")[1] == "0.010, 0.100, 0.200, 4.000 s"
    fewer = page(kept(crowd={**CROWD, "count": 20_000}))
    assert fewer.text.count("| **not measured** |") == 3
    assert "20,000 idle peers, 6 workers" in fewer.text


def test_what_metrics_cost_has_a_target_for_hosting_and_one_for_brokering() -> None:
    made = page(kept())
    assert row(made, "metrics: hosted")[1:] == ["at least 0.99", "0.99 (0.99 to 0.99)", "yes, by 0%"]
    assert row(made, "metrics: brokered")[-1] == "yes, by 0%"
    missed = page(kept(observing={what: [0.9] for what in OBSERVING}))
    assert row(missed, "metrics: hosted")[-1] == "**no**: 9% less than wanted"


def test_one_round_compares_a_server_that_is_observed_with_one_that_is_not() -> None:
    assert 0.3 < observing.one_round("hosted", 0.1) < 3.0  # of two turns: no figure, but it works


def test_the_cost_of_tokens_and_rules_can_be_measured() -> None:
    figures = guarding.one_round("hosted", 0.1)
    assert figures.keys() == {what for what in GUARDING if what.startswith("hosted")}
    assert all(0.3 < figure < 3.0 for what, figure in figures.items() if "times" in what)


def test_what_is_run_on_demand_only_may_be_missing() -> None:
    found = kept()
    del found["crowd"]
    made = page(found)
    assert made.is_whole
    assert "this benchmark was not run" in made.text


def test_shapes_that_were_not_measured_are_said_so() -> None:
    made = page(kept(hosting={**FOUND["hosting"], "shapes": [], "websocket": []}))
    assert made.text.count("| **not measured** |") == len(SHAPES) + len(WAYS) * len(ERAS)


def test_a_figure_that_may_be_at_most_so_much_is_missed_by_more() -> None:
    missed = Target(what="weight", wanted=0.5, found=[0.75], at_most=True)
    assert missed.row() == ["weight", "at most 0.50", "0.75", "**no**: 50% more than wanted"]
    assert missed.line() == "weight: 0.75 (at most 0.50): no: 50% more than wanted"
    assert Target(what="weight", wanted=0.5, found=[]).row()[-1] == "**not measured**"
    assert Target(what="weight", wanted=0.5, found=[]).line() == "weight: (at least 0.50): not measured"


def test_a_refused_size_is_told_in_the_words_of_the_refusal() -> None:
    assert "10,000,000 B: `413 too much`" in page(kept()).text


def test_every_plot_is_well_formed_and_is_shown_on_the_page() -> None:
    made = page(kept())
    assert len(made.plots) >= 6
    for name, svg in made.plots.items():
        drawing = ET.fromstring(svg)  # noqa: S314  # we wrote it
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert f"(benchmarks/{name}.svg)" in made.text
    assert set(re.findall(r"\(benchmarks/([\w-]+)\.svg\)", made.text)) == set(made.plots)


def test_the_page_says_which_machine_versions_and_commit_and_names_no_place_or_host() -> None:
    made = page(kept())
    told = {**report.machine(), **report.versions()}
    assert {"CPU", "cores", "system", "Python", "callboard", "trio"} <= set(told)
    assert [what for what, which in told.items() if f"| {what} | {which} |" not in made.text] == []
    assert f"commit {report.commit()}" in made.text
    for secret in (str(report.ROOT), str(Path.home()), socket.gethostname()):
        assert not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", made.text + "".join(made.plots.values()))


@pytest.mark.parametrize("name", FOUND)
def test_a_benchmark_that_failed_is_said_so_in_its_section_and_among_the_targets(name: str) -> None:
    found = kept()
    found[name] = Kept(name, {**ABOUT, "failed": "it failed with exit status 3"})
    made = page(found)
    assert not made.is_whole
    failed = [section for section, (source, _) in MAKERS.items() if source == name]
    assert made.text.count("**There are no figures**: it failed with exit status 3.") == len(failed)
    assert made.text.count("| **not measured** |") == len(set(failed) - set(UNJUDGED))


def test_figures_that_only_show_that_it_works_are_marked() -> None:
    found = kept()
    assert "Not to be quoted" not in page(found).text
    found["codec"] = Kept("codec", {**found["codec"].about, "form": "tiny"}, FOUND["codec"])
    assert "Not to be quoted" in page(found).text


def test_the_page_is_written_again_from_kept_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = tmp_path / "kept", tmp_path / "docs"
    source.mkdir()
    (to / "benchmarks").mkdir(parents=True)
    (to / "benchmarks" / "of-yesterday.svg").touch()
    for name, one in kept().items():
        (source / f"{name}.json").write_text(json.dumps({"name": name, "about": one.about, "data": one.data}))
    assert run_report(monkeypatch, "--from", source, "--to", to) == 0
    assert (to / "benchmarks.md").read_text() == page(kept()).text
    assert {file.stem for file in (to / "benchmarks").iterdir()} == set(page(kept()).plots)
    (source / "codec.json").unlink()
    assert run_report(monkeypatch, "--from", source, "--to", to) == 1
    assert "this benchmark was not run" in (to / "benchmarks.md").read_text()


def run_report(monkeypatch: pytest.MonkeyPatch, *words: object) -> Any:
    monkeypatch.setattr("sys.argv", ["report", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        report.main()
    return ended.value.code


def test_a_benchmark_that_ends_badly_leaves_no_figures(tmp_path: Path) -> None:
    broken = report.Benchmark("codec", ["--no-such-flag"], [])
    failed = report.run(broken, "short", tmp_path)
    assert (failed.about["failed"], failed.is_whole) == ("it failed with exit status 2", False)
    assert report.read(tmp_path) == {"codec": failed}


def test_numbers_have_as_many_digits_as_are_worth_something() -> None:
    values = {13_512.4: "13,512", 42.42: "42.4", 7.149: "7.15", 0.5: "0.50", 0.00213: "0.0021", 6: "6", 0: "0"}
    assert {value: number(value) for value in values} == values
    assert spread([3, 1, 2]) == "2 (1 to 3)"


def test_what_the_page_judges_is_measured() -> None:
    assert {source for source, _ in MAKERS.values()} == {one.name for one in report.BENCHMARKS} == set(FOUND)
    short = growth.Plan(Load(is_wrk=False), 1, 1.0, growth.PAYLOADS[-1], Path(), is_short=True)
    assert MANY in short.sizes(growth.BACKENDS)
    assert short.sizes(growth.SESSIONS)[-1] == growth.SESSIONS[-1] == 10_000


def test_stages_are_told_apart_by_modules_that_exist() -> None:
    assert [room for room, _ in BY_ROOM if find_spec(room) is None] == []
    assert [name for name in BY_TRIO if not (find_spec(f"trio.{name}") or find_spec(f"trio._core.{name}"))] == []


@pytest.mark.parametrize(
    ("module", "whose"),
    [
        ("callboard.actors.broker.pool", ROUTING),
        ("callboard.actors.frames", CODEC),
        ("callboard.actors.wires_that_are_new", SESSION),
        ("trio._socket", WIRE),
        ("trio._core._traps", TRIO),
        ("__main__", REST),
    ],
)
def test_a_sample_is_counted_for_the_innermost_part_and_for_nobody_outside_of_trio(module: str, whose: str) -> None:
    def seen_from() -> str | None:
        found: dict[str, Any] = {"__name__": module, "stage": stage, "here": sys._getframe}
        exec("found = stage(here())", found)  # noqa: S102  # a frame of that module
        whose: str | None = found["found"]
        return whose

    async def work() -> str | None:
        return seen_from()

    assert trio.run(work) == whose
    assert seen_from() is None
