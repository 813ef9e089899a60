"""A look at a server with ten thousand clients: how long the event loop stands still for it."""

import time

import msgspec
import trio
from trio.abc import Instrument

from callboard import Server
from callboard.actors.server.session_tree import open_session
from callboard.observe.view import ServerView
from callboard.transports.memory import memory_pair
from tests.figures import BUSY, LONG, figure

CLIENTS = 10_000 if LONG else 1_000
PROMISED = 0.005


class Steps(Instrument):
    """The longest time that one task ran without giving others a turn."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.began, self.longest, self.whole = 0.0, 0.0, 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.began = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task and self.began:
            took = time.perf_counter() - self.began
            self.longest, self.whole = max(self.longest, took), self.whole + took


async def test_a_look_at_ten_thousand_clients_does_not_stop_the_others() -> None:
    server = Server("crowded")
    async with server.host() as host:
        host.sessions.allow(CLIENTS, CLIENTS)
        host.memory.allow(1 << 40, 1 << 40)
        view = ServerView(host, server)
        view.begin()
        pairs = []
        for number in range(CLIENTS):
            near, far = memory_pair()
            pairs.append(near)
            await open_session(host, far, f"s-{number}")
        found, size = [], 0
        for _ in range(5):
            await trio.lowlevel.checkpoint()
            steps = Steps(trio.lowlevel.current_task())
            trio.lowlevel.add_instrument(steps)
            seen = await view.view(with_history=True)
            await trio.lowlevel.checkpoint()
            size = len(msgspec.json.encode(seen))
            await trio.lowlevel.checkpoint()
            trio.lowlevel.remove_instrument(steps)
            found.append((steps.longest, steps.whole))
        assert seen["totals"]["sessions"] == CLIENTS
        assert len(seen["clients"]) == 100
        for near in pairs:
            near.close()
    longest, whole = min(found)
    figure(
        "a view",
        f"{CLIENTS:,} sessions: longest step {longest * 1e3:.1f} ms, in all {whole * 1e3:.1f} ms, {size:,} bytes",
        f"a step of at most {PROMISED * 1e3:g} ms",
    )
    assert longest <= PROMISED * BUSY
