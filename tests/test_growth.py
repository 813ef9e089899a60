"""How the cost of a call grows: not with the sessions, tools and backends that it has nothing to do with.

Counted are operations of the interpreter, and not time: they are the same on every machine, and a loop over what
should not be looked at shows in them at once.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Client, Server, connect
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from tests.broker.front import backend, brokered, ways_in
from tests.transports.server.http.stage import serving

ERAS = pytest.mark.parametrize("revision", [R4, R5])
SLACK = 1.05
"""What a call may cost more among many: a table that was resized, a name with more digits."""


@attrs.define
class Counted:
    """Operations that were done."""

    operations: int = 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Count what the interpreter does until the block ends, in all tasks."""
    counted = Counted()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted.operations += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield counted
    finally:
        sys.settrace(before)


def company(tools: int = 1, name: str = "company") -> Server:
    server = Server(name)
    for number in range(tools):

        @server.tool(name=f"echo{number}")
        async def echo(text: str = "hi") -> str:
            return text

    return server


async def cost(client: Client, tool: str = "echo0", **arguments: Any) -> int:
    """Operations of one call, of the client and of everybody it wakes. The first ones may fill caches."""
    for _ in range(3):
        await client.call(tool, **arguments)
    found = []
    for _ in range(3):
        await wait_all_tasks_blocked()
        with counting() as counted:
            await client.call(tool, **arguments)
        found.append(counted.operations)
    return min(found)


@asynccontextmanager
async def among(host: Any, sessions: int, revision: Revision) -> AsyncIterator[Client]:
    """A client of *host*, which has so many others that want nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(sessions):
            await stack.enter_async_context(connect(ways_in(host), revision=revision.value))
        yield await stack.enter_async_context(connect(ways_in(host), revision=revision.value))


def test_what_is_counted_is_what_is_done() -> None:
    def work(steps: int) -> int:
        return sum(step * step for step in range(steps))

    counts = []
    for steps in (10, 1000):
        with counting() as counted:
            work(steps)
        counts.append(counted.operations)
    assert counts[1] > 50 * counts[0]


@ERAS
async def test_a_call_does_not_pay_for_idle_sessions(revision: Revision, autojump_clock: MockClock) -> None:
    costs = []
    for sessions in (0, 500):
        async with company().host() as host, among(host, sessions, revision) as client:
            costs.append(await cost(client))
    assert costs[1] <= SLACK * costs[0], costs


@ERAS
async def test_a_call_does_not_pay_for_other_tools(revision: Revision, autojump_clock: MockClock) -> None:
    costs = []
    for tools in (1, 500):
        async with company(tools).host() as host, among(host, 0, revision) as client:
            costs.append(await cost(client, "echo0"))
    assert costs[1] <= SLACK * costs[0], costs


@ERAS
async def test_a_broker_does_not_pay_for_other_backends(revision: Revision, autojump_clock: MockClock) -> None:
    costs = []
    for backends in (1, 60):
        specs = [
            backend(company(name=f"b{number}"), f"b{number:03}", prefix=f"b{number:03}") for number in range(backends)
        ]
        async with brokered(*specs) as host, among(host, 0, revision) as client:
            costs.append(await cost(client, "b000__echo0"))
    assert costs[1] <= SLACK * costs[0], costs


@ERAS
async def test_a_broker_does_not_pay_for_idle_clients_or_other_tools(
    revision: Revision, autojump_clock: MockClock
) -> None:
    costs = []
    for sessions, tools in ((0, 1), (300, 300)):
        async with brokered(company(tools)) as host, among(host, sessions, revision) as client:
            costs.append(await cost(client))
    assert costs[1] <= SLACK * costs[0], costs


async def test_a_request_does_not_pay_for_idle_connections() -> None:
    costs = []
    for idle in (0, 200):
        async with serving(company()) as place:
            others = [await place.connect() for _ in range(idle)]
            for other in others[::10]:
                await other.call("echo0")
            client, found = await place.connect(), []
            for _ in range(24):  # Trio runs tasks in random order, and one order in two takes 6 % more: few would do
                await wait_all_tasks_blocked()
                with counting() as counted:
                    await client.call("echo0")
                found.append(counted.operations)
            costs.append(min(found[3:]))
    assert costs[1] <= SLACK * costs[0], costs


async def test_a_payload_costs_no_more_than_its_length(autojump_clock: MockClock) -> None:
    costs = {}
    async with brokered(company()) as host, among(host, 0, R5) as client:
        for size in (100, 10_000, 1_000_000):
            costs[size] = await cost(client, text="x" * size)
    assert costs[1_000_000] <= 1.5 * costs[100], costs  # it is handed on, not looked at


@ERAS
async def test_a_list_grows_with_its_length_and_not_faster(revision: Revision, autojump_clock: MockClock) -> None:
    costs = {}
    for tools in (10, 100, 1000):
        async with company(tools).host() as host, among(host, 0, revision) as client:
            await client.list_anew()
            with counting() as counted:
                await client.list_anew()
            costs[tools] = counted.operations
    assert costs[1000] - costs[100] <= 1.2 * 10 * (costs[100] - costs[10]), costs


async def test_sessions_are_opened_at_a_cost_that_stays(autojump_clock: MockClock) -> None:
    async with company().host() as host, AsyncExitStack() as stack:
        costs = {}
        for number in range(301):
            with counting() if number in (10, 300) else contextmanager(lambda: iter([Counted()]))() as counted:
                await stack.enter_async_context(connect(ways_in(host), revision=R4.value))
            costs[number] = counted.operations
        await trio.lowlevel.checkpoint()
    assert costs[300] <= 1.1 * costs[10], (costs[10], costs[300])
