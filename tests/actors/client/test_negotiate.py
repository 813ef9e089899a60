"""How a client finds the era of a server, by every transport, and what it remembers of it."""

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Server
from callboard.client import connect
from callboard.client.connect import MAX_KNOWN, MEMORY, Memory, ServerFound
from callboard.client.routes import TransportRoutes
from callboard.codecs.revisions import LEGACY, Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.errors import CannotConnect
from tests.client.stage import EVERYTHING, INFO, Json, Puppet, played
from tests.client.web import Reply, legacy, modern, nothing_unasked, web


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    for key in list(MEMORY._found):
        MEMORY.forget(key)


def agreed(revision: Revision) -> Json:
    return {"protocolVersion": revision.value, "capabilities": EVERYTHING, "serverInfo": INFO}


MODERN_ONLY: Final[Json] = {"supportedVersions": [R5.value], "capabilities": {}, "ttlMs": 0, "cacheScope": "public"}

# On a pipe.


@pytest.mark.requirement("M066", "M084")
async def test_a_server_on_a_pipe_is_asked_first_whether_it_is_modern(autojump_clock: MockClock) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear()
        heard.append(request["method"])
        await puppet.answer(
            request, supportedVersions=[R5.value, "2030-01-01"], capabilities={}, ttlMs=0, cacheScope="public"
        )

    async with connect(played(play, meets=False)) as client:
        assert client.revision == R5
    assert heard == ["server/discover"]


@pytest.mark.requirement("M085")
@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, -32001, 0, 7])
async def test_whatever_error_an_old_server_gives_it_is_spoken_to_as_one(code: int, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear(), code)
        await puppet.answer(await puppet.hear("initialize"), **agreed(R4))

    async with connect(played(play, R4, meets=False)) as client:
        assert client.revision == R4
    assert trio.current_time() == 0


async def test_a_server_that_keeps_silent_is_taken_for_an_old_one(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("initialize"), **agreed(R1))

    async with connect(played(play, R1, meets=False)) as client:
        assert client.revision == R1
        assert trio.current_time() == 5


@pytest.mark.parametrize("code", [-32601, -32022])
async def test_a_modern_server_that_was_silent_because_it_took_long_to_start_is_asked_again(
    code: int, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        await trio.sleep(10)
        while True:
            request = await puppet.hear("server/discover", "initialize")
            if request["method"] == "initialize":
                await puppet.refuse(request, code, "no such method")
            else:
                await puppet.answer(
                    request, supportedVersions=[R5.value], capabilities={}, ttlMs=0, cacheScope="public"
                )

    async with connect(played(play, meets=False)) as client:
        assert client.revision == R5
        assert trio.current_time() == 10


@pytest.mark.parametrize("first", ["server/discover", "initialize"])
async def test_a_slow_server_that_accepts_the_handshake_has_begun_a_legacy_session(
    first: str, autojump_clock: MockClock
) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        await trio.sleep(10)
        asked = [await puppet.hear("server/discover"), await puppet.hear("initialize")]
        for request in sorted(asked, key=lambda request: request["method"] != first):
            await puppet.answer(request, **(agreed(R4) if request["method"] == "initialize" else MODERN_ONLY))
        while True:
            heard.append((await puppet.hear())["method"])

    async with connect(played(play, meets=False)) as client:
        assert client.revision == R4
        assert trio.current_time() == 10
        await wait_all_tasks_blocked()
    assert heard[-1] == "notifications/initialized"


async def test_a_slow_modern_server_that_refuses_the_handshake_first_is_waited_for(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        asked = [await puppet.hear("server/discover"), await puppet.hear("initialize")]
        await puppet.refuse(asked[1], -32022)
        await trio.sleep(1)
        await puppet.answer(asked[0], **MODERN_ONLY)

    async with connect(played(play, meets=False)) as client:
        assert client.revision == R5
        assert trio.current_time() == 6


async def test_a_server_that_refuses_the_handshake_and_does_not_say_that_it_is_modern_is_given_up_soon(
    autojump_clock: MockClock,
) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear("initialize"), -32600, "not now")

    with pytest.raises(CannotConnect, match="refused the handshake: not now"):
        async with connect(played(play, meets=False)):
            pass
    assert trio.current_time() == 10


@pytest.mark.requirement("M061", "M086")
@pytest.mark.parametrize("code", [-32022, -32004])
async def test_a_refusal_that_names_revisions_is_answered_with_one_of_them(
    code: int, autojump_clock: MockClock
) -> None:
    heard: list[Any] = []

    async def play(puppet: Puppet) -> None:
        for _ in range(2):
            request = await puppet.hear()
            heard.append(request["method"])
            if len(heard) == 1:
                await puppet.refuse(request, code, "Unsupported", supported=["2031-01-01", R5.value], requested="x")
            else:
                await puppet.answer(
                    request, supportedVersions=[R5.value], capabilities={}, ttlMs=0, cacheScope="public"
                )

    async with connect(played(play, meets=False)) as client:
        assert client.revision == R5
    assert heard == ["server/discover", "server/discover"]


@pytest.mark.requirement("M086")
@pytest.mark.parametrize(
    ("code", "data"),
    [
        (-32022, {"supported": ["2031-01-01"], "requested": R5.value}),
        (-32020, {}),
        (-32021, {"requiredCapabilities": {"sampling": {}}}),
    ],
)
async def test_a_modern_server_with_no_revision_in_common_is_not_taken_for_an_old_one(
    code: int, data: Json, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear(), code, "no", **data)
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())

    with pytest.raises(CannotConnect, match="no revision in common"):
        async with connect(played(play, meets=False)):
            pass


@pytest.mark.parametrize("revision", sorted(LEGACY))
async def test_a_server_that_refuses_and_names_an_older_revision_gets_its_handshake(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server = Server("old", version="1")
    server.revisions = frozenset({revision})
    async with connect(server) as client:
        assert client.revision == revision


@pytest.mark.parametrize("revision", [R1, R4])
async def test_insisting_on_an_old_revision_asks_for_nothing_else(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear()
        assert request["method"] == "initialize"
        await puppet.answer(request, **agreed(revision))

    async with connect(played(play, revision, meets=False), revision=revision) as client:
        assert client.revision == revision


async def test_insisting_on_the_modern_revision_does_not_fall_back(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear(), -32601)
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())

    with pytest.raises(CannotConnect, match="does not support 2026-07-28"):
        async with connect(played(play, meets=False), revision=R5):
            pass


# By HTTP.


@pytest.mark.requirement("M119")
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"", "text/plain"),
        (
            400,
            b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "no session"}}',
            "application/json",
        ),
        (400, b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Bad Request"}}', "application/json"),
        (404, b"nothing", "text/plain"),
        (405, b"", "text/plain"),
        (500, b"<html>", "text/html"),
        (200, b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "what?"}}', "application/json"),
    ],
)
async def test_an_old_server_by_http_is_found_by_what_it_does_not_say(
    status: int, body: bytes, kind: str, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "server/discover":
            await reply.whole(status, body, kind)
        else:
            await legacy(nothing_unasked, R4)(reply)

    async with web(handle) as here, connect(here.ways()) as client:
        assert client.revision == R4


@pytest.mark.requirement("M086", "M119")
@pytest.mark.parametrize("request_id", ["1", "null"])
async def test_a_modern_refusal_in_the_body_of_a_400_is_not_answered_by_a_handshake(
    request_id: str, autojump_clock: MockClock
) -> None:
    data = '{"supported": ["2031-01-01"], "requested": "2026-07-28"}'
    error = f'{{"code": -32022, "message": "Unsupported protocol version", "data": {data}}}'
    body = f'{{"jsonrpc": "2.0", "id": {request_id}, "error": {error}}}'

    async def handle(reply: Reply) -> None:
        await reply.whole(400, body.encode())

    async with web(handle) as here:
        with pytest.raises(CannotConnect, match="no revision in common"):
            async with connect(here.ways()):
                pass
        assert [seen.rpc for seen in here.seen] == ["server/discover"]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_refuses_every_post_is_tried_as_one_of_the_oldest_kind(
    status: int, autojump_clock: MockClock
) -> None:
    streams: list[Reply] = []

    async def handle(reply: Reply) -> None:
        body = reply.seen.body
        if reply.seen.method == "GET":
            await reply.stream()
            await reply.piece(b"event: endpoint\ndata: /messages?session=1\n\n")
            streams.append(reply)
            await trio.sleep(1000)
        elif reply.seen.target == "/mcp":
            await reply.whole(status, b"no", "text/plain")
        else:
            await reply.whole(202)
            if body.get("method") == "initialize":
                await streams[0].event({"id": body["id"], "result": agreed(R1)}, event="message")

    async with web(handle) as here, connect(here.ways(pair=True)) as client:
        assert client.revision == R1
        asked = [(seen.method, seen.target, seen.rpc) for seen in here.seen]
        assert asked == [
            ("POST", "/mcp", "server/discover"),
            ("POST", "/mcp", "initialize"),
            ("GET", "/mcp", ""),
            ("POST", "/messages?session=1", "initialize"),
            ("POST", "/messages?session=1", "notifications/initialized"),
        ]


@pytest.mark.parametrize("status", [401, 403, 406, 500, 503])
async def test_other_refusals_say_nothing_about_the_kind_and_are_told_as_they_are(
    status: int, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        assert reply.seen.method == "POST"
        await reply.whole(status, b"because", "text/plain")

    async with web(handle) as here:
        with pytest.raises(CannotConnect, match=f"HTTP {status}: because"):
            async with connect(here.ways(pair=True)):
                pass


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_is_busy_for_a_moment_is_not_taken_for_an_old_one(
    status: int, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        if len(here.seen) == 1:
            await reply.whole(status, b"later", "text/plain", retry_after="1")
        else:
            await modern(nothing_unasked)(reply)

    async with web(handle) as here:
        with pytest.raises(CannotConnect, match=f"HTTP {status}: later"):
            async with connect(here.ways(pair=True, key="here")):
                pass
        assert MEMORY.recall("here") is None
        async with connect(here.ways(pair=True, key="here")) as client:
            assert client.revision == R5


@pytest.mark.parametrize("code", [-31003, -31004])
async def test_a_server_on_a_pipe_that_is_busy_is_not_taken_for_an_old_one(
    code: int, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear(), code, "later")
        await puppet.hear("never")

    with pytest.raises(CannotConnect, match="later"):
        async with connect(played(play, meets=False)):
            pass


async def test_a_server_that_is_nothing_of_the_kind_is_told_by_its_first_answer(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        await reply.whole(404, b"<h1>Not found</h1>", "text/html")

    async with web(handle) as here:
        with pytest.raises(CannotConnect, match="HTTP 404: <h1>Not found"):
            async with connect(here.ways(pair=True)):
                pass
        assert [seen.method for seen in here.seen] == ["POST", "POST", "GET"]


# What is remembered.


@pytest.mark.requirement("M064")
async def test_an_old_server_is_not_asked_again_whether_it_is_modern(autojump_clock: MockClock) -> None:
    async with web(legacy(nothing_unasked, R4)) as here:
        for _ in range(2):
            async with connect(here.ways(key="here")) as client:
                assert client.revision == R4
        assert len(here.requests("server/discover")) == 1
        assert MEMORY.recall("here") == ServerFound("http", is_legacy=True)


@pytest.mark.requirement("M064")
async def test_a_silent_old_server_costs_its_silence_once(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("initialize"), **agreed(R1))

    ways = played(play, R1, meets=False)
    for _ in range(3):
        async with connect(TransportRoutes("command", ways.ways)):
            pass
    assert trio.current_time() == 5


@pytest.mark.requirement("M064")
async def test_what_proves_wrong_is_found_out_anew(autojump_clock: MockClock) -> None:
    is_modern = False

    async def renewed(reply: Reply) -> None:
        if reply.seen.rpc == "initialize":
            await reply.refuse(400, -32022, "Unsupported", supported=[R5.value], requested=R4.value)
        else:
            await modern(nothing_unasked)(reply)

    async def handle(reply: Reply) -> None:
        await (renewed(reply) if is_modern else legacy(nothing_unasked, R4)(reply))

    async with web(handle) as here:
        async with connect(here.ways(key="here")) as client:
            assert client.revision == R4
        is_modern = True
        for _ in range(2):
            async with connect(here.ways(key="here")) as client:
                assert client.revision == R5
        assert MEMORY.recall("here") == ServerFound("http", is_legacy=False)


async def test_the_way_is_remembered_too_and_another_one_is_tried_when_it_is_gone(autojump_clock: MockClock) -> None:
    is_old = True

    async def old(reply: Reply) -> None:
        if reply.seen.method == "GET":
            await reply.stream()
            await reply.piece(b"event: endpoint\ndata: /messages\n\n")
            streams.append(reply)
            await trio.sleep(1000)
        elif reply.seen.target == "/mcp":
            await reply.whole(405)
        else:
            await reply.whole(202)
            if reply.seen.rpc == "initialize":
                await streams[-1].event({"id": reply.seen.body["id"], "result": agreed(R1)})

    streams: list[Reply] = []

    async def handle(reply: Reply) -> None:
        await (old(reply) if is_old else modern(nothing_unasked)(reply))

    async with web(handle) as here:
        for _ in range(2):
            async with connect(here.ways(pair=True, key="here")) as client:
                assert client.revision == R1
        assert len(here.requests("server/discover")) == 1
        is_old = False
        async with connect(here.ways(pair=True, key="here")) as client:
            assert client.revision == R5


async def test_a_way_that_is_remembered_and_not_to_be_taken_is_passed_over(autojump_clock: MockClock) -> None:
    MEMORY.keep("here", ServerFound("sse", is_legacy=True))
    async with web(modern(nothing_unasked)) as here, connect(here.ways(key="here")) as client:
        assert client.revision == R5
        assert MEMORY.recall("here") == ServerFound("http", is_legacy=False)


async def test_insisting_on_a_revision_does_not_look_at_what_is_remembered(autojump_clock: MockClock) -> None:
    MEMORY.keep("here", ServerFound("http", is_legacy=True))
    async with web(modern(nothing_unasked)) as here, connect(here.ways(key="here"), revision=R5) as client:
        assert client.revision == R5


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    memory = Memory()
    for number in range(MAX_KNOWN + 1):
        memory.keep(number, ServerFound("http", is_legacy=False))
    memory.keep(None, ServerFound("memory", is_legacy=False))
    assert len(memory) == MAX_KNOWN
    assert memory.recall(0) is None
    assert memory.recall(None) is None
    assert memory.recall(MAX_KNOWN) is not None


# Whatever happens, no task and no connection is left: `nothing_is_left_over` looks at every test.

KINDS: Final = ("modern", "legacy", "silent")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_is_cancelled_while_it_connects_leaves_nothing(
    kind: str, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear()
        if kind == "legacy":
            await puppet.refuse(request, -32601)
        await puppet.hear("never")

    with trio.move_on_after(3) as scope:
        async with connect(played(play, meets=False)):
            raise AssertionError
    assert scope.cancelled_caught
    assert trio.current_time() <= 5
