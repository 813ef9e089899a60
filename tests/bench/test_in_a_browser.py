"""The report in a real browser, without a network: four plots, to be seen, and nothing else is asked for."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Final

import attrs
import pytest

from callboard.bench.page import page as made
from callboard.bench.result import BenchResult
from callboard.cli.bench_view import page_rows, page_tables, rows
from tests.at_terminal import piped
from tests.bench.figures import result
from tests.bench.test_page import PLOTS
from tests.browser import Box, Page, browser, changed_pixels
from tests.shared import APPS

APP: Final = str(APPS / "steady.py")
LEAST_TEXT: Final = 8.0
"""Pixels of height below which nobody reads a label."""

SHAPES: Final = "polyline, polygon, circle"
FOUND: Final = f"""
(() => {{
  const box = one => {{ const r = one.getBoundingClientRect();
    return {{x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}}; }};
  return [...document.querySelectorAll("svg")].map(svg => ({{
    label: svg.getAttribute("aria-label"), box: box(svg),
    shapes: [...svg.querySelectorAll("{SHAPES}")].map(box),
    texts: [...svg.querySelectorAll("text:not(.tip)")].filter(one => one.textContent)
      .map(one => [one.textContent, box(one)])}}));
}})()
"""


@attrs.frozen
class Plot:
    """One of them, as the browser has laid it out."""

    label: str
    box: Box
    shapes: list[Box]
    texts: list[tuple[str, Box]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a real run, and one of two runs."""
    folder = tmp_path_factory.mktemp("reports")
    for name, rate in (("before", "50"), ("after", "100")):
        load = ("--duration", "2s", "--warmup", "0", "--rate", rate)
        done = piped("bench", f"{APP}:server", *load, "--json", "--html", str(folder / f"{name}.html"))
        assert done.returncode == 0, done.stderr
        (folder / f"{name}.json").write_text(done.stdout)
    both = [str(folder / f"{name}.json") for name in ("before", "after")]
    done = piped("bench", "compare", *both, "--html", str(folder / "both.html"))
    assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.html" for name in ("before", "both")}


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browser() as opened:
        yield opened


async def plots_on(page: Page) -> dict[str, Plot]:
    found = {}
    for one in await page.value(FOUND):
        shapes = [Box(**box) for box in one["shapes"]]
        texts = [(text, Box(**box)) for text, box in one["texts"]]
        found[one["label"]] = Plot(one["label"], Box(**one["box"]), shapes, texts)
    return found


@pytest.mark.parametrize(("name", "runs"), [("before", 1), ("both", 2)])
async def test_a_report_shows_its_four_plots(page: Page, reports: dict[str, Path], name: str, runs: int) -> None:
    for width, is_dark in product((1280, 400), (False, True)):  # in one browser: to start it takes longer than to look
        await page.open(reports[name].as_uri(), width=width, is_dark=is_dark)
        assert page.fetched == [reports[name].as_uri()]
        assert page.complaints == []
        await look(page, runs=runs, width=width, is_dark=is_dark)


WIDE: Final[Mapping[str, Callable[[], BenchResult]]] = {
    "nothing": result,
    "one": lambda: result(0.1),
    "from nothing to minutes": lambda: result(1e-6, 1e-4, 0.1, 599.0, seconds=600.0),
    "many": lambda: result(*[0.1 + 1e-6 * number for number in range(100_000)], seconds=3000.0, errors=3),
}
"""Runs with few points, and with labels that are as long as they get. To make one takes up to a second."""


@pytest.mark.parametrize("names", [*((name,) for name in WIDE), ("one", "many"), ("from nothing to minutes", "many")])
async def test_labels_have_room_whatever_was_measured(page: Page, tmp_path: Path, names: tuple[str, ...]) -> None:
    runs = {name: WIDE[name]() for name in names}
    table = rows(runs[names[0]]) if len(names) == 1 else [("", *names, "change"), ("target", "here" * 40, "there", "")]
    file = tmp_path / "wide.html"
    file.write_text(made("x" * 200, runs, table, ["a note " * 40]))
    for width in (1280, 400):
        await page.open(file.as_uri(), width=width)
        for plot in (await plots_on(page)).values():
            check_labels(plot)
        assert await page.value("document.scrollingElement.scrollWidth") <= width, "nobody scrolls sideways"


TIPS: Final = """
[...document.querySelectorAll(".tip")].filter(one => getComputedStyle(one).visibility === "visible")
  .map(one => { const r = one.getBoundingClientRect();
    return [one.textContent, {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}]; })
"""


@pytest.mark.finding("newcomer-B4")
@pytest.mark.parametrize(("name", "runs"), [("before", 1), ("both", 2)])
async def test_the_figures_under_the_mouse_are_shown(
    page: Page, reports: dict[str, Path], name: str, runs: int
) -> None:
    for width, is_dark in ((1280, False), (400, True)):
        await page.open(reports[name].as_uri(), width=width, height=3000, is_dark=is_dark)
        assert await page.value(TIPS) == [], "none, while the mouse is elsewhere"
        for plot in (await plots_on(page)).values():
            before = await page.picture(plot.box)
            await page.point(plot.box.x + plot.box.width / 2, plot.box.y + plot.box.height / 2)
            shown = [(text, Box(**box)) for text, box in await page.value(TIPS)]
            assert len(shown) == runs, plot.label
            assert all(plot.box.holds(box) for _, box in shown), shown
            assert changed_pixels(before, await page.picture(plot.box)) > 100, "it is to be seen"
        await page.point(1, 1)


async def test_tables_of_steps_and_errors_are_laid_out_in_rows_that_do_not_overlap(page: Page, tmp_path: Path) -> None:
    run = result(*[0.01] * 20)
    for label in ("read weather://oslo/now", "x" * 200):
        run.tally.succeeded(0.02, 1.0, step=label)
        run.tally.broke("ServerRefused -32603", 1.0, step=label, text="no disk " * 30)
    file = tmp_path / "steps.html"
    file.write_text(made("steps", {"": run}, page_rows(run), [], page_tables(run)))
    cells = """[...document.querySelectorAll("h2 + div tbody tr > *")].map(one => {
      const r = one.getBoundingClientRect(); return {x: r.x, y: r.y, width: r.width, height: r.height}; })"""
    for width in (1280, 400):
        await page.open(file.as_uri(), width=width)
        boxes = [Box(**box) for box in await page.value(cells)]
        assert len(boxes) == 2 * 6 + 3
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert await page.value("document.scrollingElement.scrollWidth") <= width


async def look(page: Page, *, runs: int, width: int, is_dark: bool) -> None:
    plots = await plots_on(page)
    assert list(plots) == PLOTS
    assert [len(plot.shapes) for plot in plots.values()] == [2 * runs, 3 * runs, runs, runs]
    for plot in plots.values():
        check(plot, width=width)
        await check_pixels(page, plot)
    assert await page.value("document.scrollingElement.scrollWidth") <= width, "nobody scrolls sideways"
    corner = (await page.picture(Box(0, 0, 1, 1))).getpixel((0, 0))
    assert isinstance(corner, tuple)
    assert (max(corner) < 64) == is_dark


def check(plot: Plot, *, width: int) -> None:
    """It has room, and its lines and labels stand in it."""
    assert plot.box.width > 0.8 * min(width, 900)
    assert plot.box.height > 100
    for shape in plot.shapes:
        assert shape.width > 1
        assert plot.box.holds(shape), "a line leaves the plot"
    assert max(one.y + one.height for one in plot.shapes) - min(one.y for one in plot.shapes) > 10, "all is flat"
    check_labels(plot)


def check_labels(plot: Plot) -> None:
    """They can be read."""
    assert len(plot.texts) > 3
    for text, box in plot.texts:
        assert plot.box.holds(box), f"{text} is cut off"
        assert box.height >= LEAST_TEXT, f"{text} is small"
    assert [(one, other) for (one, a), (other, b) in combinations(plot.texts, 2) if a.overlaps(b)] == []


async def check_pixels(page: Page, plot: Plot) -> None:
    """Each of its lines is to be seen: the picture is another one without it."""
    shapes = f"[...document.querySelectorAll('svg[aria-label=\"{plot.label}\"] :is({SHAPES})')]"
    await page.value(f"{shapes}.forEach(one => one.style.visibility = 'hidden')")
    empty = await page.picture(plot.box)
    for number in range(len(plot.shapes)):
        await page.value(f"{shapes}[{number}].style.visibility = 'visible'")
        seen = changed_pixels(empty, await page.picture(plot.box))
        assert seen > plot.box.width / 8, f"{plot.label}: line {number} is not seen"
        await page.value(f"{shapes}[{number}].style.visibility = 'hidden'")


async def test_what_a_page_fetches_or_says_is_noticed(page: Page, tmp_path: Path) -> None:
    """Else the test above would tell nothing."""
    file = tmp_path / "curious.html"
    file.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('oh'); nothing.at.all</script>")
    await page.open(file.as_uri())
    assert page.fetched == [file.as_uri(), "http://127.0.0.1:9/x.png"]
    told = json.dumps(page.complaints)
    assert "ERR_INTERNET_DISCONNECTED" in told
    assert "oh" in told
    assert "Uncaught" in told
