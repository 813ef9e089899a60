"""Requests on a connection that they share: each runs in the task that read it; while it waits, another one reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Server
from callboard.actors.server.drain import drain
from callboard.actors.server.host import Host
from callboard.actors.server.session import OUTBOX_BYTES
from callboard.actors.server.session_tree import open_session
from callboard.codecs.revisions import LEGACY, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import DRAINING, TIMED_OUT
from callboard.testing import Peer, Refusal
from callboard.transports.memory import MemoryConnection, memory_pair
from tests.actors.server.stage import said

BOTH = pytest.mark.parametrize("revision", [R4, R5], ids=str)


@attrs.define(eq=False)
class Place:
    """A server, a client of it, and what the tools have to tell."""

    host: Host
    peer: Peer
    there: MemoryConnection
    tasks: list[str]
    cut_at: list[float]

    def kinds(self) -> list[str]:
        """Who lives in the tree, beside the session and its reader."""
        root = self.host.root
        found = [*root.supervisor_of("requests").tree().children]
        for session in root.supervisor_of("sessions").tree().children:
            found += session.children[2:]
        return [node.kind for node in found]

    async def begin(self, tool: str, **arguments: object) -> int:
        request_id = await self.peer.begin("tools/call", name=tool, arguments=arguments)
        await wait_all_tasks_blocked()
        return request_id


@asynccontextmanager
async def placed(revision: Revision, cap: float = 600) -> AsyncIterator[Place]:
    server, tasks, cut_at = Server("shared"), list[str](), list[float]()

    @server.tool
    async def echo(text: str) -> str:
        tasks.append(trio.lowlevel.current_task().name)
        return text

    @server.tool
    async def nap(seconds: float) -> str:
        tasks.append(trio.lowlevel.current_task().name)
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            cut_at.append(trio.current_time())
            raise
        return "rested"

    async with server.host() as host:
        host.cap = cap
        there, here = memory_pair()
        await open_session(host, here, "s-1")
        peer = Peer(there, revision)
        if revision in LEGACY:
            await peer.initialize()
        yield Place(host, peer, there, tasks, cut_at)
        there.close()


@BOTH
async def test_what_never_waits_runs_in_the_task_that_read_it(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        for number in range(3):
            assert said(await here.peer.call("echo", text=str(number))) == str(number)
        assert here.tasks == ["reader"] * 3
        assert here.kinds() == []


@BOTH
async def test_while_one_waits_others_are_read_and_served(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        first = await here.begin("nap", seconds=10)
        assert here.kinds() == ["RequestActor"]
        second = await here.begin("nap", seconds=5)
        assert here.kinds() == ["RequestActor"] * 2
        assert said(await here.peer.call("echo", text="meanwhile")) == "meanwhile"
        assert said(await here.peer.finish(second)) == "rested"
        assert trio.current_time() == pytest.approx(5)
        assert said(await here.peer.finish(first)) == "rested"
        await wait_all_tasks_blocked()
        assert here.kinds() == []
        assert said(await here.peer.call("echo", text="after")) == "after"
        assert here.tasks == ["reader"] * 4  # whoever reads is called so


@BOTH
async def test_many_that_wait_leave_one_task_that_reads(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(3):
            await here.peer.call("nap", seconds=1)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


@BOTH
async def test_one_that_waits_can_be_cancelled_and_is_not_answered(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with placed(revision) as here:
        cancelled = await here.begin("nap", seconds=100)
        await trio.sleep(7)
        params = {"requestId": cancelled}
        await here.peer.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await wait_all_tasks_blocked()
        assert here.cut_at == [7]
        assert here.kinds() == []
        assert said(await here.peer.call("echo", text="on")) == "on"
        assert here.tasks[-1] == "reader"


@BOTH
async def test_one_that_takes_too_long_is_answered_exactly_then(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision, cap=30) as here:
        late = await here.begin("nap", seconds=100)
        with pytest.raises(Refusal) as refused:
            await here.peer.finish(late)
        assert refused.value.code == TIMED_OUT
        assert here.cut_at == [30]
        assert said(await here.peer.call("echo", text="on")) == "on"
        assert here.kinds() == []


@BOTH
async def test_one_that_waits_ends_when_its_peer_hangs_up(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        await here.begin("nap", seconds=100)
        here.there.close()
        await wait_all_tasks_blocked()
        assert here.cut_at == [0]
        assert here.host.root.supervisor_of("sessions").tree().children == ()


@BOTH
async def test_an_id_in_flight_is_refused_while_one_waits(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        first = await here.begin("nap", seconds=10)
        await here.peer.say({"id": first, "method": "tools/list"})
        assert said(await here.peer.finish(first)) == "rested"


@BOTH
@pytest.mark.parametrize(("seconds", "takes"), [(20, 20), (50, 28)])
async def test_a_server_that_ends_waits_for_it_and_not_for_ever(
    revision: Revision, seconds: float, takes: float, autojump_clock: MockClock
) -> None:
    async with placed(revision) as here:
        waits = await here.begin("nap", seconds=seconds)
        outcome: list[str | int] = []

        async def hear() -> None:
            try:
                outcome.append(said(await here.peer.finish(waits)))
            except Refusal as refused:
                outcome.append(refused.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            await drain(here.host, within=30, spread=10)
            assert trio.current_time() == pytest.approx(takes)
        assert outcome == ["rested" if seconds < 30 else DRAINING]


@BOTH
async def test_a_peer_that_does_not_read_is_still_heard(revision: Revision, autojump_clock: MockClock) -> None:
    async with placed(revision) as here:
        text = "x" * 1_000_000
        begun = [await here.begin("echo", text=text) for _ in range(40)]
        assert "RequestActor" in here.kinds()
        assert len(begun) * len(text) > 2 * OUTBOX_BYTES
        answers = [await here.peer.hear() for _ in begun]
        assert sorted(answer["id"] for answer in answers) == begun
        assert all(len(said(answer["result"])) == len(text) for answer in answers)
        await wait_all_tasks_blocked()
        assert here.kinds() == []


@BOTH
async def test_a_peer_that_neither_reads_nor_speaks_is_not_waited_for_for_ever(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with placed(revision) as here:
        for _ in range(40):
            await here.begin("echo", text="x" * 1_000_000)
        here.there._outgoing.close()
        await trio.sleep(60)
        assert here.host.root.supervisor_of("sessions").tree().children == ()
