"""Extensions of a client: what they declare, what they hear of the server, and what they answer it."""

import asyncio
from typing import Any, Final, cast

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import callboard.asyncio
from callboard import Context, Extension, Server, connect
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions import JSONObject, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Tasks
from callboard.server.extension_listeners import REPORTED
from tests.client.stage import INFO, Json, Puppet, every_revision, played
from tests.client.web import Reply, web
from tests.transports.server.http.stage import serving

ID: Final = "com.example/moods"
TASKS: Final = "io.modelcontextprotocol/tasks"
CLOUDS: Final = "notifications/com.example/clouds"
FELT: Final = "notifications/com.example/felt"
BOTH: Final = pytest.mark.parametrize("revision", [R4, R5], ids=["legacy", "modern"])


def moody(heard: list[JSONObject]) -> Server:
    """A server with the extension: its method says something on its way."""
    moods = Extension(ID)

    @moods.method("com.example/mood")
    async def mood(ctx: Context) -> dict[str, Any]:
        await ctx.notify(CLOUDS, over="Oslo")
        return {"declared": ctx.client_capabilities.extensions}

    @moods.notification(FELT)
    def felt(params: JSONObject) -> None:
        heard.append(params)

    server = Server("moods", extensions=[moods])

    @server.tool(task="optional")
    async def sky(ctx: Context) -> str:
        await ctx.notify(CLOUDS, over="all")
        return "grey"

    @server.tool
    async def wrong(ctx: Context) -> None:
        await ctx.notify("notifications/progress", progress=1)

    return server


def watching(heard: list[JSONObject], **settings: str) -> Extension:
    """The client's side of it."""
    watch = Extension(ID, settings)
    watch.notification(CLOUDS)(heard.append)
    return watch


@every_revision
async def test_a_client_declares_its_extensions_and_hears_their_notifications(revision: Revision) -> None:
    told: list[JSONObject] = []
    heard: list[JSONObject] = []
    async with connect(moody(told), revision=revision, extensions=[watching(heard, lang="en")]) as client:
        assert (await client.request("com.example/mood"))["declared"] == {ID: {"lang": "en"}}
        assert heard == [{"over": "Oslo"}]
        await client.call("sky")
        assert heard[1:] == [{"over": "all"}]
        await client.notify(FELT, how="fine")
        await client.ping()
        await wait_all_tasks_blocked()
    assert [one["how"] for one in told] == ["fine"]


@BOTH
async def test_custom_notifications_go_both_ways_over_http(revision: Revision) -> None:
    told: list[JSONObject] = []
    heard: list[JSONObject] = []
    async with serving(moody(told)) as place:
        url = f"http://127.0.0.1:{place.port}/mcp"
        async with connect(url, revision=revision, extensions=[watching(heard)]) as client:
            await client.request("com.example/mood")
            await client.notify(FELT, how="fine")
    assert heard == [{"over": "Oslo"}]
    assert [one["how"] for one in told] == ["fine"]


async def test_a_modern_notification_over_http_says_its_version_and_method_in_headers() -> None:
    async def play(reply: Reply) -> None:
        if reply.seen.rpc == FELT:
            await reply.whole(202)
        else:
            await reply.answer(ttlMs=0, cacheScope="public", supportedVersions=[R5.value], capabilities={})

    async with web(play) as place:
        async with connect(place.ways()) as client:
            await client.notify(FELT, how="fine")
        [told] = place.requests(FELT)
    assert (told.headers["mcp-protocol-version"], told.headers["mcp-method"]) == (R5.value, FELT)
    assert told.body["params"]["how"] == "fine"


async def test_a_server_tells_all_clients_of_legacy_sessions() -> None:
    server, heard, other = moody([]), list[JSONObject](), list[JSONObject]()
    async with (
        connect(server, revision=R4, extensions=[watching(heard)]),
        connect(server, revision=R5, extensions=[watching(other)]),
    ):
        await wait_all_tasks_blocked()
        await server.notify(CLOUDS, over="Bergen")
        await wait_all_tasks_blocked()
    assert (heard, other) == ([{"over": "Bergen"}], [])


async def test_what_a_call_says_is_heard_while_it_may_become_a_task(autojump_clock: MockClock) -> None:
    heard: list[JSONObject] = []
    async with connect(moody([]), extensions=[watching(heard), Extension(TASKS)]) as client:
        await client.call("sky")
    assert heard == [{"over": "all"}]


@every_revision
async def test_a_server_with_settings_that_are_null_or_no_object_is_connected_to(revision: Revision) -> None:
    odd = {"com.example/nil": None, "com.example/on": True}

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("server/discover", "initialize")
            capabilities = {"extensions": odd, "experimental": odd}
            if request["method"] == "initialize":
                await puppet.answer(request, protocolVersion=revision.value, capabilities=capabilities, serverInfo=INFO)
            elif puppet.is_modern:
                known = {"ttlMs": 0, "cacheScope": "public", "supportedVersions": [revision.value]}
                await puppet.answer(request, capabilities=capabilities, **known)
            else:
                await puppet.refuse(request, -32601)

    async with connect(played(play, revision, meets=False)) as client:
        assert client.server_capabilities.extensions == {"com.example/nil": {}}
        assert client.server_capabilities.experimental == {"com.example/nil": {}}


@BOTH
async def test_what_a_task_says_after_its_request_is_lost_and_no_failure(
    autojump_clock: MockClock, revision: Revision
) -> None:
    async with connect(moody([]), revision=revision) as client:
        task = await client.call("sky", task=True)
        assert (await task).content[0].text == "grey"  # type: ignore[union-attr]  # it is text


def answers() -> Extension:
    extension = Extension(ID)

    @extension.method("com.example/shout")
    def shout(text: str) -> JSONObject:
        return {"text": text.upper()}

    @extension.method("com.example/break")
    async def fail() -> None:
        raise RuntimeError("secret")

    @extension.method("com.example/hosted")
    async def hosted(ctx: Context) -> None: ...

    return extension


async def asked(puppet: Puppet, method: str, **params: Any) -> Json:
    await puppet.say(id=method, method=method, params=params)
    while True:
        message = await puppet.hear()
        if message.get("id") == method and "method" not in message:
            return message


async def test_a_legacy_server_asks_by_the_methods_of_an_extension() -> None:
    found: list[Json] = []

    async def play(puppet: Puppet) -> None:
        ping = await puppet.hear("ping")
        found.extend([await asked(puppet, "com.example/shout", text=text) for text in ("hi", 1)])
        found.extend([await asked(puppet, f"com.example/{name}") for name in ("break", "hosted", "other")])
        await puppet.answer(ping)

    async with connect(played(play, R4), extensions=[answers()]) as client:
        await client.ping()
    assert found[0]["result"] == {"text": "HI"}
    assert [one["error"]["code"] for one in found[1:]] == [-32602, -32603, -32601, -32601]
    assert "secret" not in str(found)


async def test_a_modern_server_has_no_way_to_ask() -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.say(id="q", method="com.example/shout", params={"text": "hi"})
        await puppet.answer(await puppet.hear("com.example/end"))

    puppets: list[Puppet] = []

    async def kept(puppet: Puppet) -> None:
        puppets.append(puppet)
        await play(puppet)

    async with connect(played(kept), extensions=[answers()]) as client:
        await client.request("com.example/end")
    assert all(one.get("id") != "q" for one in puppets[0].heard)


@BOTH
async def test_a_flood_that_a_function_fails_for_ends_nothing_and_is_logged_a_few_times(
    revision: Revision,
) -> None:
    count, ticks = 2000, 0
    extension, heard = watching([]), list[JSONObject]()

    @extension.notification("notifications/com.example/torn")
    def torn(params: JSONObject) -> None:
        heard.append(params)
        raise RuntimeError(f"a fault of the author: {params}")

    async def play(puppet: Puppet) -> None:
        for number in range(count):
            await puppet.say(method="notifications/com.example/torn", params={"n": number})
            await puppet.say(method="notifications/com.example/torn", params=[number])
        await puppet.answer(await puppet.hear("com.example/end"))

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.lowlevel.checkpoint()
            ticks += 1

    with structlog.testing.capture_logs() as logs:
        async with connect(played(play, revision), extensions=[extension]) as client, trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await client.request("com.example/end")
            nursery.cancel_scope.cancel()
    assert len(heard) == count
    assert ticks > count / 32  # others had their turns
    assert 0 < len([one for one in logs if one["event"] == "notification_failed"]) <= REPORTED.count + 1


async def test_names_of_the_specification_and_what_is_no_extension_are_refused() -> None:
    server = moody([])
    async with connect(server) as client:
        with pytest.raises(ValueError, match="specification has the method 'notifications/progress'"):
            await client.notify("notifications/progress", progress=1)
        with pytest.raises(ValueError, match="printable ASCII"):
            await client.notify("org.example/\u00e9")
        with pytest.raises(ValueError, match="larger than"):
            await client.notify(FELT, much="x" * MAX_ANSWER)
        with pytest.raises(ValueError, match="specification"):
            await server.notify("notifications/message")
        assert (await client.call("wrong")).is_error
    for wrong, error, words in (
        ([ID], TypeError, "expected an Extension, not str"),
        (ID, TypeError, "expected an Extension, not str"),
        ([Tasks()], TypeError, "Tasks is for a Server"),
        ([Extension(ID), Extension(ID)], ValueError, "already exists"),
        ([answers(), renamed(answers())], ValueError, "another extension has the method"),
    ):
        with pytest.raises(error, match=words):
            connect(server, extensions=cast("Any", wrong))
    with pytest.raises(TypeError, match="plain function"):

        @Extension(ID).notification(CLOUDS)
        async def waits(params: JSONObject) -> None: ...


def renamed(extension: Extension) -> Extension:
    extension.__dict__["id"] = "com.example/other"
    return extension


def test_functions_of_extensions_run_in_the_loop_of_an_asyncio_client() -> None:
    heard: list[str] = []
    is_heard = asyncio.Event()
    watch = Extension(ID)

    @watch.notification(CLOUDS)
    def clouds(params: JSONObject) -> None:
        asyncio.get_running_loop()
        heard.append(str(params["over"]))
        is_heard.set()

    @watch.method("com.example/ask")
    async def ask() -> JSONObject:
        asyncio.get_running_loop()
        return {"asked": True}

    told: list[JSONObject] = []

    async def main() -> None:
        async with callboard.asyncio.connect(moody(told), extensions=[watch]) as client:
            await client.notify(FELT, how="fine")
            await client.request("com.example/mood")
            await asyncio.wait_for(is_heard.wait(), 20)

    asyncio.run(main())
    assert heard == ["Oslo"]
    assert [one["how"] for one in told] == ["fine"]
    assert watch.notifications[CLOUDS] is clouds  # a copy runs there
