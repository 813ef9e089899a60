"""Extensions through the broker: what a client and a server declare reaches the other side, if it is to cross."""

import time
from typing import Final
from weakref import ref

import msgspec
import pytest
import trio
from trio.testing import MockClock

from callboard.actors.broker.views import MAX_VIEWS_EACH
from callboard.actors.server.host import Host
from callboard.broker import Broker
from callboard.codecs.bridge.transparent import (
    MAX_CLIENT_BYTES,
    MAX_CLIENT_NAMES,
    MAX_LOOKED_AT,
    MAX_MERGED_BYTES,
    UI,
    Transparent,
    merged_settings,
)
from callboard.codecs.members import raw
from callboard.codecs.revisions import LATEST, ClientCapabilities, Revision, ServerCapabilities, meta
from callboard.codecs.revisions.revision import R1, R4, R5
from tests.broker.back import Back, text, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING, Json, every_revision

HTML: Final = "text/html;profile=mcp-app"
HOST: Final[Json] = {"extensions": {UI: {"mimeTypes": [HTML]}}}
PLAIN: Final[Json] = {}
ERAS: Final = pytest.mark.parametrize("back_revision", [R4, R5], ids=["legacy backend", "modern backend"])


def offering(back_revision: Revision, *tools: str, **capabilities: Json) -> Back:
    return Back(
        back_revision, tools=[tool(name) for name in tools or ("book",)], capabilities=EVERYTHING | capabilities
    )


async def declared_in_call(back: Back, host: Host, revision: Revision, capabilities: Json, name: str = "book") -> Json:
    """What the backend knows of its client while the client calls a tool."""
    async with peer(host, revision, capabilities=capabilities) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call, name)
        line, call = await back.hear()
        own = call["params"].get("_meta", {}).get(meta.CLIENT_CAPABILITIES, {})
        said: Json = own if back.is_modern else line.declared
        await line.answer(call, **text("done"))
    return said


@every_revision
@ERAS
async def test_a_server_sees_that_its_client_has_mcp_apps(
    autojump_clock: MockClock, back_revision: Revision, revision: Revision
) -> None:
    back = offering(back_revision)
    async with brokered(back.ways) as host:
        assert await declared_in_call(back, host, revision, HOST) == HOST
        assert await declared_in_call(back, host, revision, PLAIN) == {}


async def test_clients_with_and_without_an_extension_share_no_legacy_connection(autojump_clock: MockClock) -> None:
    back = offering(R4)
    other = {"extensions": {UI: {"mimeTypes": ["text/plain"]}}}
    async with brokered(back.ways) as host:
        for capabilities in (HOST, PLAIN, other, HOST):
            assert await declared_in_call(back, host, R4, capabilities) == capabilities
        assert [line.declared for line in back.lines] == [{}, HOST, other]


@every_revision
async def test_clients_are_told_of_all_servers_extensions_that_cross(
    autojump_clock: MockClock, revision: Revision
) -> None:
    one = offering(R4, extensions={UI: {"mimeTypes": [HTML]}, "com.example/a": {"x": 1}, "com.example/hidden": {}})
    two = offering(R5, extensions={UI: {"mimeTypes": ["text/plain", HTML]}, "com.example/a": {"x": 2, "y": [3]}})
    specs = [backend(one.ways, "one"), backend(two.ways, "two")]
    async with brokered(*specs, extensions=["com.example/a"]) as host, peer(host, revision) as client:
        known = client.agreed if revision is not R5 else await client.request("server/discover")
        assert known["capabilities"]["extensions"] == {
            UI: {"mimeTypes": [HTML, "text/plain"]},
            "com.example/a": {"x": 1, "y": [3]},
        }


@ERAS
async def test_a_configured_extension_and_experimental_capability_cross_and_no_others(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    back = offering(back_revision, experimental={"try": {"a": 1}, "no": {}})
    said: Json = {
        "extensions": {"com.example/mood": {"b": [1.0]}, "org.example/no": {}, "io.modelcontextprotocol/tasks": {}},
        "experimental": {"try": {}, "no": {}},
    }
    options = {"extensions": ["com.example/*"], "experimental": ["try"]}
    async with brokered(back.ways, **options) as host:
        expected = {"extensions": {"com.example/mood": {"b": [1]}}, "experimental": {"try": {}}}
        assert await declared_in_call(back, host, LATEST, said) == expected
        async with peer(host, R1) as client:
            assert client.agreed["capabilities"]["experimental"] == {"try": {"a": 1}}


async def test_sessions_that_declare_an_extension_and_can_be_asked_nothing_share_a_connection(
    autojump_clock: MockClock,
) -> None:
    back = offering(R4)
    async with brokered(back.ways) as host:
        for _ in range(5):
            await declared_in_call(back, host, R4, HOST)
        assert len(back.lines) == 2  # the shared one, and that of all hosts with apps


async def test_a_client_that_declares_something_else_each_time_takes_no_others_place(
    autojump_clock: MockClock,
) -> None:
    back = offering(R4)
    broker = Broker([backend(back.ways, max_connections=8)])
    async with broker.host() as host, peer(host, R5, capabilities=HOST, principal="good") as good:
        await good.request("tools/list")
        for number in range(40):
            said = {"extensions": {UI: {"mimeTypes": [f"text/{number}"]}}}
            async with peer(host, R5, capabilities=said, principal="bad") as bad:
                assert [one["name"] for one in (await bad.request("tools/list"))["tools"]] == ["book"]
        views = broker.backends["back"].views
        assert len([view for view in views.known() if view.account == "bad"]) <= MAX_VIEWS_EACH
        assert len(broker.backends["back"].pool) <= 8
        assert views.knows(broker.transparent.signature_of(_capabilities(HOST)))


def _capabilities(said: Json) -> ClientCapabilities:
    return ClientCapabilities(**said)


def test_what_crosses_of_one_client_is_bounded() -> None:
    cross = Transparent(extensions=("*",))
    many = _capabilities({"extensions": {f"com.example/{number:02}": {} for number in range(40)} | {UI: {}}})
    assert len(cross.signature_of(many)) == MAX_CLIENT_NAMES
    assert any(UI in part for part in cross.signature_of(many))
    large = _capabilities({"extensions": {"com.example/large": {"x": "x" * MAX_CLIENT_BYTES}, "com.example/small": {}}})
    assert [msgspec.json.decode(part)[1] for part in cross.signature_of(large)] == ["com.example/small"]


def test_what_a_client_declares_is_not_kept_beyond_its_request() -> None:
    cross = Transparent()
    said = _capabilities({"extensions": {UI: {}, "com.example/large": {"x": "x" * 1_000_000}}})
    assert cross.signature_of(said) is cross.signature_of(said)
    left = ref(said)
    del said
    assert left() is None


def test_what_crosses_of_one_server_is_bounded() -> None:
    cross = Transparent(extensions=("*",))
    large = ServerCapabilities(extensions={"com.example/large": {"x": "x" * 20_000}, "com.example/small": {}})
    assert cross.merged([large]) == {"extensions": {"com.example/small": {}}}


def test_servers_that_declare_much_leave_room_for_the_apps_of_others() -> None:
    cross = Transparent(("com.example/*",))
    apps = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}
    greedy = [
        ServerCapabilities(extensions={UI: {f"x{of}": "x" * 2000}, **{f"com.example/{of}-{n}": {} for n in range(900)}})
        for of in range(20)
    ]
    for servers in ([*greedy, ServerCapabilities(extensions=apps)], [ServerCapabilities(extensions=apps)] * 2000):
        merged = cross.merged(servers)
        assert merged["extensions"][UI]["mimeTypes"] == apps[UI]["mimeTypes"]
        assert len(raw(merged)) < MAX_MERGED_BYTES * 1.1  # braces and commas are not counted


def test_settings_of_several_servers_are_united_and_the_first_one_wins() -> None:
    one = {"a": 1, "list": [1, {"b": 2}], "deep": {"x": True}}
    other = {"a": 2, "list": [{"b": 2.0}, 3], "deep": {"x": False, "y": None}, "more": "m"}
    assert merged_settings(one, other) == {
        "a": 1,
        "list": [1, {"b": 2}, 3],
        "deep": {"x": True, "y": None},
        "more": "m",
    }


def test_what_crosses_may_be_changed_while_clients_are_known() -> None:
    cross = Transparent()
    said = _capabilities({"extensions": {"com.example/a": {}}})
    assert not cross.signature_of(said)
    cross.replace(["com.example/a"], [])
    assert cross.signature_of(said) == {'["extensions","com.example/a",{}]'}


def test_ten_thousand_extensions_of_one_peer_cost_no_more_than_reading_them() -> None:
    """All of them would take a quarter of a second, in which no other client is served."""
    transparent = Transparent(("*",), ("*",))
    many: Json = {f"com.example/x{number:05}": {"at": number} for number in range(10_000)}
    took = []
    for _ in range(3):
        declared = ClientCapabilities(extensions={**many, UI: {}}, experimental=many)
        before = time.perf_counter()
        signature = transparent.signature_of(declared)
        took.append(time.perf_counter() - before)
        assert len(signature) == MAX_CLIENT_NAMES
        assert any(UI in one for one in signature)
    assert min(took) < 0.1
    offered = ServerCapabilities(extensions={**many, UI: {}}, experimental=many)
    merged = transparent.merged([offered] * 3)
    assert UI in merged["extensions"]
    assert len(merged["extensions"]) <= MAX_LOOKED_AT


@every_revision
@ERAS
async def test_null_settings_of_a_client_and_a_server_are_empty_to_the_other(
    autojump_clock: MockClock, back_revision: Revision, revision: Revision
) -> None:
    """A nil map of Go is written as null."""
    odd: Json = {"extensions": {UI: None, "com.example/on": True}, "experimental": {"nil": None, "on": True}}
    back = offering(back_revision, **odd)
    async with brokered(back.ways, extensions=["com.example/*"], experimental=["*"]) as host:
        said = await declared_in_call(back, host, revision, {**odd})
        assert said["extensions"] == {UI: {}}
        assert said["experimental"] == {"nil": {}}
        capabilities = host.offer.capabilities(revision)
        assert (capabilities.extensions, capabilities.experimental) == ({UI: {}}, {"nil": {}})
