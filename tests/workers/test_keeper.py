"""Backends that workers share by way of a keeper: what clients see is what they would see without it."""

import json
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard import Server
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.bridge.overrides import ToolOverride
from callboard.codecs.revisions import LEGACY, Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.config import BackendSpec, PythonTarget, Remote, UpstreamAuth
from callboard.errors import BACKEND_GONE, CannotServe, ConnectionLost
from callboard.testing import Refusal
from callboard.transports.client.process import Command
from callboard.workers.keeper import is_kept
from callboard.workers.kept import KeptBackends
from tests.broker.back import Back, form, named, text, tool
from tests.broker.front import backend, brokered, peer, texts
from tests.broker.test_following import follow, touch, updates
from tests.client.stage import Json
from tests.transports.server.http.stage import serving
from tests.workers.kept_stage import keeping, sharing, worker

BOOK: Final[Json] = {"name": "book", "arguments": {"page": 7}}
REAL: Final = 10.0
"""Seconds for a test with real sockets to other servers: none takes one."""


async def listing(host: Host, revision: Revision) -> list[Json]:
    """All lists, as a client of *revision* gets them."""
    methods = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    async with peer(host, revision, capabilities={}) as client:
        return [await client.request(method) for method in methods]


def full(revision: Revision) -> Back:
    extra = {"annotations": {"readOnlyHint": True}, "description": "Books a seat."}
    templates = [{"uriTemplate": "notes://{day}", "name": "days"}]
    return Back(revision, tools=[tool("book", **extra), tool("a-" + 70 * "x")], templates=templates)


@pytest.mark.parametrize("behind", [R1, R4, R5])
@pytest.mark.parametrize("front", [R1, R4, R5])
async def test_lists_are_those_of_a_broker_without_a_keeper(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    settings = BackendSettings(prefix="x", rename={"brief": "short"})
    async with brokered(backend(full(behind).ways, settings=settings)) as host:
        expected = await listing(host, front)
    async with sharing(backend(full(behind).ways, settings=settings)) as shared:
        found = [await listing(host, front) for host in shared.hosts]
    long = [one["tools"].pop() for one in (expected[0], *(lists[0] for lists in found))]  # it has another digest
    assert all(one["name"].startswith("x__a-xxx") for one in long)
    assert found == [expected, expected]


@pytest.mark.parametrize("behind", [R4, R5])
async def test_clients_of_all_workers_share_one_connection(behind: Revision, autojump_clock: MockClock) -> None:
    back = Back(behind)
    async with sharing(back.ways, workers=3) as shared:
        for host in shared.hosts:
            async with peer(host, capabilities={}) as client:
                begun = await client.begin("tools/call", **BOOK)
                line, request = await back.hear()
                assert request["params"]["arguments"] == {"page": 7}
                await line.answer(request, **text("booked"))
                assert texts([await client.finish(begun)]) == ["booked"]
        assert len(back.lines) == 1


async def lines_of(back: Back, host: Host, principal: str, revision: Revision = R5, times: int = 1) -> list[int]:
    """The connections on which the calls of one client come to the backend."""
    found = []
    async with peer(host, revision, capabilities={}, principal=principal) as client:
        for _ in range(times):
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            found.append(back.lines.index(line))
            await line.answer(request, **text("booked"))
            await client.finish(begun)
    return found


async def test_each_principal_has_a_connection_whatever_worker_it_comes_to(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(back.ways) as shared:
        one, two = shared.hosts
        ann, ben = "ann", "Bên/ \u2603\r\n"
        found = [await lines_of(back, host, who) for host, who in [(one, ann), (two, ben), (two, ann), (one, ben)]]
        assert found == [[1], [2], [1], [2]]
        assert len(back.lines) == 3


async def test_each_session_has_a_connection_where_that_is_wanted(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(backend(back.ways, share="session")) as shared:
        one, two = shared.hosts
        assert await lines_of(back, one, "ann", R4, times=2) == [1, 1]
        assert await lines_of(back, one, "ann", R4, times=2) == [2, 2]
        assert await lines_of(back, two, "ann", R4) == [3]


@pytest.mark.parametrize("front", [R4, R5])
async def test_a_question_finds_the_client_of_its_call(front: Revision, autojump_clock: MockClock) -> None:
    back, got = Back(R4), []
    async with sharing(back.ways) as shared, AsyncExitStack() as stack:
        calls = []
        for number, host in enumerate([*shared.hosts, *shared.hosts]):
            answers = {"elicitation/create": lambda _, number=number: named(f"client {number}")}
            calls.append(await stack.enter_async_context(peer(host, front, answers=answers)))

        async def call(number: int) -> None:
            got.append((number, *texts([await calls[number].call("book", number=number)])))

        async def play() -> None:
            line, request = await back.hear()
            asked = await line.ask("elicitation/create", **form())
            answer = await line.answered(asked)
            number = request["params"]["arguments"]["number"]
            await line.answer(request, **text(f"{number}: {answer['result']['content']['name']}"))

        async with trio.open_nursery() as nursery:
            for number in range(len(calls)):
                nursery.start_soon(call, number)
                nursery.start_soon(play)
    assert sorted(got) == [(number, f"{number}: client {number}") for number in range(4)]


async def test_a_client_that_cancels_while_it_is_asked_ends_the_call_at_the_backend(
    autojump_clock: MockClock,
) -> None:
    back = Back(R4)
    async with sharing(back.ways) as shared, peer(shared.hosts[0], R4) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        asked = await line.ask("elicitation/create", **form())
        assert (await client.hear())["method"] == "elicitation/create"
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun, "reason": "enough"}})
        with trio.fail_after(1):
            _, cancelled = await back.hear("notifications/cancelled")
            assert cancelled["params"] == {"requestId": request["id"], "reason": "enough"}
            assert (await line.answered(asked))["result"] == {"action": "cancel"}


async def test_progress_and_cancellation_cross_the_keeper(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(back.ways) as shared, peer(shared.hosts[0], R4, capabilities={}) as client:
        begun = await client.begin("tools/call", meta={"progressToken": "p"}, **BOOK)
        line, request = await back.hear()
        token = request["params"]["_meta"]["progressToken"]
        await line.tell("notifications/progress", progressToken=token, progress=1, total=2)
        heard = await client.hear()
        assert heard["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        await client.say(
            {"method": "notifications/cancelled", "params": {"requestId": begun, "reason": "changed my mind"}}
        )
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]


@attrs.frozen
class Failure:
    """How a call ended."""

    code: int
    words: str
    data: Any


async def failure(host: Host, back: Back, revision: Revision, how: str) -> Failure:
    async with peer(host, revision, capabilities={}) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        if how == "refused":
            await line.refuse(request, -32602, "no such page", page=7)
        elif how == "lost":
            line.hang_up()
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
    return Failure(refused.value.code, refused.value.message, refused.value.data)


@pytest.mark.parametrize("front", [R4, R5])
@pytest.mark.parametrize("how", ["refused", "lost", "late"])
async def test_failures_are_those_of_a_broker_without_a_keeper(
    how: str, front: Revision, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host:
        expected = await failure(host, back, front, how)
    back = Back(R4)
    async with sharing(back.ways) as shared:
        assert await failure(shared.hosts[0], back, front, how) == expected


async def test_a_backend_that_hangs_is_found_out_by_the_keeper(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(backend(back.ways, timeout=5)) as shared, peer(shared.hosts[0], capabilities={}) as client:
        back.is_deaf = True
        for _ in range(3):
            with pytest.raises(Refusal):
                await client.request("tools/call", **BOOK)
        await trio.sleep(10)
        assert back.lines[0].is_gone


async def test_a_backend_that_is_down_is_down_at_all_workers_until_it_is_back(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(backend(back.ways, name="back")) as shared, peer(shared.hosts[0], capabilities={}) as client:
        assert all(broker.is_ready() for broker in shared.brokers)
        back.is_down = True
        back.lines[0].hang_up()
        await trio.sleep(60)
        assert not any(broker.is_ready() for broker in shared.brokers)
        with pytest.raises(Refusal) as refused, trio.fail_after(1):
            await client.request("tools/call", **BOOK)
        assert refused.value.code == BACKEND_GONE
        back.is_down = False
        await trio.sleep(40)
        assert all(broker.is_ready() for broker in shared.brokers)
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("booked"))
        assert texts([await client.finish(begun)]) == ["booked"]


async def test_a_backend_that_comes_back_as_another_one_is_met_anew(autojump_clock: MockClock) -> None:
    back = Back(R4, capabilities={"tools": {"listChanged": True}})
    async with sharing(back.ways) as shared:
        assert [len(one.get("prompts", ())) for one in await lists_or_none(shared.hosts)] == [0, 0]
        back.capabilities["prompts"] = {"listChanged": True}
        back.tools = [tool("another")]
        back.lines[0].hang_up()
        await trio.sleep(1)
        found = await lists_or_none(shared.hosts)
        assert [one["prompts"][0]["name"] for one in found] == ["brief", "brief"]
        assert [one["tools"][0]["name"] for one in found] == ["another", "another"]


async def lists_or_none(hosts: Any) -> list[Json]:
    found = []
    for host in hosts:
        async with peer(host, capabilities={}) as client:
            lists = await client.request("tools/list")
            try:
                lists |= await client.request("prompts/list")
            except Refusal:
                lists["prompts"] = []
            found.append(lists)
    return found


@pytest.mark.parametrize("behind", [R4, R5])
async def test_a_resource_is_followed_once_for_the_clients_of_all_workers(
    behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with sharing(back.ways) as shared, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(peer(host, capabilities={})) for host in shared.hosts]
        for client in clients:
            await follow(client, "notes://one")
        [line] = back.lines
        asked = line.told("resources/subscribe") or [
            one for one in line.listens.values() if "resourceSubscriptions" in one
        ]
        assert len(asked) == 1
        await touch(back, "notes://one")
        assert [len(await updates(client)) for client in clients] == [1, 1]


async def test_what_a_principal_follows_is_followed_on_its_own_connection(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(back.ways) as shared, peer(shared.hosts[1], capabilities={}, principal="ann") as client:
        await follow(client, "notes://one")
        assert [len(line.told("resources/subscribe")) for line in back.lines] == [0, 1]


# What is kept.


def test_what_a_node_must_have_once_is_kept() -> None:
    def kept(target: Any, auth: UpstreamAuth | None = None, **settings: Any) -> bool | None:
        return is_kept(BackendSpec(name="x", target=target, auth=auth, settings=BackendSettings(**settings)))

    remote, command = Remote(url="https://x.example/mcp"), Command(args=("x",))
    assert kept(command) is kept(PythonTarget(file=Path("x.py"), name="server")) is True
    assert kept(remote) is None  # until its era is known
    assert kept(remote, UpstreamAuth(client_id="x")) is True
    assert kept(command, local=True) is kept(remote, local=True) is False


@pytest.mark.finding("newcomer-H6")
async def test_a_python_server_that_cannot_be_loaded_is_left_out_by_all_workers_if_wanted(tmp_path: Path) -> None:
    good = "from callboard import Server\nserver = Server('good')\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text("raise RuntimeError('no database')\n")
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {name: {"python": f"{name}.py"} for name in ("bad", "good")}}))
    broker = Broker.of_file(file, skips_invalid=True)
    folder, specs = str(tmp_path), list(broker.specs.values())
    broker.placing = KeptBackends(folder)
    with trio.fail_after(REAL), capture_logs() as logs:
        with pytest.raises(CannotServe, match="no database"):
            async with keeping(folder, *specs):
                pass
        async with keeping(folder, *specs, skips_invalid=True) as keeper, broker.host(parking=Parking("broker")):
            assert [(one.name, one.is_up) for one in broker.behind().servers] == [("good", True)]
            (tmp_path / "bad.py").write_text(good)
            await keeper.reload(specs)
            while len(broker.behind().servers) < 2:  # noqa: ASYNC110 -- the worker hears of it, and places it
                await trio.sleep(0.01)
    [warning] = [str(line["warning"]) for line in logs if line["event"] == "config_warning"]
    assert warning.startswith("bad: ")
    assert warning.endswith("RuntimeError: no database; the server is skipped")


def tiny(*revisions: Revision) -> Server:
    server = Server("tiny", revisions=frozenset(revisions))

    @server.tool
    async def hello() -> str:
        return "hello"

    return server


async def hello(host: Host) -> list[str]:
    async with peer(host, capabilities={}) as client:
        return texts([await client.call("hello")])


def links(broker: Broker) -> list[str]:
    """The kinds of a worker's connections to the backend that are open."""
    found = []
    for connection in broker.backends["back"].pool:
        with suppress(ConnectionLost):
            found.append(type(connection.conversation.link).__name__)
    return found


async def wait_own(broker: Broker, tool: str) -> None:
    """Wait until a worker has a connection of its own to the backend, and has read its lists there."""
    while links(broker) != ["HttpLink"] or tool not in broker.catalogue.shown(TOOLS):  # noqa: ASYNC110 -- no event tells
        await trio.sleep(0.02)


async def test_a_modern_server_at_a_url_is_left_to_the_workers() -> None:
    async with serving(tiny(R5)) as place:
        spec = backend(Remote(url=f"http://127.0.0.1:{place.port}/mcp"))
        async with sharing(spec, workers=2, within=REAL) as shared:
            assert shared.keeper.listed().backends == {"back": None}
            assert [await hello(host) for host in shared.hosts] == [["hello"], ["hello"]]
            assert [links(broker) for broker in shared.brokers] == [["HttpLink"], ["HttpLink"]]


async def test_a_legacy_server_at_a_url_has_one_session_for_all_workers() -> None:
    async with serving(tiny(*LEGACY)) as place:
        spec = backend(Remote(url=f"http://127.0.0.1:{place.port}/mcp"), share="all")
        async with sharing(spec, workers=3, within=REAL) as shared:
            assert [await hello(host) for host in shared.hosts] == [["hello"]] * 3
            assert place.host.sessions.total == 1


async def test_a_url_that_is_reached_late_is_placed_when_its_era_is_known() -> None:
    async with serving(tiny(R5)) as place:
        async with serving(tiny(R5)) as other:
            free = other.port
        spec = backend(Remote(url=f"http://127.0.0.1:{free}/mcp"))
        async with sharing(spec, within=REAL) as shared:
            assert shared.keeper.listed().backends["back"] is not None
            moved = backend(Remote(url=f"http://127.0.0.1:{place.port}/mcp"))
            await shared.keeper.reload([moved])  # the workers hear of it, and read the same file a little later
            while shared.keeper.listed().backends["back"] is not None:  # noqa: ASYNC110
                await trio.sleep(0.02)
            for broker in shared.brokers:
                await broker.reload([moved])
            for broker in shared.brokers:
                await wait_own(broker, "hello")
            assert [await hello(host) for host in shared.hosts] == [["hello"], ["hello"]]


# What changes while it runs.


async def test_a_reload_starts_and_ends_what_has_changed_and_nothing_else(autojump_clock: MockClock) -> None:
    one, two, three = Back(R4), Back(R4), Back(R4)
    ways = {name: back.ways for name, back in (("one", one), ("two", two), ("three", three))}
    async with sharing(backend(ways["one"], "one"), backend(ways["two"], "two")) as shared:
        await shared.reload(
            backend(ways["one"], "one", prefix="first"), backend(ways["three"], "three", prefix="third")
        )
        await trio.sleep(3)
        assert [len(back.lines) for back in (one, two, three)] == [1, 1, 1]
        assert [back.lines[0].is_gone for back in (one, two, three)] == [False, True, False]
        for host in shared.hosts:
            async with peer(host, capabilities={}) as client:
                names = [one["name"] for one in (await client.request("tools/list"))["tools"]]
                assert names == ["first__book", "first__other", "third__book", "third__other"]


async def test_workers_that_read_a_new_file_first_wait_for_the_keeper(autojump_clock: MockClock) -> None:
    one, two = Back(R4), Back(R4)
    first, more = backend(one.ways, "one"), backend(two.ways, "two", prefix="two")
    async with sharing(first) as shared, peer(shared.hosts[0], capabilities={}) as client:
        for broker in shared.brokers:
            await broker.reload([first, more])
        await trio.sleep(3)
        assert two.lines == []
        await shared.keeper.reload([first, more])
        await trio.sleep(3)
        assert [one["name"] for one in (await client.request("tools/list"))["tools"]][2:] == ["two__book", "two__other"]
        assert len(two.lines) == 1


async def test_a_call_under_way_is_answered_when_its_backend_is_taken_out(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with sharing(back.ways) as shared, peer(shared.hosts[0], capabilities={}) as client:
        begun = await client.begin("tools/call", **BOOK)
        await back.hear()
        await shared.keeper.reload([])
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
        assert refused.value.code == BACKEND_GONE


async def test_workers_find_the_keeper_and_the_next_one(autojump_clock: MockClock) -> None:
    backs = [Back(R4), Back(R4)]
    specs = [backend(back.ways) for back in backs]
    with tempfile.TemporaryDirectory() as folder:
        async with worker(folder, specs[0]).host() as host, peer(host, capabilities={}) as client:
            for back, spec in zip(backs, specs, strict=True):
                with pytest.raises(Refusal) as refused:
                    await client.request("tools/call", **BOOK)
                assert folder not in refused.value.message  # which is no business of clients
                async with keeping(folder, spec):
                    await trio.sleep(2)
                    assert await lines_of(back, host, "anonymous") == [0]


@pytest.mark.parametrize("said", [{"start": "lazy"}, {"idle_stop": 60.0}])
async def test_a_server_that_would_sleep_is_refused_unless_each_worker_has_its_own(
    said: dict[str, Any], autojump_clock: MockClock
) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(CannotServe, match="need `local`"), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with sharing(backend(Back().ways, settings=BackendSettings(**said))):
            pass
    async with sharing(backend(Back().ways, settings=BackendSettings(local=True, **said))):
        pass


@pytest.mark.parametrize("front", [R1, R5])
async def test_an_override_is_applied_once_and_by_the_workers(front: Revision, autojump_clock: MockClock) -> None:
    schema = {"type": "object", "properties": {"page": {"type": "integer"}}}
    back = Back(tools=[tool("book", inputSchema=schema)])
    override = {"book": ToolOverride(description="Ours.", fixed={"page": 1})}
    spec = backend(back.ways, settings=BackendSettings(prefix="", override=override))
    async with sharing(spec) as shared, peer(shared.hosts[0], front, capabilities={}) as client:
        [shown] = (await client.request("tools/list"))["tools"]
        assert (shown["description"], shown["inputSchema"]["properties"]) == ("Ours.", {})
        with pytest.raises(Refusal, match="unknown argument"):
            await client.call("book", page=2)
        begun = await client.begin("tools/call", name="book", arguments={})
        line, request = await back.hear()
        assert request["params"]["arguments"] == {"page": 1}
        await line.answer(request, **text("done"))
        await client.finish(begun)
