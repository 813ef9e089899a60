"""The hosting API as a type checker sees it: an unused ignore below is a failure of `mypy --strict`."""

from collections.abc import Callable
from typing import Annotated, Any, assert_type

import attrs

from callboard import Context, Doc, Image, InputRequired, Reply, Revision, Server, ToolAnnotations
from callboard.codecs.revisions import Root
from callboard.server.context import Asking
from callboard.testing import Peer, connect

server = Server("typed", version="1.0.0", revisions=frozenset({Revision("2026-07-28")}))
Server()  # type: ignore[call-arg]
Server("typed", revision="2026-07-28")  # type: ignore[call-arg]


@attrs.frozen
class Place:
    city: str
    days: int = 3


# Decorators give back the function that they were given, with its type.


@server.tool
async def bare(city: str, days: int = 3) -> Place:
    return Place(city, days)


@server.tool(name="other", annotations=ToolAnnotations(open_world_hint=True), read_only=True)
def plain(city: Annotated[str, Doc("Where")]) -> Image:
    return Image(city.encode(), "image/png")


@server.prompt
async def briefing(city: str) -> str:
    return city


@server.prompt(title="Again")
async def briefing_again(city: str) -> list[str]:
    return [city]


@server.resource("place://{city}")
async def place(city: str) -> bytes:
    return city.encode()


@server.completion("briefing", "city")
async def cities(value: str) -> list[str]:
    return [value]


async def functions_stay_what_they_were() -> None:
    assert_type(await bare("Oslo"), Place)
    assert_type(plain("Oslo"), Image)
    assert_type(await briefing("Oslo"), str)
    assert_type(await briefing_again("Oslo"), list[str])
    assert_type(await place("Oslo"), bytes)
    assert_type(await cities("O"), list[str])
    await bare(7)  # type: ignore[arg-type]
    await bare()  # type: ignore[call-arg]
    plain("Oslo", unit="c")  # type: ignore[call-arg]


server.tool(7)  # type: ignore[call-overload]
server.tool(title=7)  # type: ignore[call-overload]
server.tool(colour="red")  # type: ignore[call-overload]
server.resource()  # type: ignore[call-arg]
server.completion("briefing")  # type: ignore[call-arg]
server.remove_tool(bare)  # type: ignore[arg-type]
server.notify_changed("tools")
server.notify_changed("tool")  # type: ignore[arg-type]


# What a handler asks has the type of its answer.


async def ask(ctx: Context) -> None:
    there = await ctx.elicit("Where to?", Place)
    assert_type(there, Place)
    assert_type(there.days + 1, int)
    there.country  # type: ignore[attr-defined]  # noqa: B018
    there.city + 1  # type: ignore[operator]
    assert_type(await ctx.elicit("Where to?", {"type": "object", "properties": {}}), dict[str, Any])
    reply = await ctx.sample("What to pack?", max_tokens=50)
    assert_type(reply, Reply)
    assert_type(reply.text, str)
    assert_type(reply.stop_reason, str | None)
    assert_type(await ctx.roots(), list[Root])
    assert_type(await ctx.elicit_url("Sign in", "https://example.com"), None)
    await ctx.elicit("Where to?")  # type: ignore[call-overload]
    await ctx.elicit("Where to?", Place("Oslo"))  # type: ignore[call-overload]
    await ctx.sample("What to pack?")  # type: ignore[call-arg]
    ctx.elicit("Where to?", Place).city  # type: ignore[attr-defined]  # noqa: B018


async def ask_together(ctx: Context) -> None:
    where, how = ctx.elicit("Where to?", Place), ctx.sample("How?", max_tokens=9)
    assert_type(where, Asking[Place])
    assert_type(await ctx.ask_all(where), tuple[Place])
    assert_type(await ctx.ask_all(where, how), tuple[Place, Reply])
    assert_type(await ctx.ask_all(where, how, ctx.roots()), tuple[Place, Reply, list[Root]])
    assert_type(await ctx.ask_all(*[where, where]), tuple[Any, ...])
    one, two = await ctx.ask_all(where, how)
    assert_type(one, Place)
    two.city  # type: ignore[attr-defined]  # noqa: B018
    one, two, _three = await ctx.ask_all(where, how)  # type: ignore[misc]
    await ctx.ask_all(Place("Oslo"))  # type: ignore[call-overload]


async def ask_and_forget(ctx: Context) -> str | InputRequired:
    question = ctx.elicit("Where to?", Place, key="place")
    answer = ctx.answered(question)
    assert_type(answer, Place | None)
    answer.city  # type: ignore[union-attr]  # noqa: B018
    InputRequired("place")  # type: ignore[arg-type]
    return InputRequired([question], state={"step": 1}) if answer is None else answer.city


# What a handler says and knows.


async def say(ctx: Context) -> None:
    await ctx.log("info", {"rows": [1, 2]})
    await ctx.log("loud", "hello")  # type: ignore[arg-type]
    await ctx.report(1, total=2, message="half")
    await ctx.report("half")  # type: ignore[arg-type]
    async for number in ctx.progress(range(3)):
        assert_type(number, int)
    for _number in ctx.progress(range(3)):  # type: ignore[attr-defined]
        pass


def know(ctx: Context) -> None:
    assert_type(ctx.revision, Revision)
    assert_type(ctx.principal, str)
    assert_type(ctx.request_id, int | str)
    assert_type(ctx.client_can("sampling.tools"), bool)
    ctx.client_can("thinking")  # type: ignore[arg-type]
    ctx.client_info.name  # type: ignore[union-attr]  # noqa: B018
    ctx.session  # type: ignore[attr-defined]  # noqa: B018
    ctx.principal = "root"  # type: ignore[misc]


# Middleware keeps its type, too, and must have that of one.


@server.middleware
async def timed(ctx: Context, go_on: Callable[[], Any]) -> Any:
    return await go_on()


@server.middleware  # type: ignore[type-var]
async def shapeless(ctx: Context) -> None: ...


async def middleware_stays_what_it_was(ctx: Context) -> None:
    await timed(ctx)  # type: ignore[call-arg]
    await timed(ctx, go_on=print)


async def try_out() -> None:
    async with connect(server, Revision("2025-06-18"), answers={"roots/list": lambda params: {"roots": []}}) as client:
        assert_type(client, Peer)
        assert_type(await client.call("bare", city="Oslo"), dict[str, Any])
    connect(server, "2025-06-18")  # type: ignore[arg-type]
