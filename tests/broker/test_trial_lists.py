"""Backends whose lists are odd, huge, hostile or never there: each harms itself, and what clients get is valid."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import msgspec
import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.broker import BrokerActor
from callboard.actors.broker.listing import EVERY, MAX_LISTS, MAX_TOLD, PROMPT
from callboard.actors.server.host import Host
from callboard.broker import Broker
from callboard.codecs.bridge import guard
from callboard.codecs.bridge.definitions import digest_of
from callboard.codecs.bridge.guard import MAX_DEFINITION
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.errors import BACKEND_GONE
from callboard.testing import Refusal
from tests.broker.back import Back, Line, text, tool
from tests.broker.front import backend, brokered, peer
from tests.by_the_book import judged, validator
from tests.client.stage import CACHED, Json
from tests.shared import PROTOCOL

NEVER: Final = object()
"""What a list is answered with: not at all."""


@attrs.define(eq=False)
class Odd(Back):
    """A backend that answers some methods in its own way: with a result, with an error, or never."""

    odd: dict[str, Any] = attrs.field(factory=dict)

    async def _take(self, line: Line, message: Json) -> None:
        method = message.get("method", "")
        if method not in self.odd:
            await super()._take(line, message)
        elif isinstance(said := self.odd[method], int):
            await line.refuse(message, said, "boom")
        elif said is not NEVER:
            extra = CACHED if self.is_modern else {}
            await line.answer(message, **{**extra, **said})


@asynccontextmanager
async def beside(odd: Back, **said: Any) -> AsyncIterator[Host]:
    """A broker with a healthy backend, and an odd one before and after it in the order of lists."""
    good = Back(tools=[tool("good")], prompts=(), resources=({"uri": "good://one", "name": "one"},))
    async with (
        brokered(backend(odd.ways, "odd", **said), backend(good.ways, "good")) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_answer, good)
        yield host
        nursery.cancel_scope.cancel()


async def _answer(good: Back) -> None:
    while True:
        line, request = await good.hear()
        await line.answer(request, **text("fine"))


async def listed(host: Host, method: str = "tools/list", revision: Revision = LATEST) -> list[Json]:
    """All pages of a list, each of them valid to the letter."""
    found: list[Json] = []
    async with peer(host, revision, capabilities={}) as client:
        cursor: dict[str, Any] = {}
        while True:
            result = await client.request(method, **cursor)
            if PROTOCOL.is_dir():
                for name, value in judged(revision, {"jsonrpc": "2.0", "id": 1, "result": result}, {1: method}):
                    validator(revision, name).validate(value)
            found += next(value for key, value in result.items() if key in LISTS)
            if "nextCursor" not in result:
                return found
            cursor = {"cursor": result["nextCursor"]}


LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")


async def names(host: Host, method: str = "tools/list", revision: Revision = LATEST) -> list[str]:
    key = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}.get(method, "name")
    return [one[key] for one in await listed(host, method, revision)]


async def works(host: Host) -> bool:
    async with peer(host) as client:
        return bool((await client.call("good"))["content"][0]["text"] == "fine")


HOSTILE: Final[Mapping[str, Any]] = {
    "a list": ["x-mcp-header"],
    "a text": "x-mcp-header",
    "a number": 7,
    "another type": {"type": "string"},
    "an unhashable type": {"type": {"x-mcp-header": 1}},
    "a header on a list": {"type": "object", "properties": {"x": {"type": ["string"], "x-mcp-header": "X"}}},
    "a header that is no text": {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": {}}}},
    "a header deep down": {"type": "object", "items": [[{"x-mcp-header": "X"}]], "anyOf": [{"x-mcp-header": "X"}]},
}


@pytest.mark.finding("security-1")
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_definition_that_cannot_be_read_costs_itself_alone(
    schema: Any, is_late: bool, autojump_clock: MockClock
) -> None:
    bad = {"name": "bad", "inputSchema": schema}
    odd = Back(tools=[tool("own")] if is_late else [bad, tool("own")])
    async with beside(odd) as host:
        if is_late:
            odd.tools = [bad, tool("own")]
            await odd.lines[0].tell("notifications/tools/list_changed")
            await trio.sleep(5)
        assert await names(host) == ["own", "good"]
        assert await works(host)
        odd.tools = [tool("mended")]
        await odd.lines[0].tell("notifications/tools/list_changed")
        await trio.sleep(15)
        assert await names(host) == ["mended", "good"]


@pytest.mark.finding("security-1")
async def test_what_breaks_our_own_code_is_left_out_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(schema: Any) -> Any:
        if schema == {"type": "object", "title": "bad"}:
            raise ZeroDivisionError
        return schema

    monkeypatch.setattr(guard, "mend_input_schema", broken)
    odd = Back(tools=[tool("bad", inputSchema={"type": "object", "title": "bad"}), tool("own")])
    with structlog.testing.capture_logs() as logs:
        async with beside(odd) as host:
            assert await names(host) == ["own", "good"]
    [line] = [line for line in logs if line["event"] == "definition_left_out"]
    assert (line["backend"], line["name"], line["kind"]) == ("odd", "'bad'", "tool")
    assert "ZeroDivisionError" in line["reason"]


SLOPPY: Final[Mapping[str, Json]] = {
    "no schema": {"name": "own"},
    "an empty schema": {"name": "own", "inputSchema": {}},
    "a schema of PHP": {"name": "own", "inputSchema": {"type": "object", "properties": [], "required": []}},
    "an empty schema of PHP": {"name": "own", "inputSchema": []},
    "a schema of Go": {"name": "own", "inputSchema": {"type": "object", "properties": None, "required": None}},
    "a schema that is true": {"name": "own", "inputSchema": True},
    "two types": {"name": "own", "inputSchema": {"type": ["object", "null"]}},
    "schemas that are true": {"name": "own", "inputSchema": {"properties": {"a": True, "b": False, "c": None}}},
    "a wrong dialect": {"name": "own", "inputSchema": {"$schema": 4}, "outputSchema": {"$schema": 4}},
    "wrong requirements": {"name": "own", "inputSchema": {"required": True}, "outputSchema": {"required": [1]}},
    "nulls": {
        "name": "own",
        "inputSchema": {"type": "object"},
        **dict.fromkeys(["title", "description", "annotations", "icons", "outputSchema", "_meta", "execution"]),
    },
    "nulls inside": {
        "name": "own",
        "inputSchema": {"type": "object"},
        "annotations": {"title": None, "readOnlyHint": None},
        "icons": [{"src": "https://example.com/i.png", "mimeType": None, "sizes": None, "theme": None}],
    },
    "wrong types": {
        "name": "own",
        "inputSchema": {"type": "object"},
        "outputSchema": 7,
        "title": 7,
        "description": ["x"],
        "annotations": {"readOnlyHint": "yes"},
        "icons": "no",
        "_meta": [1],
        "execution": {"taskSupport": "maybe"},
    },
    "an output that is no object": {"name": "own", "inputSchema": {}, "outputSchema": {"type": "array"}},
    "an output with wrong properties": {
        "name": "own",
        "outputSchema": {"type": "object", "properties": {"x": "string"}},
    },
}


@pytest.mark.finding("protocol-1.1")
@pytest.mark.parametrize("definition", SLOPPY.values(), ids=SLOPPY)
async def test_a_sloppy_tool_is_shown_in_a_form_that_every_client_takes(
    definition: Json, autojump_clock: MockClock
) -> None:
    async with beside(Back(revision=R4, tools=[definition])) as host:
        for revision in (R1, R3, R4, R5):
            assert await names(host, revision=revision) == ["own", "good"]
        assert (await listed(host))[0]["inputSchema"]["type"] == "object"


@pytest.mark.finding("protocol-1.1")
@pytest.mark.parametrize("revision", [R1, R3, R4, R5])
async def test_sloppy_prompts_and_resources_are_shown_in_a_valid_form(
    revision: Revision, autojump_clock: MockClock
) -> None:
    odd = Back(
        prompts=[
            {"name": "p", "arguments": [{"name": "a", "description": None, "required": None}], "title": None},
            {"name": "q", "arguments": {}, "description": 7},
            {"name": "r", "arguments": [{"required": True}]},
        ],
        resources=[
            {"uri": "odd://nameless"},
            {"uri": "odd://two", "name": None, "size": "large", "mimeType": None, "annotations": {"priority": 7}},
            {"uri": "no scheme", "name": "x"},
            {"uri": "path/only", "name": "x"},
            {"uri": 7, "name": "x"},
        ],
        templates=[{"uriTemplate": "odd://{a}"}, {"uriTemplate": "odd://{", "name": "x"}, {"name": "x"}],
    )
    async with beside(odd) as host:
        assert await names(host, "prompts/list", revision) == ["p", "q", "r"]
        assert await names(host, "resources/list", revision) == ["odd://nameless", "odd://two", "good://one"]
        assert await names(host, "resources/templates/list", revision) == ["odd://{a}"]


@pytest.mark.finding("protocol-1.2")
@pytest.mark.parametrize("answer", [{"prompts": None}, {}, {"prompts": {}}, {"prompts": "x"}, -32603, -32601, NEVER])
@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_list_that_fails_costs_that_list_alone(
    answer: Any, revision: Revision, autojump_clock: MockClock
) -> None:
    odd = Odd(revision, tools=[tool("own")], odd={"prompts/list": answer})
    async with beside(odd) as host:
        assert await names(host) == ["own", "good"]
        assert await names(host, "resources/list") == ["notes://one", "good://one"]
        assert await names(host, "prompts/list") == []
        assert await works(host)
        await trio.sleep(600)
        assert len(odd.lines) == 1  # never restarted because of it
        odd.odd.clear()
        odd.tools = [tool("new")]
        await odd.lines[0].tell("notifications/tools/list_changed")
        await odd.lines[0].tell("notifications/prompts/list_changed")
        await trio.sleep(90)
        assert await names(host) == ["new", "good"]  # not kept waiting by the other one
        assert await names(host, "prompts/list") == ["brief"]


@pytest.mark.finding("protocol-1.2")
async def test_a_list_that_fails_later_stays_as_it_was_and_is_read_again(autojump_clock: MockClock) -> None:
    odd = Odd(tools=[tool("own")])
    async with beside(odd) as host:
        odd.odd["tools/list"] = -32603
        await odd.lines[0].tell("notifications/tools/list_changed")
        await trio.sleep(20)
        assert await names(host) == ["own", "good"]
        del odd.odd["tools/list"]
        odd.tools = [tool("new")]
        await trio.sleep(60)
        assert await names(host) == ["new", "good"]


@pytest.mark.finding("protocol-1.2")
async def test_a_backend_that_answers_no_list_at_all_is_started_anew(autojump_clock: MockClock) -> None:
    odd = Odd(tools=[tool("own")])
    odd.odd = dict.fromkeys(["tools/list", "prompts/list", "resources/list", "resources/templates/list"], NEVER)
    async with beside(odd, timeout=30.0) as host:
        assert await works(host)
        odd.odd = {}
        await trio.sleep(60)
        assert len(odd.lines) == 2
        assert await names(host) == ["own", "good"]


@attrs.define(eq=False)
class Paged(Back):
    """A backend whose tools come in pages that it makes up as it goes."""

    pages: int = 10**9
    """How many there are."""
    each: Sequence[Json] = ()

    async def _take(self, line: Line, message: Json) -> None:
        if message.get("method") != "tools/list":
            return await super()._take(line, message)
        number = int(message.get("params", {}).get("cursor", "0"))
        following = {} if number + 1 >= self.pages else {"nextCursor": str(number + 1)}
        tools = [{**one, "name": f"{one['name']}{number}"} for one in self.each]
        extra = CACHED if self.is_modern else {}
        return await line.answer(message, tools=tools, **following, **extra)


@pytest.mark.finding("security-6")
async def test_fat_definitions_do_not_keep_others_from_being_listed(autojump_clock: MockClock) -> None:
    fat = [tool(f"fat{number}", description="x" * 3_900_000) for number in range(3)]
    with structlog.testing.capture_logs() as logs:
        async with beside(Back(tools=[*fat, tool("own")])) as host:
            for revision in (R4, R5):
                assert await names(host, revision=revision) == ["own", "good"]
    assert len([line for line in logs if line["event"] == "definition_left_out"]) == 3


@pytest.mark.finding("security-6")
async def test_the_lists_of_a_backend_are_bounded_in_bytes_and_paged_by_them() -> None:
    # In real time: definitions are examined in threads, for which no clock of Trio's waits.
    large = [tool(f"t{number}-", title="x" * 40_000) for number in range(50)]
    with structlog.testing.capture_logs() as logs:
        async with beside(Paged(each=large)) as host:
            found = await listed(host)
            async with peer(host) as client:
                page = await client.request("tools/list")
    assert found[-1]["name"] == "good"
    assert 0.9 * MAX_LISTS < len(msgspec.json.encode(found)) < 1.1 * MAX_LISTS
    assert len(msgspec.json.encode(page)) < 1024 * 1024
    [cut] = [line for line in logs if line["event"] == "list_truncated"]
    assert cut["backend"] == "odd"


@pytest.mark.finding("security-6", "security-23")
@pytest.mark.parametrize("each", [[], [tool("x")]], ids=["empty", "one"])
async def test_a_list_without_an_end_is_cut(each: list[Json], autojump_clock: MockClock) -> None:
    odd = Paged(each=each)
    async with beside(odd) as host:
        found = await names(host)
        assert found[-1] == "good"
        assert len(found) == 1 + 1000 * len(each)
        assert len(odd.told("tools/list")) == 1000


@pytest.mark.finding("security-6", "security-23")
async def test_a_flood_of_changes_is_read_now_and_then_and_told_of_only_if_there_is_another_list(
    autojump_clock: MockClock,
) -> None:
    odd = Back(tools=[tool("own")])
    async with beside(odd) as host, peer(host, R4) as client:
        for _ in range(600):
            await odd.lines[0].tell("notifications/tools/list_changed")
            await trio.sleep(0.1)
        assert len(odd.told("tools/list")) < PROMPT + 60 / EVERY + 3
        await client.request("ping")
        told = [message["method"] for message in client.heard if "method" in message]
        assert len(told) <= PROMPT  # of the first ones: something may have come and gone
        client.heard.clear()
        odd.tools = [tool("other")]
        await odd.lines[0].tell("notifications/tools/list_changed")
        await trio.sleep(10)
        await client.request("ping")
        told = [message["method"] for message in client.heard if "method" in message]
        assert told == ["notifications/tools/list_changed"]
        assert await names(host) == ["other", "good"]


@pytest.mark.finding("security-6")
async def test_a_definition_is_examined_once_for_as_long_as_it_stays_the_same(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def counted(members: Any) -> str:
        seen.append(msgspec.json.decode(members["name"]))
        return digest_of(members)

    monkeypatch.setattr(guard, "digest_of", counted)
    odd = Back(tools=[tool("a"), tool("b")])
    async with beside(odd) as host:
        odd.tools = [tool("b"), tool("c"), tool("a")]
        await odd.lines[0].tell("notifications/tools/list_changed")
        await trio.sleep(1)
        assert await names(host) == ["b", "c", "a", "good"]
    assert sorted(seen) == ["a", "b", "c", "good"]


async def test_of_many_definitions_that_are_left_out_the_first_are_named_and_the_others_counted(
    autojump_clock: MockClock,
) -> None:
    odd = Back(tools=[{"name": f"bad{number}", "inputSchema": 7} for number in range(100)])
    with structlog.testing.capture_logs() as logs:
        async with beside(odd) as host:
            for _ in range(3):
                await odd.lines[0].tell("notifications/tools/list_changed")
                await trio.sleep(20)
            assert await names(host) == ["good"]
    assert len([line for line in logs if line["event"] == "definition_left_out"]) == MAX_TOLD
    assert [line["more"] for line in logs if line["event"] == "definitions_left_out"] == [100 - MAX_TOLD]


@pytest.mark.finding("security-7")
@pytest.mark.parametrize("template", ["x://{a}{b}", "{a}{b}", "good://{a}{b}", "x://{;a}", "x://{a:3}"])
async def test_a_template_that_cannot_be_matched_is_listed_and_in_nobodys_way(
    template: str, autojump_clock: MockClock
) -> None:
    odd = Back(resources=(), templates=[{"uriTemplate": template, "name": "x"}])
    good = Back(resources=({"uri": "good://one", "name": "one"},))
    async with brokered(backend(odd.ways, "odd"), backend(good.ways, "good")) as host, peer(host) as client:
        assert await names(host, "resources/templates/list") == [template]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, good)
            found = await client.request("resources/read", uri="good://one")
        assert found["contents"][0]["text"] == "read"
        if template.startswith("x"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read, good)
                found = await client.request("resources/read", uri="good://unlisted")
            assert found["contents"][0]["text"] == "read"


async def _read(good: Back) -> None:
    line, request = await good.hear("resources/read")
    await line.answer(request, contents=[{"uri": request["params"]["uri"], "text": "read"}], **CACHED)


@pytest.mark.finding("faults-low-never-up")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_what_a_backend_has_that_never_came_up_is_not_unknown_but_out_of_reach(
    method: str, autojump_clock: MockClock
) -> None:
    down = Back()
    down.is_down = True
    async with (
        brokered(backend(down.ways, "down", prefix=None), backend(Back().ways, "up", prefix=None)) as host,
        peer(host) as client,
    ):
        with pytest.raises(Refusal) as caught:
            await client.request(method, name="down__book")
        assert caught.value.code == BACKEND_GONE
        assert caught.value.data["backend"] == "down"
        for name in ("up__nothing", "down", "other__book"):
            with pytest.raises(Refusal) as caught:
                await client.request(method, name=name)
            assert caught.value.code == -32602


@pytest.mark.finding("faults-low-backend-restart")
@pytest.mark.parametrize("crashing", [Backend, BrokerActor])
async def test_a_backend_whose_actor_crashes_comes_back_and_so_does_the_broker(
    crashing: type[Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Back(tools=[tool("own")])
    listed_ = crashing._listed
    crashes = ["first", "second"]

    def crash(self: Any, *named: str) -> None:
        if crashes and (named or (self.name,)) == ("odd",):
            raise ZeroDivisionError(crashes.pop())
        listed_(self, *named)

    monkeypatch.setattr(crashing, "_listed", crash)
    async with beside(odd) as host:
        assert await works(host)
        await trio.sleep(10)
        assert not crashes
        assert await names(host) == ["own", "good"]
        assert len([line for line in odd.lines if not line.told("tools/list")]) == 0
        async with peer(host) as client, trio.open_nursery() as nursery:
            nursery.start_soon(_answer_once, odd)
            assert (await client.call("own"))["content"][0]["text"] == "own"


async def _answer_once(odd: Back) -> None:
    line, request = await odd.hear()
    await line.answer(request, **text("own"))


@pytest.mark.finding("faults-low-reload-ended", "security-1")
async def test_a_backend_that_has_ended_by_itself_does_not_keep_others_from_being_configured(
    autojump_clock: MockClock,
) -> None:
    gone, stays, new = Back(tools=[tool("gone")]), Back(tools=[tool("stays")]), Back(tools=[tool("new")])
    specs = [backend(gone.ways, "gone"), backend(stays.ways, "stays")]
    broker = Broker(specs)
    async with broker.host() as host:
        assert broker.tree is not None
        await broker.tree.supervisor_of("backends").child("gone").stop()
        await broker.reload([specs[1], backend(new.ways, "new")])
        await trio.sleep(5)
        assert await names(host) == ["stays", "new"]


async def test_a_definition_at_the_limit_is_shown_and_one_above_it_is_not() -> None:
    empty = len(msgspec.json.encode(tool("x", title="")))
    exact, over = (
        tool(name, title="x" * size) for name, size in (("x", MAX_DEFINITION - empty), ("y", MAX_DEFINITION))
    )
    async with beside(Back(tools=[exact, over])) as host:
        assert await names(host) == ["x", "good"]
