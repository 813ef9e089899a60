"""What rows say of clients and servers: bytes, addresses, processes, lines on standard error, topics."""

import sys
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair

from callboard import Context, Server, connect
from callboard.actors.server.session_tree import open_session
from callboard.config import BackendSpec
from callboard.observe.rates import OLDEST, Rates
from callboard.observe.view import ServerView
from callboard.transports.client.process import Command
from callboard.transports.lines import LineConnection
from tests.broker.front import backend
from tests.observe.stage import SETTINGS, Stage, library, stage
from tests.observe.test_show_room import Place, place

TALKER: Final = """
import sys
from callboard import Server

for number in range(30):
    print(f"line {number}", file=sys.stderr, flush=True)
server = Server("talker")

@server.tool
async def echo() -> str:
    return ""
"""

FAILS: Final = "import sys; [print('broken', n, file=sys.stderr) for n in range(30)]; sys.exit(3)"


async def look(here: Stage, path: str = "/api/snapshot") -> Any:
    return msgspec.json.decode(await ask(here, path))


async def ask(here: Stage, path: str) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", int(here.urls["admin"].rstrip("/").rpartition(":")[2])) as bare:
        host = here.urls["admin"].split("/")[2]
        await bare.send_all(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        said = b"".join([data async for data in bare])
    return said.partition(b"\r\n\r\n")[2]


async def test_bytes_addresses_and_times_of_every_kind_of_http_client() -> None:
    async with (
        place() as here,
        connect(here.urls["http"], revision="2025-11-25") as legacy,
        connect(here.urls["http"], revision="2026-07-28") as modern,
    ):
        for client in (legacy, modern):
            await client.call("echo", text="x" * 5000)
            await client.call("echo", text="")  # which acknowledges the answer before
        rows = (await here.view())["clients"]
        (session,) = [row for row in rows if row["revision"] == "2025-11-25"]
        others = [row for row in rows if row["revision"] == "2026-07-28"]
        connection = max(others, key=lambda row: row["bytes_in"])  # one is for changes
        for row in (session, connection):
            assert (row["peer"], row["transport"], row["in_flight"]) == ("127.0.0.1", "http", 0)
            assert 5000 < row["bytes_in"] < 10_000
            assert 5000 < row["bytes_out"] < 10_000
            assert 0 <= row["idle"] <= row["since"] + 1 < 30
        assert (session["parked"], session["subscriptions"]) == (0, 1)  # it is told of the list of tools
        assert (await here.view())["totals"]["bytes_in"] == sum(row["bytes_in"] for row in rows)


async def test_a_table_of_the_view_can_be_asked_for_alone() -> None:
    async with place() as here:
        assert (await table(here, "tools"))[0]["name"] == "echo"
        assert await table(here, "servers") == []
        missing = await here.ask("/api/tokens")
        assert (missing.status, missing.body) == (404, b"not found\n")


async def table(here: Place, name: str) -> Any:
    return msgspec.json.decode((await here.ask(f"/api/{name}")).body)


async def test_bytes_of_a_client_on_pipes() -> None:
    server = Server("app")
    async with server.host() as host:
        view = ServerView(host, server)
        near, far = memory_stream_pair()
        session = await open_session(host, LineConnection(far, far), "stdio")
        await near.send_all(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        said = await near.receive_some()
        (row,) = (await view.view())["clients"]
        assert (row["bytes_in"], row["bytes_out"], row["transport"]) == (41, len(said), "stdio")
        await near.aclose()
        await session.address.stop()


async def test_processes_and_last_lines_of_servers_that_are_up_or_not(tmp_path: Path) -> None:
    file = tmp_path / "talker.py"
    file.write_text(TALKER)
    run = Command(args=(sys.executable, "-m", "callboard", "run", str(file)))
    backends = [
        BackendSpec(name="talker", target=run, settings=SETTINGS),
        BackendSpec(name="fails", target=Command(args=(sys.executable, "-c", FAILS)), settings=SETTINGS),
        backend(library("here"), "here", attrs.evolve(SETTINGS, pin=True)),
    ]
    with trio.fail_after(60):
        async with stage(backends) as here:
            while not all(row["is_up"] for row in (await look(here))["servers"] if row["name"] != "fails"):  # noqa: ASYNC110
                await trio.sleep(0.1)
            client = await here.client("reader")
            await client.call("talker__echo")
            asked = await here.asked("asked")
            await asked.call("here__borrow")
            while (view := await look(here))["totals"]["parked"] == 0:  # noqa: ASYNC110 -- asked over HTTP
                await trio.sleep(0.1)
            rows = {row["name"]: row for row in view["servers"]}
            up, down, inner = rows["talker"], rows["fails"], rows["here"]
            assert "said" not in up  # it may be anything: only who asks for it gets it
            lines = await look(here, "/api/stderr?server=talker")
            assert "line 29" in lines
            assert len(lines) == 20
            assert up["pid"] > 1
            assert up["processes"] == 1
            assert up["resident"] > 2**20
            assert up["cpu_seconds"] > 0
            assert (up["calls"], up["parked"]) == (1, 0)
            assert (down["transport"], down["is_up"], down["said"][-1]) == ("stdio", False, "broken 29")
            assert len(down["said"]) == 5
            assert (await look(here, "/api/stderr?server=fails"))[-20:] == [f"broken {n}" for n in range(10, 30)]
            assert b"no server" in await ask(here, "/api/stderr?server=nowhere")
            assert "pid" not in down
            assert (inner["transport"], inner["parked"]) == ("in process", 1)
            tools = {row["name"]: row.get("pin") for row in view["tools"]}
            assert (tools["here__echo"], tools["talker__echo"]) == ("pinned", None)


async def test_a_topic_says_when_it_last_changed() -> None:
    app = Server("app")

    @app.tool
    async def add(ctx: Context) -> None:
        app.tool(name="another")(add)

    async with app.host() as host:
        view = ServerView(host, app)
        near, far = memory_stream_pair()
        session = await open_session(host, LineConnection(far, far), "stdio")
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "ping"},
        ):
            await near.send_all(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
        while b'"id":2' not in await near.receive_some():
            pass
        before = {row["topic"]: row["changed"] for row in (await view.view())["topics"]}
        assert before["tools list"] is None
        app.tool(name="another")(add)
        await near.receive_some()
        after = {row["topic"]: row["changed"] for row in (await view.view())["topics"]}
        assert after["tools list"] is not None
        await near.aclose()
        await session.address.stop()


def test_rates_are_of_the_last_seconds_and_of_nothing_that_is_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("callboard.observe.rates.perf_counter", lambda: now)
    rates = Rates()
    assert rates.per_second({"a": (10, 0)}) == {}
    now += 2
    assert rates.per_second({"a": (14, 1), "b": (1, 1)}) == {"a": (2.0, 0.5)}
    for _ in range(10):
        now += 1
        found = rates.per_second({"a": (14, 1), "b": (1, 1)})
    assert found == {"a": (0.0, 0.0), "b": (0.0, 0.0)}
    now += OLDEST + 1
    assert rates.per_second({"a": (1000, 1)}) == {}
