"""Overrides of tools before a broker's clients: in every list and every call, for both eras."""

from typing import Any, Final

import pytest
import structlog
import trio
from msgspec import Raw
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker.policy import BackendSettings, Profile
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.codecs.bridge.overrides import ToolOverride
from callboard.codecs.caller import TRUSTED
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import INVALID_PARAMS
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, form, named, text, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import Json

OLDER: Final = max(LEGACY)
ERAS: Final = pytest.mark.parametrize("revision", [LATEST, OLDER])
BACKS: Final = pytest.mark.parametrize("behind", [LATEST, OLDER])

SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "region": {"type": "string"}},
    "required": ["region"],
}
FIXED: Final = ToolOverride(description="Ours.", fixed={"region": "north"}, annotations={"readOnlyHint": True})
BOOK: Final[Json] = {"name": "book"}


def back(revision: Revision = LATEST, **said: Any) -> Back:
    return Back(revision, tools=[tool("book", inputSchema=SCHEMA, **said), tool("other")])


def before(behind: Back, **said: Any) -> Any:
    settings = {"prefix": "", "override": {"book": FIXED}, **said}
    return backend(behind.ways, settings=BackendSettings(**settings))


async def tools(client: Peer) -> dict[str, Json]:
    return {one["name"]: one for one in (await client.request("tools/list"))["tools"]}


@ERAS
@BACKS
async def test_clients_see_the_override_and_the_server_gets_the_fixed_argument(
    revision: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    server = back(behind, description="Theirs.")
    async with brokered(before(server)) as host, peer(host, revision) as client:
        shown = (await tools(client))["book"]
        assert shown["description"] == "Ours."
        assert list(shown["inputSchema"]["properties"]) == ["city"]
        assert shown["inputSchema"]["required"] == []
        assert shown["annotations"] == {"readOnlyHint": True}
        begun = await client.begin("tools/call", **BOOK, arguments={"city": "Oslo"})
        line, request = await server.hear()
        assert request["params"]["arguments"] == {"city": "Oslo", "region": "north"}
        await line.answer(request, **text("sunny"))
        assert (await client.finish(begun))["content"][0]["text"] == "sunny"
        begun = await client.begin("tools/call", **BOOK)
        _, request = await server.hear()
        assert request["params"]["arguments"] == {"region": "north"}


@ERAS
async def test_a_hidden_argument_is_unknown_however_it_is_spelled(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server = back()
    given = [
        b'{"region":"south"}',
        b'{"\\u0072egion":"south"}',
        b'{"region":null}',
        b'{"Region":"south"}',
        b'{"city":"a","city":"b"}',
    ]
    async with brokered(before(server)) as host, peer(host, revision) as client:
        for arguments in given:
            with pytest.raises(Refusal) as refused:
                await client.request("tools/call", **BOOK, arguments=Raw(arguments))
            assert refused.value.code == INVALID_PARAMS, arguments
        assert server.told("tools/call") == []


@ERAS
async def test_other_tools_get_the_bytes_that_the_client_sent(revision: Revision, autojump_clock: MockClock) -> None:
    server = back()
    async with brokered(before(server)) as host, peer(host, revision) as client:
        await client.begin("tools/call", name="other", arguments={"region": "south"})
        _, request = await server.hear()
        assert request["params"]["arguments"] == {"region": "south"}


async def test_an_override_holds_at_every_path_and_in_every_profile(autojump_clock: MockClock) -> None:
    server = back()
    profiles = [Profile(name="few", servers=("back",))]
    broker = Broker([before(server, prefix=None, rename={"book": "buy"})], profiles=profiles)
    async with broker.host(parking=Parking("broker")) as host:
        assert host.paths is not None
        for path, name in (("few", "back__buy"), ("back", "book")):
            narrowed = host.paths.find(path, TRUSTED)
            assert narrowed is not None
            async with peer(narrowed, LATEST) as client:
                shown = (await tools(client))[name]
                assert list(shown["inputSchema"]["properties"]) == ["city"]
                with pytest.raises(Refusal):
                    await client.request("tools/call", name=name, arguments={"region": "south"})
                await client.begin("tools/call", name=name, arguments={})
                _, request = await server.hear()
                assert request["params"]["name"] == "book"
                assert request["params"]["arguments"] == {"region": "north"}


@BACKS
@ERAS
async def test_the_retry_of_a_parked_call_has_the_fixed_argument_too(
    revision: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    server = back(behind)
    answers = {"elicitation/create": lambda _: named("Ada")}
    async with brokered(before(server)) as host, peer(host, revision, answers=answers) as client:

        async def serve() -> None:
            line, request = await server.hear()
            assert request["params"]["arguments"]["region"] == "north"
            if behind is LATEST:
                asked = {"who": {"method": "elicitation/create", "params": {"mode": "form", **form()}}}
                await line.answer(request, resultType="input_required", inputRequests=asked, requestState="s")
                line, request = await server.hear()
                assert request["params"]["arguments"] == {"city": "Oslo", "region": "north"}
            else:
                await line.answered(await line.ask("elicitation/create", **form()))
            await line.answer(request, **text("done"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            assert (await client.call("book", city="Oslo"))["content"][0]["text"] == "done"


async def test_a_tool_that_cannot_be_changed_so_is_withheld_and_told_of(autojump_clock: MockClock) -> None:
    server = back()
    server.tools = [tool("book"), tool("other")]  # it has no such argument any more
    with structlog.testing.capture_logs() as logs:
        async with brokered(before(server)) as host, peer(host) as client:
            assert list(await tools(client)) == ["other"]
            with pytest.raises(Refusal):
                await client.request("tools/call", **BOOK, arguments={})
    [told] = [log for log in logs if log["event"] == "definition_left_out"]
    assert told["name"] == "'book'"
    assert "no argument 'region'" in told["reason"]


async def test_an_override_of_a_tool_that_there_is_not_is_a_warning(autojump_clock: MockClock) -> None:
    server = back()
    overrides = {"boook": FIXED, "brief": ToolOverride(title="Brief"), "book": FIXED}
    with structlog.testing.capture_logs() as logs:
        async with brokered(before(server, override=overrides)):
            pass
    [told] = [log for log in logs if log["event"] == "override_unused"]
    assert (told["backend"], told["names"]) == ("back", ["boook"])


async def test_a_change_of_the_servers_own_words_is_noticed_under_an_override(autojump_clock: MockClock) -> None:
    server, seen = back(description="One."), list[dict[str, str]]()

    def approve(_: str, digests: Any) -> dict[str, str]:
        if digests:
            seen.append(dict(digests))
        return {name: "x" for name, digest in digests.items() if digest != seen[0].get(name)}

    async with brokered(before(server, pin=True), approve=approve) as host, peer(host) as client:
        assert "book" in await tools(client)
        server.tools = [tool("book", inputSchema=SCHEMA, description="Two."), tool("other")]
        line = server.lines[0]
        for request_id in list(line.listens):
            await line.tell(
                "notifications/tools/list_changed", _meta={"io.modelcontextprotocol/subscriptionId": request_id}
            )
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        assert "book" not in await tools(client)
