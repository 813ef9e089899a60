"""The same edge behind TLS: nothing of what it does without is lost."""

import ssl
from pathlib import Path

import pytest
import trio

from callboard.transports.limits import Settings
from tests.certificate import certified
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import serving, settle

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
LISTEN = {"notifications": {"toolsListChanged": True}}


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    """The server's context and that of a client which trusts it, and nobody else."""
    return certified(tmp_path, "localhost")


async def test_requests_are_answered(contexts: Contexts) -> None:
    async with serving(open_house().server, tls=contexts) as place:
        client = await place.connect()
        for number in range(5):
            answer = await client.call("echo", text=str(number))
            assert answer.result["content"][0]["text"] == str(number)
        await client.send(client.modern("server/discover", id=1) + client.modern("server/discover", id=2))
        assert [(await client.answer()).json["id"] for _ in range(2)] == [1, 2]


async def test_a_large_answer_arrives_whole(contexts: Contexts) -> None:
    async with serving(open_house().server, tls=contexts) as place:
        client = await place.connect()
        answer = await client.call("large", size=2_000_000)
        assert len(answer.result["content"][0]["text"]) == 2_000_000
        assert (await client.call("echo", text="x")).result


async def test_a_page_of_the_same_origin_may_speak(contexts: Contexts) -> None:
    async with serving(open_house().server, tls=contexts) as place:
        client = await place.connect()
        for scheme, status in (("https", 200), ("http", 403)):
            origin = f"Origin: {scheme}://localhost:{place.port}"
            await client.send(client.modern("server/discover", origin))
            assert (await client.answer()).status == status


async def test_a_quiet_stream_is_kept_alive_and_hears_the_news(contexts: Contexts) -> None:
    house = open_house()
    async with serving(house.server, Settings(comment_every=0.1, write_time=2), tls=contexts) as place:
        client = await place.connect()
        await client.send(client.modern("subscriptions/listen", **LISTEN))
        stream = await client.stream_of()
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        await stream.comment()
        house.server.notify_changed("tools")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.comment()


@pytest.mark.parametrize("tool", ["work", "errand"])
async def test_a_client_that_leaves_takes_its_request_with_it(contexts: Contexts, tool: str) -> None:
    house = open_house()
    async with serving(house.server, tls=contexts) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name=tool, arguments={"name": "gate"}))
        await house.wait_started("gate")
        await client.aclose()
        left = trio.current_time()
        assert await house.wait_cut("gate") - left < 0.5
        await settle()
        assert place.connections == 0


async def test_a_client_that_does_not_read_is_cut_off(contexts: Contexts) -> None:
    house = open_house()
    async with serving(house.server, Settings(write_time=0.5), tls=contexts) as place:
        client = await place.connect()
        call = {"size": 100_000, "count": 900, "name": "flood"}
        await client.send(client.modern("tools/call", name="flood", arguments=call, meta=LOG))
        started = trio.current_time()
        while "flood" not in house.cut:
            await settle()
        assert house.cut["flood"] - started < 2.5
        await settle()
        assert place.connections == 0


LOG = {"io.modelcontextprotocol/logLevel": "info"}


async def test_a_refused_client_hears_why(contexts: Contexts) -> None:
    async with serving(open_house().server, Settings(max_frame=1000, write_time=2), tls=contexts) as place:
        client = await place.connect()
        await client.send(client.post(b"x" * 100_000))
        assert (await client.answer()).status == 413
        assert await client.ended() == b""


async def test_who_does_not_speak_tls_is_not_answered_and_harms_nobody(contexts: Contexts) -> None:
    async with serving(open_house().server, tls=contexts) as place:
        with_tls, place.tls = place.tls, None
        client = await place.connect()
        await client.send(client.modern("server/discover"))
        assert not (await client.ended()).startswith(b"HTTP")
        await settle()
        assert place.connections == 0
        place.tls = with_tls
        assert (await (await place.connect()).call("echo", text="x")).result


async def test_who_does_not_trust_the_server_leaves_without_a_trace(contexts: Contexts) -> None:
    async with serving(open_house().server, tls=(contexts[0], ssl.create_default_context())) as place:
        client = await place.connect()
        with pytest.raises(trio.BrokenResourceError):
            await client.send(client.modern("server/discover"))
        await client.aclose()
        await settle()
        assert place.connections == 0
