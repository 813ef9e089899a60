"""What is measured is what happened: against a server that knows how long it took, and against arithmetic.

Real sockets and real time, so nothing here asks for more than a busy machine can give: medians, which a few slow
moments do not move, and laws that hold however slow it is. wrk is compared with in `benchmarks/agreement.py`.
"""

import re
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.agreement import at, corrected
from callboard.bench.by_http import PreparedLane
from callboard.bench.engine import Engine, Lane, LoadPlan, OpenLane
from callboard.bench.hub import Hub
from callboard.bench.pace import Pace
from callboard.bench.requests import Template
from callboard.bench.tally import LONGEST, Tally, histogram, record
from callboard.bench.work import Act, Work
from callboard.transports.client.pool import Origin
from tests.process import PATIENCE

DELAY: Final = 0.05
CONNECTIONS: Final = 8
ACT: Final = Act(kind="list")
SENT: Final = b'POST /mcp HTTP/1.1\r\ncontent-length: 46\r\n\r\n{"jsonrpc":"2.0","id":7,"method":"tools/list"}'


@attrs.define(eq=False)
class Delaying:
    """A server that answers after so many seconds, and notes how long that really was."""

    delay: float
    stalls_at: int = -1
    took: list[float] = attrs.field(factory=list)
    connections: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        rest = b""
        async for data in stream:
            came, rest = trio.current_time(), rest + data
            while found := re.search(rb'"id":(\d+),"method":"tools/list"}', rest):
                rest = rest[found.end() :]
                number = len(self.took)
                self.took.append(0.0)
                await trio.sleep(1 if number == self.stalls_at else self.delay)
                body = b'{"jsonrpc":"2.0","id":%b,"result":{}}' % found[1]
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                self.took[number] = trio.current_time() - came


@asynccontextmanager
async def lanes_to(server: Delaying) -> AsyncIterator[OpenLane]:
    template, hub = Template.of(SENT), Hub()
    assert template is not None
    templates = {ACT: template}
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery, hub.running():
            listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
            origin = Origin("http", "127.0.0.1", listeners[0].socket.getsockname()[1])

            @asynccontextmanager
            async def open_lane() -> AsyncIterator[Lane]:
                lane = PreparedLane(hub, origin, None, templates)
                await trio.lowlevel.checkpoint()
                try:
                    yield lane
                finally:
                    lane.close()

            yield open_lane
            nursery.cancel_scope.cancel()


async def test_a_closed_loop_measures_what_the_server_did() -> None:
    server = Delaying(DELAY)
    async with lanes_to(server) as open_lane:
        engine = Engine(LoadPlan(concurrency=CONNECTIONS, duration=2, warmup=0.3), Work((ACT,)), open_lane)
        seconds = await engine.run()
    tally = engine.tally
    assert server.connections == CONNECTIONS
    assert tally.error_count == 0
    # Each latency holds what the server did, and hardly more: on a busy machine, the turns of both.
    assert tally.percentile(50) == pytest.approx(statistics.median(server.took), rel=0.25)
    assert tally.latencies.get_min_value() / 1e6 >= DELAY * 0.999  # three digits
    # Little's law: as many are in flight as come in the time that one takes. It holds on any machine.
    mean = sum(latency * count for latency, count in tally.recorded()) / tally.count
    assert (tally.count - tally.late) / seconds * mean == pytest.approx(CONNECTIONS, rel=0.1)


async def test_an_open_loop_sends_as_many_as_were_due_and_a_stall_of_a_second_is_seen() -> None:
    server = Delaying(0.001, stalls_at=100)
    async with lanes_to(server) as open_lane:
        engine = Engine(LoadPlan(pace=Pace(rate=100), duration=2, warmup=0), Work((ACT,)), open_lane)
        await engine.run()
    assert engine.tally.count == 200
    assert engine.tally.longest >= 1
    assert engine.tally.percentile(50) < 0.1


async def test_nothing_is_sent_before_it_is_due() -> None:
    hub = Hub()
    async with hub.running():
        for wait in (0.0001, 0.0009, 0.0021, 0.005, 0.03):
            due = trio.current_time() + wait
            await hub.sleep_until(due)
            assert trio.current_time() >= due


async def test_what_is_heard_while_somebody_waits_for_his_moment_is_not_kept_waiting() -> None:
    hub, settled = Hub(), list[float]()
    server = Delaying(0.0)
    template = Template.of(SENT)
    assert template is not None
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery, hub.running():
            listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
            origin = Origin("http", "127.0.0.1", listeners[0].socket.getsockname()[1])
            lane = PreparedLane(hub, origin, None, {ACT: template})
            await lane.do(ACT)
            lane.begin(ACT, lambda _: settled.append(trio.current_time()))
            due = trio.current_time() + 0.5
            await hub.sleep_until(due)
            lane.close()
            nursery.cancel_scope.cancel()
    assert len(settled) == 1
    assert settled[0] < due


# Arithmetic.


@given(st.lists(st.integers(1, LONGEST) | st.integers(1, 10_000), min_size=1), st.sampled_from([2, 3]))
def test_values_are_recorded_as_the_library_does(values: list[int], digits: int) -> None:
    ours, theirs = histogram(digits), histogram(digits)
    for value in values:
        record(ours, value)
        assert theirs.record_value(value)
    assert list(ours.counts) == list(theirs.counts)
    for name in ("total_count", "min_value", "max_value"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_latencies_are_completed_as_wrk_does_and_only_to_compare_with_it() -> None:
    tally = Tally()
    for _ in range(97):
        tally.succeeded(0.001, 0.5)
    tally.succeeded(0.0045, 0.5)
    raw = Counter({round(latency * 1e6): count for latency, count in tally.recorded()})
    completed = corrected(raw, 1000)
    assert completed.total() - raw.total() == 3, "of 4.5 ms: 3.5, 2.5 and 1.5"
    assert at(raw, 50) == at(completed, 50) == pytest.approx(1000, rel=0.001)
    assert at(completed, 98) == pytest.approx(2500, rel=0.01)
