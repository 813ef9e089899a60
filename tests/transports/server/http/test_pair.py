"""HTTP+SSE (2024-11-05): a stream for what the server says, an address for what the client says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from callboard import Context, Server
from callboard.codecs.http.access import EVERYONE
from tests.transports.server.http.stage import Client, Json, Place, Stream, request, serving, settle

HELLO: Json = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"sampling": {}},
    "clientInfo": {"name": "test", "version": "1"},
}


def company(log: list[str]) -> Server:
    server = Server("pair")

    @server.tool
    async def ask_model(*, ctx: Context) -> str:
        return (await ctx.sample("Well?", max_tokens=10)).text

    @server.tool
    async def wait(*, ctx: Context) -> str:
        log.append("waits")
        try:
            await trio.sleep_forever()
        finally:
            log.append("cancelled")

    return server


@attrs.define(eq=False)
class Pair:
    """A client of that time: reads one stream, posts each message on a connection of its own."""

    place: Place
    reader: Client
    stream: Stream
    target: bytes

    async def say(self, message: Json, **headers: str) -> int:
        posted = self.reader.post({"jsonrpc": "2.0", **message}, accept=None, **headers)
        return (await self.place.ask(posted.replace(b"POST /mcp", b"POST " + self.target, 1))).status


@asynccontextmanager
async def paired(server: Server, **options: Any) -> AsyncIterator[Pair]:
    async with serving(server, **options) as place:
        place.endpoint.legacy_sse = True
        reader = await place.connect()
        token = {"authorization": "Bearer ada"} if place.endpoint.guard else {}
        await reader.send(request("GET", "/sse", host=reader.host.decode(), accept="text/event-stream", **token))
        stream = await reader.stream_of()
        named = await stream.event()
        assert named is not None
        assert named.event == "endpoint"
        yield Pair(place, reader, stream, named.data)


async def test_a_client_of_2024_shakes_hands_calls_and_is_asked() -> None:
    async with paired(company([])) as pair:
        assert await pair.say({"id": 1, "method": "initialize", "params": HELLO}) == 202
        assert (await pair.stream.message())["result"]["protocolVersion"] == "2024-11-05"
        assert await pair.say({"method": "notifications/initialized"}) == 202
        assert await pair.say({"id": 2, "method": "tools/call", "params": {"name": "ask_model"}}) == 202
        question = await pair.stream.message()
        assert question["method"] == "sampling/createMessage"
        reply = {"role": "assistant", "content": {"type": "text", "text": "Fine."}, "model": "m"}
        assert await pair.say({"id": question["id"], "result": reply}) == 202
        assert (await pair.stream.message())["result"]["content"][0]["text"] == "Fine."


async def test_leaving_the_stream_ends_the_session_and_what_goes_on_in_it() -> None:
    log: list[str] = []
    async with paired(company(log)) as pair:
        await pair.say({"id": 1, "method": "initialize", "params": HELLO})
        await pair.stream.message()
        await pair.say({"method": "notifications/initialized"})
        await pair.say({"id": 2, "method": "tools/call", "params": {"name": "wait"}})
        while not log:
            await settle()
        await pair.reader.aclose()
        while "cancelled" not in log:
            await settle()
        assert await pair.say({"id": 3, "method": "ping"}) == 404


async def test_only_the_address_that_the_stream_named_is_taken() -> None:
    async with paired(company([])) as pair:
        for target, status in ((b"/messages", 400), (b"/messages?session=guessed", 404)):
            pair.target = target
            assert await pair.say({"id": 1, "method": "ping"}) == status


async def test_a_session_belongs_to_who_opened_it() -> None:
    async def authenticate(token: str) -> str | None:
        return token if token in ("ada", "eve") else None

    async with paired(company([]), authenticate=authenticate, access=EVERYONE) as pair:
        ping: Json = {"id": 1, "method": "ping"}
        assert await pair.say(ping, authorization="Bearer eve") == 404
        assert await pair.say(ping) == 401
        assert await pair.say(ping, authorization="Bearer ada") == 202
        assert (await pair.stream.message())["result"] == {}


async def test_it_is_off_unless_somebody_wants_it() -> None:
    async with serving(company([])) as place:
        client = await place.connect()
        for target in ("/sse", "/messages?session=x"):
            assert (await place.ask(request("GET", target, host=client.host.decode()))).status == 404
