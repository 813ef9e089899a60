"""What is kept for clients that may come back: bounded for the whole process, and not for longer than it is of use."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.replay_budget import ReplayBudget
from callboard.codecs.revisions import Revision
from callboard.codecs.websocket.replay_buffer import ReplayBuffer
from callboard.transports.limits import Settings
from callboard.transports.server.http import legacy
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Place, serving, settle
from tests.transports.server.websocket.stage import house, socket_of

pytestmark = pytest.mark.finding("security-8")

REVISION: Final = Revision.V2025_06_18


async def streamed(place: Place, words: int, *, leaves: bool = False) -> OpenSession:
    """A session whose only call says *words* bytes and is then answered, or left by its client."""
    session = await OpenSession.open(place, REVISION)
    stream = await session.streamed("chat", words=["x" * words], name="gate" if leaves else "")
    if leaves:
        await stream.message()
        await stream.client.aclose()
    else:
        assert len(await stream.rest()) == 2
    await settle()
    return session


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=60))
def test_all_together_keep_no_more_than_the_budget_and_the_latest_stay(said: list[tuple[int, int]]) -> None:
    budget = ReplayBudget(100)
    keepers = [ReplayBuffer(5, 80, budget) for _ in range(4)]
    for whose, size in said:
        keepers[whose].add(b"x" * size)
        assert budget.total == sum(keeper.kept_bytes for keeper in keepers) <= 100
        assert all(keeper.kept_bytes == sum(map(len, keeper.after(keeper.forgotten))) for keeper in keepers)
        assert len(budget) == sum(len(keeper) > 0 for keeper in keepers)
    for keeper in keepers:
        keeper.clear()
    assert (budget.total, len(budget)) == (0, 0)


def test_a_session_that_is_told_much_costs_itself_and_not_the_others() -> None:
    budget = ReplayBudget(10_000)
    quiet, loud = (ReplayBuffer(1000, 10_000, budget) for _ in range(2))
    quiet.add(b"q" * 100)
    for _ in range(1000):
        loud.add(b"l" * 50)
        assert budget.total == quiet.kept_bytes + loud.kept_bytes <= 10_000
    assert quiet.has_after(0), "it has its oldest message still"
    assert loud.kept_bytes > 9_000


def test_a_budget_that_is_full_is_not_looked_through_for_each_message() -> None:
    budget = ReplayBudget(100_000)
    keepers = [ReplayBuffer(1000, 100_000, budget) for _ in range(10)]
    trims: list[int] = []
    budget_of = type(budget)
    whole = budget_of.trim

    def counted(self: ReplayBudget) -> None:
        trims.append(self.total)
        whole(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_of, "trim", counted)
        for number in range(10_000):
            keepers[number % 10].add(b"x" * 50)
    assert 0 < len(trims) < 10_000 / 5


def test_a_session_may_keep_nothing_at_all() -> None:
    budget = ReplayBudget(100)
    none = ReplayBuffer(0, 80, budget)
    none.add(b"one")
    assert (none.sent, none.forgotten, none.kept_bytes, budget.total, len(budget)) == (1, 1, 0, 0, 0)


async def test_sessions_keep_a_bounded_number_of_bytes_together() -> None:
    async with serving(open_house().server, Settings(max_kept_bytes=10_000, write_time=1)) as place:
        sessions = [await streamed(place, 3_000, leaves=True) for _ in range(5)]
        assert place.host.kept.total <= 10_000
        first, last = sessions[0], sessions[-1]
        client = await place.connect()
        await client.send(first.get("2-0"))
        assert (await client.answer()).status == 400
        resumed = await last.listen("2-0")
        assert (await resumed.message())["params"]["data"] == "x" * 3_000


async def test_an_event_that_is_too_large_is_not_kept_at_all() -> None:
    async with serving(open_house().server, Settings(max_event_bytes=10_000, write_time=1)) as place:
        session = await streamed(place, 50_000, leaves=True)
        assert place.host.kept.total <= 10_000
        client = await place.connect()
        await client.send(session.get("2-0"))
        assert (await client.answer()).status == 400


async def test_the_events_of_an_answer_that_was_written_are_soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(open_house().server) as place:
        session = await streamed(place, 5_000)
        assert place.host.kept.total > 5_000
        resumed = await session.listen("2-0")  # its connection may have broken just then
        assert len(await resumed.rest()) == 2
        monkeypatch.setattr(legacy, "TOLD_FOR", 0.01)
        again = await streamed(place, 7_000)
        while place.host.kept.total > 7_000:
            await settle()
        assert len(place.endpoint.legacy._sessions[again.id].streams) == 1
        client = await place.connect()
        await client.send(again.get("2-0"))
        assert (await client.answer()).status == 400


async def test_the_end_of_a_session_lets_go_of_all_that_it_kept() -> None:
    async with serving(open_house().server) as place:
        session = await streamed(place, 5_000, leaves=True)
        assert place.host.kept.total > 5_000
        await session.delete()
        await settle()
        assert (place.host.kept.total, len(place.host.kept)) == (0, 0)


async def test_websockets_count_too(autojump_clock: MockClock) -> None:
    async with house(open_house().server, Settings(max_kept_bytes=10_000, ping_every=1000)) as here:
        clients = [await here.peer(REVISION) for _ in range(5)]
        for client in clients:
            await client.call("echo", text="x" * 3_000)
        assert 3_000 < here.host.kept.total <= 10_000
        for client in clients:
            await socket_of(client).finish()
        await wait_all_tasks_blocked()
        assert here.host.kept.total == 0
