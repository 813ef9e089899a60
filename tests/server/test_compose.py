"""Servers that are mounted in others: what they offer there, how that changes, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard import Server
from callboard.codecs.revisions import Revision
from callboard.server.compose import MAX_DEPTH
from callboard.testing import Refusal, connect
from tests.server.compose_stage import BOTH, EACH, OLD, mall, names, shop, text


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@EACH
async def test_a_mounted_server_offers_all_that_it_has_under_its_prefix(revision: Revision) -> None:
    async with connect(mall(), revision) as client:
        assert await names(client) == ["hours", "shop__buy", "shop__broken", "shop__refused"]
        assert await names(client, "prompts") == ["shop__advertise"]
        assert text(await client.call("shop__buy", item="pen")) == "pen: buy, lifespan of shop"
        assert text(await client.call("hours")) == "9 to 5, None"
        found = await client.request("prompts/get", name="shop__advertise", arguments={"about": "pens"})
        assert found["messages"][0]["content"]["text"] == "Praise pens"
        read = await client.request("resources/read", uri="shop://one")
        assert read["contents"][0]["text"] == "lifespan of shop"
        assert read["contents"][0]["mimeType"] == "text/plain"
        read = await client.request("resources/read", uri="shop://item/3")
        assert read["contents"][0]["text"] == "3"
        with pytest.raises(Refusal, match="Unknown tool: buy"):
            await client.request("tools/call", name="buy", arguments={"item": "pen"})


@BOTH
async def test_completions_come_along(revision: Revision) -> None:
    async with connect(mall(), revision) as client:
        for ref, argument, value in (
            ({"type": "ref/prompt", "name": "shop__advertise"}, "about", "pens!"),
            ({"type": "ref/resource", "uri": "shop://item/{number}"}, "number", "pens0"),
        ):
            found = await client.request("completion/complete", ref=ref, argument={"name": argument, "value": "pens"})
            assert found["completion"]["values"] == [value]


@BOTH
@pytest.mark.parametrize("prefix", [None, ""])
async def test_without_a_prefix_names_stay_as_they_are(revision: Revision, prefix: str | None) -> None:
    async with connect(mall(prefix=prefix), revision) as client:
        assert await names(client) == ["hours", "buy", "broken", "refused"]
        assert text(await client.call("buy", item="pen")) == "pen: buy, lifespan of shop"


@BOTH
async def test_servers_are_mounted_in_each_other(revision: Revision) -> None:
    city = Server("city")
    city.mount(mall(), prefix="mall")
    async with connect(city, revision) as client:
        assert await names(client) == ["mall__hours", "mall__shop__buy", "mall__shop__broken", "mall__shop__refused"]
        assert text(await client.call("mall__shop__buy", item="pen")) == "pen: buy, lifespan of shop"
        found = await client.request("prompts/get", name="mall__shop__advertise", arguments={"about": "pens"})
        assert found["messages"][0]["content"]["text"] == "Praise pens"
        assert text(await client.call("mall__hours")) == "9 to 5, None"


async def test_a_mounted_server_also_runs_by_itself_and_in_others() -> None:
    other = shop()
    one, two = mall(other), mall(other, prefix="other")
    async with connect(other) as own, connect(one) as first, connect(two) as second:
        assert text(await own.call("buy", item="a")) == "a: buy, lifespan of shop"
        assert text(await first.call("shop__buy", item="b")) == "b: buy, lifespan of shop"
        assert text(await second.call("other__buy", item="c")) == "c: buy, lifespan of shop"
    assert not other.is_ready()


# What follows.


@BOTH
async def test_what_it_adds_and_removes_later_is_followed_and_told(revision: Revision) -> None:
    other = shop()
    async with connect(mall(other), revision) as client:
        if not revision.dialect.has_sessions:
            await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
            await client.hear()
        await names(client)  # a session that has answered was begun, and hears of changes

        async def sell() -> str:
            return "sold"

        other.tool(sell)
        assert "list_changed" in str(await client.hear())
        assert "shop__sell" in await names(client)
        assert text(await client.call("shop__sell")) == "sold"
        other.remove_tool("buy")
        assert "list_changed" in str(await client.hear())
        assert "shop__buy" not in await names(client)
        with pytest.raises(Refusal, match="Unknown tool"):
            await client.call("shop__buy", item="pen")


@BOTH
async def test_what_the_server_in_front_removes_is_its_own_from_then_on(revision: Revision) -> None:
    other = shop()
    main = mall(other)
    main.remove_tool("shop__buy")
    main.remove_tool("shop__broken")

    @main.tool(name="shop__buy")
    async def buy() -> str:
        return "closed"

    async with connect(main, revision) as client:
        assert "shop__broken" not in await names(client)
        other.remove_tool("broken")
        other.remove_tool("buy")
        other.remove_tool("refused")
        assert await names(client) == ["hours", "shop__buy"]
        assert text(await client.call("shop__buy")) == "closed"


async def test_clients_hear_of_its_resources() -> None:
    other = shop()
    async with connect(mall(other), OLD) as client:
        await client.request("resources/subscribe", uri="shop://one")
        other.notify_updated("shop://one")
        assert (await client.hear())["params"]["uri"] == "shop://one"
        await other.log("info", "all hear it")


async def test_a_name_that_is_taken_in_front_is_refused_where_it_is_added() -> None:
    other = shop()
    main = mall(other)

    @main.tool(name="shop__sell")
    async def mine() -> str:
        return "mine"

    async def sell() -> str:
        return "theirs"

    with pytest.raises(ValueError, match="tool 'shop__sell' already exists"):
        other.tool(sell)
    assert "sell" not in other.registry.tools.entries
    async with connect(main) as client:
        assert text(await client.call("shop__sell")) == "mine"


async def test_a_kind_that_clients_were_not_told_of_is_warned_of(logged: list[Any]) -> None:
    other, main = Server("empty"), Server("main")

    @main.tool
    async def one() -> str:
        return "1"

    main.mount(other, prefix="other")
    async with connect(main) as client:

        async def two() -> str:
            return "2"

        other.tool(two)
        assert not logged
        other.prompt(two)
        assert [line["kinds"] for line in logged] == [["prompts"]]
        assert await names(client) == ["one", "other__two"]


async def test_nothing_is_added_once_several_workers_serve() -> None:
    other = shop()
    main = mall(other)
    async with connect(main):
        main.join_workers()
        with pytest.raises(RuntimeError, match="several workers"):
            other.remove_tool("buy")


# What is refused.


def test_names_that_are_taken_are_refused_and_nothing_is_mounted() -> None:
    main = Server("main")

    @main.resource("shop://one")
    async def one() -> str:
        return ""

    with pytest.raises(ValueError, match="resource 'shop://one' already exists"):
        main.mount(shop(), prefix="shop")
    assert not main.registry.tools.entries
    assert not main.mounts.below


def test_circles_doubles_and_bad_prefixes_are_refused() -> None:
    main, other = Server("main"), Server("other")
    main.mount(other, prefix="a")
    with pytest.raises(ValueError, match="'other' is already mounted in 'main'"):
        main.mount(other, prefix="b")
    with pytest.raises(ValueError, match="'main': cannot be mounted in itself"):
        main.mount(main)
    with pytest.raises(ValueError, match="'main': cannot be mounted in itself"):
        other.mount(main, prefix="b")
    with pytest.raises(ValueError, match="invalid prefix 'a b'"):
        main.mount(Server("third"), prefix="a b")


def test_names_that_become_too_long_are_refused() -> None:
    other = Server("long")

    @other.tool(name="x" * 128)
    async def long() -> str:
        return ""

    with pytest.raises(ValueError, match="more than 128 characters"):
        Server("main").mount(other, prefix="p")
    Server("main").mount(other)


async def test_a_running_server_mounts_nothing() -> None:
    main = Server("main")
    async with main.host():
        with pytest.raises(RuntimeError, match="cannot be mounted while 'main' runs"):
            main.mount(shop())


def test_a_tower_of_servers_has_an_end() -> None:
    top = Server("0")
    for number in range(1, MAX_DEPTH):
        above = Server(str(number))
        above.mount(top)
        top = above
    with pytest.raises(ValueError, match="more than 16 servers"):
        Server("roof").mount(top)


async def test_ten_thousand_tools_are_mounted_and_listed() -> None:
    other = Server("many")

    async def same(number: int) -> str:
        return str(number)

    for number in range(10_000):
        other.tool(name=f"t{number}")(same)
    async with connect(mall(other, prefix="m")) as client:
        assert text(await client.call("m__t9999", number=3)) == "3"
        found = await client.request("tools/list")
        assert len(found["tools"]) == 100
        assert found["nextCursor"]
