"""What the admin listener shows: the view, the stream, metrics; to whom, and without a word too much."""

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server, connect
from callboard.errors import CannotServe
from callboard.observe.journal import PastRequest
from callboard.observe.view import ServerView
from callboard.serve import show_room
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.serve.show_room import ShowRoom
from tests.observe.told import Told, quiet_view, shown
from tests.transports.server.http.stage import Answer, Client

CANARY = "a canary that nobody may see"

app = Server("app")


@app.tool
async def echo(text: str) -> str:
    return text


@app.tool
async def fail() -> str:
    raise ValueError(CANARY)


@app.tool
async def wait(ctx: Context) -> str:
    await ctx.report(3, total=10, message=CANARY)
    await trio.sleep(60)
    return ""


class Place:
    """A running server, and its admin listener."""

    def __init__(self, ready: Ready | dict[str, str]) -> None:
        self.urls: dict[str, str] = ready if isinstance(ready, dict) else {}
        if isinstance(ready, Ready):
            self.urls = {one.transport: one.url or "" for one in ready.listening}
        self.port = urlsplit(self.urls["admin"]).port

    async def client(self) -> Client:
        bare = trio.socket.socket()
        await bare.connect(("127.0.0.1", self.port))
        return Client(trio.SocketStream(bare), bare, f"127.0.0.1:{self.port}".encode())

    async def ask(self, path: str, *headers: str, method: str = "GET", body: str = "") -> Answer:
        client = await self.client()
        lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}", *headers, "", body]
        await client.send("\r\n".join(lines).encode())
        try:
            return await client.answer()
        finally:
            await client.aclose()

    async def post(self, path: str, message: Any, *headers: str) -> Answer:
        body = json.dumps(message)
        return await self.ask(path, *headers, f"content-length: {len(body)}", method="POST", body=body)

    async def view(self, query: str = "", *headers: str) -> Any:
        return json.loads((await self.ask(f"/api/snapshot{query}", *headers)).body)

    async def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = (await self.ask("/metrics")).body.decode()
        families = text_string_to_metric_families(text)
        return {(one.name, frozenset(one.labels.items())): one.value for some in families for one in some.samples}


@asynccontextmanager
async def place(**options: Any) -> AsyncIterator[Place]:
    enough = trio.Event()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                given: Any = {"http": 0, "admin": 0, **options}
                await serve(app, until=enough.wait, task_status=task_status, **given)

            yield Place(await nursery.start(run))
            enough.set()


async def test_counts_equal_what_was_called_and_waits() -> None:
    async with place() as here, connect(here.urls["http"]) as client, trio.open_nursery() as nursery:
        for _ in range(7):
            await client.call("echo", text=CANARY)
        for _ in range(3):
            await client.call("fail")
        with trio.move_on_after(0.2):
            await client.call("wait")

        async def call() -> None:
            await client.call("wait")

        nursery.start_soon(call)
        while not (view := await here.view("?history"))["running"]:  # noqa: ASYNC110  # asked over HTTP
            await trio.sleep(0.05)
        assert set(view["history"]) == set(view["point"])
        tools = {row["name"]: (row["calls"], row["errors"]) for row in view["tools"]}
        assert tools == {"echo": (7, 0), "fail": (3, 3), "wait": (1, 1)}
        (running,) = view["running"]
        assert (running["target"], running["state"], running["progress"], running["total"]) == (
            "wait",
            "running",
            3,
            10,
        )
        assert Counter(row["error"] for row in view["failed"]) == {"tool_error": 3, "cancelled": 1}
        assert view["totals"]["in_flight"] == 1
        assert view["totals"]["errors"] == 3
        samples = await here.samples()
        counts = Counter[str]()
        for (name, labels), value in samples.items():
            if name == "mcp_server_operation_duration_seconds_count":
                counts[dict(labels).get("gen_ai_tool_name", "")] += int(value)
        assert (counts["echo"], counts["fail"]) == (7, 3)
        assert sum(counts.values()) == view["totals"]["requests"]
        assert samples["callboard_in_flight", frozenset()] == 1
        assert samples["callboard_cancelled_total", frozenset()] == 1
        for path in ("/api/snapshot?history", "/metrics"):
            assert CANARY not in (await here.ask(path)).body.decode()
        nursery.cancel_scope.cancel()


async def test_what_is_refused_is_counted() -> None:
    async with place() as here:
        async with await trio.open_tcp_stream("127.0.0.1", urlsplit(here.urls["http"]).port or 0) as bare:
            await bare.send_all(b"GET /mcp HTTP/1.1\r\nhost: evil.example\r\n\r\n")
            assert b"421" in await bare.receive_some()
        assert (await here.view())["totals"]["refused"] == {"host": 1}
        assert (await here.samples())["callboard_refused_total", frozenset({("reason", "host")})] == 1


async def test_a_stream_of_views_is_made_once_for_all_and_only_while_somebody_looks() -> None:
    async with place() as here:
        clients = [await here.client() for _ in range(9)]
        streams = []
        for client in clients[:8]:
            await client.send(b"GET /events HTTP/1.1\r\nhost: %b\r\n\r\n" % client.host)
            streams.append(await client.stream_of())
        first = [await stream.message() for stream in streams]
        assert all("history" in view for view in first)
        second = [await stream.message() for stream in streams]
        assert len({view["at"] for view in second}) == 1  # made once
        assert "history" not in second[0]
        assert set(second[0]["point"]) == set(first[0]["history"])
        await clients[8].send(b"GET /events HTTP/1.1\r\nhost: %b\r\n\r\n" % clients[8].host)
        assert (await clients[8].answer()).status == 503
        for client in clients:
            await client.aclose()

        def viewers(node: Any) -> Any:
            return next(one["facts"]["viewers"] for one in node["children"] if one["name"] == "viewers")

        while viewers((await here.view())["tree"]):  # noqa: ASYNC110  # asked over HTTP
            await trio.sleep(0.05)


async def test_it_asks_for_a_token_where_one_is_set(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ops 0123456789abcdef-admin\n")
    file.chmod(0o600)
    async with place(admin_token_file=str(file)) as here:
        for path in ("/", "/page.js", "/api/snapshot", "/events", "/metrics"):
            answer = await here.ask(path)
            assert answer.status == 401
            assert "Basic" in answer.headers["www-authenticate"]
            assert (await here.ask(path, "authorization: Bearer wrong-wrong-wrong")).status == 401
        assert (await here.ask("/livez")).status == 200
        basic = base64.b64encode(b"me:0123456789abcdef-admin").decode()
        for words in ("Bearer 0123456789abcdef-admin", f"Basic {basic}"):
            assert (await here.ask("/", f"authorization: {words}")).status == 200
            assert (await here.ask("/metrics", f"authorization: {words}")).status == 200
        for words in ("Basic !!!", "Basic", "Bearer", "Digest x"):
            assert (await here.ask("/", f"authorization: {words}")).status == 401


async def test_pages_are_guarded() -> None:
    async with place() as here:
        answer = await here.ask("/")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await here.ask("/../../etc/passwd")).status == 404
        assert (await here.ask("/page.html")).status == 404
        assert (await here.ask("/api/snapshot", "origin: https://evil.example")).status == 403


async def test_a_view_is_whole_although_calls_fail_while_it_is_made() -> None:
    async with app.host() as host, trio.open_nursery() as nursery:
        view = ServerView(host, app)
        past = PastRequest(0.0, "tools/call", "fail", "", "tool_error", 0.1, "ada")

        async def fail() -> None:
            while True:
                view.journal.failed.append(past)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(fail)
        for _ in range(10):
            seen = await view.view()
            assert {row["target"] for row in seen["failed"]} <= {"fail"}
        assert len(seen["failed"]) > 10
        nursery.cancel_scope.cancel()


async def test_an_operator_with_a_token_may_act_where_that_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ops 0123456789abcdef-admin\n")
    file.chmod(0o600)
    bearer = "authorization: Bearer 0123456789abcdef-admin"
    async with place(admin_token_file=str(file)) as here:
        assert (await here.post("/api/actions", {}, bearer, "x-callboard: 1")).status == 404  # off by default
    async with (
        place(admin_token_file=str(file), admin_actions=True) as here,
        connect(here.urls["http"], revision="2025-06-18") as client,
    ):
        await client.call("echo", text="here")
        (row,) = (await here.view("", bearer))["clients"]
        wanted = {"action": "disconnect", "subject": row["name"]}
        assert (await here.post("/api/actions", wanted, "x-callboard: 1")).status == 401
        assert (await here.post("/api/actions", wanted, bearer)).status == 403
        origin = "origin: https://evil.example"
        assert (await here.post("/api/actions", wanted, bearer, "x-callboard: 1", origin)).status == 403
        assert (await here.post("/api/actions", {"action": "format"}, bearer, "x-callboard: 1")).status == 400
        for other in ({**wanted, "subject": "nobody"}, {"action": "restart", "subject": "nobody"}):
            assert (await here.post("/api/actions", other, bearer, "x-callboard: 1")).status == 404
        assert len((await here.view("", bearer))["clients"]) == 1
        assert (await here.post("/api/actions", wanted, bearer, "x-callboard: 1")).status == 200
        assert (await here.view("", bearer))["clients"] == []


async def test_actions_need_a_token_file() -> None:
    with pytest.raises(CannotServe, match="admin-token-file"):
        await serve(app, http=0, admin=0, admin_actions=True)


async def test_a_viewer_whose_first_view_takes_long_gets_its_head_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views go to others meanwhile: they must not go to that one, where they would stand in front of the head."""
    monkeypatch.setattr(show_room, "EVERY", 0.01)
    monkeypatch.setattr(show_room, "FRESH", 0.0)
    told = Told()
    with trio.fail_after(10):
        async with shown(told) as url:
            address = ("127.0.0.1", urlsplit(url).port or 0)
            ask = b"GET /events HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % address[1]
            async with await trio.open_tcp_stream(*address) as one, await trio.open_tcp_stream(*address) as other:
                await one.send_all(ask)
                assert (await one.receive_some(12)).startswith(b"HTTP/1.1 200")
                told.held = trio.Event()
                await other.send_all(ask)
                seen = told.asked
                while told.asked < seen + 5:  # noqa: ASYNC110  # those are for the first one
                    await trio.sleep(0.01)
                told.held.set()
                assert (await other.receive_some(12)).startswith(b"HTTP/1.1 200")


async def test_a_view_is_made_once_for_all_that_ask_at_the_same_time() -> None:
    told = Told(held=trio.Event())
    room = ShowRoom(told)
    views: list[bytes] = []

    async def look() -> None:
        views.append(await room.viewers.first.make())

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(look)
        await wait_all_tasks_blocked()
        assert told.held is not None
        told.held.set()
    assert (len(views), len(set(views)), told.asked) == (10, 1, 1)


async def test_a_view_is_shown_to_others_for_half_a_second_unless_something_was_done(
    autojump_clock: MockClock,
) -> None:
    told = Told()
    maker = ShowRoom(told).viewers.latest
    for asked, wait in ((1, 0.4), (1, 0.1), (2, 0.0), (2, 0.0)):
        await maker.make()
        assert told.asked == asked
        await trio.sleep(wait)
    maker.forget()
    await maker.make()
    assert told.asked == 3


async def test_one_who_leaves_while_a_view_is_made_leaves_it_to_the_next() -> None:
    told = Told(held=trio.Event())
    maker = ShowRoom(told).viewers.first
    with trio.move_on_after(0.01):
        await maker.make()
    assert told.held is not None
    told.held.set()
    assert b"history" in await maker.make()


@pytest.mark.parametrize("size", [100, 500_000])
async def test_views_of_any_size_come_one_after_the_other(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than a socket takes at once is written by a task of its own."""
    monkeypatch.setattr(show_room, "EVERY", 0.02)
    monkeypatch.setattr(show_room, "FRESH", 0.0)
    told = Told(quiet_view(filler="x" * size))
    with trio.fail_after(20):
        async with shown(told) as url:
            bare = trio.socket.socket()
            await bare.connect(("127.0.0.1", urlsplit(url).port))
            client = Client(trio.SocketStream(bare), bare, urlsplit(url).netloc.encode())
            await client.send(b"GET /events HTTP/1.1\r\nhost: %b\r\n\r\n" % client.host)
            stream = await client.stream_of()
            for _ in range(4):
                assert len((await stream.message())["filler"]) == size
            await client.aclose()
