"""A legacy session outlives its socket: what goes on without it, until when, and how its client comes back."""

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Revision
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.testing import Peer
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.memory import MemoryConnection
from callboard.transports.server.websocket.resumable import SESSION_KEY
from callboard.transports.wire import LAST_WORD_TIME
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.company import company, drop, resume, wait_in_both_eras, wire_of
from tests.transports.server.websocket.stage import Refused, Socket, back, house, masked, session_of, socket_of

pytestmark = pytest.mark.usefixtures("door")

LEGACY = pytest.mark.parametrize("revision", [r for r in Revision if r < LATEST], ids=str)
GRACE = Settings().grace


@LEGACY
async def test_a_call_goes_on_while_nobody_is_there_and_its_answer_waits(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(revision)
        assert client.agreed["_meta"][SESSION_KEY]["grace"] == GRACE
        call = await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        await drop(client)
        seen.go.set()
        await trio.sleep(GRACE - 1)
        assert await resume(here, client, 1) == {"received": 3, "replayed": 0}
        assert text(await client.finish(call)) == "a waited"
        assert text(await client.call("greet")) == "hello you"


async def test_what_was_said_and_did_not_arrive_is_said_again_in_order_and_once(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        asked = [await client.begin("ping") for _ in range(5)]
        await wait_all_tasks_blocked()  # all five are answered, and on their way
        assert (await client.hear())["id"] == asked[0]
        await drop(client)
        assert await resume(here, client, 2) == {"received": 7, "replayed": 4}
        assert [(await client.hear())["id"] for _ in range(4)] == asked[1:]
        assert text(await client.call("greet", name="last")) == "hello last"


async def test_a_client_may_lose_its_socket_as_often_as_it_likes(autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        call = await client.begin("tools/call", name="wait", arguments={"name": "a"})
        for _ in range(3):
            await wait_all_tasks_blocked()
            await drop(client)
            await trio.sleep(GRACE - 1)
            assert await resume(here, client, 1) == {"received": 3, "replayed": 0}
        seen.go.set()
        assert text(await client.finish(call)) == "a waited"
        assert len(here.sessions()) == 1


async def test_a_question_that_the_client_did_not_hear_is_asked_again_and_can_be_answered(
    autojump_clock: MockClock,
) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4, answers={})
        call = await client.begin("tools/call", name="ask", arguments={})
        await wait_all_tasks_blocked()
        await drop(client)
        client.answers = {
            "sampling/createMessage": lambda params: {
                "role": "assistant",
                "model": "m",
                "content": {"type": "text", "text": "boots"},
            }
        }
        assert await resume(here, client, 1) == {"received": 3, "replayed": 1}
        assert text(await client.finish(call)) == "boots"


async def test_a_message_that_did_not_arrive_here_is_not_counted_and_can_be_sent_again(
    autojump_clock: MockClock,
) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        wire_of(client).outgoing.left = 30
        call = await client.begin("tools/call", name="greet", arguments={})
        await drop(client)
        assert (await resume(here, client, 1))["received"] == 2
        again = await client.begin("tools/call", name="greet", arguments={})
        assert again != call
        assert text(await client.finish(again)) == "hello you"


async def test_a_session_is_over_when_its_grace_is(autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        await drop(client)
        assert here.sessions()[0].facts["socket"] == "none"
        await trio.sleep(GRACE - 0.1)
        assert (len(here.door), seen.cancelled) == (1, [])
        await trio.sleep(0.2)
        assert (len(here.door), seen.cancelled) == (0, ["a"])
        assert not here.sessions()
        with pytest.raises(Refused) as refused:
            await resume(here, client, 1)
        assert refused.value.status == 404


async def test_a_client_that_comes_back_has_all_the_time_in_the_world(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await drop(client)
        await resume(here, client, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.hear)  # it answers the pings
            await trio.sleep(10 * GRACE)
            nursery.cancel_scope.cancel()
        assert text(await client.call("greet")) == "hello you"


@pytest.mark.parametrize("code", [1000, 1001, None])
async def test_a_client_that_says_good_bye_has_ended_its_session(code: int | None, autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        socket = socket_of(client)
        gone = await (socket.finish(code) if code is not None else without_code(socket))
        assert gone.code == (code or 1005)
        await wait_all_tasks_blocked()
        assert (len(here.door), seen.cancelled, here.sessions()) == (0, ["a"], [])
        assert trio.current_time() < 1


async def without_code(socket: Socket) -> Any:
    await socket.write(bytes([0x88, 0x80]) + b"mask")
    return await socket.wait_gone()


@pytest.mark.parametrize("code", [1002, 1006, 1011, 3000, 4000])
async def test_any_other_last_word_leaves_the_session_for_a_while(code: int, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        if code == 1006:  # which nobody may say
            await drop(client)
        else:
            assert (await socket_of(client).finish(code)).code == code
        assert (await resume(here, client, 1))["replayed"] == 0
        assert text(await client.call("greet")) == "hello you"


async def test_before_initialize_and_in_the_modern_era_there_is_nothing_to_come_back_to(
    autojump_clock: MockClock,
) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(LATEST)
        await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        await drop(client)
        assert (seen.cancelled, here.sessions(), len(here.door)) == (["a"], [], 0)
        await here.dial()
        assert len(here.door) == 1
        here.close()
        await wait_all_tasks_blocked()
        assert (here.sessions(), len(here.door)) == ([], 0)


async def test_a_modern_request_ends_with_its_socket_though_the_session_goes_on(autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_in_both_eras(client)
        await drop(client)
        assert (sorted(seen.begun), seen.cancelled) == (["legacy", "modern"], ["modern"])


async def test_neither_side_counts_what_was_said_before_the_handshake(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        socket = await here.dial()
        await socket.say({"id": "early", "method": "ping"})
        assert (await socket.hear())["id"] == "early"
        modern = Peer(cast("MemoryConnection", socket), LATEST)
        wire = wire_of(modern)
        wire.incoming.is_stalled = True
        asked = [await modern.begin("tools/list") for _ in range(3)]
        handshake = {"protocolVersion": R4.value, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await socket.say({"id": "hello", "method": "initialize", "params": handshake})
        await wait_all_tasks_blocked()
        wire.incoming.flow()
        assert [(await socket.hear())["id"] for _ in range(3)] == asked
        agreed = await socket.hear()
        assert agreed["id"] == "hello"
        socket.close()
        again = await here.dial(back(agreed["result"]["_meta"][SESSION_KEY]["id"], 1))
        assert (await again.hear())["params"] == {"received": 1, "replayed": 0}


async def test_a_socket_that_fails_to_write_takes_no_more_whoever_else_has_noticed(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, Settings(max_events=3)) as here:
        client = await here.peer(R4)
        await client.request("resources/subscribe", uri="x://y")
        await wait_all_tasks_blocked()
        wire_of(client).incoming.is_refusing = True
        for _ in range(10):
            server.notify_updated("x://y")
            await wait_all_tasks_blocked()
        (session,) = here.sessions()
        assert (session.facts["socket"], session.facts["sent"], session.facts["kept"]) == ("none", 3, 3)
        assert await resume(here, client, 2) == {"received": 3, "replayed": 1}


async def test_what_a_lost_socket_had_read_and_not_dealt_with_is_not_heard_when_it_is_sent_again(
    autojump_clock: MockClock,
) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        wire_of(client).incoming.is_stalled = True
        said = [b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number for number in range(1000, 4000)]
        call = b'{"jsonrpc":"2.0","id":"%s","method":"tools/call","params":{"name":"wait","arguments":{"name":"%s"}}}'
        said += [call % (name, name) for name in (b"a", b"b")]
        await socket_of(client).write(b"".join(masked(1, frame) for frame in said))  # all are read at once
        await trio.sleep(DEFAULTS.write_time + LAST_WORD_TIME + 1)
        assert here.sessions()[0].facts["socket"] == "none"
        told = await resume(here, client, 1)
        assert told["received"] < 3000  # the reader was stuck behind what nobody read
        for frame in said[told["received"] - 2 :]:
            await socket_of(client).send(frame)
        seen.go.set()
        heard = [(await socket_of(client).hear())["id"] for _ in said]
        assert heard[:3000] == list(range(1000, 4000))
        assert sorted(heard[3000:]) == sorted(seen.begun) == ["a", "b"]
        await client.request("ping")
        assert not client.heard


async def test_a_session_that_its_client_ended_is_not_there_from_that_moment_on(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        (conversation,) = here.door._conversations.values()
        conversation.end()
        with pytest.raises(HttpRefusal, match="session not found"):
            here.door._returned(session_of(client), ANONYMOUS, 1)


async def test_no_more_time_is_lost_at_the_end_for_a_session_that_nobody_is_there_for(
    autojump_clock: MockClock,
) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await drop(client)
        server.notify_changed("tools")
        await wait_all_tasks_blocked()
    assert trio.current_time() == 0
