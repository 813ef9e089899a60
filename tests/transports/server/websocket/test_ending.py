"""How a server ends what it serves: what is in flight is answered first, and every socket hears why."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Revision, Server
from callboard.actors.server.drain import drain
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.supervisor import Address
from callboard.testing import Refusal
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.stage import House, back, house, masked, session_of, socket_of

BOTH = pytest.mark.parametrize("revision", [R4, LATEST], ids=str)

slow = Server("slow", version="1")


@slow.tool
async def work(seconds: float, *, ctx: Context) -> str:
    await trio.sleep(seconds)
    return "done"


@slow.tool
async def ask(*, ctx: Context) -> str:
    await trio.sleep(1)
    return (await ctx.sample("?", max_tokens=9)).text


def edge(here: House) -> Address[Any]:
    return here.host.root.supervisor_of("edge").address


async def test_a_quiet_socket_hears_1001_at_once(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        edge(here).begin_stop()
        gone = await socket_of(client).wait_gone()
        assert (gone.code, gone.reason) == (1001, "the server is shutting down")
        socket_of(client).close()
        await edge(here).wait_ended()
        assert trio.current_time() == 0
        assert not here.sessions()


@BOTH
async def test_what_is_in_flight_is_answered_before_the_socket_closes(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with house(slow) as here:
        client = await here.peer(revision)
        call = await client.begin("tools/call", name="work", arguments={"seconds": 4})
        await wait_all_tasks_blocked()
        edge(here).begin_stop()
        assert text(await client.finish(call)) == "done"
        assert (await socket_of(client).wait_gone()).code == 1001
        assert trio.current_time() == 4


async def test_a_client_that_is_asked_while_the_server_ends_may_answer(autojump_clock: MockClock) -> None:
    def answer(params: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "boots"}}

    async with house(slow) as here:
        client = await here.peer(R4, answers={"sampling/createMessage": answer})
        call = await client.begin("tools/call", name="ask", arguments={})
        await wait_all_tasks_blocked()
        edge(here).begin_stop()
        assert text(await client.finish(call)) == "boots"
        assert (await socket_of(client).wait_gone()).code == 1001


async def test_a_request_that_is_cancelled_while_the_server_ends_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        call = await client.begin("tools/call", name="work", arguments={"seconds": 8})
        await wait_all_tasks_blocked()
        edge(here).begin_stop()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": call}})
        assert (await socket_of(client).wait_gone()).code == 1001
        assert trio.current_time() == 0


@BOTH
async def test_a_lame_duck_answers_what_is_in_flight_and_refuses_the_rest(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with house(slow) as here:
        client = await here.peer(revision)
        call = await client.begin("tools/call", name="work", arguments={"seconds": 3})
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def end() -> None:
                await drain(here.host, edges=[edge(here)], within=30, spread=10)

            await wait_all_tasks_blocked()
            with pytest.raises(Refusal, match="-31004"):
                await client.request("tools/list")
            assert text(await client.finish(call)) == "done"
            assert (await socket_of(client).wait_gone()).code == 1001
            socket_of(client).close()
        assert trio.current_time() <= 3.1


async def test_a_listener_gets_its_closing_result_before_the_socket_closes(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(LATEST)
        listening = await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def end() -> None:
                await drain(here.host, edges=[edge(here)], within=30, spread=10)

            assert "_meta" in await client.finish(listening)
            assert (await socket_of(client).wait_gone()).code == 1001
            socket_of(client).close()


async def test_a_peer_that_does_not_answer_the_last_word_costs_two_seconds(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        await here.peer(R4)
        edge(here).begin_stop()
        await edge(here).wait_ended()
        assert trio.current_time() == 2


async def test_whoever_is_cut_off_in_the_middle_hears_it_if_that_needs_no_waiting(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        call = await client.begin("tools/call", name="work", arguments={"seconds": 500})
        await wait_all_tasks_blocked()
        edge(here).begin_stop()  # and its drain time is shorter than that
        with pytest.raises(Exception, match="1001"):
            await client.finish(call)
        assert trio.current_time() == here.settings.write_time


async def test_a_session_that_breaks_is_1011_and_cannot_be_gone_on_with(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        (conversation,) = here.door._conversations.values()
        conversation.session.address.kill("test")
        gone = await socket_of(client).wait_gone()
        assert (gone.code, gone.reason) == (1011, "the session failed")
        with pytest.raises(Exception, match="404"):
            await here.dial(back(session_of(client), 1))


async def test_a_session_that_is_stopped_by_its_operator_is_1001(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        here.host.root.supervisor_of("sessions").child("w-1").begin_stop()
        assert (await socket_of(client).wait_gone()).code == 1001


async def test_a_fault_of_ours_while_reading_is_1011_and_ends_the_session(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(slow) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()

        def broken(payload: bytes) -> None:
            raise ZeroDivisionError

        (conversation,) = here.door._conversations.values()
        monkeypatch.setattr(type(conversation), "acknowledge", lambda self, payload: broken(payload))
        await socket_of(client).write(masked(10, b"1"))
        assert (await socket_of(client).wait_gone()).code == 1011
        await wait_all_tasks_blocked()
        assert (len(here.door), here.sessions(), here.connections()) == (0, [], ())


async def test_many_sockets_end_at_once_and_nothing_is_left(autojump_clock: MockClock) -> None:
    async with house(slow) as here:
        clients = [await here.peer(R4) for _ in range(50)]
        edge(here).begin_stop()
        codes = []
        for client in clients:
            codes.append((await socket_of(client).wait_gone()).code)
            socket_of(client).close()
        assert set(codes) == {1001}
        await edge(here).wait_ended()
        assert (trio.current_time(), here.sessions(), len(here.door)) == (0, [], 0)
