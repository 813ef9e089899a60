"""The fast lane: the same requests as the client's, on connections of its own, and the same errors."""

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest
import trio
import trio.testing

from callboard.bench.by_http import PreparedLane
from callboard.bench.hub import Hub
from callboard.bench.lanes import ClientLane
from callboard.bench.prepared import by_requests
from callboard.bench.requests import FIRST_ID, Template, http_fault_of
from callboard.bench.work import Act, ToolFailed, Work
from callboard.client import Client
from callboard.config.entry import Remote
from callboard.errors import BadAnswer, CallboardError, ConnectionLost, HttpRefused, ServerRefused
from callboard.transports.client.pool import Origin
from tests.process import PATIENCE
from tests.served import served
from tests.shared import APPS

APP: Final = str(APPS / "steady.py")
ACT: Final = Act(kind="call", name="echo", arguments={"text": "hi"})
SENT: Final = (
    b'POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: 47\r\nx: y\r\n\r\n{"jsonrpc":"2.0","id":7,"method":"tools/list"}'
)
FINE: Final = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"isError":false}}'


def test_a_request_is_repeated_with_another_id_and_its_length() -> None:
    template = Template.of(SENT)
    assert template is not None
    head, _, body = template.filled(FIRST_ID + 5).partition(b"\r\n\r\n")
    assert body == b'{"jsonrpc":"2.0","id":1000000005,"method":"tools/list"}'
    assert head == b"POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\nx: y" % len(body)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"id":5,"result":{"isError":true,"content":[{"type":"text","text":"no\\ndisk"}]}}', "no disk"),
        (b'{"id":5,"result":{"isError":true,"content":[{"type":"image"},{"text":"late"}]}}', "late"),
        (b'{"id":5,"result":{"isError":true,"content":[{"text":5}]}}', "no reason given"),
        (b'{"id":5,"result":{"isError":true,"content":[]}}', "no reason given"),
    ],
)
def test_what_a_failing_tool_says_is_kept_as_an_example(body: bytes, text: str) -> None:
    assert str(http_fault_of(200, body, 5, ACT)) == f"the tool echo failed: {text}"
    assert str(http_fault_of(503, b"<p>too\nbusy" * 1000, 5, ACT)).startswith("HTTP 503: <p>too busy")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", SENT.replace(b'"id":7', b'"id":"x"')])
def test_what_is_written_otherwise_is_not(sent: bytes) -> None:
    assert Template.of(sent) is None


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, FINE % 5, None),
        (200, b"event: message\ndata: " + FINE % 5 + b"\n\n", None),
        (200, b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\ndata: ' + FINE % 5 + b"\n\n", None),
        (200, (FINE % 5).replace(b"false", b"true"), ToolFailed),
        (200, FINE % 6, BadAnswer),
        (200, b'{"id":5,"result":{"resultType":"input_required"}}', BadAnswer),
        (200, b"", BadAnswer),
        (200, b"<html>", BadAnswer),
        (200, b'{"id":5,"error":{"code":1,"message":"caf\xe9"}}', BadAnswer),
        (200, b'{"id":5,"result":{"content":' + b"[" * 100_000, BadAnswer),
        (200, b'{"id":5,"error":{"code":-32603,"message":"broken"}}', ServerRefused),
        (400, b'{"id":null,"error":{"code":-32001,"message":"no"}}', ServerRefused),
        (404, b"not found", HttpRefused),
        (500, FINE % 5, HttpRefused),
    ],
)
def test_an_answer_is_one_or_an_error_of_its_kind(status: int, body: bytes, error: type[CallboardError] | None) -> None:
    fault = http_fault_of(status, body, 5, ACT)
    assert fault is None if error is None else isinstance(fault, error)


# Connections.


@asynccontextmanager
async def answering(
    script: Callable[[trio.SocketStream, int], Awaitable[bool]],
) -> AsyncIterator[tuple[Origin, list[int]]]:
    """A server that does to each request, given its id, what the script says; False closes the connection. Beside where
    it is, how many requests came on each connection."""
    came: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        number, rest = len(came), b""
        came.append(0)
        async for data in stream:
            rest += data
            while found := re.search(rb'"id":(\d+),"method":"tools/list"}', rest):
                rest = rest[found.end() :]
                came[number] += 1
                if not await script(stream, int(found[1])):
                    return

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
            yield Origin("http", "127.0.0.1", listeners[0].socket.getsockname()[1]), came
            nursery.cancel_scope.cancel()


async def answer(stream: trio.SocketStream, number: int, more: bytes = b"") -> None:
    body = FINE % number
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), more, body))


@asynccontextmanager
async def lane_to(origin: Origin) -> AsyncIterator[PreparedLane]:
    template = Template.of(SENT)
    assert template is not None
    hub = Hub()
    async with hub.running():
        lane = PreparedLane(hub, origin, None, {ACT: template})
        try:
            yield lane
        finally:
            lane.close()


async def test_a_connection_is_used_again() -> None:
    async def script(stream: trio.SocketStream, number: int) -> bool:
        await answer(stream, number)
        return True

    async with answering(script) as (origin, came), lane_to(origin) as lane:
        for _ in range(5):
            await lane.do(ACT)
    assert came == [5]


async def test_requests_at_once_have_a_connection_each() -> None:
    asked: list[int] = []
    all_are_there = trio.Event()

    async def script(stream: trio.SocketStream, number: int) -> bool:
        asked.append(number)
        if len(asked) == 3:
            all_are_there.set()
        await all_are_there.wait()
        await answer(stream, number)
        return True

    async with answering(script) as (origin, came), lane_to(origin) as lane, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lane.do, ACT)
    assert came == [1, 1, 1]


@pytest.mark.parametrize("said", [b"connection: close\r\n", b""], ids=["told", "untold"])
async def test_a_server_may_close_what_is_idle(said: bytes) -> None:
    async def script(stream: trio.SocketStream, number: int) -> bool:
        await answer(stream, number, said)
        return False

    async with answering(script) as (origin, came), lane_to(origin) as lane:
        for _ in range(4):
            await lane.do(ACT)
    assert sum(came) == 4


async def test_what_comes_unasked_is_nobodys_answer() -> None:
    async def script(stream: trio.SocketStream, number: int) -> bool:
        await answer(stream, number)
        await stream.send_all(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        return True

    async with answering(script) as (origin, came), lane_to(origin) as lane:
        for _ in range(3):
            await lane.do(ACT)
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert came == [1, 1, 1]


async def test_a_server_that_closes_instead_of_an_answer_is_an_error() -> None:
    async def script(stream: trio.SocketStream, number: int) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    async with answering(script) as (origin, _), lane_to(origin) as lane:
        with pytest.raises(ConnectionLost):
            await lane.do(ACT)


async def test_what_is_no_http_is_an_error() -> None:
    async def script(stream: trio.SocketStream, number: int) -> bool:
        await stream.send_all(b"220 mail.example.com ESMTP\r\n")
        return True

    async with answering(script) as (origin, _), lane_to(origin) as lane:
        with pytest.raises(BadAnswer):
            await lane.do(ACT)


async def test_an_answer_without_an_end_is_given_up() -> None:
    sent = 0

    async def script(stream: trio.SocketStream, number: int) -> bool:
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(trio.BrokenResourceError):
            for _ in range(100):
                await stream.send_all(b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n")
                sent += 1
        return False

    async with answering(script) as (origin, _), lane_to(origin) as lane:
        with pytest.raises(BadAnswer, match="larger than"):
            await lane.do(ACT)
    assert sent < 100


# As a whole.


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_of_either_era_is_spoken_to_on_it(revision: str) -> None:
    opened: list[bool] = []

    def note(_: Client, is_fast: bool) -> None:
        opened.append(is_fast)

    acts = (ACT, Act(kind="list"), Act(kind="read", name="steady://note"))
    with trio.fail_after(PATIENCE), served(f"{APP}:server") as house:
        hub = Hub()
        open_lane = by_requests(Remote(url=house.http), {"revision": revision}, Work(acts), note, hub)
        async with hub.running(), open_lane() as lane:
            for act in acts * 3:
                await lane.do(act)
            assert isinstance(lane, PreparedLane)
    assert opened == [True]


async def test_what_does_not_work_is_left_to_the_client_to_tell() -> None:
    opened: list[bool] = []

    def note(_: Client, is_fast: bool) -> None:
        opened.append(is_fast)

    act = Act(kind="call", name="fail")
    with trio.fail_after(PATIENCE), served(f"{APP}:server") as house:
        hub = Hub()
        async with hub.running(), by_requests(Remote(url=house.http), {}, Work((act,)), note, hub)() as lane:
            assert isinstance(lane, ClientLane)
            with pytest.raises(ToolFailed, match="it did not work"):
                await lane.do(act)
    assert opened == [False]
