"""The live page in front of a crowd: all of it is seen, nothing is slow, and the console stays empty."""

import time
from pathlib import Path
from typing import Final

import trio

from tests.browser import browser
from tests.figures import LONG, figure
from tests.observe.stage import Stage, down, hung, stage, up
from tests.observe.told import choose, tables
from tests.observe.told import figure as big

SERVERS: Final = 50 if LONG else 6
CLIENTS: Final = 1000 if LONG else 20
PARKED: Final = 200 if LONG else 6
AT_ONCE: Final = 20
LONGEST: Final = 300.0
VIEWS: Final = ("servers", "clients", "calls", "tools", "topics", "tree", "letters")
MOST_ROWS: Final = 200


async def crowd(here: Stage, names: list[str]) -> int:
    """Sessions and parked calls. Returns how many calls were made that have ended."""
    made = 0
    limit = trio.CapacityLimiter(AT_ONCE)

    async def come(number: int) -> None:
        nonlocal made
        async with limit:
            client = await here.client(f"client-{number}", revision="2025-11-25")
            await client.call(f"{names[number % len(names)]}__echo")
            made += 1

    async def park(number: int) -> None:
        async with limit:
            asked = await here.asked(f"asked-{number}")
            await asked.call(f"{names[number % len(names)]}__borrow")

    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(come, number)
        for number in range(PARKED):
            nursery.start_soon(park, number)
    return made


async def test_the_page_shows_a_crowd(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(SERVERS)]
    bad = names[: SERVERS // 3]
    good = names[len(bad) :]
    backends = [*(down(name) if place % 2 else hung(name) for place, name in enumerate(bad)), *map(up, good)]
    with trio.fail_after(LONGEST):
        async with stage(backends) as here, browser(tmp_path / "profile", is_offline=False, patience=LONGEST) as page:
            made = await crowd(here, good)
            await page.open(here.urls["admin"])
            await page.wait("document.querySelector('#panel-servers tbody tr')")
            await page.wait(f"document.querySelector('[data-figure=parked] .value').textContent === '{PARKED}'")
            assert (await big(page, "clients")).replace(",", "") == str(CLIENTS)
            assert await big(page, "servers_up") == f"{len(good)} / {SERVERS}"
            (servers,) = await tables(page)
            assert sorted(servers.names()) == sorted(names)
            assert set(servers.names()[: len(bad)]) == set(bad)
            calls = sum(int(servers.cell(name, "Calls").replace(",", "")) for name in good)
            assert calls == made  # a parked call has no answer of its server yet
            slowest = 0.0
            for view in VIEWS:
                began = time.perf_counter()
                found = await choose(page, view)
                slowest = max(slowest, time.perf_counter() - began)
                if view == "clients":
                    assert min(CLIENTS, MOST_ROWS // 2) <= len(found[0].rows) <= MOST_ROWS
                if view == "calls":
                    assert sum("borrow" in name for name in found[0].names()) == min(PARKED, MOST_ROWS)
                if view == "tools":
                    assert len(found[0].rows) == min(5 * len(good), MOST_ROWS)
            assert page.complaints == []
    figure(
        "live page",
        f"{SERVERS} servers, {CLIENTS} clients, {PARKED} parked calls: the slowest view is drawn and read in "
        f"{slowest * 1000:.0f} ms",
    )
    assert slowest < 5
