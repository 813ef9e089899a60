"""How a legacy session begins, what it agrees on, and the batches that one revision has."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions import LEGACY, Revision
from callboard.codecs.revisions.revision import R2, R4, R5
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from tests.protocol.house import EACH_LEGACY, hear_raw, hears_nothing, open_house, say_raw, text

server = Server("life", version="1", title="Life", instructions="Live.", offers=["completions"])


@server.tool
async def greet() -> str:
    return "hello"


@server.tool
async def wait() -> str:
    await trio.sleep(300)
    return "waited"


@server.tool
async def where(*, ctx: Context) -> str:
    (root,) = await ctx.roots()
    return root.uri


ROOTS = {"roots/list": lambda params: {"roots": [{"uri": "file:///home"}]}}


async def shake_hands(peer: Peer, version: str) -> dict[str, Any]:
    return await peer.request(
        "initialize", protocolVersion=version, capabilities={"roots": {}}, clientInfo={"name": "c", "version": "1"}
    )


@pytest.mark.requirement("L021", "L028")
@EACH_LEGACY
async def test_the_answer_to_a_handshake_says_who_answers_and_what_it_can(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.stranger(revision)
        said = await shake_hands(peer, revision.value)
        assert said["protocolVersion"] == revision.value
        assert said["serverInfo"]["name"] == "life"
        assert ("title" in said["serverInfo"]) == (revision >= "2025-06-18")  # what a revision lacks, it is not told
        assert said["instructions"] == "Live."
        assert said["capabilities"]["tools"] == {"listChanged": True}
        assert ("completions" in said["capabilities"]) == (revision >= "2025-03-26")


@EACH_LEGACY
async def test_hands_are_shaken_once(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        with pytest.raises(Refusal, match="-32600"):
            await shake_hands(peer, R4.value)
        assert text(await peer.call("greet")) == "hello"


@pytest.mark.requirement("L031")
@EACH_LEGACY
async def test_a_client_is_asked_nothing_before_it_is_ready(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.stranger(revision, answers=ROOTS)
        await shake_hands(peer, revision.value)
        request_id = await peer.begin("tools/call", name="where")
        server.notify_changed("tools")
        await hears_nothing(peer)
        await peer.say({"method": "notifications/initialized"})
        assert text(await peer.finish(request_id)) == "file:///home"


@pytest.mark.requirement("L086")
@EACH_LEGACY
async def test_a_ping_is_answered_at_once_with_nothing_even_while_others_work(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        await peer.begin("tools/call", name="wait")
        now = trio.current_time()
        assert await peer.request("ping") == {}
        assert trio.current_time() == now


@pytest.mark.requirement("L029")
async def test_a_capability_that_was_not_agreed_on_is_not_used(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R4, capabilities={})
        failed = await peer.call("where")
        assert failed["isError"] is True
        assert "roots" in text(failed)
        assert not peer.heard


# Batches


async def test_a_batch_is_answered_by_one_array(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R2)
        call = '{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"greet"}}'
        note = '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'
        unknown = '{"jsonrpc":"2.0","id":9,"method":"no/such"}'
        ping = '{"jsonrpc":"2.0","id":10,"method":"ping"}'
        await say_raw(peer, f"[{call},{note},{unknown},7,{ping}]")
        answers = await hear_raw(peer)
        assert isinstance(answers, list)
        by_id = {answer.get("id"): answer for answer in answers}
        assert text(by_id["a"]["result"]) == "hello"
        assert by_id[9]["error"]["code"] == -32601
        assert by_id[None]["error"]["code"] == -32600
        assert by_id[10]["result"] == {}
        assert len(answers) == 4


async def test_a_batch_of_notifications_is_not_answered_and_a_cancelled_member_is_left_out(
    autojump_clock: MockClock,
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R2)
        await say_raw(peer, '[{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]')
        await hears_nothing(peer)
        call = '{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"wait"}}'
        await say_raw(peer, f'[{call},{{"jsonrpc":"2.0","id":"p","method":"ping"}}]')
        await hears_nothing(peer)  # one member is still at work
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": "w"}})
        assert await hear_raw(peer) == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


async def test_a_member_of_a_batch_may_ask_while_the_others_wait(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R2)
        await say_raw(peer, '[{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"where"}}]')
        question = await peer.hear()
        assert question["method"] == "roots/list"
        await say_raw(peer, '[{"jsonrpc":"2.0","id":%d,"result":{"roots":[{"uri":"file:///b"}]}}]' % question["id"])
        (answer,) = await hear_raw(peer)
        assert text(answer["result"]) == "file:///b"


async def test_answers_too_large_for_one_frame_come_one_by_one(autojump_clock: MockClock) -> None:
    large = Server("large")

    @large.tool
    async def much() -> str:
        return "x" * (3 * 1024 * 1024)

    async with open_house(large) as house:
        peer = await house.peer(R2)
        calls = (f'{{"jsonrpc":"2.0","id":"{n}","method":"tools/call","params":{{"name":"much"}}}}' for n in "ab")
        await say_raw(peer, f"[{','.join(calls)}]")
        assert {(await hear_raw(peer))["id"], (await hear_raw(peer))["id"]} == {"a", "b"}


@pytest.mark.parametrize(
    "member",
    [
        '{"jsonrpc":"2.0","id":1000,"method":"initialize","params":{}}',
        '{"jsonrpc":"2.0","id":1000,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":""}}}',
    ],
)
async def test_neither_a_handshake_nor_a_modern_request_is_part_of_a_batch(
    member: str, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R2)
        await say_raw(peer, f"[{member}]")
        (answer,) = await hear_raw(peer)
        assert (answer["id"], answer["error"]["code"]) == (1000, -32600)


@pytest.mark.parametrize("revision", sorted({*LEGACY, R5} - {R2}), ids=str)
async def test_elsewhere_a_batch_is_one_error(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        await say_raw(peer, '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]')
        refused = await hear_raw(peer)
        assert refused["error"]["code"] == -32600
        assert "id" not in refused
        await hears_nothing(peer)


@pytest.mark.parametrize("frame", ["[]", "[1", "[%s]" % ",".join(["1"] * 300)])
async def test_a_batch_that_is_none_is_one_error(frame: str, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R2)
        await say_raw(peer, frame)
        refused = await hear_raw(peer)
        assert refused["error"]["code"] in (-32600, -32700)
        assert await peer.request("ping") == {}
