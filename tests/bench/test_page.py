"""The report: one page that needs nothing else. It is parsed as a browser would."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest

from callboard.bench import plots
from callboard.bench.page import page
from callboard.bench.result import BenchResult
from callboard.cli.bench_view import notes, page_rows, page_tables, rows
from tests.at_terminal import piped
from tests.bench.figures import result

PLOTS = ["Requests per second", "Latency over time", "Histogram of latencies", "Latency by percentile"]
VOID = {"meta", "circle", "path", "rect"}


@attrs.define(eq=False)
class Seen(HTMLParser):
    """What a page has. An element that is not closed, or not in order, fails the test."""

    labels: list[str] = attrs.field(factory=list)
    shapes: dict[str, list[str]] = attrs.field(factory=dict)
    tags: set[str] = attrs.field(factory=set)
    text: str = ""
    marks: str = ""
    """The text that is shown always."""
    tips: list[str] = attrs.field(factory=list)
    _in_tip: bool = False
    _open: list[str] = attrs.field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.tags.add(tag)
        self._in_tip = found.get("class") == "tip"
        assert not {"src", "href", "onload", "onclick"} & found.keys(), "it needs nothing, and does nothing"
        if tag not in VOID:
            self._open.append(tag)
        if tag == "svg":
            self.labels.append(found["aria-label"])
        if tag in ("polyline", "polygon"):
            self.shapes.setdefault(self.labels[-1], []).append(found["points"])
        if tag == "circle":
            self.shapes.setdefault(self.labels[-1], []).append(f"{found['cx']},{found['cy']}")

    def handle_endtag(self, tag: str) -> None:
        self._in_tip = False
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_tip:
            self.tips.append(data)
        else:
            self.marks += data


def seen(text: str) -> Seen:
    found = Seen()
    found.feed(text)
    found.close()
    assert found._open == []
    assert found.labels == PLOTS
    assert "script" not in found.tags
    assert not re.search(r"url\(|@import", text)
    for points in (points for shapes in found.shapes.values() for points in shapes):
        for point in points.split():
            across, up = map(float, point.split(","))
            assert 0 <= across <= plots.WIDTH
            assert 0 <= up <= plots.HEIGHT
    return found


def of(run: BenchResult) -> Seen:
    return seen(page("a run", {"": run}, rows(run), list(notes(run))))


def test_a_page_shows_a_run_in_four_plots() -> None:
    found = of(result(*[0.001 * 1.01**number for number in range(700)], errors=2))
    assert {label: len(shapes) for label, shapes in found.shapes.items()} == dict(zip(PLOTS, (2, 3, 1, 1), strict=True))
    assert "requests/s" in found.text
    assert "99.9 %" not in found.marks, "of 700 there is no such percentile"
    assert "99 %" in found.marks


@pytest.mark.parametrize("latencies", [[0.0], [0.5], [1e-6, 599.0], [0.01] * 1000])
def test_runs_of_every_size_are_shown(latencies: list[float]) -> None:
    of(result(*latencies, seconds=1.0))


def test_what_a_server_calls_itself_is_text() -> None:
    found = of(attrs.evolve(result(0.1), server="<script>alert(1)</script>", target='"><img src=x>'))
    assert "<script>alert(1)</script>" in found.text
    assert "img" not in found.tags


def test_what_must_be_known_to_believe_it_stands_on_it() -> None:
    assert "it may have been the bottleneck" in of(attrs.evolve(result(0.1), generator_cpu=0.99)).text
    assert "it may have been the bottleneck" not in of(result(0.1)).text


@pytest.mark.finding("newcomer-B4")
def test_steps_and_errors_stand_in_tables() -> None:
    run = result(*[0.01] * 20)
    for _ in range(3):
        run.tally.succeeded(0.02, 1.0, step="read weather://oslo/now")
        run.tally.broke("ServerRefused -32603", 1.0, step="read weather://oslo/now", text="<b>no</b> disk")
    text = page("a run", {"": run}, page_rows(run), [], page_tables(run))
    found = seen(text)
    assert "<th>read weather://oslo/now</th><td>3</td><td>20 ms</td><td>20 ms</td><td>20 ms</td><td>3</td>" in text
    assert "<th>ServerRefused -32603</th><td>3</td><td>&lt;b&gt;no&lt;/b&gt; disk</td>" in text
    assert found.text.count("ServerRefused") == 1, "not in the list of figures, too"
    assert "<h2>" not in page("a run", {"": result(0.1)}, page_rows(run), [], page_tables(result(0.1)))


@pytest.mark.finding("newcomer-B4")
def test_rates_and_errors_are_shown_for_every_second_also_where_there_were_none() -> None:
    run = result(seconds=4.5)
    for _ in range(100):
        run.tally.succeeded(0.01, 0.5)
        run.tally.succeeded(0.01, 4.2)
        run.tally.broke("ConnectionLost", 2.5)
    found = of(run)
    good, bad = ([float(point.split(",")[1]) for point in line.split()] for line in found.shapes["Requests per second"])
    assert [good[0] < good[1], good[1] == good[2] == good[3]] == [True, True]
    assert good[4] < good[0], "a hundred in half a second are two hundred a second"
    assert (min(bad), bad[0], bad.index(min(bad))) == (bad[2], max(bad), 2)
    tips = [one for one in found.tips if "answered" in one]
    assert tips == [
        "0 s: 100 answered, 0 errors",
        "1 s: 0 answered, 0 errors",
        "2 s: 0 answered, 100 errors",
        "3 s: 0 answered, 0 errors",
        "4 s: 200 answered, 0 errors",
    ]
    assert "1 s: no answer" in found.tips
    assert "0 s: p50 10 ms, p99 10 ms, max 10 ms" in found.tips


def test_a_page_of_an_hour_is_not_longer_for_its_tips() -> None:
    run = result(*[0.01] * 3600, seconds=3600.0)
    found = of(run)
    assert len(found.tips) < 800
    assert len(page("an hour", {"": run}, [])) < 1_000_000


def across(found: Seen) -> list[float]:
    """How far the line of p50 reaches, point for point."""
    return [float(point.split(",")[0]) for point in found.shapes["Latency over time"][0].split()]


def test_the_last_few_answers_are_no_second_of_their_own_but_their_wait_is_seen() -> None:
    usual, late = result(*[0.001] * 1000), result(*[0.001] * 1000)
    late.tally.succeeded(9.0, 10.2)
    assert across(of(late)) == across(of(usual))
    heights = [float(point.split(",")[1]) for point in of(late).shapes["Latency over time"][2].split()]
    assert heights[-1] < min(heights[:-1]), "the longest of the last second"
    for _ in range(20):
        late.tally.succeeded(9.0, 10.2)
    assert len(across(of(late))) == len(across(of(usual))) + 1, "those of a stall are"


def test_marks_are_where_people_look_for_them() -> None:
    assert [text for _, text in plots.seconds_axis(10).marks] == ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]
    assert [text for _, text in plots.percent_axis(3).marks] == ["0 %", "50 %", "90 %", "99 %", "99.9 %"]
    assert [text for _, text in plots.latency_axis([0.00005, 0.2]).marks] == [
        "10 \N{MICRO SIGN}s", "100 \N{MICRO SIGN}s", "1 ms", "10 ms", "100 ms", "1 s",
    ]  # fmt: skip
    assert math.isclose(plots.share_axis(43).high, 50)


# Two of them.


def written(folder: Path, name: str, run: BenchResult) -> str:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(run.as_json()))
    return str(file)


def test_two_runs_are_compared_in_a_table_and_on_a_page(tmp_path: Path) -> None:
    old = written(tmp_path, "before", result(*[0.010] * 100))
    new = written(tmp_path, "after", result(*[0.005] * 200, errors=1))
    html = tmp_path / "both.html"
    done = piped("bench", "compare", old, new, "--html", str(html))
    assert (done.returncode, done.stderr) == (0, "")
    table = {name: values for name, *values in (line.split("\t") for line in done.stdout.splitlines())}
    assert table[""] == ["before", "after", "change"]
    assert table["requests/s"] == ["10.0", "20.0", "+100.0 %"]
    assert table["p99"][2] == "-50.0 %"
    assert table["errors"] == ["0", "1", "new"]
    found = seen(html.read_text())
    assert {label: len(shapes) for label, shapes in found.shapes.items()} == dict(zip(PLOTS, (4, 6, 2, 2), strict=True))
    assert "before p99" in found.text


def test_two_runs_are_compared_for_scripts(tmp_path: Path) -> None:
    one = written(tmp_path, "one", result(*[0.010] * 100))
    told = json.loads(piped("bench", "compare", one, one, "--json").stdout)
    assert told["ratios"] == {"requests_per_second": 1, "p50": 1, "p90": 1, "p99": 1, "p99.9": 1, "max": 1}
    assert told["before"]["requests"] == 100


def test_what_is_no_run_is_not_compared(tmp_path: Path) -> None:
    one = written(tmp_path, "one", result(0.1))
    # More files: the last one is compared with the median of the others.
    told = json.loads(piped("bench", "compare", one, one, one, "--json").stdout)
    assert told["figures"]["p99"]["ratio"] == 1.0
    assert (len(told["earlier"]), told["figures"]["p99"]["is_outside"]) == (2, False)
    done = piped("bench", "compare", one, str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"callboard: {tmp_path / 'none.json'}: No such file or directory\n"


def test_steps_of_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    files = []
    for name, latency in (("old", 0.02), ("new", 0.01)):
        run = result(*[0.01] * 20)
        run.tally.succeeded(latency, 1.0, step="save")
        run.tally.succeeded(latency, 1.0, step=f"only {name}")
        files.append(written(tmp_path, name, run))
    html = tmp_path / "both.html"
    assert piped("bench", "compare", *files, "--html", str(html)).returncode == 0
    text = html.read_text()
    cells = ["save", "20 ms", "10 ms", "20 ms", "10 ms", "0", "0"]
    assert "<th>" + "</td><td>".join(cells).replace("</td>", "</th>", 1) + "</td>" in text
    assert "only old" not in text
