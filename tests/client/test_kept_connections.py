"""Requests on HTTP connections that were kept open: no scope bounds their time, the pool does."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.conversation import Patience
from callboard.actors.client.link import OutgoingRequest
from callboard.actors.end_of_turn import SMALL
from callboard.client import connect
from callboard.codecs.envelope import Notification, Request, ResultResponse
from callboard.codecs.revisions import LATEST
from callboard.codecs.revisions.revision import R4
from callboard.errors import ConnectionLost, RequestTimedOut
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool
from callboard.transports.wire import SocketWire, Wire
from tests.client.web import HERE, Reply, legacy, modern, nothing_much, web

SHORT = Patience(timeout=5)


async def silent(reply: Reply) -> None:
    """Answer `ok`, and nothing else."""
    if reply.seen.method == "GET" or reply.seen.rpc != "tools/call" or reply.seen.body["params"]["name"] == "ok":
        await nothing_much(reply)
    elif reply.seen.body["params"]["name"] == "stream":
        await reply.stream()
        await reply.wire.receive()
    else:
        await reply.wire.receive()


@pytest.mark.parametrize("name", ["silence", "stream"])
async def test_a_server_that_falls_silent_costs_the_timeout_and_the_connection(
    name: str, autojump_clock: MockClock
) -> None:
    async with web(modern(silent)) as here, connect(here.ways()) as client:
        await client.call("ok")
        began = trio.current_time()
        with pytest.raises(RequestTimedOut):
            await client.call(name, patience=SHORT)
        assert trio.current_time() - began == SHORT.timeout
        assert here.connections == 1
        await client.call("ok")
        assert here.connections == 2


async def test_a_legacy_server_that_falls_silent_is_told_that_nobody_waits(autojump_clock: MockClock) -> None:
    async with web(legacy(silent, R4)) as here, connect(here.ways()) as client:
        await client.call("ok")
        began = trio.current_time()
        with pytest.raises(RequestTimedOut):
            await client.call("silence", patience=SHORT)
        assert trio.current_time() - began == SHORT.timeout
        asked, [told] = here.requests("tools/call")[-1], here.requests("notifications/cancelled")
        assert told.body["params"]["requestId"] == asked.body["id"]


async def test_each_of_many_requests_has_its_own_time(autojump_clock: MockClock) -> None:
    async with web(modern(silent)) as here, connect(here.ways()) as client:

        async def call_ok() -> None:
            await client.call("ok")

        async def call_late(after: float) -> None:
            began = trio.current_time()
            with pytest.raises(RequestTimedOut):
                await client.call("silence", patience=Patience(timeout=after))
            assert trio.current_time() - began == after

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call_ok)
        async with trio.open_nursery() as nursery:
            for after in (3, 1, 2):
                nursery.start_soon(call_late, after)


async def test_progress_on_the_stream_moves_the_time(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        params = reply.seen.body["params"]
        await reply.stream()
        for number in range(4 if params["name"] == "slow" else 0):
            await trio.sleep(4)
            progress = {"progressToken": params["_meta"]["progressToken"], "progress": number}
            await reply.event({"method": "notifications/progress", "params": progress})
        result = {"resultType": "complete", "content": []}
        await reply.event({"id": reply.seen.body["id"], "result": result})
        await reply.end()

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        await client.call("fast")
        async with client.call("slow", patience=SHORT) as call:
            assert len([report async for report in call.progress]) == 4
        assert here.connections == 1
        assert trio.current_time() == 16


async def test_a_stream_that_is_cut_on_a_kept_connection_is_resumed_within_its_time(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        last = reply.seen.headers.get("last-event-id")
        if reply.seen.method == "GET" and last is None:
            await reply.whole(405)
        elif reply.seen.method == "GET":
            await trio.sleep_forever()
        elif reply.seen.rpc != "tools/call" or reply.seen.body["params"]["name"] == "ok":
            await nothing_much(reply)
        else:
            await reply.stream()
            await reply.event(None, event_id="1")
            await reply.end()

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        await client.call("ok")
        began = trio.current_time()
        with pytest.raises(RequestTimedOut):
            await client.call("cut", patience=SHORT)
        assert trio.current_time() - began == SHORT.timeout
        assert "1" in [seen.headers.get("last-event-id") for seen in here.seen]


async def test_a_connection_that_ends_in_the_middle_is_a_lost_call(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.body["params"]["name"] == "ok":
            await reply.answer(content=[])
        else:
            reply.cut()

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        await client.call("ok")
        with pytest.raises(ConnectionLost):
            await client.call("cut")


async def test_a_pool_that_is_not_attended_has_requests_look_after_themselves(autojump_clock: MockClock) -> None:
    async with web(modern(silent)) as here:
        link = here.link()
        for number, name in enumerate(("ok", "ok", "silence")):
            frame = msgspec.json.encode({"id": number, "method": "tools/call", "params": {"name": name}})
            outgoing = OutgoingRequest(number, "tools/call", LATEST, frame, trio.current_time() + 5)
            assert (await link.ask(outgoing, hear) is None) is (name == "silence")
        assert trio.current_time() == 5
        link.pool.close()


# Over real sockets: requests of one turn are written together, those too that do not fit.


async def hear(_: Request | Notification) -> None:
    raise AssertionError("the server says nothing unasked")


@asynccontextmanager
async def socketed() -> AsyncIterator[HttpLink]:
    """A link to a server that answers every request, over sockets that hold little."""
    async with trio.open_nursery() as nursery:

        async def dial(_: Origin, __: ssl.SSLContext | None) -> Wire:
            await trio.lowlevel.checkpoint()
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setblocking(False)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            nursery.start_soon(serve, SocketWire(theirs, 10))
            return SocketWire(ours, 10)

        link = HttpLink(Pool(HERE, dial=dial), b"/mcp")
        nursery.start_soon(link.attend)
        yield link
        await link.aclose()


async def serve(wire: SocketWire) -> None:
    try:
        data = b""
        while more := await wire.receive():
            data += more
            head, _, body = data.partition(b"\r\n\r\n")
            size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            if len(body) == size:
                data, number = b"", msgspec.json.decode(body)["id"]
                answer = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number
                await wire.send(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        wire.close()


@pytest.mark.parametrize("size", [0, SMALL // 2, 4 * SMALL])
async def test_requests_of_one_turn_all_arrive_whole(size: int) -> None:
    answers: list[int] = []

    async def ask(link: HttpLink, number: int) -> None:
        frame = msgspec.json.encode({"jsonrpc": "2.0", "id": number, "params": "x" * size})
        outgoing = OutgoingRequest(number, "tools/call", LATEST, frame, trio.current_time() + 30)
        answer = await link.ask(outgoing, hear)
        assert isinstance(answer, ResultResponse)
        answers.append(int(answer.id))

    with trio.fail_after(30):
        async with socketed() as link:
            for turn in range(3):
                await wait_all_tasks_blocked()
                async with trio.open_nursery() as nursery:
                    for number in range(8):
                        nursery.start_soon(ask, link, 8 * turn + number)
    assert sorted(answers) == list(range(24))
