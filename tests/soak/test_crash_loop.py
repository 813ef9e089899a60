"""Promise 3: a backend that dies over and over is restarted within bounds, then left alone, and harms nobody."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker.policy import Restarts
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.server.session_tree import open_session
from callboard.broker import Broker
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.config import BackendSpec
from callboard.errors import CannotConnect
from callboard.server import Server
from callboard.supervisor import Backoff
from callboard.testing import Peer, Refusal
from callboard.transports.memory import memory_pair
from tests.broker.front import backend, peer
from tests.figures import figure

GONE = -31001
TRIES = [0.0, 0.1, 0.3, 0.7, 1.5, 3.1]
"""The first attempt, and five restarts: each after twice the time of the one before."""
DOWN = 3.1
"""When the fifth restart has failed, too."""

server = Server("scripted")


@server.tool
async def greet() -> str:
    """Says hello."""
    return "hello"


@attrs.define(eq=False)
class Script:
    """A backend that can be reached, cannot, or dies as soon as it is up. Notes when it was tried."""

    how: str
    tried: list[float] = attrs.field(factory=list)

    def ways(self) -> TransportRoutes:
        return TransportRoutes(None, (TransportRoute("script", self._open),))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Link]:
        self.tried.append(round(trio.current_time(), 6))
        if self.how == "unreachable":
            raise CannotConnect("nobody is there")
        async with server.host() as host:
            near, far = memory_pair()
            session = await open_session(host, far, "leg")
            try:
                async with trio.open_nursery() as nursery:
                    if self.how == "dies":
                        nursery.start_soon(self._die, near)
                    yield DuplexLink(near)
                    nursery.cancel_scope.cancel()
            finally:
                near.close()
                await session.address.stop()

    async def _die(self, near: Any) -> None:
        await wait_all_tasks_blocked()
        near.close()


def scripted(script: Script, name: str = "bad") -> BackendSpec:
    exact = Restarts(backoff=Backoff(random=lambda: 0.0))
    return backend(script.ways(), name, prefix=name, restarts=exact)


async def refused(client: Peer, tool: str) -> tuple[int, float]:
    """The code of a call that fails, and how long that took by the clock."""
    began = trio.current_time()
    with pytest.raises(Refusal) as told:
        await client.call(tool)
    return told.value.code, trio.current_time() - began


AFTER = {
    "unreachable": [DOWN + 30, DOWN + 60],
    "dies": [DOWN + 30, *(DOWN + 30 + 5 * number for number in range(1, 5)), DOWN + 80],
}
"""When it is tried once it is down: each 30 s; and if it comes up to die again, with the longest pauses in between."""


@pytest.mark.parametrize("how", ["unreachable", "dies"])
async def test_3_restarts_are_bounded_and_then_the_backend_is_down(how: str, autojump_clock: MockClock) -> None:
    script = Script(how)
    broker = Broker([scripted(script)])
    async with broker.host():
        bad = broker.backends["bad"]
        await trio.sleep_until(DOWN + 0.05)
        assert (bad.circuit.state.value, script.tried) == ("down", TRIES)
        *crashes, last = AFTER[how]
        await trio.sleep_until(last - 0.1)
        assert script.tried == pytest.approx([*TRIES, *crashes])
        assert bad.circuit.state.value == "down"
        script.how = "well"
        await trio.sleep_until(last + 0.05)
        assert bad.is_up
        assert script.tried == pytest.approx([*TRIES, *crashes, last])
    most = max(sum(begun <= one <= begun + 29.9 for one in script.tried) for begun in script.tried[1:])
    assert most <= 5
    figure("promise 3", f"{how}: tried at {script.tried}, exactly; {most} restarts in 30 s at most")


async def test_3_jitter_only_lengthens_and_no_pause_is_longer_than_it_may_be(autojump_clock: MockClock) -> None:
    script = Script("unreachable")
    spec = backend(script.ways(), "bad", prefix="bad")
    async with Broker([spec]).host():
        await trio.sleep_until(30)
    pauses = [after - before for before, after in zip(script.tried, script.tried[1:], strict=False)]
    assert len(pauses) == 5
    for pause, first in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.6), strict=True):
        assert first - 1e-6 <= pause <= first * 1.2 + 1e-6


async def test_3_requests_to_a_backend_that_is_down_fail_at_once(autojump_clock: MockClock) -> None:
    script = Script("dies")
    broker = Broker([scripted(script), backend(server, "good", prefix="good")])
    async with broker.host() as host, peer(host) as client:
        await trio.sleep_until(DOWN + 1)
        assert "bad__greet" in [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        taken = []
        for _ in range(50):
            began = time.perf_counter()
            assert await refused(client, "bad__greet") == (GONE, 0.0)
            taken.append(time.perf_counter() - began)
            assert (await client.call("good__greet"))["content"][0]["text"] == "hello"
        taken.sort()
    figure("promise 3", f"down: refused with -31001 in 0 s of virtual time, p50 {taken[25] * 1000:.1f} ms of real time")
    assert taken[25] <= 0.01 * 5  # the machine may be busy


async def test_3_who_waits_for_a_restart_hears_of_it_at_once_when_there_is_none_to_come(
    autojump_clock: MockClock,
) -> None:
    script = Script("dies")
    broker = Broker([scripted(script)])
    ended: list[tuple[int, float]] = []
    async with broker.host() as host, peer(host) as client:

        async def ask() -> None:
            code, _ = await refused(client, "bad__greet")
            ended.append((code, trio.current_time()))

        script.how = "unreachable"
        await trio.sleep_until(1.0)
        await ask()
    assert ended == [(GONE, DOWN)]


async def test_3_a_restart_that_succeeds_serves_those_who_waited(autojump_clock: MockClock) -> None:
    script = Script("dies")
    async with Broker([scripted(script)]).host() as host, peer(host) as client:
        await trio.sleep(0.05)
        script.how = "well"
        await client.call("bad__greet")
        assert trio.current_time() == 0.1
