"""Interceptors of a broker: the middleware of its servers, and results that are too large to be passed on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard import Context, Extension, ToolError
from callboard import client as http
from callboard.broker import Broker
from callboard.broker.interceptors import load_interceptors
from callboard.codecs.revisions import LATEST, CallToolResult, ListToolsResult, Model, Result, Revision, TextContent
from callboard.codecs.revisions.revision import R1, R3, R4
from callboard.config import BadConfiguration, read_configuration
from callboard.errors import CannotServe
from callboard.server import GoOn, Middleware, Server, Skills
from callboard.testing import Refusal
from tests.broker.back import text
from tests.broker.front import backend, brokered, peer
from tests.broker.rules_stage import ALICE, made
from tests.broker.task_stage import back_with_tasks, create, fetch
from tests.broker.test_task_matrix import ABLE, final
from tests.shared import ROOT
from tests.transports.server.http.stage import serving

ERAS = pytest.mark.parametrize("revision", [LATEST, R4, R1])
RECIPES = ROOT / "examples" / "middleware"

REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("tools/list", {}, ""),
    ("tools/call", {"name": "read", "arguments": {}}, "read"),
    ("resources/list", {}, ""),
    ("resources/templates/list", {}, ""),
    ("resources/read", {"uri": "back://read"}, "back://read"),
    ("prompts/list", {}, ""),
    ("prompts/get", {"name": "read", "arguments": {"word": "x"}}, "read"),
]


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@ERAS
@pytest.mark.parametrize(("method", "params", "target"), REQUESTS, ids=lambda part: str(part)[:24])
async def test_an_interceptor_knows_what_it_stands_before_and_changes_nothing(
    revision: Revision, method: str, params: dict[str, Any], target: str, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    async def look(ctx: Context, go_on: GoOn) -> Model:
        seen.append((ctx.method, ctx.target, ctx.arguments, ctx.caller.principal))
        return await go_on()

    async with brokered(made()) as host, peer(host, revision, principal=ALICE) as client:
        expected = await client.request(method, **params)
    async with brokered(made(), interceptors=[look]) as host, peer(host, revision, principal=ALICE) as client:
        assert await client.request(method, **params) == expected
    assert seen == [(method, target, params.get("arguments", {}), "alice")]


async def test_interceptors_stand_at_every_path_the_first_outermost(autojump_clock: MockClock) -> None:
    said: list[str] = []

    def named(name: str) -> Middleware:
        async def around(ctx: Context, go_on: GoOn) -> Model:
            said.append(name)
            return await go_on()

        return around

    async with brokered(made(), interceptors=[named("outer"), named("inner")]) as host:
        assert host.paths is not None
        narrow = host.paths.find("back", ALICE)
        assert narrow is not None
        for one in (host, narrow):
            async with peer(one) as client:
                await client.call("read")
    assert said == ["outer", "inner"] * 2


DESK, MOOD = "org.example/desk", "com.example/mood"
MET = ("org.example/ring", "com.example/look", "skills/list")


async def seen_by_all() -> dict[str, bool]:
    return {"seen": True}


def front_desk() -> Extension:
    extension = Extension(DESK)
    extension.method("org.example/ring")(seen_by_all)
    return extension


def back_with_extensions() -> Server:
    mood = Extension(MOOD)
    mood.method("com.example/look")(seen_by_all)
    return Server("back", extensions=[mood, Skills()])


@ERAS
async def test_interceptors_stand_before_methods_of_extensions_at_every_path(
    revision: Revision, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def look(ctx: Context, go_on: GoOn) -> Model:
        seen.append(ctx.method)
        result = await go_on()
        assert type(result) is Result
        return attrs.evolve(result, extra={"late": 1}) if "seen" in result.extra else result

    async def stop(ctx: Context, go_on: GoOn) -> Model:
        raise ToolError("closed")

    for interceptor in (look, stop):
        options: Any = {"extensions": [front_desk(), "com.*"], "interceptors": [interceptor]}
        async with brokered(backend(back_with_extensions(), "back"), **options) as host:
            assert host.paths is not None
            for place in (host, host.paths.find("back", ALICE)):
                assert place is not None
                async with peer(place, revision) as client:
                    for method in MET:
                        if interceptor is stop:
                            with pytest.raises(Refusal, match="closed"):
                                await client.request(method)
                        else:
                            assert ("skills" if method == "skills/list" else "late") in await client.request(method)
    assert seen == [*MET, *MET]


@ERAS
async def test_an_interceptor_changes_a_result_and_hides_a_tool(revision: Revision, autojump_clock: MockClock) -> None:
    async def change(ctx: Context, go_on: GoOn) -> Model:
        result = await go_on()
        if isinstance(result, ListToolsResult):
            return attrs.evolve(result, tools=[tool for tool in result.tools if tool.name != "write"])
        assert isinstance(result, CallToolResult)
        return attrs.evolve(result, content=[TextContent(text="changed")])

    async with brokered(made(), interceptors=[change]) as host, peer(host, revision) as client:
        assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["read", "wrote"]
        assert (await client.call("read"))["content"][0]["text"] == "changed"


async def test_an_interceptor_that_does_not_go_on_spares_the_backend(autojump_clock: MockClock) -> None:
    server, ran = Server("back"), list[int]()

    @server.tool
    async def work() -> str:
        ran.append(1)
        return "worked"

    async def answer(ctx: Context, go_on: GoOn) -> Model:
        if ctx.method == "tools/call":
            raise ToolError("closed on Sundays")
        return await go_on()

    async with brokered(server, interceptors=[answer]) as host, peer(host) as client:
        result = await client.call("work")
        assert (result["isError"], result["content"][0]["text"]) == (True, "closed on Sundays")
    assert ran == []


async def test_an_interceptor_that_fails_is_logged_and_fails_its_own_request_only(
    logged: list[Any], autojump_clock: MockClock
) -> None:
    async def fail(ctx: Context, go_on: GoOn) -> Model:
        if ctx.target == "read":
            raise LookupError("secret")
        return await go_on()

    async with brokered(made(), interceptors=[fail]) as host, peer(host) as client:
        with pytest.raises(Refusal, match=r"-32603: Internal error: LookupError$"):
            await client.call("read")
        assert (await client.call("write"))["content"][0]["text"] == "write ran"
    [line] = [line for line in logged if line["event"] == "handler_failed"]
    assert (line["name"], line["failure"]) == ("read", "LookupError: secret")


async def test_an_error_of_a_backend_reaches_the_client_as_it_would_without_an_interceptor(
    logged: list[Any], autojump_clock: MockClock
) -> None:
    async def look(ctx: Context, go_on: GoOn) -> Model:
        return await go_on()

    refusals = []
    for interceptors in ([], [look]):
        async with brokered(made(), interceptors=interceptors) as host, peer(host) as client:
            wrong: list[tuple[str, dict[str, Any]]] = [
                ("tools/call", {"name": "none"}),
                ("resources/read", {"uri": "back://none"}),
            ]
            for method, params in wrong:
                with pytest.raises(Refusal) as caught:
                    await client.request(method, **params)
                refusals.append((caught.value.code, caught.value.message))
    assert refusals[:2] == refusals[2:]
    assert not [line for line in logged if line["event"] == "handler_failed"]


async def test_the_result_of_a_task_goes_through_interceptors(autojump_clock: MockClock) -> None:
    async def redact(ctx: Context, go_on: GoOn) -> Model:
        result = await go_on()
        if isinstance(result, CallToolResult):
            return attrs.evolve(result, content=[TextContent(text="***")])
        return result

    back = back_with_tasks()
    async with brokered(back.ways, interceptors=[redact]) as host, peer(host, R4) as client:
        _, task = await create(client, back)
        done = await fetch(client, back, task, **text("secret"))
        assert done["content"] == [{"type": "text", "text": "***"}]
        assert done["_meta"]["dev.callboard/backend"] == "back"


async def test_the_result_of_a_modern_task_goes_through_interceptors_once(autojump_clock: MockClock) -> None:
    server, seen = Server("old"), list[str]()

    @server.tool
    async def slow(seconds: float) -> str:
        await trio.sleep(seconds)
        return "secret"

    async def redact(ctx: Context, go_on: GoOn) -> Model:
        result = await go_on()
        if isinstance(result, CallToolResult):
            seen.append(ctx.target)
            return attrs.evolve(result, content=[TextContent(text="***")])
        return result

    held = backend(server, revision=R3, task_after=1.0)
    async with brokered(held, interceptors=[redact]) as host, peer(host, capabilities=ABLE) as client:
        assert (await client.call("slow", seconds=0.5))["content"][0]["text"] == "***"
        created = await client.call("slow", seconds=5)
        assert created["resultType"] == "task"
        done = await final(client, created["taskId"])
        assert done["result"]["content"] == [{"type": "text", "text": "***"}]
        assert "secret" not in json.dumps(done)
    assert seen == ["slow", "slow"]


async def test_an_interceptor_refuses_a_call_that_would_become_a_task(autojump_clock: MockClock) -> None:
    server = Server("old")

    @server.tool
    async def slow() -> str:
        await trio.sleep(60)
        return "done"

    async def refuse(ctx: Context, go_on: GoOn) -> Model:
        if ctx.method == "tools/call":
            raise ToolError("no")
        return await go_on()

    held = backend(server, revision=R3, task_after=1.0)
    async with brokered(held, interceptors=[refuse]) as host, peer(host, capabilities=ABLE) as client:
        result = await client.call("slow")
        assert (result["isError"], result["content"][0]["text"]) == (True, "no")


async def test_an_interceptor_reads_the_headers_that_the_broker_names() -> None:
    seen: list[dict[str, str]] = []

    async def look(ctx: Context, go_on: GoOn) -> Model:
        seen.append(dict(ctx.headers))
        return await go_on()

    broker: Any = Broker([backend(made())], interceptors=[look], interceptor_headers=["X-Team"])
    async with serving(broker) as place:
        for revision in (LATEST, R4):
            headers = {"X-Team": "red", "X-Other": "1"}
            url = f"http://127.0.0.1:{place.port}/mcp"
            async with http.connect(url, headers=headers, revision=revision) as client:
                await client.call("read")
    assert seen
    assert all(one == {"x-team": "red"} for one in seen)


# The file.


def configured(folder: Path, text: str) -> Path:
    file = folder / "servers.toml"
    file.write_text(f'{text}\n[mcpServers.permission]\npython = "{RECIPES}/permission.py"\n')
    return file


async def test_the_recipes_of_servers_are_interceptors_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    (tmp_path / "hooks.py").write_text((RECIPES / "timing.py").read_text())
    file = configured(tmp_path, 'interceptors = ["hooks.py:timed"]')
    async with Broker.of_file(file).host() as host, peer(host) as client:
        await client.call("permission__account", name="bo")
    assert "tools/call permission__account ok" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('interceptors = ["hooks.py"]', '"hooks.py" is not a function in a file: expected FILE.py:NAME'),
        ('interceptors = ["none.py:look"]', 'servers.toml:1: interceptors: "none.py:look": no such file'),
        ('interceptors = "hooks.py:look"', "servers.toml:1: interceptors: must be a list of strings"),
        ('interceptor_headers = ["Cookie"]', "the header cookie is a credential"),
    ],
)
def test_what_is_no_interceptor_is_told_with_its_line(tmp_path: Path, written: str, told: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_configuration(configured(tmp_path, written))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1", "has no 'look'"),
        ("look = 3", "is not a function but int"),
        ("async def look(ctx): ...", "does not take two arguments: async def NAME(ctx, go_on)"),
        ("def look(ctx, go_on): ...", "is not an async function"),
        ("import nowhere", "import failed"),
    ],
)
def test_a_file_without_the_interceptor_is_refused_at_the_start(tmp_path: Path, code: str, told: str) -> None:
    (tmp_path / "hooks.py").write_text(code)
    with pytest.raises(CannotServe, match=told.replace("(", r"\(").replace(")", r"\)")):
        Broker.of_file(configured(tmp_path, 'interceptors = ["hooks.py:look"]'))


async def test_a_reload_puts_interceptors_on_and_off_and_a_wrong_one_changes_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hook = "from callboard import ToolError\n\nasync def no(ctx, go_on):\n    raise ToolError('no')\n"
    (tmp_path / "hooks.py").write_text(hook)
    (tmp_path / "bad.py").write_text("no = 1")
    file = configured(tmp_path, "")
    broker = Broker.of_file(file)

    async def reload(line: str) -> None:
        found = read_configuration(configured(tmp_path, line))
        await broker.reload(found.backends, found.front)

    async with broker.host() as host, peer(host) as client:
        for line, said in (("", "bo: open"), ('interceptors = ["hooks.py:no"]', "no"), ("", "bo: open")):
            await reload(line)
            result = await client.call("permission__account", name="bo")
            assert result["content"][0]["text"] == said
        with pytest.raises(CannotServe, match="is not a function but int"):
            await reload('interceptors = ["bad.py:no"]')
        assert (await client.call("permission__account", name="bo"))["content"][0]["text"] == "bo: open"


def test_an_object_with_an_async_call_is_an_interceptor(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("class Look:\n    async def __call__(self, ctx, go_on): ...\n\nlook = Look()\n")
    assert len(load_interceptors([f"{tmp_path}/hooks.py:look"])) == 1


# Results that are too large.


def large() -> Server:
    server = Server("back")

    @server.tool
    async def words(count: int) -> str:
        return "é" * count

    @server.tool
    async def rows(count: int) -> list[int]:
        return list(range(count))

    @server.resource("big://{count}")
    async def big(count: int) -> str:
        return "x" * count

    return server


@ERAS
async def test_a_result_above_max_result_is_truncated_and_says_so(
    revision: Revision, logged: list[Any], autojump_clock: MockClock
) -> None:
    async with brokered(backend(large(), max_result=2000)) as host, peer(host, revision) as client:
        assert (await client.call("words", count=500))["content"] == [{"type": "text", "text": "é" * 500}]
        cut = await client.call("words", count=50_000)
        assert cut.get("isError") is not True
        words, note = (block["text"] for block in cut["content"])
        assert set(words) == {"é"}
        assert 500 < len(words) < 1000
        assert "The result of back has 100," in note
        assert "at most 2,000: it was truncated" in note
        assert len(json.dumps(cut, ensure_ascii=False).encode()) < 3000
    [line] = [line for line in logged if line["event"] == "result_too_large"]
    assert (line["name"], line["limit"]) == ("words", 2000)


async def test_structured_content_above_max_result_is_left_out_and_the_result_is_an_error(
    autojump_clock: MockClock,
) -> None:
    async with brokered(backend(large(), max_result=2000)) as host, peer(host) as client:
        small = await client.call("rows", count=400)  # the same in text does not fit beside it
        assert small["structuredContent"] == {"result": list(range(400))}
        assert "isError" not in small
        assert "truncated" in small["content"][-1]["text"]
        result = await client.call("rows", count=2500)
        assert result["isError"]
        assert "structuredContent" not in result
        assert result["content"][0]["text"].startswith("[0,1,2,")
        assert "Left out: its structured content." in result["content"][-1]["text"]


async def test_a_resource_above_max_result_is_refused(autojump_clock: MockClock) -> None:
    async with brokered(backend(large(), max_result=2000)) as host, peer(host) as client:
        assert await client.request("resources/read", uri="big://1000")
        with pytest.raises(Refusal, match=r"back: the result has .* bytes, and this broker passes on at most 2000"):
            await client.request("resources/read", uri="big://3000")
