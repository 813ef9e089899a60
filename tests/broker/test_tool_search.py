"""Tools that are searched for, hosted and brokered, in both eras: a caller finds and calls what its rules allow."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server
from callboard import client as http
from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.tool_search import MAX_FOUND_BYTES, MAX_QUERY, MAX_REMEMBERED, ToolSearch
from callboard.broker import Broker
from callboard.codecs.caller import ANONYMOUS, ANYBODY, Caller
from callboard.codecs.revisions import ALL, LATEST, LEGACY, Model, Revision
from callboard.config import BadConfiguration, read_configuration
from callboard.server import GoOn
from callboard.testing import Peer, Refusal
from tests.broker.front import backend, brokered, peer
from tests.transports.server.http.stage import serving

ERAS = pytest.mark.parametrize("revision", [LATEST, max(LEGACY)])
SIDES = pytest.mark.parametrize("side", ["hosted", "brokered"])
ADA = Caller(principal="ada", tenant="acme", scopes=["a"])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def made(**options: Any) -> Server:
    server = Server("back", **options)

    @server.tool(description="Open a ticket for a customer who has a problem")
    async def create_ticket(customer: str, problem: str = "") -> str:
        return f"ticket of {customer}"

    @server.tool(description="Send an invoice")
    async def send_invoice(customer: str) -> str:
        return f"invoice for {customer}"

    @server.tool(description="Erase all invoices and tickets", scopes=["erase"])
    async def erase() -> str:
        return "erased"

    @server.tool(description="Greet by name")
    async def greet(ctx: Context) -> str:
        await ctx.report(1, total=2, message="asking")
        given = await ctx.elicit("Who?", FORM)
        return f"Hello {given['name']}"

    return server


@asynccontextmanager
async def searched(
    side: str, revision: Revision = LATEST, rules: AccessRules | None = None, principal: Any = ANYBODY, **options: Any
) -> AsyncIterator[tuple[Host, Peer]]:
    async with _hosted(side) as host:
        host.rules = rules
        async with peer(host, revision, principal=principal, **options) as client:
            yield host, client


@asynccontextmanager
async def _hosted(side: str) -> AsyncIterator[Host]:
    if side == "brokered":
        async with brokered(backend(made()), tool_search=True) as host:
            yield host
    else:
        async with made(search=True).host(parking=Parking("back")) as host:
            yield host


async def found_by(client: Peer, query: str = "", **more: Any) -> list[str]:
    found = await client.call("search_tools", query=query, **more)
    data = msgspec.json.decode(found["content"][0]["text"])
    if "structuredContent" in found:
        assert found["structuredContent"] == data
    return [tool["name"] for tool in data["tools"]]


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


@SIDES
@pytest.mark.parametrize("revision", sorted(ALL))
async def test_two_tools_are_listed_and_all_are_found_and_called(
    side: str, revision: Revision, autojump_clock: MockClock
) -> None:
    async with searched(side, revision) as (_, client):
        listed = await client.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["search_tools", "call_tool"]
        assert await found_by(client, "invoices for a customer") == ["send_invoice", "create_ticket", "erase"]
        assert await found_by(client, "problem") == ["create_ticket"]
        assert await found_by(client, "nothing like that") == []
        assert await found_by(client) == ["create_ticket", "send_invoice", "erase", "greet"]
        assert await found_by(client, limit=2) == ["create_ticket", "send_invoice"]
        called = await client.call("call_tool", name="send_invoice", arguments={"customer": "Bo"})
        assert text(called) == "invoice for Bo"
        assert text(await client.call("send_invoice", customer="Bo")) == "invoice for Bo"


@SIDES
async def test_what_is_found_has_its_schema(side: str, autojump_clock: MockClock) -> None:
    async with searched(side) as (_, client):
        found = await client.call("search_tools", query="invoice", limit=1)
        [tool] = found["structuredContent"]["tools"]
        assert tool["description"] == "Send an invoice"
        assert tool["inputSchema"]["required"] == ["customer"]
        assert found["structuredContent"]["matches"] == 2


@SIDES
@ERAS
async def test_what_rules_hide_is_neither_found_nor_called(
    side: str, revision: Revision, autojump_clock: MockClock
) -> None:
    hides = AccessRules([Rule(tools=["send_*"], only=(Condition(tenant=("other",)),))])
    async with searched(side, revision, hides, ADA) as (_, client):
        assert await found_by(client, "invoice") == ["erase"]
        with pytest.raises(Refusal, match="Unknown tool: send_invoice"):
            await client.call("call_tool", name="send_invoice", arguments={"customer": "Bo"})
    hidden = AccessRules([Rule(methods=["tools/list"], deny=True)])
    async with searched(side, revision, hidden, ADA) as (_, client):
        with pytest.raises(Refusal, match="tools/list is not supported"):
            await client.call("search_tools", query="invoice")
    denied = AccessRules([Rule(tools=["send_*"])], default="deny")
    async with searched(side, revision, denied, ADA) as (_, client):
        assert await found_by(client, "invoice") == ["send_invoice"]


@ERAS
async def test_scopes_are_those_of_the_tool_that_is_called(revision: Revision) -> None:
    async with searched("hosted", revision, principal=ADA) as (_, client):
        with pytest.raises(Refusal) as caught:
            await client.call("call_tool", name="erase")
        assert caught.value.data["requiredScopes"] == ["erase"]


@SIDES
async def test_quotas_count_the_tool_that_is_called(side: str, autojump_clock: MockClock) -> None:
    async with searched(side, principal=ADA) as (host, client):
        host.quotas = Quotas(QuotaSettings(tools={"send_*": Rate(1, 100)}))
        params = {"name": "send_invoice", "arguments": {"customer": "Bo"}}
        await client.call("call_tool", **params)
        with pytest.raises(Refusal):
            await client.call("call_tool", **params)
        await found_by(client, "invoice")


@SIDES
@ERAS
async def test_observers_see_the_tool_that_is_called(side: str, revision: Revision, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    class Watching:
        def over(self, slot: Any, error: str = "") -> None:
            seen.append((slot.method, slot.target))

        def backend_over(self, *_: Any) -> None: ...
        def session_over(self, *_: Any) -> None: ...
        def refuse(self, reason: str) -> None: ...

    async with searched(side, revision) as (host, client):
        host.observer = Watching()
        await client.call("call_tool", name="send_invoice", arguments={"customer": "Bo"})
        await client.call("search_tools")
    assert seen == [("tools/call", "send_invoice"), ("tools/call", "search_tools")]


@pytest.mark.parametrize("revision", [LATEST, max(LEGACY)])
async def test_tools_are_searched_over_http(revision: Revision) -> None:
    async with (
        serving(made(search=True)) as place,
        http.connect(f"http://127.0.0.1:{place.port}/mcp", revision=revision) as client,
    ):
        assert [tool.name for tool in await client.tools()] == ["search_tools", "call_tool"]
        assert "send_invoice" in str(await client.call("search_tools", query="invoice"))
        called = await client.call_with("call_tool", {"name": "send_invoice", "arguments": {"customer": "Bo"}})
        assert "invoice for Bo" in str(called)


@SIDES
@ERAS
async def test_a_call_of_which_a_person_must_approve_is_asked_for(
    side: str, revision: Revision, autojump_clock: MockClock
) -> None:
    asked: list[Any] = []

    def approve(params: Any) -> Any:
        asked.append(params["message"])
        return {"action": "accept", "content": {"approve": True}}

    rules = AccessRules([Rule(tools=["send_*"], approve="caller")])
    async with searched(side, revision, rules, ADA, answers={"elicitation/create": approve}) as (_, client):
        called = await client.call("call_tool", name="send_invoice", arguments={"customer": "Bo"})
        assert text(called) == "invoice for Bo"
    assert "send_invoice" in asked[0]
    assert "call_tool" not in asked[0]


@SIDES
@ERAS
async def test_questions_and_progress_pass(side: str, revision: Revision, autojump_clock: MockClock) -> None:
    answers = {"elicitation/create": lambda _: {"action": "accept", "content": {"name": "Ada"}}}
    async with searched(side, revision, answers=answers) as (_, client):
        assert text(await client.call("call_tool", name="greet", arguments={})) == "Hello Ada"
        params = {"name": "call_tool", "arguments": {"name": "greet"}}
        if revision in LEGACY:
            await client.request("tools/call", meta={"progressToken": 1}, **params)
            assert client.notifications("notifications/progress")[0]["message"] == "asking"


@ERAS
async def test_a_call_goes_on_as_a_task(revision: Revision, autojump_clock: MockClock) -> None:
    server = made(search=True)

    @server.tool(task="optional", task_after=1)
    async def slow() -> str:
        await trio.sleep(10)
        return "done"

    abilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with (
        server.host(parking=Parking("back")) as host,
        peer(host, revision, capabilities=abilities) as client,
    ):
        params: dict[str, Any] = {"name": "call_tool", "arguments": {"name": "slow"}}
        if revision is LATEST:
            created = await client.request("tools/call", **params)
            await trio.sleep(20)
            found = await client.request("tasks/get", taskId=created["taskId"])
            assert text(found["result"]) == "done"
        else:
            created = await client.request("tools/call", **params, task={})
            found = await client.request("tasks/result", taskId=created["task"]["taskId"])
            assert text(found) == "done"


async def test_tools_of_mounted_servers_are_found(autojump_clock: MockClock) -> None:
    main, other = Server("main", search=True), made(search=True)
    main.mount(other, prefix="back")
    async with main.host(parking=Parking("main")) as host, peer(host) as client:
        assert await found_by(client, "problem") == ["back__create_ticket"]
        called = await client.call("call_tool", name="back__send_invoice", arguments={"customer": "Bo"})
        assert text(called) == "invoice for Bo"
        with pytest.raises(Refusal):
            await client.call("back__search_tools")


async def test_the_list_that_is_searched_passes_through_middlewares() -> None:
    server, seen = made(search=True), []

    @server.middleware
    async def look(ctx: Context, go_on: GoOn) -> Model:
        seen.append((ctx.method, ctx.target, ctx.arguments))
        result: Any = await go_on()
        if ctx.method == "tools/list":
            result.tools[:] = [tool for tool in result.tools if tool.name != "erase"]
        return result  # type: ignore[no-any-return]

    async with server.host(parking=Parking("back")) as host, peer(host) as client:
        assert await found_by(client, "invoice") == ["send_invoice"]
        await client.call("call_tool", name="send_invoice", arguments={"customer": "Bo"})
    assert seen == [("tools/list", "", {}), ("tools/call", "send_invoice", {"customer": "Bo"})]


@SIDES
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("call_tool", {}, "invalid arguments for call_tool"),
        ("call_tool", {"name": 3}, "invalid arguments for call_tool"),
        ("call_tool", {"name": "greet", "extra": 1}, "invalid arguments for call_tool"),
        ("search_tools", {"query": "x" * 1_000_000}, f"at most {MAX_QUERY} characters"),
        ("search_tools", {"query": 3}, "invalid arguments for search_tools"),
        ("search_tools", {"limit": 0}, "limit is 1 to 50"),
        ("search_tools", {"limit": 10**6}, "limit is 1 to 50"),
    ],
)
async def test_what_is_asked_wrongly_is_said(
    side: str, tool: str, arguments: Any, words: str, autojump_clock: MockClock
) -> None:
    async with searched(side) as (_, client):
        found = await client.call(tool, **arguments)
        assert found["isError"]
        assert words in text(found)


@SIDES
async def test_arguments_that_are_no_object_and_tools_that_are_none_are_refused(
    side: str, autojump_clock: MockClock
) -> None:
    async with searched(side) as (_, client):
        for name in ("nothing", "call_tool" * 10_000):
            with pytest.raises(Refusal, match=f"Unknown tool: {name[:128]}"):
                await client.call("call_tool", name=name, arguments={})
        found = await client.call("call_tool", name="call_tool", arguments={"name": "greet"})
        assert "invalid arguments for call_tool" in text(found)
        with pytest.raises(Refusal, match="expected an object"):
            await client.call("call_tool", name="send_invoice", arguments=[1])
        assert await found_by(client, "problem") == ["create_ticket"]


async def test_a_tool_of_that_name_is_refused_at_the_start() -> None:
    server = Server("back", search=True)

    @server.tool
    async def call_tool() -> str:
        return ""

    with pytest.raises(ValueError, match="'call_tool': with search=True"):
        async with server.host():
            pass


async def test_ten_thousand_tools_are_searched_in_little_time_and_answers_are_bounded() -> None:
    server = Server("many", search=True)

    async def same(number: int) -> str:
        return str(number)

    for number in range(10_000):
        server.tool(name=f"tool_{number}", description=f"Does the thing number {number} {'so well ' * 10}")(same)
    server.tool(name="large", description="x" * MAX_FOUND_BYTES + " elephants")(same)
    async with server.host(parking=Parking("many")) as host, peer(host) as client:
        await found_by(client, "first")
        began = time.process_time()
        assert await found_by(client, "thing number 4711", limit=1) == ["tool_4711"]
        assert time.process_time() - began < 2
        assert text(await client.call("call_tool", name="tool_9999", arguments={"number": 3})) == "3"
        assert await found_by(client, "large thing", limit=5) == ["large"]


# The configuration of a broker.


def test_the_file_says_whether_tools_are_searched(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    for said, expected in (("true", True), ("false", False)):
        file.write_text(f'tool_search = {said}\n[servers.one]\ncommand = "true"\n')
        assert read_configuration(file).front.tool_search is expected
        assert Broker.of_file(file).tool_search is expected
    file.write_text('tool_search = "yes"\n[servers.one]\ncommand = "true"\n')
    with pytest.raises(BadConfiguration, match=r"servers\.toml:1: tool_search: must be true or false"):
        read_configuration(file)


async def test_a_reload_begins_to_search(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "servers.toml"
    file.write_text('tool_search = true\n[servers.one]\ncommand = "true"\n')
    broker = Broker([backend(made())])
    async with broker.host(parking=Parking("broker")) as host, peer(host, max(LEGACY)) as client:
        assert len((await client.request("tools/list"))["tools"]) == 4
        await broker.reload([*broker.specs.values()], read_configuration(file).front)
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        assert len((await client.request("tools/list"))["tools"]) == 2
        await broker.reload([*broker.specs.values()], read_configuration(file).front)
        await trio.testing.wait_all_tasks_blocked()


async def test_a_reload_also_begins_to_search_at_paths(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "servers.toml"
    file.write_text('tool_search = true\n[servers.one]\ncommand = "true"\n')
    broker = Broker([backend(made())])
    async with broker.host(parking=Parking("broker")) as host, peer(host) as front:
        await front.request("tools/list")  # the backend is there
        assert host.paths is not None
        narrow = host.paths.find(next(iter(broker.specs)), ANONYMOUS)
        assert narrow is not None
        async with peer(narrow, max(LEGACY)) as client:
            assert len((await client.request("tools/list"))["tools"]) == 4
            await broker.reload([*broker.specs.values()], read_configuration(file).front)
            assert (await client.hear())["method"] == "notifications/tools/list_changed"
            assert len((await client.request("tools/list"))["tools"]) == 2
            assert await found_by(client, "problem") == ["create_ticket"]


def test_words_of_pages_are_remembered_up_to_a_limit() -> None:
    pages = ToolSearch()._pages
    large = {"name": "a", "inputSchema": {"type": "object"}, "description": "x" * (MAX_REMEMBERED // 3)}
    for number in range(10):
        page = msgspec.json.encode([{**large, "name": f"tool{number}"}])
        found = pages.words_of(page)
        assert pages.words_of(page) is found
        assert pages.size <= MAX_REMEMBERED


@SIDES
async def test_arguments_that_are_null_are_none(side: str, autojump_clock: MockClock) -> None:
    async with searched(side) as (_, client):
        refused = await client.call("call_tool", name="send_invoice", arguments=None)
        assert "Invalid arguments for send_invoice" in text(refused)
