"""The live page in front of a crowd: all of it is seen, nothing is slow, and the console stays empty."""

import time
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from tests.browser import Page, browser
from tests.figures import LONG, figure
from tests.observe.stage import Stage, down, hung, stage, up
from tests.observe.told import Shown, choose, sideways
from tests.observe.told import figure as big

SERVERS: Final = 50 if LONG else 6
CLIENTS: Final = 1000 if LONG else 20
PARKED: Final = 200 if LONG else 6
AT_ONCE: Final = 20
LONGEST: Final = 300.0
VIEWS: Final = ("servers", "clients", "calls", "tools", "topics", "tree", "letters")
MOST_ROWS: Final = 200
MOST_FAILED: Final = 100
LOOKS: Final = ((1280, False), (1280, True), (500, False), (500, True))
"""Widths of the window, and whether it is dark."""
IS_SEEN: Final = """(() => {{
  const box = document.getElementById('tab-{}').getBoundingClientRect();
  return box.left >= 0 && box.right <= innerWidth;
}})()"""


@attrs.define
class Crowd:
    """Servers, and what was done to them."""

    good: list[str]
    bad: list[str]
    echoed: int = 0
    failed: int = 0

    async def come(self, here: Stage) -> None:
        """Sessions and parked calls; every fifth session makes a call that fails."""
        limit = trio.CapacityLimiter(AT_ONCE)

        async def call(number: int) -> None:
            async with limit:
                name = self.good[number % len(self.good)]
                client = await here.client(f"client-{number}", revision="2025-11-25")
                await client.call(f"{name}__echo")
                self.echoed += 1
                if number % 5 == 0:
                    await client.call(f"{name}__fail")
                    self.failed += 1

        async def park(number: int) -> None:
            async with limit:
                asked = await here.asked(f"asked-{number}")
                await asked.call(f"{self.good[number % len(self.good)]}__borrow")

        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(call, number)
            for number in range(PARKED):
                nursery.start_soon(park, number)

    async def check(self, page: Page) -> float:
        """Click through every view. Returns the longest time that one took."""
        await page.wait(f"document.querySelector('[data-figure=parked] .value').textContent === '{PARKED}'")
        assert await big(page, "clients") == f"{CLIENTS:,}"
        assert await big(page, "servers_up") == f"{len(self.good)} / {SERVERS}"
        assert await page.value("document.querySelector('[data-figure=errors] .below').textContent") == (
            f"{self.failed:,} in all"
        )
        width = await page.value("innerWidth")
        slowest = 0.0
        for view in VIEWS:
            began = time.perf_counter()
            found = await choose(page, view)
            slowest = max(slowest, time.perf_counter() - began)
            self._check_view(view, found)
            assert await page.value(IS_SEEN.format(view)), f"the tab of {view} is out of sight at {width}"
            assert await sideways(page) <= width, f"{view} is wider than {width}"
        return slowest

    def _check_view(self, view: str, found: list[Shown]) -> None:
        if view == "servers":
            (servers,) = found
            assert sorted(servers.names()) == sorted([*self.good, *self.bad])
            assert set(servers.names()[: len(self.bad)]) == set(self.bad)
            # A parked call has no answer of its server yet.
            assert sum(number(servers.cell(name, "Calls")) for name in self.good) == self.echoed + self.failed
            assert sum(number(servers.cell(name, "Errors")) for name in self.good) == self.failed
        elif view == "clients":
            assert min(CLIENTS, MOST_ROWS // 2) <= len(found[0].rows) <= MOST_ROWS
        elif view == "calls":
            running, _, failed = found
            assert sum("borrow" in name for name in running.names()) == min(PARKED, MOST_ROWS)
            assert len(failed.rows) == min(self.failed, MOST_FAILED)
        elif view == "tools":
            (tools,) = found
            assert len(tools.rows) == min(5 * len(self.good), MOST_ROWS)
            calls = {name: number(tools.cell(name, "Calls")) for name in tools.names()}
            assert sum(many for name, many in calls.items() if name.endswith("__echo")) == self.echoed


def number(text: str) -> int:
    return 0 if text == "\u2013" else int(text.replace(",", ""))


async def is_dark(page: Page) -> bool:
    colour = await page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    return bool(max(colour) < 128)


async def test_the_page_shows_a_crowd_at_any_width_in_light_and_dark() -> None:
    names = [f"s{number}" for number in range(SERVERS)]
    crowd = Crowd(good=names[SERVERS // 3 :], bad=names[: SERVERS // 3])
    bad = (down(name) if place % 2 else hung(name) for place, name in enumerate(crowd.bad))
    slowest = 0.0
    with trio.fail_after(LONGEST):
        async with (
            stage([*bad, *map(up, crowd.good)]) as here,
            browser(is_offline=False, patience=LONGEST) as page,
        ):
            await crowd.come(here)
            url = here.urls["admin"]
            for width, wants_dark in LOOKS:
                await page.open("about:blank")  # else only the view would change
                await page.open(url, width=width, is_dark=wants_dark)
                await page.wait("document.querySelector('#panel-servers tbody tr')")
                assert (await page.value("innerWidth"), await is_dark(page)) == (width, wants_dark)
                slowest = max(slowest, await crowd.check(page))
                while len(page.told("Network.eventSourceMessageReceived")) < 3:  # it goes on, however large views are
                    await page.value("1")
                assert await page.value("document.getElementById('news').textContent") == "live"
                assert page.complaints == []  # refusals of the policy stand there, too
                assert {urlsplit(one).netloc for one in page.fetched} == {urlsplit(url).netloc}
    figure(
        "live page",
        f"{SERVERS} servers, {CLIENTS} clients, {PARKED} parked calls, at {len(LOOKS)} sizes and colours: "
        f"the slowest view is drawn and read in {slowest * 1000:.0f} ms",
    )
    assert slowest < 5
