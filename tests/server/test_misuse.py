"""Decorators that are written in another way than they are meant say what to write."""

from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any, TypedDict

import pytest
import trio
from structlog.testing import capture_logs

from callboard import Context, Server, connect
from callboard.server import Extension
from callboard.testing import Refusal
from callboard.testing import connect as connect_peer


def test_a_name_that_is_given_by_position_is_told_the_keyword() -> None:
    server: Any = Server("s")
    with pytest.raises(TypeError, match=r"for a name write @server\.tool\(name='add'\)"):
        server.tool("add")
    with pytest.raises(TypeError, match=r"for a name write @server\.prompt\(name='greet'\)"):
        server.prompt("greet")


def test_a_bare_resource_is_told_that_it_needs_a_uri() -> None:
    server: Any = Server("s")

    def notes() -> str:
        return ""

    with pytest.raises(TypeError, match=r'write @server\.resource\("notes://notes"\) before notes\(\)'):
        server.resource(notes)
    with pytest.raises(TypeError, match="must be a string, not int"):
        server.resource(3)


def test_a_context_without_a_type_is_told_its_type() -> None:
    server: Any = Server("s")

    def log(ctx) -> None: ...  # type: ignore[no-untyped-def]  # which is the mistake

    with pytest.raises(TypeError, match=r"annotate it, as in `ctx: Context`"):
        server.tool(log)


@pytest.mark.parametrize("level", ["loud", "warn", "INFO"])
async def test_a_log_level_that_there_is_not_is_refused_with_those_that_there_are(level: Any) -> None:
    """Also if no client listens: else the mistake is seen when the first one does."""
    server = Server("s", show_errors=True)

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.log(level, "a")
        return ""

    async with connect_peer(server) as client:
        result = await client.call("tell")
    [block] = result["content"]
    assert block["text"].startswith(f"ValueError: unknown log level {level!r}: expected one of debug, info, notice,")
    with pytest.raises(ValueError, match="expected one of debug"):
        await server.log(level, "a")


async def test_a_total_may_be_given_by_position() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.report(1, 10)
        return ""

    async with connect(server) as client, client.call("work") as call:
        told = [(update.progress, update.total) async for update in call.progress]
    assert told == [(1, 10)]


def test_names_of_other_frameworks_are_told_what_they_are_called_here() -> None:
    server: Any = Server("s")
    with pytest.raises(AttributeError, match=r"no attribute 'add_tool'; in callboard it is server\.tool\(function\)"):
        server.add_tool(len)
    with pytest.raises(TypeError, match=r"no option 'transport'; in callboard it is server\.run\(http=8000\)"):
        server.run(transport="http")
    with pytest.raises(TypeError, match=r"run\(\) has no option 'htp': expected some of access_log, "):
        server.run(htp=8000)
    assert not hasattr(server, "shelf")


class Own(Server):
    @property
    def broken(self) -> Any:
        return (3).inner  # type: ignore[attr-defined]


class OwnContext(Context):
    @property
    def broken(self) -> Any:
        return (3).inner  # type: ignore[attr-defined]


def test_a_property_that_fails_tells_its_own_error() -> None:
    unmade: Any = object.__new__(OwnContext)
    for one in (Own("s"), unmade):
        with pytest.raises(AttributeError, match="'int' object has no attribute 'inner'"):
            _ = one.broken
    with pytest.raises(AttributeError, match="_exchange"):
        _ = unmade.method


async def test_names_of_another_context_are_told_what_they_are_called_here() -> None:
    server, told = Server("s"), list[str]()

    @server.tool
    async def work(ctx: Context) -> str:
        other: Any = ctx
        for name in ("info", "report_progress", "colour"):
            with pytest.raises(AttributeError) as error:
                getattr(other, name)
            told.append(str(error.value))
        return ""

    async with connect_peer(server) as client:
        assert not (await client.call("work")).get("isError")
    assert told == [
        "'Context' object has no attribute 'info'; in callboard it is await ctx.log(\"info\", ...)",
        "'Context' object has no attribute 'report_progress'; in callboard it is await ctx.report(1, 10)",
        "'Context' object has no attribute 'colour'",
    ]


async def test_arguments_by_position_are_told_the_ways_to_give_them() -> None:
    words = r"call\(\) takes arguments by name: call\('name', a=1\), or call_with\('name', \{'a': 1\}\)"
    async with connect(Server("s")) as client, connect(Server("s"), input="manual") as manual:
        for other in (client, manual):
            unfit: Any = other
            with pytest.raises(TypeError, match=words):
                unfit.call("f", {"a": 1})
            with pytest.raises(TypeError, match=r"prompt_with\('name', "):
                await unfit.prompt("f", {"a": "1"})
    async with connect_peer(Server("s")) as peer:
        unfit = peer
        with pytest.raises(TypeError, match=r"call\('name', \*\*arguments\)"):
            await unfit.call("f", {"a": 1})


async def test_a_plain_function_is_told_how_to_report_from_its_thread() -> None:
    server, told = Server("s"), list[str]()

    @server.tool
    def work(ctx: Context) -> str:
        for unfit in (partial(ctx.report, 1), partial(ctx.log, "info", "a")):
            with pytest.raises(RuntimeError) as error:
                _ = unfit()
            told.append(str(error.value))
        trio.from_thread.run(ctx.report, 1, 10)
        trio.from_thread.run(ctx.log, "info", "a")
        return ""

    async with connect(server) as client, client.call("work") as call:
        assert [(update.progress, update.total) async for update in call.progress] == [(1, 10)]
    assert told == [
        "ctx.report() in a plain function: write trio.from_thread.run(ctx.report, ...)",
        "ctx.log() in a plain function: write trio.from_thread.run(ctx.log, ...)",
    ]


def test_a_method_of_a_class_is_told_to_register_that_of_an_object() -> None:
    class Tools:
        def look(self, where: str) -> str:
            return where

    server = Server("s")
    with pytest.raises(TypeError, match=r"register that of an object, as in server\.tool\(Tools\(\)\.look\)"):
        server.tool(Tools.look)
    server.tool(Tools().look)


def test_a_generator_is_refused_when_it_is_registered() -> None:
    async def later() -> AsyncIterator[int]:
        yield 1

    def now() -> Iterator[int]:
        yield 1

    server: Any = Server("s")
    for decorate in (server.tool, server.prompt, server.resource("s://a")):
        for function in (later, now):
            with pytest.raises(TypeError, match=r"it is a generator, but a \w+ has one result: return a list"):
                decorate(function)


async def test_a_completion_of_nothing_is_told_when_the_server_starts() -> None:
    server = Server("s")

    @server.prompt
    async def greet(name: str) -> str:
        return name

    async def complete(value: str) -> list[str]:
        return [value]

    for of, argument in (("greet", "name"), ("greet", "nam"), ("nope", "name")):
        server.completion(of, argument)(complete)
    with capture_logs() as logs:
        async with connect_peer(server):
            pass
    told = [(one["prompt_or_template"], one["argument"]) for one in logs if one["event"] == "completes_nothing"]
    assert told == [("greet", "nam"), ("nope", "name")]


async def test_a_result_with_half_a_character_is_logged_with_the_name_of_its_tool() -> None:
    server = Server("s")

    @server.tool
    async def torn() -> str:
        return "\ud800"

    async with connect_peer(server) as client:
        with capture_logs() as logs, pytest.raises(Refusal, match="-32603"):
            await client.call("torn")
    [line] = [one for one in logs if one["event"] == "request_failed"]
    assert line["name"] == "torn"
    assert "surrogates not allowed" in line["failure"]


class Clouds(TypedDict):
    over: str


def test_a_function_of_a_notification_takes_its_params_as_one_dict() -> None:
    extension = Extension("com.example/sky")

    def by_name(over: str) -> None: ...
    def two(over: dict[str, Any], rain: int) -> None: ...
    def none() -> None: ...
    def named(*, params: dict[str, Any]) -> None: ...
    def right(params: dict[str, Any]) -> None: ...
    def mapped(params: "Mapping[str, Any] | None") -> None: ...
    def typed(params: Clouds) -> None: ...
    def anything(params: Any) -> None: ...
    def bare(params, more=1): ...  # type: ignore[no-untyped-def]
    def whatever(*params: object) -> None: ...

    for wrong in (by_name, two, none, named):
        words = rf"sky': its params come as one dict: write `def {wrong.__name__}\(params: dict\[str, Any\]\)"
        with pytest.raises(TypeError, match=words):
            extension.notification("com.example/sky")(wrong)
    fitting: list[Any] = [right, mapped, typed, anything, bare, whatever, [].append, partial(two, rain=1)]
    for number, fit in enumerate(fitting):
        extension.notification(f"com.example/{number}")(fit)
