"""Connections to a legacy backend and requests in flight to it: no client can take them all."""

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.host import Host
from callboard.codecs.revisions.revision import R4
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import backend, brokered, peer, texts
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}


async def park(back: Back, client: Peer, count: int) -> list[Json]:
    """Let the client's calls be asked a question each, to which no answer comes."""
    results: list[Json] = []
    for _ in range(count):
        begun = await client.begin("tools/call", **BOOK)
        line, _ = await back.hear()
        await line.ask("elicitation/create", **form())
        results.append(await client.finish(begun))
    return results


async def served(host: Host, back: Back, principal: str, capabilities: Json | None = None) -> list[str]:
    """What a modern client gets for one call, at once."""
    async with peer(host, principal=principal, capabilities=capabilities) as client:
        with trio.fail_after(0.01):
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            await line.answer(request, **text(f"for {principal}"))
            return texts([await client.finish(begun)])


@pytest.mark.finding("faults-H2")
@pytest.mark.parametrize("capabilities", [None, {}], ids=["may be asked", "plain"])
async def test_a_client_that_parks_calls_locks_no_other_client_out(
    capabilities: Json | None, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="alice") as alice:
        await park(back, alice, 15)
        assert await served(host, back, "bob", capabilities) == ["for bob"]


@pytest.mark.finding("faults-H2")
async def test_a_legacy_session_finds_a_connection_beside_parked_calls(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="alice") as alice:
        await park(back, alice, 15)
        async with peer(host, R4, principal="bob") as bob:
            with trio.fail_after(0.01):
                begun = await bob.begin("tools/call", **BOOK)
                line, request = await back.hear()
                await line.answer(request, **text("for bob"))
                assert texts([await bob.finish(begun)]) == ["for bob"]


@pytest.mark.finding("faults-H2")
async def test_a_client_over_its_share_loses_its_oldest_question_and_no_other(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="bob") as bob, peer(host, principal="alice") as alice:
        [asked] = await park(back, bob, 1)
        first, *_ = await park(back, alice, 15)
        with pytest.raises(Refusal) as refused:
            await answer(alice, first)
        assert (refused.value.code, "other calls needed the connection" in str(refused.value)) == (-31003, True)
        begun = await bob.begin("tools/call", **answered(asked))
        await wait_all_tasks_blocked()
        [line] = [line for line in back.lines if line.answers]
        [request] = [message for message in line.heard if message.get("method") == "tools/call"]
        await line.answer(request, **text("for bob"))
        assert texts([await bob.finish(begun)]) == ["for bob"]


async def answer(client: Peer, asked: Json) -> Json:
    return await client.request("tools/call", **answered(asked))


def answered(asked: Json) -> Json:
    """The call again, with the answer to what it was asked."""
    responses = dict.fromkeys(asked["inputRequests"], named("ada"))
    return {**BOOK, "inputResponses": responses, "requestState": asked["requestState"]}


@pytest.mark.finding("faults-H2")
async def test_when_every_connection_waits_for_somebody_else_newcomers_still_get_one(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, trio.open_nursery() as nursery:

        async def wait_parked(name: str, done: trio.Event) -> None:
            async with peer(host, principal=name) as client:
                await park(back, client, 1)
                done.set()
                await trio.sleep_forever()

        for number in range(20):
            done = trio.Event()
            nursery.start_soon(wait_parked, f"user-{number}", done)
            await done.wait()
        assert await served(host, back, "late") == ["for late"]
        nursery.cancel_scope.cancel()


async def keep_busy(back: Back, client: Peer, count: int) -> list[tuple[Line, Json]]:
    """Calls that run for long. Those that find no connection wait."""
    before = len(back.told("tools/call"))
    for _ in range(count):
        await client.begin("tools/call", **BOOK)
    await wait_all_tasks_blocked()
    return [await back.hear() for _ in back.told("tools/call")[before:]]


@pytest.mark.finding("security-11", "faults-H2")
@pytest.mark.parametrize("capabilities", [None, {}], ids=["may be asked", "plain"])
async def test_slow_calls_of_one_client_leave_processes_to_the_others(
    capabilities: Json | None, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="alice") as alice:
        running = await keep_busy(back, alice, 16)
        assert len(running) == 12
        assert await served(host, back, "bob", capabilities) == ["for bob"]


@pytest.mark.finding("security-11")
async def test_plain_calls_find_a_process_when_all_that_may_ask_are_busy(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with (
        brokered(back.ways) as host,
        peer(host, principal="alice") as alice,
        peer(host, principal="bob") as bob,
    ):
        await keep_busy(back, alice, 12)
        await keep_busy(back, bob, 12)
        assert await served(host, back, "carol", {}) == ["for carol"]


@pytest.mark.finding("faults-H2")
async def test_a_request_that_must_wait_for_running_ones_does_not_wait_for_long(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="alice") as alice:
        await keep_busy(back, alice, 12)
        began = trio.current_time()
        with pytest.raises(Refusal) as refused:
            await alice.request("tools/call", **BOOK)
        assert refused.value.code == -31003
        assert trio.current_time() - began == 5.0


@pytest.mark.finding("security-11")
@pytest.mark.parametrize("capabilities", [None, {}], ids=["may be asked", "plain"])
async def test_requests_of_many_sessions_of_one_client_leave_room_for_others(
    capabilities: Json | None, autojump_clock: MockClock
) -> None:
    back = Back()
    async with (
        brokered(backend(back.ways, max_in_flight=8)) as host,
        peer(host, R4, principal="alice", capabilities=capabilities) as one,
        peer(host, R4, principal="alice", capabilities=capabilities) as two,
    ):
        begun = [await client.begin("tools/call", **BOOK) for _ in range(4) for client in (one, two)]
        await wait_all_tasks_blocked()
        assert len(back.told("tools/call")) == 6 < len(begun)
        async with peer(host, principal="bob") as bob:
            await bob.begin("tools/call", **BOOK)
            await wait_all_tasks_blocked()
        assert len(back.told("tools/call")) == 7


@pytest.mark.finding("faults-H2")
async def test_processes_that_take_their_time_to_end_do_not_pile_up(autojump_clock: MockClock) -> None:
    back = Back(R4, ends_in=4.0)
    async with brokered(backend(back.ways, max_connections=5)) as host, peer(host, principal="alice") as alice:
        for _ in range(30):
            await park(back, alice, 1)
            assert sum(not line.is_gone for line in back.lines) <= 10


@pytest.mark.finding("faults-H2")
async def test_sessions_that_do_not_answer_their_questions_lock_no_other_session_out(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, AsyncExitStack() as stack:
        for _ in range(13):
            alice = await stack.enter_async_context(peer(host, R4, principal="alice"))
            await alice.begin("tools/call", **BOOK)
            line, _ = await back.hear()
            await line.ask("elicitation/create", **form())
            assert (await alice.hear())["method"] == "elicitation/create"
        async with peer(host, R4, principal="bob") as bob:
            with trio.fail_after(0.01):
                begun = await bob.begin("tools/call", **BOOK)
                line, request = await back.hear()
                await line.answer(request, **text("for bob"))
                assert texts([await bob.finish(begun)]) == ["for bob"]
