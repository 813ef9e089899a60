"""Whether a backend is there, where nothing ends when it does: it is asked, and may be busy."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.broker.health import HEALTH
from callboard.client.routes import ClientAccess, ways_to
from callboard.codecs.revisions.revision import R4
from callboard.config.entry import Remote
from callboard.testing import Refusal
from tests.broker.back import Back, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}


async def test_a_server_that_does_one_thing_at_a_time_is_busy_and_not_gone(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await trio.sleep(45)
        back.holds.clear()
        await line.answer(request, **text("done"))
        assert (await client.finish(begun))["content"][0]["text"] == "done"
        assert len(back.lines) == 1


async def test_a_server_that_answers_nothing_for_long_is_gone_whatever_waits_for_it(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        began = trio.current_time()
        for _ in range(3):
            await client.begin("tools/call", **BOOK)
            await trio.sleep(30)
        while len(back.lines) < 2:
            await back.wait_news()
        assert trio.current_time() - began < 100


async def test_a_silent_server_of_which_nothing_is_wanted_is_gone_at_once(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways):
        back.holds.add("ping")
        began = trio.current_time()
        while len(back.lines) < 2:
            await back.wait_news()
        assert trio.current_time() - began < 25


async def test_a_busy_server_is_waited_for_no_longer_than_its_requests_are(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        began = trio.current_time()
        with pytest.raises(Refusal, match="-31"):
            await client.request("tools/call", **BOOK)
        assert trio.current_time() - began == pytest.approx(60, abs=1)


@asynccontextmanager
async def plain_server() -> AsyncIterator[tuple[Remote, trio.CancelScope, list[str]]]:
    """A legacy server over HTTP that keeps connections alive and has no stream of its own; what ends it; and what it
    was asked."""
    asked: list[str] = []
    answers: Json = {
        "initialize": {
            "protocolVersion": R4.value,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        },
        "tools/list": {"tools": []},
        "ping": {},
    }

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        async for piece in stream:
            data += piece
            head, blank, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if not blank or len(body) < (0 if length is None else int(length[1])):
                continue
            data, request = b"", json.loads(body) if body else {"method": "stream"}
            asked.append(request["method"])
            if "id" in request and request["method"] in answers:
                said = json.dumps(
                    {"jsonrpc": "2.0", "id": request["id"], "result": answers[request["method"]]}
                ).encode()
                status = b"200 OK\r\ncontent-type: application/json"
            else:
                said, status = b"", b"202 Accepted" if body else b"405 Method Not Allowed"
            await stream.send_all(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(said), said))

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port, living = listener.socket.getsockname()[1], trio.CancelScope()

    async def live() -> None:
        with living:
            await trio.serve_listeners(serve, [listener])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        yield Remote(url=f"http://127.0.0.1:{port}/mcp"), living, asked
        nursery.cancel_scope.cancel()


async def test_23_a_server_without_streams_of_which_nothing_is_wanted_is_missed_within_a_second() -> None:
    async with plain_server() as (remote, end, asked), brokered(ways_to(remote, ClientAccess())) as host:
        [backend] = host.offer.backends.values()  # type: ignore[attr-defined]
        assert backend.is_up
        assert "stream" in asked
        end.cancel()
        began = trio.current_time()
        while backend.is_up:  # noqa: ASYNC110 -- another task's business
            await trio.sleep(0.01)
        assert trio.current_time() - began < HEALTH / 2  # 1 s is promised, and the machine is shared
