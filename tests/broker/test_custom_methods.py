"""Methods and notifications of a private extension, through the broker to the server that declares it."""

from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Server
from callboard.actors.broker.custom import MAX_NOTICE
from callboard.actors.broker.custom_told import MAX_METHOD
from callboard.actors.broker.leases import LINGER
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.actors.server.progress import RELAYED_BYTES
from callboard.broker import Broker
from callboard.codecs.bridge.transparent import MAX_LOOKED_AT
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.config import BackendSpec, Remote
from callboard.server import Extension
from callboard.testing import Refusal
from tests.broker.back import Back, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING, Json
from tests.transports.server.http.stage import META, Place, serving
from tests.transports.server.http.stage import Client as HttpClient

MOOD: Final = "com.example/mood"
HAS_MOOD: Final[Json] = {"extensions": {MOOD: {}}}
FRONTS: Final = pytest.mark.parametrize("revision", [R4, R5], ids=["legacy client", "modern client"])
ERAS: Final = pytest.mark.parametrize("back_revision", [R4, R5], ids=["legacy backend", "modern backend"])


def moody(back_revision: Revision = R4, extension: str = MOOD) -> Back:
    return Back(back_revision, capabilities={**EVERYTHING, "extensions": {extension: {}}})


@FRONTS
async def test_a_private_method_of_a_python_server_is_reached_through_the_broker(
    autojump_clock: MockClock, revision: Revision
) -> None:
    extension = Extension(MOOD, needs_client=True)

    @extension.method("com.example/shout")
    async def shout(text: str, task: int = 0) -> dict[str, Any]:
        return {"text": text.upper(), "task": task}

    specs = [backend(Server("one", extensions=[extension]), "one"), backend(Server("two"), "two")]
    async with brokered(*specs, extensions=[MOOD]) as host, peer(host, revision, capabilities=HAS_MOOD) as client:
        result = await client.request("com.example/shout", text="hey", task=3)
        assert (result["text"], result["task"]) == ("HEY", 3)  # `task` is a param like any other
        with pytest.raises(Refusal) as refused:
            await client.request("com.example/none")
        assert refused.value.code == -32601
    async with brokered(*specs) as host, peer(host, revision, capabilities=HAS_MOOD) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("com.example/shout", text="hey")
        assert refused.value.code == -32601  # it does not cross


@ERAS
async def test_a_method_that_several_servers_may_have_names_the_candidates(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    one, two = moody(back_revision), moody(back_revision)
    specs = [backend(one.ways, "one"), backend(two.ways, "two")]
    async with brokered(*specs, extensions=["com.example/*"]) as host, peer(host, R5, capabilities=HAS_MOOD) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("com.example/look")
        assert (refused.value.code, refused.value.data["candidates"]) == (-32602, ["one", "two"])
        assert host.paths is not None
        found = host.paths.find("two", ANONYMOUS)
        assert found is not None
        async with peer(found, R5, capabilities=HAS_MOOD) as at_two, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: at_two.request("com.example/look"))
            line, asked = await two.hear("com.example/look")
            await line.answer(asked, seen=True)


async def test_a_method_goes_to_the_server_with_an_extension_of_its_domain(autojump_clock: MockClock) -> None:
    one, two = moody(R5), moody(R5, "org.example/other")
    specs = [backend(one.ways, "one"), backend(two.ways, "two")]
    async with (
        brokered(*specs, extensions=["*"]) as host,
        peer(host, R5, capabilities=HAS_MOOD) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: client.request("org.example/look", depth=[1]))
        line, asked = await two.hear("org.example/look")
        assert asked["params"]["depth"] == [1]
        await line.answer(asked, seen=True)


async def test_rules_hide_servers_from_private_methods(autojump_clock: MockClock) -> None:
    async with brokered(backend(moody(R5).ways, "one"), extensions=["*"]) as host:
        host.rules = AccessRules([Rule(servers=("one",), only=(Condition(principal=("boss",)),))])
        async with peer(host, R5, principal="guest") as guest:
            with pytest.raises(Refusal) as refused:
                await guest.request("com.example/look")
            assert refused.value.code == -32601
        host.rules = AccessRules([Rule(methods=("com.example/*",), deny=True)])
        async with peer(host, R5, principal="boss") as boss:
            with pytest.raises(Refusal) as refused:
                await boss.request("com.example/look")
            assert refused.value.code == -32601


@ERAS
@FRONTS
@pytest.mark.parametrize(
    "method",
    [
        *("tasks/list", "tasks/get", "tasks/update", "tasks/cancel", "tasks/other", "notifications/tasks"),
        *("skills/list", "skills/get", "skills/other", "resources/directory/read", "dev.callboard/resumed"),
    ],
)
async def test_an_extension_has_no_methods_that_the_broker_speaks_itself(
    autojump_clock: MockClock, method: str, revision: Revision, back_revision: Revision
) -> None:
    """They would reach a server with the ids of its own tasks, which may be those of another client."""
    back = moody(back_revision)
    async with brokered(back.ways, extensions=[MOOD]) as host, peer(host, revision, capabilities=HAS_MOOD) as client:
        with pytest.raises(Refusal):
            await client.request(method, taskId="theirs", uri="skill://a/SKILL.md")
        await client.say({"method": method, "params": {"taskId": "theirs"}})
        await wait_all_tasks_blocked()
        assert not back.told(method)


async def test_a_server_tells_no_client_of_tasks_in_the_words_of_an_extension(autojump_clock: MockClock) -> None:
    back, own = moody(R4), ("notifications/tasks", "dev.callboard/resumed", "com.example/last")
    async with brokered(back.ways, extensions=[MOOD]) as host, peer(host, R4, capabilities=HAS_MOOD) as client:
        await client.request("tools/list")
        await wait_all_tasks_blocked()
        [line] = [one for one in back.lines if one.declared == HAS_MOOD]
        for method in own:
            await line.tell(method, taskId="theirs", status="completed")
        await wait_all_tasks_blocked()
        await client.request("ping")
        assert [len(client.notifications(method)) for method in own] == [0, 0, 1]


async def test_names_that_a_client_thinks_of_are_not_remembered(autojump_clock: MockClock) -> None:
    async with brokered(backend(Server("one", extensions=[Extension(MOOD)]), "one"), extensions=["*"]) as host:
        async with peer(host, R5) as client:
            for number in range(50):
                with pytest.raises(Refusal):
                    await client.request(f"com.example/{number}")
            with pytest.raises(Refusal, match="-32601"):
                await client.request("x" * (MAX_METHOD + 1))
        known = getattr(host, "_methods")  # noqa: B009 -- private: what grows there, a client makes grow
        assert not [name for _, name in known if name.startswith("com.example")]


async def told(host: Host, revision: Revision, back: Back, **params: Any) -> list[Json]:
    async with peer(host, revision, capabilities=HAS_MOOD) as client:
        await client.request("tools/list")
        await client.say({"method": "notifications/com.example/felt", "params": params})
        with trio.move_on_after(5):
            _, message = await back.hear("notifications/com.example/felt")
            return [message["params"]]
    return []


@FRONTS
@ERAS
async def test_a_private_notification_of_a_client_reaches_the_server(
    autojump_clock: MockClock, back_revision: Revision, revision: Revision
) -> None:
    back = moody(back_revision)
    async with brokered(back.ways, extensions=[MOOD]) as host:
        assert await told(host, revision, back, glad=True) == [{"glad": True}]
        assert await told(host, revision, back, much="x" * MAX_NOTICE) == []


async def test_a_private_notification_of_a_server_reaches_the_clients_that_declared_it(
    autojump_clock: MockClock,
) -> None:
    back = moody(R4)
    async with (
        brokered(back.ways, extensions=[MOOD]) as host,
        peer(host, R4, capabilities=HAS_MOOD) as mine,
        peer(host, R4, capabilities={}) as other,
    ):
        await mine.request("tools/list")
        await other.request("tools/list")
        await wait_all_tasks_blocked()
        [line] = [one for one in back.lines if one.declared == HAS_MOOD]
        await line.tell("notifications/com.example/now", glad=1)
        await wait_all_tasks_blocked()
        for client, expected in ((mine, [{"glad": 1}]), (other, [])):
            await client.request("ping")
            assert client.notifications("notifications/com.example/now") == expected


async def test_the_extensions_of_a_server_are_looked_at_once_and_as_many_as_of_a_client(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its notifications asks for them, and it may declare thousands."""
    looks = 0

    def fits(name: str, pattern: str) -> bool:
        nonlocal looks
        looks += 1
        return fnmatchcase(name, pattern)

    names: Json = {f"com.example/{number:04}": {} for number in range(4000)}
    back = Back(R4, capabilities={**EVERYTHING, "extensions": names})
    told = "notifications/com.example/now"
    async with (
        brokered(back.ways, extensions=["com.*"]) as host,
        peer(host, R4, capabilities={"extensions": {"com.example/0007": {}}}) as mine,
        peer(host, R4, capabilities={"extensions": {f"com.example/{MAX_LOOKED_AT:04}": {}}}) as other,
    ):
        await mine.request("tools/list")
        await other.request("tools/list")
        monkeypatch.setattr("callboard.codecs.bridge.transparent.fnmatchcase", fits)
        for line in back.lines:
            for number in range(3):
                await line.tell(told, number=number)
        await wait_all_tasks_blocked()
        await mine.request("ping")
        await other.request("ping")
        assert [one["number"] for one in mine.notifications(told)] == [0, 1, 2]
        assert other.notifications(told) == []
        assert looks <= len(names)


async def test_a_modern_client_hears_of_it_during_its_request(autojump_clock: MockClock) -> None:
    back = moody(R5)
    async with (
        Broker([backend(back.ways)], extensions=[MOOD]).host() as host,
        peer(host, R5, capabilities=HAS_MOOD) as client,
    ):
        asked = await client.begin("tools/call", name="book", arguments={})
        line, call = await back.hear()
        await line.tell("notifications/com.example/now", glad=1)
        await line.answer(call, content=[])
        await client.finish(asked)
        assert client.notifications("notifications/com.example/now") == [{"glad": 1}]


@FRONTS
async def test_what_a_modern_server_says_during_a_request_reaches_no_other_client(
    autojump_clock: MockClock, revision: Revision
) -> None:
    back = moody(R5)
    async with (
        brokered(back.ways, extensions=[MOOD]) as host,
        peer(host, revision, capabilities=HAS_MOOD) as mine,
        peer(host, R4, capabilities=HAS_MOOD) as other,
    ):
        asked = await mine.begin("tools/call", name="book", arguments={})
        line, call = await back.hear()
        await line.tell("notifications/com.example/now", glad=1)
        await line.answer(call, content=[])
        await mine.finish(asked)
        await line.tell("notifications/com.example/now", glad=2)  # of none
        await wait_all_tasks_blocked()
        await other.request("ping")
        assert mine.notifications("notifications/com.example/now") == [{"glad": 1}]
        assert other.notifications("notifications/com.example/now") == []


@pytest.mark.parametrize("way", ["cancelled", "timed out"])
@pytest.mark.parametrize(("others", "soon"), [("alice", [1]), ("bob", [])])
async def test_a_request_that_was_given_up_counts_for_a_moment_more(
    autojump_clock: MockClock, others: str, soon: list[int], way: str
) -> None:
    back, now = moody(R5), "notifications/com.example/now"
    async with (
        brokered(backend(back.ways, timeout=3.0), extensions=[MOOD]) as host,
        peer(host, R5, capabilities=HAS_MOOD, principal="alice") as first,
        peer(host, R5, capabilities=HAS_MOOD, principal=others) as second,
    ):
        asked = await first.begin("tools/call", name="book", arguments={})
        await back.hear()
        if way == "cancelled":
            await first.say({"method": "notifications/cancelled", "params": {"requestId": asked}})
        else:
            with pytest.raises(Refusal, match="timed out"):
                await first.finish(asked)
        await wait_all_tasks_blocked()
        heard: list[list[Any]] = []
        for number in (1, 2):
            asked = await second.begin("tools/call", name="book", arguments={})
            line, call = await back.hear("tools/call")
            await line.tell(now, number=number)
            await line.answer(call, content=[])
            await second.finish(asked)
            heard.append([one["number"] for one in second.notifications(now)])
            await trio.sleep(LINGER)
        assert heard == [soon, [*soon, 2]]
        assert first.notifications(now) == []


async def test_a_private_notification_comes_by_http_too() -> None:
    back = moody(R5)
    async with serving(cast("Any", Broker([backend(back.ways)], extensions=[MOOD]))) as place:
        client = await place.connect()
        told = {"jsonrpc": "2.0", "method": "notifications/com.example/felt", "params": {"glad": True}}
        await client.send(client.post(told, mcp_protocol_version="2026-07-28"))
        assert (await client.answer()).status == 202
        _, message = await back.hear("notifications/com.example/felt")
        assert message["params"] == {"glad": True}


ANSWERS: Final[dict[str, Json]] = {
    "server/discover": {
        "supportedVersions": [R5.value],
        "capabilities": {"tools": {}, "extensions": {MOOD: {}}},
    },
    "tools/list": {"tools": [tool("feel")]},
    "tools/call": {"content": []},
}


async def play_http(stream: trio.SocketStream) -> None:
    """A modern server over HTTP. On the way of a call it says something that only its extension has."""
    data = b""
    while chunk := await stream.receive_some():
        data += chunk
        head, parted, body = data.partition(b"\r\n\r\n")
        size = int(next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0))
        if not parted or len(body) < size:
            continue
        data = body[size:]
        asked = msgspec.json.decode(body[:size])
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **ANSWERS[asked["method"]]}
        answer = msgspec.json.encode({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        kind = b"application/json"
        if asked["method"] == "tools/call":
            kind, news = (
                b"text/event-stream",
                {"jsonrpc": "2.0", "method": "notifications/com.example/now", "params": {}},
            )
            answer = b"".join(b"data: %b\n\n" % one for one in (msgspec.json.encode(news), answer))
        about = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(answer))
        await stream.send_all(about + answer)


async def test_what_came_on_the_way_of_one_request_is_told_to_its_client_alone() -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, play_http, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            spec = BackendSpec(name="one", target=Remote(url=url), settings=BackendSettings(prefix=""))
            async with (
                Broker([spec], extensions=[MOOD]).host() as host,
                peer(host, R4, capabilities=HAS_MOOD) as other,
                peer(host, R5, capabilities=HAS_MOOD) as mine,
                peer(host, R5, capabilities={}) as unaware,
            ):
                for client, heard in ((mine, 1), (unaware, 0)):
                    await client.request("tools/call", name="feel", arguments={})
                    assert len(client.notifications("notifications/com.example/now")) == heard
                await other.request("ping")
                assert other.notifications("notifications/com.example/now") == []
            nursery.cancel_scope.cancel()


LEGACY_LINES: Final[Json] = {"mcp_protocol_version": R4.value}


async def asked_by_http(place: Place, revision: Revision) -> HttpClient:
    """A client that has sent the call of a tool, and has no other stream."""
    client = await place.connect()
    call: Json = {"name": "book", "arguments": {}}
    if revision is R5:
        declared = {f"{META}clientCapabilities": HAS_MOOD}
        await client.send(client.modern("tools/call", **call, meta=declared))
        return client
    opening = {"protocolVersion": R4.value, "capabilities": HAS_MOOD, "clientInfo": {"name": "c", "version": "1"}}
    await client.send(client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}))
    lines = {**LEGACY_LINES, "mcp_session_id": (await client.answer()).headers["mcp-session-id"]}
    await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **lines))
    assert (await client.answer()).status == 202
    await client.send(client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, **lines))
    return client


@ERAS
@FRONTS
async def test_what_a_server_says_first_on_the_way_of_a_call_opens_the_stream_of_its_http_client(
    revision: Revision, back_revision: Revision
) -> None:
    back, now = moody(back_revision), "notifications/com.example/now"
    async with serving(cast("Any", Broker([backend(back.ways)], extensions=[MOOD]))) as place:
        client = await asked_by_http(place, revision)
        line, call = await back.hear("tools/call")
        for size in (1, 2, 100_000, 3, RELAYED_BYTES):  # some in one piece at once, one that must wait, one too large
            await line.tell(now, much="x" * size)
        await line.answer(call, content=[])
        *news, answer = await (await client.stream_of()).rest()
        assert [(one["method"], len(one["params"]["much"])) for one in news] == [
            (now, size) for size in (1, 2, 100_000, 3)
        ]
        assert answer["result"]["content"] == []
