"""A look at a broker with ten thousand clients: how long the event loop stands still for it."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import msgspec
import trio
from trio.abc import Instrument

from callboard import Server, connect, tree
from callboard.actors.server.host import Host
from callboard.actors.server.session_tree import open_session
from callboard.actors.terms import Terms
from callboard.broker import Broker
from callboard.codecs.http.access import Access
from callboard.observe.history import NUMBERS, POINTS
from callboard.observe.view import ServerView
from callboard.transports.limits import Settings
from callboard.transports.memory import memory_pair
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import http_edge
from callboard.transports.server.http.slow_requests import SlowRequests
from callboard.transports.wire import READ_SIZE
from tests.broker.front import backend, ways_in
from tests.figures import BUSY, LONG, figure
from tests.observe.stage import SETTINGS

CLIENTS: Final = 10_000 if LONG else 1_000
BACKENDS: Final = 50 if LONG else 10
TOOLS: Final = 4
PROMISED: Final = 0.005
PATIENT: Final = Settings(first_byte_time=3600.0, keep_alive=3600.0)


class Steps(Instrument):
    """The longest time that one task ran without giving others a turn: CPU time, other processes run meanwhile."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.began, self.longest, self.whole = 0.0, 0.0, 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task and self.began:
            took = time.thread_time() - self.began
            self.longest, self.whole = max(self.longest, took), self.whole + took


class QuietWire:
    """A client that is connected, and says nothing."""

    write_batch = None

    async def receive(self, size: int = READ_SIZE) -> bytes:
        await trio.sleep_forever()
        raise AssertionError(size)

    def close(self) -> None:
        """There is nothing to be closed."""


def busy(number: int) -> Server:
    server = Server(f"b{number}")
    for tool in range(TOOLS):

        async def answer() -> str:
            return ""

        server.tool(name=f"tool{tool}")(answer)
    return server


async def connections(host: Host, known: Terms) -> None:
    """Ten thousand of them: every second one has a client that said who it is."""
    edge = await host.root.add(http_edge("http", Endpoint(host, Access.of("127.0.0.1", 1), PATIENT), []))
    every = edge.supervisor_of(tree.CONNECTIONS)
    slow: Any = SlowRequests()
    for number in range(CLIENTS):
        wire: Any = QuietWire()
        connection = HttpConnection(Endpoint(host, Access.of("127.0.0.1", 1), PATIENT), wire, PATIENT, slow)
        connection.terms = known if number % 2 else None
        every.spawn(connection, name=f"c-{number}", shutdown=0)


@attrs.frozen
class Taken:
    """Seconds of the longest step, and of all; and how much came of it."""

    longest: float
    whole: float
    size: int


async def measured(make: Callable[[], Awaitable[bytes | list[bytes]]]) -> Taken:
    """The best of five."""
    found: list[Taken] = []
    for _ in range(5):
        await trio.lowlevel.checkpoint()
        steps = Steps(trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(steps)
        made = await make()
        await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(steps)
        size = len(made) if isinstance(made, bytes) else sum(map(len, made))
        found.append(Taken(steps.longest, steps.whole, size))
    return min(found, key=lambda one: one.longest)


async def use(host: Host, names: Sequence[str]) -> Terms:
    """Call all of them. Returns what the client said of itself."""
    async with connect(ways_in(host)) as client:
        for name in names:
            await client.call(name)
        said = next(iter(host.clients.values())).requests.latest
        assert said is not None
        return said


async def test_a_look_at_ten_thousand_clients_does_not_stop_the_others() -> None:
    names = [f"b{number}" for number in range(BACKENDS)]
    broker = Broker([backend(busy(number), name, SETTINGS) for number, name in enumerate(names)])
    async with broker.host() as host:
        host.sessions.allow(CLIENTS + 1, CLIENTS + 1)
        host.memory.allow(1 << 40, 1 << 40)
        view = ServerView(host, broker)
        view.begin()
        for _ in range(POINTS):
            view.history.add(dict.fromkeys(NUMBERS, 0.123456))
        terms = await use(host, [f"{name}__tool{tool}" for name in names for tool in range(TOOLS)])
        pairs = []
        for number in range(CLIENTS):
            near, far = memory_pair()
            pairs.append(near)
            await open_session(host, far, f"s-{number}")
        await connections(host, terms)

        async def written() -> bytes:
            return msgspec.json.encode(await view.view(with_history=True))

        whole, metrics = await measured(written), await measured(view.metrics)
        seen = await view.view()
        assert (seen["totals"]["sessions"], seen["totals"]["connections"]) == (CLIENTS, CLIENTS)
        assert (len(seen["clients"]), len(seen["servers"])) == (200, BACKENDS)
        assert sum(row["calls"] for row in seen["servers"]) == TOOLS * BACKENDS
        for near in pairs:
            near.close()
    about = f"{CLIENTS:,} sessions, {CLIENTS:,} connections, {BACKENDS} backends, {TOOLS * BACKENDS} tools"
    for name, taken in (("a view", whole), ("metrics", metrics)):
        figure(
            name,
            f"{about}: longest step {taken.longest * 1e3:.1f} ms, in all {taken.whole * 1e3:.1f} ms, "
            f"{taken.size:,} bytes",
            f"a step of at most {PROMISED * 1e3:g} ms",
        )
    assert max(whole.longest, metrics.longest) <= PROMISED * BUSY
