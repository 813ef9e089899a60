"""Paths of a broker: `/mcp/SERVER` and `/mcp/PROFILE`, on every transport."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock

import callboard
from callboard import Client, Server
from callboard.actors.broker.policy import BackendSettings, Filter, Profile
from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server import new_rules
from callboard.actors.server.host import Host
from callboard.actors.server.session_record import read_record, write_record
from callboard.actors.terms import Terms
from callboard.broker import Broker
from callboard.codecs.bridge.transparent import UI
from callboard.codecs.caller import ANONYMOUS, ANYBODY, Caller
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.revisions import ClientCapabilities, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.codecs.websocket.handshake import RECEIVED, RESUMABLE, SESSION
from callboard.config import BackendSpec
from callboard.config.front import FrontSettings
from callboard.errors import CannotConnect, ServerRefused
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.testing import Refusal
from callboard.transports.server.http.endpoint import Endpoint
from tests.broker.back import Back, tool
from tests.broker.front import backend, peer
from tests.transports.server.http.sessions import initialize
from tests.transports.server.http.stage import Place, serving

PATIENCE: Final = 30.0


def stage(name: str) -> Server:
    """A server with a tool, a prompt and a resource that others of its kind have, too."""
    server = Server(name, instructions=f"I am {name}.")

    @server.tool
    async def where() -> str:
        return name

    @server.tool
    async def wipe() -> str:
        return f"{name} wiped"

    @server.prompt
    async def brief() -> str:
        return name

    @server.resource("notes://one")
    async def one() -> str:
        return name

    return server


def specs(*names: str, **settings: Any) -> list[BackendSpec]:
    return [backend(stage(name), name, BackendSettings(**settings)) for name in names]


READERS: Final = Profile(name="readers", servers=("one", "two"), tools=Filter(deny=("*wipe",)))


@asynccontextmanager
async def served(broker: Broker, **options: Any) -> AsyncIterator[dict[str, str]]:
    """Serve over HTTP, HTTP+SSE and WebSocket, on a free port. URLs by transport."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            begin = partial(serve, broker, http="127.0.0.1:0", ws="localhost:0", legacy_sse=True, **options)
            ready: Ready = await nursery.start(begin)
            yield {one.transport: one.url or "" for one in ready.listening}
            nursery.cancel_scope.cancel()


def url_of(urls: dict[str, str], transport: str, name: str) -> str:
    return f"{urls[transport]}/{name}"


async def seen(client: Client) -> tuple[list[str], list[str], list[str], list[str]]:
    found = [one.name for one in await client.tools()]
    prompts = [one.name for one in await client.prompts()]
    uris = [one.uri for one in await client.resources()]
    [contents] = (await client.read(uris[0])).contents
    said = (await client.call(found[0])).content
    return found, prompts, uris, [getattr(one, "text", "") for one in (contents, *said)]


@pytest.mark.parametrize(
    ("transport", "engine"), [("http", "native"), ("http", "asgi"), ("sse", "native"), ("ws", "native")]
)
async def test_a_path_has_the_names_and_uris_of_its_server_on_every_transport(transport: str, engine: str) -> None:
    async with served(Broker(specs("one", "two"), profiles=[READERS]), http_engine=engine) as urls:
        for name in ("one", "two"):
            async with callboard.connect(url_of(urls, transport, name)) as client:
                assert await seen(client) == (["where", "wipe"], ["brief"], ["notes://one"], [name, name])
        async with callboard.connect(url_of(urls, transport, "readers")) as client:
            assert [one.name for one in await client.tools()] == ["one__where", "two__where"]
            addresses = ["callboard://one/notes%3A%2F%2Fone", "callboard://two/notes%3A%2F%2Fone"]
            assert [one.uri for one in await client.resources()] == addresses
            with pytest.raises(ServerRefused, match="Unknown tool"):
                await client.call("one__wipe")
        async with callboard.connect(urls[transport]) as client:
            assert len(await client.tools()) == 4


def at(path: str, data: bytes) -> bytes:
    """The same request, at another path."""
    return data.replace(b" /mcp ", f" {path} ".encode(), 1)


@asynccontextmanager
async def listening(broker: Broker, **said: Any) -> AsyncIterator[Place]:
    async with serving(cast("Any", broker), **said) as place:
        yield place


LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_a_session_belongs_to_the_path_where_it_was_opened() -> None:
    async with listening(Broker(specs("one", "two"))) as place:
        client = await place.connect()
        await client.send(at("/mcp/one", client.post(initialize(R4))))
        session = (await client.answer()).headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.send(at("/mcp/one", client.post(told, mcp_session_id=session)))
        assert (await client.answer()).status == 202
        for path, status in (("/mcp/one", 200), ("/mcp/two", 404), ("/mcp", 404), ("/mcp/one/", 200)):
            await client.send(at(path, client.post(LIST, mcp_session_id=session)))
            answer = await client.answer()
            assert (path, answer.status) == (path, status)


async def test_a_session_of_another_worker_is_opened_again_at_its_own_path_only() -> None:
    async with listening(Broker(specs("one", "two"))) as place:
        terms = Terms(revision=R4, capabilities=ClientCapabilities())
        record = read_record(write_record(terms, [], is_ready=True, path="one"))
        hosts = [host_at(place.host, name) for name in ("one", "two")]
        one, two = (Endpoint(host, place.endpoint.access, outer=place.endpoint) for host in hosts)
        for endpoint in (two, place.endpoint):
            with pytest.raises(HttpRefusal):
                await endpoint.open_again("s", record, "")
            assert not endpoint.has_session("s")
        await one.open_again("s", record, "")
        assert one.has_session("s")


async def test_an_unknown_path_is_not_found() -> None:
    async with listening(Broker(specs("one"), profiles=[READERS])) as place:
        client = await place.connect()
        for name in ("/mcp/none", "/mcp/ONE", "/mcp/%ff", "/mcp/one/two", "/mcp//one", "/mcp/readers/"):
            await client.send(at(name, client.modern("tools/list")))
            answer = await client.answer()
            assert (name, answer.status) == (name, 200 if "readers" in name else 404)
            if answer.headers.get("connection") == "close":
                client = await place.connect()
    async with listening(cast("Any", stage("plain"))) as place:
        assert (await place.ask(at("/mcp/plain", (await place.connect()).modern("tools/list")))).status == 404


TOKENS: Final = {"guest": Caller(principal="guest"), "boss": Caller(principal="boss")}


async def test_a_path_that_a_caller_may_not_know_of_is_as_one_that_there_is_not() -> None:
    async def who(token: str) -> Caller | None:
        return TOKENS.get(token)

    async with listening(Broker(specs("one", "two"), profiles=[READERS]), authenticate=who) as place:
        place.host.rules = AccessRules([Rule(servers=("two",), only=(Condition(principal=("boss",)),))])
        client = await place.connect()

        async def status(path: str, token: str | None) -> tuple[int, bytes]:
            nonlocal client
            client = await place.connect()
            bearer = None if token is None else f"Bearer {token}"
            await client.send(at(path, client.modern("tools/list", headers={"authorization": bearer})))
            answer = await client.answer()
            return answer.status, answer.body

        assert (await status("/mcp/two", None))[0] == (await status("/mcp/none", None))[0] == 401
        assert (await status("/mcp/two", "boss"))[0] == 200
        hidden, missing = await status("/mcp/two", "guest"), await status("/mcp/none", "guest")
        assert hidden == missing
        assert hidden[0] == 404
        assert b"two__" not in (await status("/mcp/readers", "guest"))[1]
        assert b"two__" in (await status("/mcp/readers", "boss"))[1]


async def test_an_unknown_path_is_no_websocket_either() -> None:
    async with served(Broker(specs("one"))) as urls:
        with pytest.raises(CannotConnect):
            async with callboard.connect(url_of(urls, "ws", "none")):
                raise AssertionError("there is no such path")


async def shake_hands(url: str, path: str, *lines: str) -> tuple[int, dict[str, str]]:
    """Open a WebSocket at *path* and leave: the status and the headers of the answer."""
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    usual = ("host: 127.0.0.1:%d" % port, "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    said = (f"GET {path} HTTP/1.1", *usual, "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", *lines, "", "")
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all("\r\n".join(said).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await stream.receive_some()
    first, *rest = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return int(first.split(" ")[1]), {line.split(": ")[0].lower(): line.split(": ")[1] for line in rest}


async def test_a_websocket_session_is_resumed_at_its_own_path_only() -> None:
    async with served(Broker(specs("one", "two"))) as urls:
        status, headers = await shake_hands(urls["ws"], "/mcp/one", f"{RESUMABLE.decode()}: 1")
        assert status == 101
        back = (f"{SESSION.decode()}: {headers[SESSION.decode()]}", f"{RECEIVED.decode()}: 0")
        assert (await shake_hands(urls["ws"], "/mcp/two", *back))[0] == 404
        assert (await shake_hands(urls["ws"], "/mcp", *back))[0] == 404
        assert (await shake_hands(urls["ws"], "/mcp/one", *back))[0] == 101


def host_at(host: Host, name: str, caller: Caller = ANONYMOUS) -> Host:
    found = None if host.paths is None else host.paths.find(name, caller)
    assert found is not None
    return found


async def names(host: Host, revision: Revision = R5, principal: str = ANYBODY) -> list[str]:
    async with peer(host, revision, principal=principal) as client:
        return [one["name"] for one in (await client.request("tools/list"))["tools"]]


async def test_rules_go_by_the_names_that_clients_see_at_mcp(autojump_clock: MockClock) -> None:
    async with Broker(specs("one", "two")).host() as host:
        host.rules = AccessRules([Rule(tools=("one__wipe",), deny=True)])
        one, two = host_at(host, "one"), host_at(host, "two")
        assert (await names(one), await names(two)) == (["where"], ["where", "wipe"])
        async with peer(one, R5) as client:
            with pytest.raises(Refusal, match="Unknown tool: wipe"):
                await client.request("tools/call", name="wipe", arguments={})
            with pytest.raises(Refusal, match="Unknown tool"):
                await client.request("tools/call", name="two__where", arguments={})
        await new_rules.apply(host, AccessRules([Rule(tools=("wipe",), deny=True)]))
        assert await names(one) == ["where", "wipe"]


async def test_a_quota_of_a_tool_counts_whatever_name_it_is_called_by(autojump_clock: MockClock) -> None:
    async with Broker(specs("one", "two")).host() as host:
        host.quotas = Quotas(QuotaSettings(tools={"one__wipe": Rate(3, 100)}))
        host.rules = AccessRules([Rule(servers=("two",), only=(Condition(principal=("boss",)),))])
        async with (
            peer(host, R5, principal="guest") as client,
            peer(host_at(host, "one"), R5, principal="guest") as at_one,
        ):
            for asking, name in ((client, "one__wipe"), (client, "wipe"), (at_one, "wipe")):
                await asking.request("tools/call", name=name, arguments={})
            for asking, name in ((client, "one__wipe"), (client, "wipe"), (at_one, "wipe")):
                with pytest.raises(Refusal, match="quota of this tool"):
                    await asking.request("tools/call", name=name, arguments={})
            await at_one.request("tools/call", name="where", arguments={})


async def test_what_a_server_changes_is_told_at_its_path_and_at_its_profiles(autojump_clock: MockClock) -> None:
    one, two = Back(R4, tools=[tool("old")]), Back(R5, tools=[tool("other")])
    made = [backend(one.ways, "one", prefix=None), backend(two.ways, "two", prefix=None)]
    broker = Broker(made, profiles=[Profile(name="both", servers=("two", "one"))])
    async with (
        broker.host() as host,
        peer(host_at(host, "one"), R4) as at_one,
        peer(host_at(host, "two"), R4) as at_two,
        peer(host_at(host, "both"), R4) as at_both,
    ):
        assert await names(host_at(host, "both")) == ["two__other", "one__old"]
        one.tools = [tool("new")]
        await one.lines[0].tell("notifications/tools/list_changed")
        await trio.sleep(30)
        for client, expected, told in (
            (at_one, ["new"], 1),
            (at_two, ["other"], 0),
            (at_both, ["two__other", "one__new"], 1),
        ):
            assert [each["name"] for each in (await client.request("tools/list"))["tools"]] == expected
            assert len(client.notifications("notifications/tools/list_changed")) == told


async def test_a_path_follows_a_reload(autojump_clock: MockClock) -> None:
    one, two, three = specs("one", "two", "three")
    broker = Broker([one, two], profiles=[READERS])
    async with broker.host() as host:
        assert await names(host_at(host, "readers")) == ["one__where", "two__where"]
        assert host.paths is not None
        assert host.paths.find("three", ANONYMOUS) is None
        fewer = Profile(name="readers", servers=("three", "two"))
        await broker.reload([two, three], FrontSettings(profiles=(fewer,), extensions=("com.example/x",)))
        await trio.sleep(1)
        assert await names(host_at(host, "readers")) == ["three__where", "three__wipe", "two__where", "two__wipe"]
        assert await names(host_at(host, "three")) == ["where", "wipe"]
        assert host.paths.find("one", ANONYMOUS) is None
        assert broker.transparent.lets("com.example/x")
        await broker.reload([two, three], FrontSettings())
        assert host.paths.find("readers", ANONYMOUS) is None


async def test_what_is_set_at_the_host_holds_at_its_paths(autojump_clock: MockClock) -> None:
    async with Broker(specs("one")).host() as host:
        one = host_at(host, "one")
        host.cap, host.rules = 7.5, AccessRules([Rule(servers=("one",), deny=True)])
        assert (one.cap, one.rules, one.in_flight, one.offer is host.offer) == (7.5, host.rules, host.in_flight, False)
        assert host.paths is not None
        assert host.paths.find("one", ANONYMOUS) is None


async def test_a_server_at_its_path_has_its_own_instructions_and_extensions(autojump_clock: MockClock) -> None:
    one = Back(R4, capabilities={"tools": {}, "extensions": {UI: {"mimeTypes": ["a/b"]}}})
    async with Broker([backend(one.ways, "one"), *specs("two")]).host() as host:
        async with peer(host_at(host, "two"), R4) as client:
            assert client.agreed["instructions"] == "I am two."
            assert "extensions" not in client.agreed["capabilities"]
        async with peer(host_at(host, "one"), R4) as client:
            assert client.agreed["capabilities"]["extensions"] == {UI: {"mimeTypes": ["a/b"]}}
