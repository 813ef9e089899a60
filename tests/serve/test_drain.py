"""Lame duck, in virtual time: who is refused, who finishes, who is sent away, and when exactly it is over."""

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Never

import attrs
import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.drain import FAREWELL, MANY, drain
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.request import RequestActor
from callboard.codecs.revisions import CallToolResult, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import DRAINING
from callboard.serve.banner import announce_drain
from callboard.supervisor import Actor, Address, ChildSpec, Unfinished
from callboard.testing import Peer, Refusal
from tests.actors.server.stage import Stage, said, stage, text
from tests.actors.server.test_parking import form
from tests.broker.back import Back
from tests.broker.back import form as elicited
from tests.broker.front import brokered
from tests.broker.front import peer as client_of
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import serving

BOTH = pytest.mark.parametrize("revision", [R4, R5], ids=str)
LISTEN = {"notifications": {"toolsListChanged": True}}

Tool = Callable[[Exchange], Awaitable[CallToolResult]]


def takes(seconds: float) -> Tool:
    async def work(exchange: Exchange) -> CallToolResult:
        await trio.sleep(seconds)
        return text("done")

    return work


async def greet(exchange: Exchange) -> CallToolResult:
    return text("hello")


async def drained(here: Stage, *, within: float = 30, spread: float = 10, **more: Any) -> float:
    """Drain, and say how long that took."""
    started = trio.current_time()
    await drain(here.host, within=within, spread=spread, **more)
    return trio.current_time() - started


@BOTH
async def test_nothing_in_flight_costs_no_time(revision: Revision, autojump_clock: MockClock) -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(revision)
        assert said(await peer.call("greet")) == "hello"
        assert await drained(here) == 0


@BOTH
async def test_what_is_in_flight_finishes_and_nothing_is_waited_for_after_that(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with stage({"short": takes(3), "long": takes(20)}) as here:
        peer = await here.peer(revision)
        short, long = [await peer.begin("tools/call", name=name, arguments={}) for name in ("short", "long")]
        await wait_all_tasks_blocked()
        assert await drained(here) == 20
        assert said(await peer.finish(short)) == "done"
        assert said(await peer.finish(long)) == "done"


@BOTH
async def test_what_takes_too_long_is_answered_when_only_the_time_for_last_words_is_left(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with stage({"work": takes(29)}) as here:
        peer = await here.peer(revision)
        work = await peer.begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        assert await drained(here) == 30 - FAREWELL
        with pytest.raises(Refusal) as refused:
            await peer.finish(work)
        assert refused.value.code == DRAINING
        await wait_all_tasks_blocked()
        assert not here.root.supervisor_of("requests").actors()


@BOTH
@pytest.mark.parametrize("method", ["ping", "tools/list", "tools/call"])
async def test_new_requests_are_refused_while_others_finish(
    revision: Revision, method: str, autojump_clock: MockClock
) -> None:
    async with stage({"work": takes(5), "greet": greet}) as here:
        peer = await here.peer(revision)
        work = await peer.begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drained, here)
            await wait_all_tasks_blocked()
            assert here.host.is_draining
            with pytest.raises(Refusal) as refused:
                await peer.request(method, name="greet", arguments={})
            assert refused.value.code == DRAINING
            assert said(await peer.finish(work)) == "done"


async def test_nobody_may_shake_hands_any_more(autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        await drained(here)
        with pytest.raises(Refusal) as refused:
            await here.peer(R4)
        assert refused.value.code == DRAINING


async def test_a_client_that_is_asked_by_what_is_in_flight_may_still_answer(autojump_clock: MockClock) -> None:
    async def work(exchange: Exchange) -> CallToolResult:
        await trio.sleep(2)
        await exchange.ask([form()])
        return text("done")

    async with stage({"work": work}) as here:
        peer = await here.peer(R4)
        request = await peer.begin("tools/call", name="work", arguments={})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drained, here)
            assert said(await peer.finish(request)) == "done"
        assert trio.current_time() < 30


async def test_what_is_parked_is_not_waited_for_and_nothing_more_is_parked(autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await trio.sleep(1)
        await exchange.ask([form()], at_once=True)
        return text("done")

    async with stage({"ask": ask}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="ask", arguments={})
        assert asked["resultType"] == "input_required"
        late = await peer.begin("tools/call", name="ask", arguments={})
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drained, here)
            await wait_all_tasks_blocked()
            for refused in (peer.request("tools/call", name="ask", **peer.answered(asked)), peer.finish(late)):
                with pytest.raises(Refusal) as told:
                    await refused
                assert told.value.code == DRAINING
        assert trio.current_time() == 2  # a second until it asked, and one more for the other to ask in vain
    assert trio.current_time() == 2  # and the tree does not wait for it either


async def endings(peer: Peer, count: int) -> list[float]:
    """The moments at which *count* subscriptions got their closing result, and after it the notification that the
    specification wants as well where no stream ends with it."""
    ended: dict[int, float] = {}
    told: list[int] = []
    while len(told) < count:
        message = await peer.hear()
        if "result" in message:
            ended[message["id"]] = trio.current_time()
        elif message["method"] == "notifications/cancelled":
            told.append(message["params"]["requestId"])
            assert told[-1] in ended
    assert sorted(told) == sorted(ended)
    return list(ended.values())


@pytest.mark.parametrize("count", [1, MANY])
async def test_a_few_listeners_are_sent_away_at_once(count: int, autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        here.host.most_in_flight = count
        peer = await here.peer(R5)
        for _ in range(count):
            await peer.begin("subscriptions/listen", **LISTEN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drained, here)
            assert set(await endings(peer, count)) == {trio.current_time()}
        assert trio.current_time() == 0


@pytest.mark.parametrize(("within", "over"), [(30.0, 10.0), (4.0, 2.0)])
async def test_many_listeners_are_sent_away_evenly(within: float, over: float, autojump_clock: MockClock) -> None:
    count = MANY + 1
    async with stage({}) as here:
        here.host.most_in_flight = count
        peer = await here.peer(R5)
        for _ in range(count):
            await peer.begin("subscriptions/listen", **LISTEN)
        await wait_all_tasks_blocked()
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: drained(here, within=within))
            moments = [moment - started for moment in await endings(peer, count)]
        assert moments == pytest.approx([number * over / (count - 1) for number in range(count)])


async def test_doors_close_first_and_what_is_in_flight_does_not_notice(autojump_clock: MockClock) -> None:
    closed: list[float] = []

    async def close() -> None:
        assert here.host.is_draining
        closed.append(trio.current_time())

    async with stage({"work": takes(2)}) as here:
        peer = await here.peer(R5)
        work = await peer.begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        assert await drained(here, close_doors=close) == 2
        assert said(await peer.finish(work)) == "done"
    assert closed == [0]


async def note_end(session: Address[Any], moments: list[float]) -> None:
    await session.wait_ended()
    moments.append(trio.current_time())


@pytest.mark.parametrize("count", [MANY, MANY + 1])
async def test_sessions_end_last_and_many_of_them_evenly(count: int, autojump_clock: MockClock) -> None:
    moments: list[float] = []
    async with stage({"work": takes(3)}) as here:
        peers = [await here.peer(R4) for _ in range(count)]
        await peers[0].begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            for session, _ in here.root.supervisor_of("sessions").actors():
                nursery.start_soon(note_end, session, moments)
            nursery.start_soon(drained, here)
    if count <= MANY:
        assert moments == [3] * count
    else:  # what is left of the ten seconds
        assert moments == pytest.approx([3 + number * 7 / (count - 1) for number in range(count)])


async def test_a_peer_that_reads_nothing_holds_up_nobody_for_long(autojump_clock: MockClock) -> None:
    async def flood(exchange: Exchange) -> CallToolResult:
        return text("x" * 100_000)

    async with stage({"flood": flood, "work": takes(60)}) as here:
        deaf = await here.peer(R4)
        for _ in range(60):
            await deaf.begin("tools/call", name="flood", arguments={})
        peer = await here.peer(R5)
        work = await peer.begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        assert await drained(here, within=5) <= 5
        with pytest.raises(Refusal) as refused:
            await peer.finish(work)
        assert refused.value.code == DRAINING


@pytest.mark.parametrize(("takes", "drain_time", "ends"), [(4, 30, 4), (40, 30, 30), (40, 0, FAREWELL)])
async def test_an_edge_that_answers_by_itself_has_the_same_time(
    takes: float, drain_time: float, ends: float, autojump_clock: MockClock
) -> None:
    asked: list[float] = []

    class Edge(Actor[None]):
        mailbox = None

        async def run(self) -> None:
            await self.wait_stopping()
            asked.append(trio.current_time())
            await trio.sleep(takes)

    async with stage({}) as here:
        edge = await here.root.add(ChildSpec("edge", Edge, shutdown=60))
        assert await drained(here, within=drain_time, edges=[edge]) == ends
    assert asked == [0]


async def test_errands_that_an_edge_runs_by_itself_are_in_flight_too(autojump_clock: MockClock) -> None:
    async with stage({"work": takes(2)}) as here:
        peer = await here.peer(R5)
        await peer.begin("tools/call", name="work", arguments={})
        await wait_all_tasks_blocked()
        for until in (5, 4):
            here.root.spawn(Errand(until), name=f"until-{until}", shutdown=0)
        assert await drained(here) == 5


@attrs.define(eq=False)
class Errand(Actor[Never]):
    """Something under way that takes until *until*."""

    mailbox = None

    until: float
    was_cut: bool = attrs.field(default=False, init=False)
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    begin_stop = None

    async def run(self) -> None:
        await trio.sleep_forever()

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,)

    async def wait_over(self) -> None:
        with trio.CancelScope(deadline=self.until):
            await self.over.wait()

    def cut_short(self) -> bool:
        self.was_cut = trio.current_time() < self.until
        return self.was_cut

    async def part(self) -> None:
        self.over.set()


@pytest.mark.finding("faults-M2", "newcomer-P5")
async def test_errands_that_take_too_long_are_cut_and_counted(autojump_clock: MockClock) -> None:
    told: list[int] = []
    long, short = Errand(100), Errand(3)
    with structlog.testing.capture_logs() as logged:
        async with stage({}) as here:
            for name, errand in (("long", long), ("short", short)):
                here.root.spawn(errand, name=name, shutdown=0)
            assert await drained(here, tell=told.append) == 30 - FAREWELL
    assert (long.was_cut, short.was_cut, told) == (True, False, [2])
    assert [one["unfinished"] for one in logged if one["event"] == "drain_timed_out"] == [1]


@pytest.mark.finding("faults-M2", "newcomer-P5")
@pytest.mark.parametrize("tool", ["errand", "work"])
@pytest.mark.parametrize("is_legacy", [False, True])
async def test_every_request_over_http_is_answered_that_the_server_ends(is_legacy: bool, tool: str) -> None:
    there = open_house()
    async with serving(there.server) as place:
        session = await OpenSession.open(place, R4) if is_legacy else None
        client = await place.connect()
        if session is not None:
            client = await session.begin(tool, name="a")
        else:
            await client.send(client.modern("tools/call", name=tool, arguments={"name": "a"}))
        await there.wait_started("a")
        [work] = place.host.root.unfinished()
        assert isinstance(work, RequestActor)
        started = trio.current_time()
        await drain(place.host, edges=[place.edge.address], within=0.4, spread=0.1)
        answer = await client.answer()
        assert (answer.status, answer.code, answer.json["id"]) == (503, DRAINING, 1)
        assert answer.headers["retry-after"] == "1"
        assert trio.current_time() - started < 2 + FAREWELL
        assert place.host.in_flight.total == 0


@pytest.mark.finding("faults-M2")
@pytest.mark.parametrize("era", [R4, R5], ids=str)
async def test_a_call_that_is_parked_at_a_backend_costs_no_time(era: Revision, autojump_clock: MockClock) -> None:
    back = Back(era)
    async with brokered(back.ways) as host, client_of(host, R5) as client:
        asked = await client.begin("tools/call", name="book", arguments={})
        line, request = await back.hear()
        if era is R4:
            await line.ask("elicitation/create", **elicited())
        else:
            question = {"method": "elicitation/create", "params": elicited()}
            await line.say(
                id=request["id"],
                result={"resultType": "input_required", "requestState": "s", "inputRequests": {"q": question}},
            )
        assert (await client.finish(asked))["resultType"] == "input_required"
        started = trio.current_time()
        await drain(host, within=30, spread=10)
    assert trio.current_time() - started < 1


@pytest.mark.finding("newcomer-P5")
def test_a_person_is_told_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    announce_drain(1, 30.0)
    assert capsys.readouterr().err == ""  # the log says it
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    announce_drain(2, 30.0)
    assert capsys.readouterr().err == "draining: 2 calls in flight, at most 30 s; press Ctrl-C again to stop now\n"
