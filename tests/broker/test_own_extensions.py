"""Extensions of a broker itself, beside those that cross; and what a server says by one, heard through a broker."""

from typing import Any, Final, cast

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Broker, Context, Extension, Server, connect
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.revisions import JSONObject, Revision, meta
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Tasks
from callboard.testing import Refusal
from tests.broker.back import Back
from tests.broker.front import backend, brokered, peer, ways_in
from tests.client.stage import EVERYTHING, Json, every_revision

MOOD: Final = "com.example/mood"
DESK: Final = "org.example/desk"
NOW: Final = "notifications/com.example/now"
HAS_DESK: Final[Json] = {"extensions": {DESK: {}}}
FRONTS: Final = pytest.mark.parametrize("front", [R4, R5], ids=["legacy client", "modern client"])
ERAS: Final = pytest.mark.parametrize("back", [R4, R5], ids=["legacy backend", "modern backend"])


def desk(heard: list[JSONObject], **options: Any) -> Extension:
    extension = Extension(DESK, {"open": True}, **options)

    @extension.method("org.example/ring")
    async def ring(times: int, ctx: Context) -> JSONObject:
        await ctx.notify("notifications/org.example/rung", times=times)
        return {"rung": times}

    @extension.method("org.example/break")
    def fail() -> None:
        raise RuntimeError("secret")

    @extension.notification("notifications/org.example/left")
    def left(params: JSONObject) -> None:
        heard.append(params)
        raise RuntimeError("a fault of the author")

    return extension


def crossing() -> Back:
    """A backend that has an extension of the same domain, and one more."""
    return Back(R5, capabilities={**EVERYTHING, "extensions": {DESK: {"open": False}, MOOD: {}}})


async def declared(host: Host, revision: Revision) -> Any:
    async with peer(host, revision) as client:
        said = client.agreed.get("capabilities") or (await client.request("server/discover"))["capabilities"]
    return said["extensions"]


@every_revision
async def test_a_broker_serves_its_own_extension_before_any_backend(
    autojump_clock: MockClock, revision: Revision
) -> None:
    back, heard = crossing(), list[JSONObject]()
    async with brokered(backend(back.ways), extensions=[desk(heard), "com.*", "org.*"]) as host:
        assert await declared(host, revision) == {DESK: {"open": True}, MOOD: {}}
        async with peer(host, revision) as client:
            result = await client.request("org.example/ring", times=2)
            assert result["rung"] == 2
            assert client.notifications("notifications/org.example/rung") == [{"times": 2}]
            with pytest.raises(Refusal, match="-32602"):
                await client.request("org.example/ring", times="often")
            with pytest.raises(Refusal) as refused:
                await client.request("org.example/break")
            assert "secret" not in str(refused.value)
            await client.say({"method": "notifications/org.example/left", "params": {"at": 5}})
            await client.request("tools/list")
            await wait_all_tasks_blocked()
        assert heard == [{"at": 5}]
        assert not [line for line in back.lines if line.told("notifications/org.example/left")]


async def test_it_is_there_on_each_path_and_while_backends_come_and_go(autojump_clock: MockClock) -> None:
    back = crossing()
    async with brokered(backend(back.ways, "one"), extensions=[desk([], needs_client=True)]) as host:
        assert host.paths is not None
        found = host.paths.find("one", ANONYMOUS)
        assert found is not None
        assert await declared(found, R5) == {DESK: {"open": True}}
        for line in back.lines:
            line.hang_up()
        await wait_all_tasks_blocked()
        for place in (host, found):
            async with peer(place, R5, capabilities=HAS_DESK) as client:
                assert (await client.request("org.example/ring", times=1))["rung"] == 1
                with pytest.raises(Refusal, match="-32601"):
                    await client.request("com.example/look")  # no other extension crosses
        async with peer(host, R5, capabilities={}) as client:
            with pytest.raises(Refusal, match="-32021"):
                await client.request("org.example/ring", times=1)


@pytest.mark.parametrize("rule", [{"deny": True}, {"needs": ("ring",)}, {"only": (Condition(principal=("boss",)),)}])
@pytest.mark.parametrize("side", ["hosted", "brokered"])
@every_revision
async def test_what_a_caller_may_not_send_no_extension_and_no_server_hears(
    autojump_clock: MockClock, revision: Revision, side: str, rule: Any
) -> None:
    heard: list[JSONObject] = []
    back, left, felt = crossing(), "notifications/org.example/left", "notifications/com.example/felt"
    running = (
        Server("one", extensions=[desk(heard)]).host()
        if side == "hosted"
        else brokered(backend(back.ways), extensions=[desk(heard), "com.*"])
    )
    async with running as host:
        for rules, expected in ((AccessRules([Rule(methods=("notifications/*",), **rule)]), 0), (None, 1)):
            host.rules = rules
            async with peer(host, revision, principal="guest", capabilities={**HAS_DESK}) as client:
                for method in (left, felt):
                    await client.say({"method": method, "params": {}})
                await client.request("tools/list")
                await wait_all_tasks_blocked()
            assert (len(heard), len(back.told(felt))) == (expected, expected if side == "brokered" else 0)


@pytest.mark.parametrize("side", ["hosted", "brokered"])
async def test_an_extension_that_its_clients_must_declare_hears_no_other_client(
    autojump_clock: MockClock, side: str
) -> None:
    heard: list[JSONObject] = []
    extension = desk(heard, needs_client=True)
    own = Server("one", extensions=[extension]).host()
    running = own if side == "hosted" else brokered(backend(Back(R5).ways), extensions=[extension])
    async with running as host:
        for number, capabilities in enumerate(({}, HAS_DESK)):
            async with peer(host, R5, capabilities=capabilities) as client:
                terms = {meta.PROTOCOL_VERSION: R5.value, meta.CLIENT_CAPABILITIES: capabilities}
                said = {"_meta": terms, "number": number}
                await client.say({"method": "notifications/org.example/left", "params": said})
                await client.say({"method": "notifications/org.example/left", "params": {"number": 5}})
                await client.request("tools/list")
                await wait_all_tasks_blocked()
    assert [one["number"] for one in heard] == [1]


async def test_what_is_no_extension_of_a_broker_is_refused_at_once() -> None:
    class Hosting(Extension):
        def attach(self, server: object) -> None: ...

    taken = Extension("com.example/taken")
    taken.method("tasks/mine")(lambda: None)
    for wrong, error, words in (
        ([5], TypeError, "expected an Extension, not int"),
        (DESK, TypeError, "not one str"),
        ([Hosting(DESK)], TypeError, "Hosting is for a Server"),
        ([Tasks()], TypeError, "Tasks is for a Server"),
        ([Extension(DESK), Extension(DESK)], ValueError, "already exists"),
        ([Extension("io.modelcontextprotocol/skills")], ValueError, "a broker has it already"),
        ([taken], ValueError, "serves the method 'tasks/mine' itself"),
    ):
        with pytest.raises(error, match=words):
            Broker([], extensions=cast("Any", wrong))


@FRONTS
@ERAS
async def test_a_client_hears_what_a_server_says_by_an_extension_through_the_broker(
    autojump_clock: MockClock, front: Revision, back: Revision
) -> None:
    server, told = Server("one", revisions=frozenset({back}), extensions=[Extension(MOOD)]), list[JSONObject]()
    served = server.extensions[0]
    served.notification("notifications/com.example/felt")(told.append)

    @server.tool
    async def look(ctx: Context) -> str:
        await ctx.notify(NOW, glad=1)
        return "seen"

    heard: list[JSONObject] = []
    unaware: list[JSONObject] = []
    watch, other = Extension(MOOD), Extension("com.example/other")
    watch.notification(NOW)(heard.append)
    other.notification(NOW)(unaware.append)
    async with (
        brokered(server, extensions=["com.example/*"]) as host,
        connect(ways_in(host), revision=front, extensions=[watch]) as client,
        connect(ways_in(host), revision=front, extensions=[other]) as second,
    ):
        await client.call("look")
        await second.call("look")  # it is the only one, and none of the client's
        assert heard == [{"glad": 1}]
        await server.notify(NOW, glad=2)
        await client.notify("notifications/com.example/felt", how="fine")
        await wait_all_tasks_blocked()
        is_told_unasked = front.dialect.has_sessions and back.dialect.has_sessions
        assert heard == [{"glad": 1}, *([{"glad": 2}] if is_told_unasked else [])]
        assert [one["how"] for one in told] == ["fine"]
        assert unaware == []
