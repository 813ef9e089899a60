"""Lists and resources: followed page by page, kept as long as the server allows, and held to what tools promise."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import pytest
import structlog
import trio
from trio.testing import MockClock

from callboard.client import Client, connect
from callboard.client.cache import MAX_ENTRIES, MAX_KEPT, MAX_PAGES, MAX_TTL
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.errors import BadAnswer, ServerRefused
from tests.client.stage import CACHED, Json, Puppet, played

EVERY: Final = [R1, R2, R3, R4, R5]

LISTS: Final[dict[str, tuple[str, Callable[[Client], Awaitable[Sequence[Any]]], Callable[[str], Json]]]] = {
    "tools/list": ("tools", Client.tools, lambda name: {"name": name, "inputSchema": {"type": "object"}}),
    "prompts/list": ("prompts", Client.prompts, lambda name: {"name": name}),
    "resources/list": ("resources", Client.resources, lambda name: {"name": name, "uri": f"x://{name}"}),
    "resources/templates/list": (
        "resourceTemplates",
        Client.templates,
        lambda name: {"name": name, "uriTemplate": f"x://{name}/{{id}}"},
    ),
}
every_list = pytest.mark.parametrize("method", LISTS)


def extra(puppet: Puppet, **more: Any) -> Json:
    return {**CACHED, **more} if puppet.is_modern else {}


# Pages.


@every_list
@pytest.mark.parametrize("revision", EVERY)
@pytest.mark.requirement("M236", "M237", "M238", "L201", "L202")
async def test_pages_of_any_size_are_followed_by_cursors_that_nobody_looks_into(
    method: str, revision: Revision, autojump_clock: MockClock
) -> None:
    member, ask, item = LISTS[method]
    pages = [(["a", "b", "c"], "ZmVsZCBtZSE= \u00fc"), ([], ""), (["d"], "3"), (["e"], None)]
    cursors: list[Any] = []

    async def play(puppet: Puppet) -> None:
        for names, cursor in pages:
            request = await puppet.hear(method)
            cursors.append(request["params"].get("cursor"))
            following = {} if cursor is None else {"nextCursor": cursor}
            await puppet.answer(request, **{member: [item(name) for name in names]}, **following, **extra(puppet))

    async with connect(played(play, revision)) as client:
        assert [one.name for one in await ask(client)] == ["a", "b", "c", "d", "e"]
    assert cursors == [None, "ZmVsZCBtZSE= \u00fc", "", "3"]


async def pages_followed(entries: int, words: str) -> int:
    """How many pages with *entries* each a client reads of a list without an end, before it refuses with *words*."""
    pages = 0

    async def play(puppet: Puppet) -> None:
        nonlocal pages
        while True:
            request = await puppet.hear("prompts/list")
            pages += 1
            names = [{"name": f"{pages}-{number}"} for number in range(entries)]
            await puppet.answer(request, prompts=names, nextCursor="again", **extra(puppet))

    async with connect(played(play)) as client:
        with pytest.raises(BadAnswer, match=words):
            await client.prompts()
    return pages


async def test_a_list_without_an_end_is_not_followed_for_ever(autojump_clock: MockClock) -> None:
    assert await pages_followed(0, "more than 1000 pages") == MAX_PAGES


async def test_a_list_of_more_than_anybody_offers_is_not_followed_to_its_end(autojump_clock: MockClock) -> None:
    assert await pages_followed(30_000, f"more than {MAX_ENTRIES} entries") == MAX_ENTRIES // 30_000 + 1


@pytest.mark.requirement("M220")
async def test_a_cursor_that_is_no_longer_known_begins_the_list_anew_once(autojump_clock: MockClock) -> None:
    cursors: list[Any] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("prompts/list")
            cursors.append(request["params"].get("cursor"))
            if "cursor" in request["params"]:
                await puppet.refuse(request, -32602, "what cursor?")
            elif len(cursors) == 1:
                await puppet.answer(request, prompts=[{"name": "old"}], nextCursor="gone", **extra(puppet, ttlMs=9999))
            else:
                await puppet.answer(request, prompts=[{"name": "new"}], **extra(puppet))

    async with connect(played(play)) as client:
        assert [prompt.name for prompt in await client.prompts()] == ["new"]
    assert cursors == [None, "gone", None]


async def test_a_cursor_that_is_never_known_is_an_error(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("prompts/list")
            if "cursor" in request["params"]:
                await puppet.refuse(request, -32602, "what cursor?")
            else:
                await puppet.answer(request, prompts=[], nextCursor="x", **extra(puppet))

    async with connect(played(play)) as client:
        with pytest.raises(ServerRefused, match="what cursor"):
            await client.prompts()


# Keeping.


async def counting(puppet: Puppet, asked: list[str], change: Json | None = None, **cache: Any) -> None:
    """Answers lists and reads, each with its own number in it; a call says that there is a *change*."""
    while True:
        request = await puppet.hear("tools/list", "resources/read", "tools/call")
        if request["method"] == "tools/call":
            await puppet.say(**(change or {}))
            await puppet.answer(request, content=[])
            continue
        number = len(asked)
        asked.append(request["params"].get("uri", "tools"))
        if request["method"] == "tools/list":
            await puppet.answer(
                request, tools=[{"name": f"t{number}", "inputSchema": {"type": "object"}}], **extra(puppet, **cache)
            )
        else:
            contents = [{"uri": request["params"]["uri"], "text": str(number)}]
            await puppet.answer(request, contents=contents, **extra(puppet, **cache))


@pytest.mark.requirement("M219", "M213")
async def test_what_may_be_kept_is_kept_to_the_moment_and_for_its_own_question_alone(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        await counting(puppet, asked, ttlMs=5000)

    async with connect(played(play)) as client:
        for _ in range(3):
            assert [tool.name for tool in await client.tools()] == ["t0"]
            assert "text='1'" in str(await client.read("x://a"))
            assert "text='2'" in str(await client.read("x://b"))
        await trio.sleep(4.999)
        await client.tools()
        assert asked == ["tools", "x://a", "x://b"]
        await trio.sleep(0.001)
        assert [tool.name for tool in await client.tools()] == ["t3"]


@pytest.mark.parametrize(
    ("revision", "ttl", "kept"),
    [(R5, 0, 0.0), (R5, -5, 0.0), (R5, 10**12, MAX_TTL), (R4, None, 0.0), (R1, None, 0.0)],
)
async def test_nothing_is_kept_that_may_not_be_and_nothing_for_ever(
    revision: Revision, ttl: int | None, kept: float, autojump_clock: MockClock
) -> None:
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        await counting(puppet, asked, ttlMs=ttl)

    async with connect(played(play, revision)) as client:
        await client.tools()
        if kept:
            await trio.sleep(kept - 1)
            await client.tools()
            assert len(asked) == 1
            await trio.sleep(1)
        await client.tools()
        assert len(asked) == 2


async def test_how_many_resources_are_kept_is_bounded(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        await counting(puppet, asked, ttlMs=60_000)

    async with connect(played(play)) as client:
        for number in range(MAX_KEPT + 1):
            await client.read(f"x://{number}")
        await client.read(f"x://{MAX_KEPT}")
        assert len(asked) == MAX_KEPT + 1
        await client.read("x://0")
        assert len(asked) == MAX_KEPT + 2


@pytest.mark.parametrize(
    ("method", "params", "again"),
    [
        ("notifications/tools/list_changed", {}, ["tools"]),
        ("notifications/resources/updated", {"uri": "x://a"}, ["x://a"]),
        ("notifications/resources/updated", {"uri": "x://a/part"}, ["x://a"]),
        ("notifications/resources/updated", {"uri": "x://other"}, []),
        ("notifications/prompts/list_changed", {}, []),
    ],
)
async def test_a_change_makes_what_it_is_about_stale_at_once(
    method: str, params: Json, again: list[str], autojump_clock: MockClock
) -> None:
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        await counting(puppet, asked, {"method": method, "params": params}, ttlMs=60_000)

    async with connect(played(play)) as client:
        await client.tools()
        await client.read("x://a")
        await client.call("change")
        await client.tools()
        await client.read("x://a")
    assert asked[2:] == again


@pytest.mark.parametrize(
    ("method", "params", "kept"),
    [
        ("notifications/tools/list_changed", {}, False),
        ("notifications/resources/updated", {"uri": "x://a"}, False),
        ("notifications/prompts/list_changed", {}, True),
    ],
)
async def test_a_change_that_overtakes_an_answer_makes_that_stale_too(
    method: str, params: Json, kept: bool, autojump_clock: MockClock
) -> None:
    """What the server wrote before the change may be read after it, on another way."""
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("tools/list", "resources/read")
            asked.append(request["method"])
            await puppet.say(method=method, params=params)
            cache = extra(puppet, ttlMs=60_000)
            if request["method"] == "tools/list":
                await puppet.answer(request, tools=[], **cache)
            else:
                await puppet.answer(request, contents=[], **cache)

    async with connect(played(play)) as client:
        for ask in (client.tools, client.tools, lambda: client.read("x://a"), lambda: client.read("x://a")):
            await ask()
    of_change = "resources/read" if "uri" in params else "tools/list"
    assert asked.count(of_change) == (1 if kept else 2)
    assert len(asked) == (2 if kept else 3)


async def test_a_list_is_as_old_as_its_oldest_page(autojump_clock: MockClock) -> None:
    asked = 0

    async def play(puppet: Puppet) -> None:
        nonlocal asked
        while True:
            request = await puppet.hear("prompts/list")
            asked += 1
            if "cursor" in request["params"]:
                await trio.sleep(4)
                await puppet.answer(request, prompts=[], **extra(puppet, ttlMs=60_000))
            else:
                await puppet.answer(request, prompts=[], nextCursor="2", **extra(puppet, ttlMs=5000))

    async with connect(played(play)) as client:
        await client.prompts()
        await trio.sleep(0.999)
        await client.prompts()
        assert asked == 2
        await trio.sleep(0.001)
        await client.prompts()
        assert asked == 4


@pytest.mark.requirement("M216")
async def test_what_one_client_keeps_no_other_one_sees(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def play(puppet: Puppet) -> None:
        await counting(puppet, asked, ttlMs=60_000, cacheScope="private")

    for _ in range(2):
        async with connect(played(play)) as client:
            await client.read("x://a")
    assert len(asked) == 2


# What tools promise.


def tool(**output: Any) -> Json:
    return {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": output}


async def calling(schema: Json, result: Json, revision: Revision = R5) -> Any:
    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("tools/list", "tools/call")
            if request["method"] == "tools/list":
                await puppet.answer(request, tools=[tool(**schema)], **extra(puppet))
            else:
                await puppet.answer(request, **result)

    async with connect(played(play, revision)) as client:
        await client.tools()
        return await client.call("x")


COUNT: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("revision", [R3, R4, R5])
@pytest.mark.requirement("M264", "M045", "L013")
async def test_a_result_that_is_what_the_tool_promises_is_taken(revision: Revision, autojump_clock: MockClock) -> None:
    result = await calling(COUNT, {"content": [], "structuredContent": {"n": 1}}, revision)
    assert result.structured_content == {"n": 1}


@pytest.mark.parametrize("revision", [R3, R4, R5])
@pytest.mark.parametrize("result", [{"structuredContent": {"n": "one"}}, {"structuredContent": {}}, {}])
@pytest.mark.requirement("M264", "M046", "L014")
async def test_a_result_that_is_not_is_no_answer(revision: Revision, result: Json, autojump_clock: MockClock) -> None:
    with pytest.raises(BadAnswer, match="x: the result does not match the tool's output schema"):
        await calling(COUNT, {"content": [], **result}, revision)


async def changing(schemas: list[Json], result: Json, **cache: Any) -> tuple[Any, int]:
    """Calls a tool that promises one thing after the other: the result, and how often the list was asked for."""
    asked = 0

    async def play(puppet: Puppet) -> None:
        nonlocal asked
        while True:
            request = await puppet.hear("tools/list", "tools/call")
            if request["method"] == "tools/list":
                promised = tool(**schemas[min(asked, len(schemas) - 1)])
                asked += 1
                await puppet.answer(request, tools=[promised], **extra(puppet, **cache))
            else:
                await puppet.answer(request, **result)

    async with connect(played(play)) as client:
        await client.tools()
        try:
            return await client.call("x"), asked
        except BadAnswer:
            return None, asked


@pytest.mark.parametrize(("said", "is_taken"), [({"n": 1}, True), ({"n": "one"}, False)])
async def test_what_a_tool_promises_is_asked_for_if_nobody_has_asked(
    said: Json, is_taken: bool, autojump_clock: MockClock
) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("tools/list", "tools/call")
            heard.append(request["method"])
            if request["method"] == "tools/list":
                await puppet.answer(request, tools=[tool(**COUNT)], **extra(puppet, ttlMs=60_000))
            else:
                await puppet.answer(request, content=[], structuredContent=said)

    async with connect(played(play)) as client:
        for _ in range(2):
            with nullcontext() if is_taken else pytest.raises(BadAnswer):
                await client.call("x")
    assert heard == ["tools/call", "tools/list", "tools/call"]


async def test_results_are_taken_as_they_come_if_that_is_wanted(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("tools/list"), tools=[tool(**COUNT)], **extra(puppet))
        for _ in range(2):
            await puppet.answer(await puppet.hear("tools/call"), content=[], structuredContent={"n": "one"})

    async with connect(played(play), check_results=False) as client:
        await client.tools()
        for _ in range(2):
            assert (await client.call("x")).structured_content == {"n": "one"}


async def test_a_result_is_taken_from_a_server_that_does_not_list_its_tools(autojump_clock: MockClock) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("tools/list", "tools/call")
            heard.append(request["method"])
            if request["method"] == "tools/list":
                await puppet.refuse(request, -32601, "no such method")
            else:
                await puppet.answer(request, content=[], structuredContent={})

    async def call(client: Client) -> None:
        assert (await client.call("x")).structured_content == {}

    async with connect(played(play)) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call, client)
        await call(client)
    assert sorted(heard) == [*["tools/call"] * 6, "tools/list"], "it is asked once"


async def test_a_result_is_held_to_what_the_tool_promises_by_now(autojump_clock: MockClock) -> None:
    words = {"type": "object", "properties": {"n": {"type": "string"}}}
    result = {"content": [], "structuredContent": {"n": "one"}}
    told, asked = await changing([COUNT, words], result)
    assert told.structured_content == {"n": "one"}
    assert asked == 2
    assert await changing([COUNT, COUNT], result) == (None, 2)
    assert await changing([COUNT, words], result, ttlMs=60_000) == (None, 1)  # which it said to hold for a minute


async def test_a_failure_need_not_be_what_was_promised(autojump_clock: MockClock) -> None:
    assert (await calling(COUNT, {"content": [], "isError": True})).is_error


async def test_null_is_a_result_like_any_other(autojump_clock: MockClock) -> None:
    assert (await calling({"type": "null"}, {"content": [], "structuredContent": None})).structured_content is None
    with pytest.raises(BadAnswer):
        await calling({"type": "null"}, {"content": []})


@pytest.mark.requirement("M047", "L016")
@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.org/my-own-dialect", "type": "object"},
        {"type": "object", "$ref": "https://example.org/schema.json"},
        {"type": 7},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": r"(?=(a+))\1b"}}},
    ],
)
async def test_a_promise_that_cannot_be_understood_is_said_so_and_holds_nobody_up(
    schema: Json, autojump_clock: MockClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        assert (await calling(schema, {"content": [], "structuredContent": {}})).structured_content == {}
    [line] = [line for line in logs if line["event"] == "output_schema_unusable"]
    assert line["tool"] == "x"
    assert line["reason"]


async def test_a_promise_that_takes_for_ever_to_check_is_not_checked(autojump_clock: MockClock) -> None:
    defs = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(60)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**defs, "a60": {"type": "object"}}}
    with structlog.testing.capture_logs() as logs:
        assert (await calling(schema, {"content": [], "structuredContent": {}})).structured_content == {}
    assert [line["tool"] for line in logs if line["event"] == "output_not_validated"] == ["x"]
