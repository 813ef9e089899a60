"""The view: made while everything goes on, and of several processes as one."""

from typing import Any

import trio
from trio.testing import MockClock

from callboard import Server, connect
from callboard.observe.journal import PastRequest
from callboard.observe.view import ServerView, merge
from callboard.serve.show_room import ShowRoom
from tests.broker.front import ways_in

FAILED = PastRequest(0.0, "tools/call", "echo", "", "tool_error", 0.1, "ada")


async def test_it_is_made_while_requests_end_and_clients_come_and_go() -> None:
    server = Server("app")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with server.host() as host, trio.open_nursery() as nursery:
        view = ServerView(host, server)
        view.begin()

        async def go_on() -> None:
            for number in range(1_000_000):
                view.journal.failed.append(FAILED)
                view.journal.session_over("http", "2025-06-18", number)
                view.journal.backend_over(f"back-{number % 50}", "tools/call", "echo", "", 0.1)
                host.clients[f"s-{number}"] = host.clients.pop(f"s-{number - 1}", session)
                await trio.lowlevel.checkpoint()

        async with connect(ways_in(host)) as client:
            await client.call("echo", text="x")
            session = next(iter(host.clients.values()))
            nursery.start_soon(go_on)
            for _ in range(50):
                seen = await view.view(with_history=True)
                assert (await view.metrics())[0].startswith(b"# HELP")
            assert len(seen["failed"]) == 100
        nursery.cancel_scope.cancel()


class Broken:
    """An overview that fails."""

    def __init__(self) -> None:
        self.asked = 0

    async def view(self, *, with_history: bool = False) -> dict[str, Any]:
        self.asked += 1
        raise RuntimeError("a fault in a view")

    async def metrics(self, form: bytes = b"") -> list[bytes]:
        return [form]

    async def stderr(self, server: str) -> list[str] | None:
        return None

    async def act(self, action: str, subject: str) -> bool:
        return False


async def test_viewers_outlive_a_view_that_fails(autojump_clock: MockClock) -> None:
    broken = Broken()
    room = ShowRoom(broken)
    server = Server("app")
    async with server.host() as host:
        host.root.spawn(room.viewers, name="viewers", shutdown=0)
        room.viewers._streams[Any] = True  # type: ignore[index]  # somebody looks
        room.viewers._come.set()
        await trio.sleep(5)
        assert broken.asked >= 3


def test_views_of_workers_are_added_up() -> None:
    def view(requests: int, p99: float | None, history: list[float | None]) -> dict[str, Any]:
        return {
            "totals": {"requests": requests, "servers": 2, "refused": {"host": 1}},
            "latest": {"p99_10s": p99, "requests": 3.0},
            "point": {"requests": 1},
            "history": {"requests": history},
            "servers": [{"name": "db", "is_up": p99 is not None, "calls": 2, "errors": 0, "p50": p99, "p99": p99}],
            "dead_letters": {"total": 1, "counts": [], "recent": [{"ago": requests}]},
            "tree": {"name": "root"},
        }

    merged = merge({"worker-1": view(5, 0.5, [1, 2, 3]), "worker-2": view(7, None, [4])}, {"name": "app"})
    assert merged["totals"] == {"requests": 12, "servers": 2, "refused": {"host": 2}}
    assert merged["latest"] == {"p99_10s": 0.5, "requests": 6.0}
    assert merged["history"] == {"requests": [1, 2, 7]}
    (server,) = merged["servers"]
    assert (server["is_up"], server["calls"], server["p99"]) == (False, 4, 0.5)
    assert [row["ago"] for row in merged["dead_letters"]["recent"]] == [5, 7]
    assert [branch["name"] for branch in merged["tree"]["children"]] == ["worker-1", "worker-2"]
