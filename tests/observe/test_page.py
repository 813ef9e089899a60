"""The live page in a real browser: what it shows is what was called, and names are text, whatever they are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import trio

from callboard.serve import show_room
from tests.browser import Page, browser
from tests.observe.stage import down, hung, stage, up
from tests.observe.told import Told, choose, figure, filter_by, quiet_view, server_row, shown, sideways, tables

MARKUP: Final = "<img src=x onerror=alert(1)>"
TURNED: Final = "abc\u202egnp.exe\u2066"
LONG: Final = "w" * 10_000
VIEWS: Final = ("servers", "clients", "calls", "tools", "topics", "tree", "letters")


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browser(is_offline=False) as opened:
        yield opened


def check_clean(page: Page, url: str) -> None:
    """Nothing on the console, where refusals of the policy stand, too; and nothing asked of anybody else."""
    assert page.complaints == []
    assert {urlsplit(one).netloc for one in page.fetched} == {urlsplit(url).netloc}


async def test_every_view_shows_what_was_called_and_who_is_there(page: Page) -> None:
    backends = [up("library"), up("archive"), down("gone"), hung("silent")]
    with trio.fail_after(60):
        async with stage(backends) as here:
            url = here.urls["admin"]
            modern = await here.client("reader", "2.1")
            asked = await here.asked("asked")
            for name in (MARKUP, TURNED, LONG):
                legacy = await here.client(name, revision="2025-11-25")
                await legacy.call("library__echo", text="a word")
            for _ in range(7):
                await modern.call("archive__echo")
            for _ in range(3):
                await modern.call("archive__fail")
            for _ in range(2):
                await asked.call("library__borrow")
            here.begin(modern, "archive__copy", pages=12)
            await page.open(url)
            await page.wait("document.querySelectorAll('#panel-servers tbody tr').length === 4")
            await page.wait("document.querySelector('[data-figure=parked] .value').textContent === '2'")

            (servers,) = await tables(page)
            assert servers.names() == ["gone", "silent", "library", "archive"]  # those that are not up come first
            assert [servers.cell(name, "State") for name in servers.names()] == ["down", "starting", "up", "up"]
            assert "No such file or directory · next try in " in servers.below("gone", "State")
            assert servers.cell("archive", "Calls") == "10"
            assert (servers.cell("archive", "Errors"), servers.below("archive", "Errors")) == ("3", "30 %")
            assert servers.below("archive", "Server") == "in process · 2025-11-25"
            assert servers.cell("library", "Offers") == "5 tools"
            assert await figure(page, "servers_up") == "2 / 4"
            assert await figure(page, "in_flight") == "1"
            assert await figure(page, "clients") == "3"
            assert await page.value("document.title") == "2 down · callboard"

            (clients,) = await choose(page, "clients")
            names = {"<img src=x onerror=alert(1)>", r"abc\u202egnp.exe\u2066", "w" * 199 + "…"}
            assert names < set(clients.names()) <= {*names, "reader", "asked"}
            assert {clients.cell(name, "Revision") for name in names} == {"2025-11-25"}

            running, slowest, failed = await choose(page, "calls")
            assert sorted(running.names()) == ["archive__copy", "library__borrow", "library__borrow"]
            assert running.cell("archive__copy", "Progress") == "3 / 12"
            assert running.cell("archive__copy", "Client") == "reader 2.1"
            states = [row[running.heads.index("State")][0] for row in running.rows if row[0][0] == "library__borrow"]
            assert states == ["parked, round 1"] * 2
            assert len(slowest.rows) >= 13
            assert failed.names() == ["archive__fail"] * 3
            assert {row[failed.heads.index("Error")][0] for row in failed.rows} == {"tool_error"}

            (tools,) = await choose(page, "tools")
            assert tools.cell("archive__echo", "Calls") == "7"
            assert (tools.cell("archive__fail", "Errors"), tools.below("archive__fail", "Errors")) == ("3", "100 %")
            assert tools.cell("library__unused", "Last used") == "never"

            (topics,) = await choose(page, "topics")
            assert topics.cell("tools list", "Listeners") == "3"

            (tree,) = await choose(page, "tree")
            assert {"backends", "gone", "sessions"} <= set(tree.names())
            assert tree.below("gone", "State") == "below: down"
            await page.value("document.querySelector('[aria-label=\"Unfold gone\"]').click()")
            (tree,) = await tables(page)
            assert tree.cell("backend", "State") == "down"

            await choose(page, "letters")
            check_clean(page, url)
            await page.value("document.body.setAttribute('style', 'color: red')")
            assert any("Content Security Policy" in one for one in page.complaints)  # else the line above says nothing


HOSTILE: Final = quiet_view(
    server={
        "name": MARKUP,
        "version": TURNED,
        "revisions": [LONG],
        "state": LONG,
        "pid": 1,
        "uptime": 1.0,
        "listening": [{"transport": MARKUP, "url": "javascript:alert(1)"}],
        "workers": [{"name": MARKUP, "answers": False}],
    },
    totals={"servers": 1, "sessions": 1},
    servers=[server_row(MARKUP, state=LONG, is_up=False, why=MARKUP, transport=TURNED, next_try=3.0)],
    clients=[
        {"name": name, "principal": MARKUP, "client": name, "version": TURNED, "transport": MARKUP, "revision": LONG}
        | {"idle": None, "in_flight": 0}
        for name in (MARKUP, TURNED, LONG)
    ],
    running=[
        {"age": 1.0, "method": MARKUP, "target": one, "server": TURNED, "principal": LONG, "client": LONG}
        | {"revision": LONG, "state": MARKUP, "progress": 1e300, "total": -1}
        for one in (MARKUP, MARKUP, LONG)
    ],
    tools=[{"name": LONG, "kind": MARKUP, "server": TURNED, "calls": 1, "errors": 1, "p50": 0, "p99": 0, "idle": 0}],
    topics=[{"topic": MARKUP, "listeners": 1, "server": LONG}],
    dead_letters={
        "total": 1,
        "counts": [{"kind": MARKUP, "reason": LONG, "count": 1}],
        "recent": [{"ago": 1.0, "path": LONG, "kind": TURNED, "reason": MARKUP}],
    },
    tree={"name": MARKUP, "kind": TURNED, "state": LONG, "age": 1.0, "failure": MARKUP, "facts": {MARKUP: LONG}},
)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_room, "EVERY", 0.1)
    monkeypatch.setattr(show_room, "FRESH", 0.0)


async def test_names_are_text_wherever_they_stand_and_leave_room(page: Page, quickly: None) -> None:
    async with shown(Told(HOSTILE)) as url:
        for width in (1280, 500):
            await page.open(url, width=width)
            await page.wait("document.querySelector('#panel-servers tbody tr')")
            for view in VIEWS:
                found = await choose(page, view)
                await page.value("document.querySelectorAll('.opener').forEach(one => one.click())")
                said = str(found)
                assert MARKUP in said or r"\u202e" in said.replace("\\\\", "\\")
                assert "\u202e" not in said
                assert await page.value("document.querySelectorAll('img, #view a').length") == 0
                wide = await sideways(page)
                assert wide <= width, f"{view} at {width} is {wide} wide"
            assert await page.value("document.getElementById('name').textContent") == MARKUP
            check_clean(page, url)


async def test_what_one_looks_at_stays_while_it_is_updated(page: Page, quickly: None) -> None:
    """Order, filter, focus, what is folded or opened: and a row that did not change is not made anew."""
    told = Told(quiet_view(totals={"servers": 3}, servers=[server_row(name, calls=2) for name in ("b", "a", "c")]))
    async with shown(told) as url:
        await page.open(f"{url}#servers")
        await page.wait("document.querySelectorAll('#panel-servers tbody tr').length === 3")
        by_name = "document.querySelector('#panel-servers thead button').click()"
        await page.value(by_name)
        assert (await tables(page))[0].names() == ["a", "b", "c"]
        await page.value(by_name)
        assert await page.value("document.querySelector('th[aria-sort]').textContent") == "Server"
        assert await page.value("document.querySelector('th[aria-sort]').ariaSort") == "descending"
        await page.value("window.row = document.querySelectorAll('#panel-servers tbody tr')[2]")
        await page.value("row.querySelector('.opener').focus(); row.querySelector('.opener').click()")
        told.now = quiet_view(
            totals={"servers": 4}, servers=[server_row(name, calls=3, restarts=1) for name in ("a", "aa", "b", "c")]
        )
        await page.wait("document.querySelectorAll('#panel-servers tbody tr').length === 5")  # with what was opened
        assert (await tables(page))[0].names() == ["c", "b", "aa", "a"]
        assert await page.value("document.activeElement === row.querySelector('.opener')")
        assert await page.value("row.isConnected && row.nextSibling.className") == "detail"
        assert await page.value("[...document.querySelectorAll('.blink')].length") == 3  # that was new: aa
        await filter_by(page, "A")
        assert (await tables(page))[0].names() == ["aa", "a"]
        check_clean(page, url)


async def test_a_tree_folds_filters_and_says_what_it_does_not_show(page: Page, quickly: None) -> None:
    leaf = {"name": "s-1", "kind": "Session", "state": "running", "age": 3.0, "mailbox": [6, 8, 1200]}
    sessions = {"name": "sessions", "kind": "Supervisor", "state": "running", "age": 9.0, "hidden": 9950}
    root = {"name": "callboard", "kind": "Supervisor", "state": "running", "age": 9.0}
    told = Told(quiet_view(tree={**root, "children": [{**sessions, "children": [leaf]}]}))
    async with shown(told) as url:
        await page.open(f"{url}#tree")
        await page.wait("document.querySelectorAll('#panel-tree tbody tr').length === 4")
        (tree,) = await tables(page)
        assert tree.names() == ["callboard", "sessions", "s-1", "+ 9,950 more"]
        assert (tree.cell("s-1", "Mailbox"), tree.cell("s-1", "Handled")) == ("6 / 8", "1,200")
        assert await page.value("document.querySelector('#panel-tree .meter:not([hidden]) i').style.width") == "75%"
        await page.value("document.querySelector('[aria-label=\"Fold sessions\"]').click()")
        assert (await tables(page))[0].names() == ["callboard", "sessions"]
        failed = {**leaf, "state": "failed", "restarts": 1, "failure": "ValueError", "facts": {"is_slow": True}}
        told.now = quiet_view(tree={**root, "children": [{**sessions, "children": [failed]}]})
        await page.wait("document.querySelector('#panel-tree td .sub:not([hidden])')")
        (tree,) = await tables(page)
        assert tree.names() == ["callboard", "sessions"]  # as it was left
        assert tree.below("sessions", "State") == "below: failed"
        await filter_by(page, "s-1")
        (tree,) = await tables(page)
        assert tree.names() == ["callboard", "sessions", "s-1"]  # and the way to it
        assert tree.cell("s-1", "Last failure") == "ValueError"
        await page.value("document.querySelectorAll('#panel-tree .opener')[2].click()")
        assert "is slow" in await page.value("document.querySelector('#panel-tree .facts').textContent")
        assert await page.value("document.querySelectorAll('#panel-tree tbody tr')[2].ariaLevel") == "3"
        check_clean(page, url)


async def test_views_are_reached_by_keys_and_only_one_is_drawn(page: Page, quickly: None) -> None:
    async with shown(Told(quiet_view(totals={"servers": 1}, servers=[server_row("a")]))) as url:
        await page.open(url)
        await page.wait("document.querySelector('#panel-servers tbody tr')")
        assert await page.value("document.querySelectorAll('table').length") == 1
        await page.value("document.getElementById('tab-servers').focus()")
        for view in (*VIEWS[1:], VIEWS[0]):  # round and round
            for kind in ("keyDown", "keyUp"):
                await page.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
            assert await page.value("location.hash") == f"#{view}"
            assert await page.value("document.activeElement.id") == f"tab-{view}"
        assert await page.value("document.querySelectorAll('[role=tabpanel]:not([hidden])').length") == 1
        check_clean(page, url)


async def test_a_pause_holds_the_page_and_a_lost_connection_comes_back(page: Page, quickly: None) -> None:
    told = Told(quiet_view(totals={"servers": 1}, servers=[server_row("a")]))
    news = "document.getElementById('news').textContent"
    async with shown(told) as url:
        await page.open(url)
        await page.wait(f"{news} === 'live'")
        await page.value("document.getElementById('pause').click()")
        told.now = quiet_view(totals={"servers": 1}, servers=[server_row("b")])
        before = told.asked
        while told.asked < before + 3:  # noqa: ASYNC110  # what comes meanwhile is not shown
            await trio.sleep(0.05)
        assert (await tables(page))[0].names() == ["a"]
        assert (await page.value(news)).startswith("paused at ")
        await page.value("document.getElementById('pause').click()")
        assert (await tables(page))[0].names() == ["b"]
    await page.wait(f"{news} === 'connection lost, trying again'")
    told.now = quiet_view(totals={"servers": 1}, servers=[server_row("c")])
    async with shown(told, urlsplit(url).port or 0):
        await page.wait(f"{news} === 'live'")
        assert (await tables(page))[0].names() == ["c"]


async def test_an_operator_who_may_act_restarts_a_server_with_two_clicks(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ops 0123456789abcdef-admin\n")
    file.chmod(0o600)
    options = {"admin_token_file": str(file), "admin_actions": True}
    button = "[...document.querySelectorAll('.actions button')].find(one => one.textContent.startsWith('Restart'))"
    restarts = "document.querySelector('#panel-servers tbody tr').cells[8].textContent"
    async with stage([up("library")], **options) as here:
        bearer = {"Authorization": "Bearer 0123456789abcdef-admin"}
        await page.ask("Network.setExtraHTTPHeaders", headers=bearer)
        await page.open(here.urls["admin"])
        await page.wait("document.querySelector('#panel-servers .opener')")
        await page.value("document.querySelector('#panel-servers .opener').click()")
        await page.value(f"{button}.click()")
        assert await page.value(f"{button}.textContent") == "Restart: sure?"
        assert await page.value(restarts) == "\u2013"
        await page.value(f"{button}.click()")
        await page.wait("document.querySelector('.actions [role=status]').textContent === 'done'")
        await page.wait(f"{restarts} === '1'")
        check_clean(page, here.urls["admin"])


async def test_tools_that_wait_for_approval_have_a_view_while_there_are_any(page: Page, quickly: None) -> None:
    waiting = [
        {"server": "library", "tool": MARKUP, "pinned": "none", "subject": "library/a@1"},
        {"server": "library", "tool": "lend", "pinned": "abc", "subject": "library/lend@2"},
    ]
    told = Told({**quiet_view(), "approvals": waiting})
    async with shown(told) as url:
        await page.open(url)
        await page.wait("!document.getElementById('tab-approvals').hidden")
        _, found = await choose(page, "approvals")
        assert [found.cell(name, "Why") for name in (MARKUP, "lend")] == ["it is new", "its definition has changed"]
        told.now = quiet_view()
        await page.wait("document.getElementById('tab-approvals').hidden")
        check_clean(page, url)


async def test_calls_that_wait_for_approval_are_shown_with_their_arguments(page: Page, quickly: None) -> None:
    call = {"id": "c1", "age": 3, "server": "files", "tool": MARKUP, "principal": "ada", "digest": "9b1f", "more": 0}
    told = Told({**quiet_view(), "waiting_calls": [{**call, "arguments": '{"path":"/srv"}'}]})
    async with shown(told) as url:
        await page.open(url)
        await page.wait("!document.getElementById('tab-approvals').hidden")
        calls, _ = await choose(page, "approvals")
        assert [calls.cell(MARKUP, name) for name in ("Server", "Principal", "Arguments")] == [
            *("files", "ada", '{"path":"/srv"}')
        ]
        check_clean(page, url)


async def test_there_are_no_buttons_where_operators_only_look(page: Page, quickly: None) -> None:
    async with shown(Told(quiet_view(totals={"servers": 1}, servers=[server_row("a")]))) as url:
        await page.open(url)
        await page.wait("document.querySelector('#panel-servers .opener')")
        await page.value("document.querySelector('#panel-servers .opener').click()")
        assert await page.value("document.querySelectorAll('.facts').length") == 1
        assert await page.value("document.querySelectorAll('.actions').length") == 0


async def test_the_nodes_of_a_cluster_and_the_workers_of_this_one_are_seen(page: Page, quickly: None) -> None:
    figures = {"sessions": 7, "connections": 9, "in_flight": 2, "parked": 1, "requests": 1000, "errors": 10}
    nodes = [
        {"name": "here", "host": "10.0.0.1", "workers": 2, "is_here": True, **figures},
        {"name": MARKUP, "host": TURNED, "workers": 4, "is_here": False, "is_leaving": True, "version": LONG, **figures}
        | {"p99_10s": 0.02, "resident": 2**30},
    ]
    workers = [
        {"name": "worker-1", "state": "serving", "pid": 7, "answers": True},
        {"name": "worker-2", "state": "serving", "pid": 8, "answers": False},
    ]
    told = quiet_view()
    told["server"] |= {"nodes": nodes, "workers": workers}
    async with shown(Told(told)) as url:
        for width in (1280, 500):
            await page.open("about:blank")
            await page.open(f"{url}#nodes", width=width)
            await page.wait("document.querySelectorAll('#panel-nodes tbody tr').length === 4")
            others, own = await tables(page)
            assert others.names() == [MARKUP, "here"]
            assert (others.cell(MARKUP, "State"), others.cell(MARKUP, "p99")) == ("leaving", "20 ms")
            assert (others.cell("here", "Clients"), others.cell("here", "Errors")) == ("7", "10")
            assert others.below("here", "Errors") == "1 %"
            assert others.cell(MARKUP, "Memory") == "1 GiB"
            assert own.below("worker-2", "State") == "does not answer"
            assert await sideways(page) <= width
            check_clean(page, url)


async def test_last_lines_of_a_server_are_behind_a_click(page: Page, quickly: None) -> None:
    said = [MARKUP, TURNED, LONG]
    row = server_row("a", pid=7, processes=3, resident=2**20, cpu_seconds=1.5, calls=4, parked=2)
    row |= {"calls_per_second": 2.5, "errors_per_second": 0.0}
    told = Told(quiet_view(totals={"servers": 1}, servers=[row]), said={"a": said})
    async with shown(told) as url:
        await page.open(url)
        await page.wait("document.querySelector('#panel-servers .opener')")
        assert await page.value("document.querySelectorAll('.said').length") == 0
        (servers,) = await tables(page)
        assert (servers.below("a", "Calls"), servers.below("a", "In flight")) == ("2.5 / s", "2 parked")
        assert (servers.cell("a", "Process"), servers.below("a", "Process")) == ("1 MiB", "3 processes")
        await page.value("document.querySelector('#panel-servers .opener').click()")
        await page.wait("document.querySelector('.said pre').textContent")
        lines = (await page.value("document.querySelector('.said pre').textContent")).split("\n")
        assert lines[:2] == [MARKUP, r"abc\u202egnp.exe\u2066"]
        assert len(lines) == 3
        assert await sideways(page) <= 1280
        check_clean(page, url)
