"""A client over HTTP+SSE (2024-11-05): one stream, one address to post to, and nothing said to anybody else."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from callboard.client import connect
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions.revision import R1, R4
from callboard.errors import CannotConnect, ConnectionLost, HttpRefused, RequestTimedOut
from callboard.transports.client.sse_pair import ENDPOINT_TIME, open_pair
from tests.client.stage import EVERYTHING, INFO, Json
from tests.client.web import Handler, Reply, Web, web


def ways(here: Web, headers: Mapping[str, str] | None = None) -> TransportRoutes:
    return TransportRoutes(None, (TransportRoute("sse", lambda: open_pair(here.link(headers)), is_legacy=True),))


def pair(answer: Callable[[Reply, Reply], Any], endpoint: str = "/messages?session=1") -> Handler:
    """Names *endpoint*, does the handshake, and leaves other requests to *answer*: the post, and the stream."""
    streams: list[Reply] = []

    async def handle(reply: Reply) -> None:
        body = reply.seen.body
        if reply.seen.method == "GET":
            await reply.stream()
            await reply.comment()
            await reply.piece(f"event: endpoint\ndata: {endpoint}\n\n".encode())
            streams.append(reply)
            await trio.sleep(10_000)
            return
        if body.get("method") == "initialize":
            await reply.whole(202)
            result = {"protocolVersion": R1.value, "capabilities": EVERYTHING, "serverInfo": INFO}
            await streams[-1].event({"id": body["id"], "result": result}, event="message")
        elif "id" in body and "method" in body:
            await answer(reply, streams[-1])
        else:
            await reply.whole(202)

    return handle


async def echo(reply: Reply, stream: Reply) -> None:
    await reply.whole(202)
    await stream.event({"id": reply.seen.body["id"], "result": {"content": []}}, event="message")


async def test_the_stream_brings_what_is_said_and_posts_go_where_it_says(autojump_clock: MockClock) -> None:
    async with (
        web(pair(echo)) as here,
        connect(ways(here, {"authorization": "Bearer t"}), roots=["file:///here"]) as client,
    ):
        assert client.revision == R1
        await client.call("x")
        assert {(seen.method, seen.target) for seen in here.seen} == {("GET", "/mcp"), ("POST", "/messages?session=1")}
        assert all(seen.headers["authorization"] == "Bearer t" for seen in here.seen)
        assert here.seen[1].rpc == "initialize"
        assert here.seen[1].body["params"]["protocolVersion"] == R4.value


@pytest.mark.parametrize(
    "endpoint", ["/messages", "messages", "?session=1", "http://127.0.0.1:8000/deep/er", "//127.0.0.1:8000/m"]
)
async def test_an_endpoint_of_the_same_origin_may_be_written_in_any_way(
    endpoint: str, autojump_clock: MockClock
) -> None:
    async with web(pair(echo, endpoint)) as here, connect(ways(here)) as client:
        await client.call("x")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://evil.example/messages",
        "https://127.0.0.1:8000/messages",
        "http://127.0.0.1:8001/messages",
        "//evil.example/",
        "http://localhost:8000/",
        "file:///etc/passwd",
        "http://127.0.0.1:8000@evil.example/",
        "http://[::1/",
        "/mess ages",
    ],
)
async def test_an_endpoint_elsewhere_is_refused_and_nothing_is_posted(endpoint: str, autojump_clock: MockClock) -> None:
    async with web(pair(echo, endpoint)) as here:
        with pytest.raises(CannotConnect):
            async with connect(ways(here)):
                pass
        assert [seen.method for seen in here.seen] == ["GET"]


async def test_questions_of_the_server_come_on_the_stream_and_are_answered_by_posts(autojump_clock: MockClock) -> None:
    asked: list[tuple[Json, Reply]] = []

    async def ask(reply: Reply, stream: Reply) -> None:
        asked.append((reply.seen.body, stream))
        await reply.whole(202)
        await stream.event({"id": "q", "method": "roots/list"})

    inner = pair(ask)

    async def handle(reply: Reply) -> None:
        body: Json = reply.seen.body or {}
        await inner(reply)
        if body.get("id") == "q":
            request, stream = asked[0]
            await stream.event({"id": request["id"], "result": {"content": [], "_meta": body["result"]}})

    async with web(handle) as here, connect(ways(here), roots=["file:///here"]) as client:
        assert "file:///here" in str(await client.call("x"))


async def test_the_end_of_the_stream_is_the_end_and_every_call_hears_so(autojump_clock: MockClock) -> None:
    async def end(reply: Reply, stream: Reply) -> None:
        await reply.whole(202)
        await stream.end()

    async with web(pair(end)) as here, connect(ways(here)) as client:
        with pytest.raises(ConnectionLost, match="ended the stream"):
            await client.call("x")
        with pytest.raises(ConnectionLost):
            await client.call("x")


async def test_a_post_that_is_refused_fails_its_call_alone(autojump_clock: MockClock) -> None:
    async def moody(reply: Reply, stream: Reply) -> None:
        if reply.seen.body["params"].get("name") == "bad":
            await reply.whole(400, b"no", "text/plain")
        else:
            await echo(reply, stream)

    async with web(pair(moody)) as here, connect(ways(here)) as client:
        with pytest.raises(HttpRefused, match="HTTP 400: no"):
            await client.call("bad")
        await client.call("good")


async def test_a_call_that_is_not_answered_is_taken_back(autojump_clock: MockClock) -> None:
    async def silent(reply: Reply, stream: Reply) -> None:
        await reply.whole(202)

    async with web(pair(silent)) as here, connect(ways(here)) as client:
        with pytest.raises(RequestTimedOut):
            await client.call("x")
        with trio.fail_after(5):  # it is told behind the client's back, which need not wait for that
            while here.seen[-1].rpc != "notifications/cancelled":  # noqa: ASYNC110 -- the server tells nobody
                await trio.sleep(0.01)


async def silent_stream(reply: Reply) -> None:
    await reply.stream()
    await trio.sleep(10_000)


async def ended_stream(reply: Reply) -> None:
    await reply.stream()
    await reply.event({"method": "notifications/message", "params": {}})
    await reply.end()


async def no_stream(reply: Reply) -> None:
    await reply.whole(200, b"{}")


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        (silent_stream, "no endpoint event within 10 s"),
        (ended_stream, "ended before the endpoint event"),
        (no_stream, "not an event stream"),
    ],
)
async def test_a_stream_that_does_not_say_where_to_post_to_is_none(
    handle: Handler, why: str, autojump_clock: MockClock
) -> None:
    async with web(handle) as here:
        with pytest.raises(CannotConnect, match=why):
            async with connect(ways(here)):
                pass
    assert trio.current_time() <= ENDPOINT_TIME


TOO_LONG: Final = b"data: " + b"x" * (MAX_ANSWER + 1) + b"\n\n"


async def test_more_than_can_be_taken_in_ends_the_link(autojump_clock: MockClock) -> None:
    async def flood(reply: Reply, stream: Reply) -> None:
        await reply.whole(202)
        await stream.piece(TOO_LONG)

    async with web(pair(flood)) as here, connect(ways(here)) as client:
        with pytest.raises(ConnectionLost, match="too much unread data"):
            await client.call("x")
