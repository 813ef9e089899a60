"""MCP Apps behind the broker: pages keep their scheme, apps call their own tools by bare names, rules apply."""

from typing import Any, Final

import pytest
from trio.testing import MockClock

from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.codecs.bridge.apps import FLAT
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.config import BackendSpec
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, Line, text, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import Json

PAGE: Final = '<!doctype html>\n<p title="ui://view">\u2028 é </p>\t<script>call("ui://view")</script>'
ERAS: Final = pytest.mark.parametrize("back_revision", [R4, R5], ids=["legacy backend", "modern backend"])


def page(uri: str = "ui://view") -> Json:
    return {
        "uri": uri,
        "name": "view",
        "mimeType": "text/html;profile=mcp-app",
        "_meta": {"ui": {"prefersBorder": True}},
    }


def app_tool(name: str = "show", uri: str = "ui://view", **ui: Any) -> Json:
    return tool(name, _meta={"ui": {"resourceUri": uri, **ui}, FLAT: uri, "other": 1})


class App(Back):
    """An app server: answers reads with its page, and calls with what it was called by, a link and the page."""

    async def _take(self, line: Line, message: Json) -> None:
        match message.get("method"):
            case "resources/read":
                uri = message["params"]["uri"]
                contents = [{"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": PAGE}]
                more = {"ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}
                await line.answer(message, contents=contents, **more)
            case "tools/call":
                link = {"type": "resource_link", "uri": "ui://view", "name": "view"}
                inside = {"type": "resource", "resource": {"uri": "ui://made/1", "text": PAGE}}
                said = text(message["params"]["name"], _meta={"ui": {"resourceUri": "ui://view"}})
                await line.answer(message, **{**said, "content": [*said["content"], link, inside]})
            case _:
                await super()._take(line, message)


def app(back_revision: Revision = R4, name: str = "app", **said: Any) -> BackendSpec:
    mine: Json = {"tools": [app_tool(), tool("plain")], "resources": [page()], **said}
    return backend(App(back_revision, **mine).ways, name, prefix=None)


async def tools(client: Peer) -> dict[str, Json]:
    return {one["name"]: one for one in (await client.request("tools/list"))["tools"]}


async def uris(client: Peer) -> list[str]:
    return [one["uri"] for one in (await client.request("resources/list"))["resources"]]


async def read(client: Peer, uri: str) -> Json:
    [contents] = (await client.request("resources/read", uri=uri))["contents"]
    found: Json = contents
    return found


@ERAS
async def test_the_page_of_the_only_app_server_is_what_the_server_says(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    async with (
        brokered(app(back_revision), app(name="plain", tools=[], resources=[])) as host,
        peer(host, R4) as client,
    ):
        assert (await tools(client))["app__show"]["_meta"]["ui"] == {"resourceUri": "ui://view"}
        assert await uris(client) == ["ui://view"]
        assert await read(client, "ui://view") == {
            "uri": "ui://view",
            "mimeType": "text/html;profile=mcp-app",
            "text": PAGE,
        }


@ERAS
async def test_pages_of_two_servers_at_one_uri_keep_the_scheme_and_are_told_apart(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    async with brokered(app(back_revision, "one"), app(back_revision, "two")) as host, peer(host, R5) as client:
        listed = await tools(client)
        for name in ("one", "two"):
            shown = f"ui://{name}/view"
            meta = listed[f"{name}__show"]["_meta"]
            assert (meta["ui"], meta[FLAT], meta["other"]) == ({"resourceUri": shown}, shown, 1)
            found = await read(client, shown)
            assert (found["uri"], found["text"]) == (shown, PAGE)
            result = await client.request("tools/call", name=f"{name}__show", arguments={})
            assert [block.get("uri") or block.get("resource", {}).get("uri") for block in result["content"]] == [
                None,
                shown,
                f"ui://{name}/made/1",
            ]
            assert result["content"][2]["resource"]["text"] == PAGE
            assert result["_meta"]["ui"] == {"resourceUri": shown}
            assert (await read(client, f"ui://{name}/made/1"))["uri"] == f"ui://{name}/made/1"
        assert await uris(client) == ["ui://one/view", "ui://two/view"]
        with pytest.raises(Refusal) as refused:
            await read(client, "ui://view")
        assert refused.value.code == -32602
        assert refused.value.data["candidates"] == ["ui://one/view", "ui://two/view"]


async def test_an_unlisted_page_is_read_from_the_server_whose_tool_names_it(autojump_clock: MockClock) -> None:
    one = app(name="one", resources=[], tools=[app_tool(uri="ui://hidden/one")])
    two = app(name="two", resources=[], tools=[app_tool(uri="ui://hidden/two")])
    async with brokered(one, two) as host, peer(host, R4) as client:
        for name in ("one", "two"):
            assert (await tools(client))[f"{name}__show"]["_meta"]["ui"]["resourceUri"] == f"ui://hidden/{name}"
            assert (await read(client, f"ui://hidden/{name}"))["text"] == PAGE
        with pytest.raises(Refusal, match="not found"):
            await read(client, "ui://hidden/three")


async def test_a_page_of_two_templates_names_both_candidates_by_addresses_that_work(autojump_clock: MockClock) -> None:
    many: dict[str, Any] = {
        "resources": [],
        "tools": [],
        "templates": [{"uriTemplate": "ui://widget/{id}", "name": "w"}],
    }
    async with brokered(app(name="one", **many), app(name="two", **many)) as host, peer(host, R4) as client:
        with pytest.raises(Refusal) as refused:
            await read(client, "ui://widget/5")
        assert refused.value.data["candidates"] == ["ui://one/widget/5", "ui://two/widget/5"]


async def test_a_server_cannot_have_a_page_in_the_name_of_another(autojump_clock: MockClock) -> None:
    """`ui://good/x` is the address of a page of the server `good`, or of one that it has itself."""
    evil = app(name="evil", tools=[app_tool(uri="ui://good/view")], resources=[page("ui://good/view")])
    good = app(name="good", tools=[app_tool(uri="ui://view")], resources=[page("ui://view")])
    async with brokered(evil, good) as host, peer(host, R4) as client:
        assert (await tools(client))["evil__show"]["_meta"]["ui"]["resourceUri"] == "ui://evil/good/view"
        assert await uris(client) == ["ui://evil/good/view", "ui://view"]
        assert (await read(client, "ui://good/view"))["uri"] == "ui://good/view"
        assert (await read(client, "ui://evil/good/view"))["uri"] == "ui://evil/good/view"


async def test_a_tool_that_names_the_page_of_another_server_is_not_shown_with_it(autojump_clock: MockClock) -> None:
    evil = app(name="evil", tools=[app_tool()], resources=[])
    async with brokered(evil, app(name="good")) as host, peer(host, R4) as client:
        listed = await tools(client)
        assert listed["evil__show"]["_meta"]["ui"]["resourceUri"] == "ui://evil/view"
        assert listed["good__show"]["_meta"]["ui"]["resourceUri"] == "ui://good/view"


@ERAS
async def test_an_app_calls_a_tool_of_its_server_by_its_bare_name(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    other = app(name="other", tools=[tool("else")], resources=[])
    async with brokered(app(back_revision), other) as host, peer(host, R5) as client:
        for _ in range(2):  # found, and remembered
            result = await client.request("tools/call", name="show", arguments={})
            assert result["content"][0]["text"] == "show"
        with pytest.raises(Refusal, match="Unknown tool: missing"):
            await client.request("tools/call", name="missing", arguments={})


async def test_a_bare_name_that_several_servers_have_names_the_candidates(autojump_clock: MockClock) -> None:
    async with brokered(app(name="one"), app(name="two")) as host, peer(host, R4) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("tools/call", name="plain", arguments={})
        assert refused.value.code == -32602
        assert refused.value.data["candidates"] == ["one__plain", "two__plain"]


def guard(host: Host, *rules: Rule) -> None:
    host.rules = AccessRules(rules)


async def test_rules_apply_to_bare_names_and_hide_candidates(autojump_clock: MockClock) -> None:
    secret = Rule(servers=("two",), only=(Condition(principal=("boss",)),))
    async with brokered(app(name="one"), app(name="two")) as host:
        guard(host, secret)
        async with peer(host, R4, principal="guest") as guest, peer(host, R4, principal="boss") as boss:
            result = await guest.request("tools/call", name="plain", arguments={})
            assert result["_meta"]["dev.callboard/backend"] == "one"
            with pytest.raises(Refusal) as refused:
                await boss.request("tools/call", name="plain", arguments={})
            assert refused.value.data["candidates"] == ["one__plain", "two__plain"]
            assert (await guest.request("tools/call", name="plain", arguments={}))["content"][0]["text"] == "plain"
        guard(host, secret, Rule(tools=("one__plain",), deny=True))
        async with peer(host, R4, principal="guest") as guest:
            with pytest.raises(Refusal, match="Unknown tool"):
                await guest.request("tools/call", name="plain", arguments={})


async def test_pages_that_a_caller_may_not_know_of_are_never_read(autojump_clock: MockClock) -> None:
    async with brokered(app(name="one"), app(name="two")) as host:
        guard(host, Rule(servers=("two",), only=(Condition(principal=("boss",)),)))
        async with peer(host, R4, principal="guest") as guest:
            answer = await guest.request("resources/read", uri="ui://two/view")
            assert answer["_meta"]["dev.callboard/backend"] == "one"  # asked as for any page that none has listed
            assert (await read(guest, "ui://view"))["uri"] == "ui://view"


async def test_tools_for_apps_alone_are_listed_and_called_as_rules_say(autojump_clock: MockClock) -> None:
    mine = app(tools=[app_tool("refresh", visibility=["app"]), app_tool("delete", visibility=["app"])])
    async with brokered(mine) as host:
        guard(host, Rule(tools=("app__delete",), deny=True))
        async with peer(host, R4) as client:
            listed = await tools(client)
            assert list(listed) == ["app__refresh"]
            assert listed["app__refresh"]["_meta"]["ui"]["visibility"] == ["app"]
            assert (await client.request("tools/call", name="refresh", arguments={}))["content"][0]["text"] == "refresh"
            for name in ("delete", "app__delete"):
                with pytest.raises(Refusal, match="Unknown tool"):
                    await client.request("tools/call", name=name, arguments={})


async def test_a_page_moves_to_its_address_when_another_server_comes_to_have_it(autojump_clock: MockClock) -> None:
    back = App(R4, tools=[tool("quiet")], resources=[])
    async with (
        brokered(app(name="one"), backend(back.ways, "two", prefix=None)) as host,
        peer(host, R4) as client,
    ):
        assert await uris(client) == ["ui://view"]
        back.tools = [app_tool()]
        await back.lines[0].tell("notifications/tools/list_changed")
        while not client.notifications("notifications/resources/list_changed"):
            client.heard.append(await client.hear())
        assert await uris(client) == ["ui://one/view"]
