"""A page that shows what a test says, and how a test reads a page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from callboard.codecs.http.access import Access
from callboard.observe.history import NUMBERS
from callboard.observe.rows import Row
from callboard.serve.admin import admin_edge
from callboard.serve.show_room import ShowRoom
from callboard.supervisor import SupervisorSpec, open_tree
from callboard.transports.bind import BindAddress, listen
from tests.browser import Page

TABLES: Final = """
[...document.querySelectorAll('#view [role=tabpanel]:not([hidden]) table')].map(table => ({
  heads: [...table.tHead.rows[0].cells].map(one => one.textContent),
  rows: [...table.tBodies[0].rows].filter(row => !row.classList.contains('detail')).map(row =>
    [...row.cells].map(cell => {
      const main = cell.querySelector('.main, .badge'), sub = cell.querySelector('.sub');
      return [main.hidden ? '' : main.textContent, sub && !sub.hidden ? sub.textContent : ''];
    }))}))
"""


@attrs.frozen
class Shown:
    """A table on the page: its rows, by what stands in their first cell."""

    heads: list[str]
    rows: list[list[tuple[str, str]]]

    def names(self) -> list[str]:
        return [row[0][0] for row in self.rows]

    def cell(self, name: str, head: str) -> str:
        (row,) = [row for row in self.rows if row[0][0] == name]
        return row[self.heads.index(head)][0]

    def below(self, name: str, head: str) -> str:
        """The second line of the cell."""
        (row,) = [row for row in self.rows if row[0][0] == name]
        return row[self.heads.index(head)][1]


async def tables(page: Page) -> list[Shown]:
    """Those of the view that is looked at."""
    return [Shown(**one) for one in await page.value(TABLES)]


async def choose(page: Page, view: str) -> list[Shown]:
    await page.value(f"document.getElementById('tab-{view}').click()")
    assert await page.value("location.hash") == f"#{view}"
    return await tables(page)


async def filter_by(page: Page, words: str) -> None:
    await page.value("document.getElementById('filter').focus()")
    await page.ask("Input.insertText", text=words)


async def figure(page: Page, name: str) -> str:
    """A big figure with its unit."""
    found: str = await page.value(f"document.querySelector('[data-figure={name}] .now').textContent")
    return found


async def sideways(page: Page) -> int:
    """How wide the page is, with what one has to scroll to."""
    found: int = await page.value("document.scrollingElement.scrollWidth")
    return found


def quiet_view(**said: Any) -> Row:
    """A view in which nothing happens, but for what is *said*."""
    view: Row = {
        "version": 1,
        "at": 1_800_000_000.0,
        "server": {
            "name": "callboard",
            "version": "1.0",
            "revisions": ["2025-11-25", "2026-07-28"],
            "state": "ready",
            "pid": 7,
            "uptime": 3723.0,
            "listening": [{"transport": "http", "url": "http://127.0.0.1:1/mcp"}],
        },
        "totals": {
            "sessions": 0,
            "in_flight": 0,
            "parked": 0,
            "subscriptions": 0,
            "connections": 0,
            "dead_letters": 0,
            "memory": 0,
            "servers": 0,
            "servers_up": 0,
            "requests": 0,
            "errors": 0,
            "refused": {},
            "resident": 0,
            "cpu_seconds": 0.0,
        },
        "latest": {},
        "point": dict.fromkeys(NUMBERS, None),
        "dead_letters": {"total": 0, "counts": [], "recent": []},
        "tree": {"name": "callboard", "kind": "Supervisor", "state": "running", "age": 1.0},
    }
    view |= {name: [] for name in ("servers", "clients", "running", "slowest", "failed", "tools", "topics")}
    view["totals"] |= said.pop("totals", {})
    return view | said


def server_row(name: str, **said: Any) -> Row:
    row: Row = {"name": name, "state": "up", "is_up": True, "why": None, "next_try": None, "transport": "stdio"}
    row |= {"revision": "2026-07-28", "connections": 1, "max_connections": 16, "in_flight": 0, "max_in_flight": 1024}
    row |= {"restarts": 0, "calls": 0, "errors": 0, "p50": None, "p99": None, "withheld": 0, "tools": 0}
    return row | said


@attrs.define(eq=False)
class Told:
    """An `Overview` of which a test says what is seen."""

    now: Row = attrs.field(factory=quiet_view)
    asked: int = 0
    said: dict[str, list[str]] = attrs.field(factory=dict)
    """By server, the lines on its standard error."""
    held: trio.Event | None = None
    """Until then, the first view of a viewer is not ready."""

    async def view(self, *, with_history: bool = False) -> Row:
        await trio.lowlevel.checkpoint()
        if with_history and self.held is not None:
            await self.held.wait()
        self.asked += 1
        return {**self.now, "history": {name: [] for name in NUMBERS}} if with_history else self.now

    async def metrics(self, form: bytes = b"") -> list[bytes]:
        await trio.lowlevel.checkpoint()
        return [form]

    async def stderr(self, server: str) -> list[str] | None:
        await trio.lowlevel.checkpoint()
        return self.said.get(server, [])

    async def act(self, action: str, subject: str) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    def is_ready(self) -> bool:
        return True


@asynccontextmanager
async def shown(told: Told, port: int = 0) -> AsyncIterator[str]:
    """The address of a page that shows it."""
    async with (
        listen(BindAddress(host="127.0.0.1", port=port)) as bound,
        open_tree(SupervisorSpec(name="told")) as root,
    ):
        room = ShowRoom(told)
        root.spawn(room.viewers, name="viewers", shutdown=0)
        place = bound.place
        await root.add(admin_edge(told, Access.of(place.host, place.port), bound.sockets, room))
        yield f"http://127.0.0.1:{place.port}/"
