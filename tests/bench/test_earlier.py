"""A run compared with the median of several earlier ones."""

import json
from pathlib import Path

import attrs
import pytest

from callboard.bench.earlier import compared, usual
from callboard.cli.codes import Exit
from callboard.cli.compare import MOST_RUNS, compare
from tests.bench.figures import result


def test_one_accident_among_earlier_runs_does_not_count() -> None:
    earlier = [result(*[seconds] * 100) for seconds in (0.010, 0.011, 5.0)]
    found = {one.name: one for one in compared(earlier, result(*[0.022] * 100))}
    assert list(found) == ["requests/s", "p50", "p90", "p99", "p99.9", "max", "errors"]
    assert found["p99"].median == pytest.approx(0.011, rel=0.01)
    assert found["p99"].ratio == pytest.approx(2, rel=0.01)
    assert not found["p99"].is_outside
    assert next(one for one in compared(earlier[:2], earlier[2]) if one.name == "p99").is_outside


def test_latencies_of_runs_that_failed_are_left_out() -> None:
    broken = result(*[1e-4] * 100)
    for _ in range(50):
        broken.tally.broke("refused", 1)
    fine = result(*[0.01] * 100)
    found = {one.name: one for one in compared([broken, broken, fine], fine)}
    assert found["p99"].median == fine.percentile(99)
    assert found["errors"].high == pytest.approx(100 / 3)
    assert "p99" not in {one.name for one in compared([fine, fine], broken)}
    assert "p99" not in {one.name for one in compared([broken, broken], fine)}


def test_the_one_to_look_at_has_the_median_rate() -> None:
    runs = [attrs.evolve(result(*[0.01] * count), seconds=1.0) for count in (30, 10, 20)]
    assert usual(runs) is runs[2]


def test_they_are_shown_with_their_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number, seconds in enumerate((0.010, 0.012, 0.011, 0.1)):
        files.append(tmp_path / f"run{number}.json")
        files[-1].write_text(json.dumps(result(*[seconds] * 100).as_json()))
    assert compare(*files, html=tmp_path / "page.html") == Exit.FINE
    shown = capsys.readouterr()
    table = dict(line.split("\t", 1) for line in shown.out.splitlines())
    assert table[""].split("\t") == ["median of 3", "range", "run3", "change"]
    assert table["p99"].split("\t")[:3] == ["11 ms", "10 ms to 12 ms", "100 ms"]
    assert table["p99"].endswith("%")
    assert "callboard: p99 is outside of all earlier runs" in shown.err
    assert "run3" in (tmp_path / "page.html").read_text()
    assert compare(*files[:1] * (MOST_RUNS + 1)) == Exit.USAGE
