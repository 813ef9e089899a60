"""One server, one set of handlers, five revisions: the same observable results."""

from typing import Annotated, Any, Literal

import attrs
import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import Revision, Tool
from callboard.server import Server
from callboard.server.content.errors import ToolError
from callboard.server.context import Context, InputRequired
from callboard.server.signature.markers import Doc
from callboard.testing import Peer, Refusal
from tests.by_the_book import connect

EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
WITH_FORMS = pytest.mark.parametrize("revision", [r for r in Revision if r >= "2025-06-18"], ids=str)

server = Server("weather", version="1.2.0", instructions="Ask for the weather.")


@attrs.frozen
class Place:
    city: str
    unit: Literal["celsius", "fahrenheit"] = "celsius"


@attrs.frozen
class Consent:
    agreed: bool


@attrs.frozen
class Forecast:
    city: str
    degrees: float


@server.tool
async def plan(days: Annotated[int, Doc("How many days ahead")], *, ctx: Context) -> str:
    """Plan a trip: asks twice, samples, lists roots, logs and reports on the way."""
    place = await ctx.elicit("Where to?", Place)
    await ctx.log("info", {"city": place.city})
    async for _ in ctx.progress(range(days)):
        pass
    consent, reply = await ctx.ask_all(
        ctx.elicit(f"{days} days in {place.city}?", Consent), ctx.sample("What to pack?", max_tokens=50)
    )
    roots = await ctx.roots()
    return f"{place.city} {place.unit} {consent.agreed} {reply.text} {roots[0].uri}"


@server.tool
async def ask_model(*, ctx: Context) -> str:
    """Asks the client's model, and lets it use a tool."""
    tool = Tool(name="lookup", input_schema={"type": "object"})
    tools = [tool] if ctx.revision >= "2025-11-25" else []
    reply = await ctx.sample("Capital of Norway?", max_tokens=9, tools=tools)
    return f"{reply.text} by {reply.model}"


@server.tool
async def in_two_runs(*, ctx: Context) -> str | InputRequired:
    """Keeps nothing between its rounds: the client carries its state."""
    where = ctx.elicit("Where to?", Place, key="where")
    place = ctx.answered(where)
    if place is None:
        return InputRequired([where], state={"tries": (ctx.state or {"tries": 0})["tries"] + 1})
    return f"{place.city} after {ctx.state['tries']}"


@server.tool
def forecast(city: str, days: int = 3) -> Forecast:
    """Weather for the coming days.

    Args:
        city: Where.
        days: How far ahead.
    """
    return Forecast(city, 20.5 + days)


@server.tool
async def fail() -> str:
    raise ToolError("no weather today")


@server.tool
async def crash() -> str:
    raise ZeroDivisionError("secret path /etc/x")


@server.resource("weather://{city}/now", mime_type="text/plain")
async def now(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@server.resource("weather://cities")
async def cities() -> str:
    return "oslo, bergen"


@server.prompt
def briefing(city: str, style: str = "short") -> str:
    """Ask for a briefing."""
    return f"Brief me about {city}, {style}."


@server.completion("briefing", "city")
async def complete_city(value: str) -> list[str]:
    return [city for city in ("oslo", "bergen", "bodø") if city.startswith(value)]


def elicit(params: dict[str, Any]) -> dict[str, Any]:
    if "city" in params["requestedSchema"]["properties"]:
        return {"action": "accept", "content": {"city": "Oslo"}}
    return {"action": "accept", "content": {"agreed": True}}


def sample(params: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "model": "m-1", "content": {"type": "text", "text": "boots"}}


ANSWERS = {
    "elicitation/create": elicit,
    "sampling/createMessage": sample,
    "roots/list": lambda params: {"roots": [{"uri": "file:///home"}]},
}


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words


@WITH_FORMS
async def test_a_handler_that_asks_logs_and_reports_gives_the_same_result(revision: Revision) -> None:
    async with connect(server, revision, answers=ANSWERS, log_level="debug") as client:
        params = {"name": "plan", "arguments": {"days": 3}}
        result = await client.request("tools/call", **params, meta={"progressToken": "t"})
        while result.get("resultType") == "input_required":
            result = await client.request(
                "tools/call", **params, **client.answered(result), meta={"progressToken": "t"}
            )
        assert text(result) == "Oslo celsius True boots file:///home"
        progress = [note["progress"] for note in client.notifications("notifications/progress")]
        assert progress == sorted(set(progress))
        assert progress[0] == 1
        assert progress[-1] == 3
        assert [note["data"] for note in client.notifications("notifications/message")] == [{"city": "Oslo"}]


@WITH_FORMS
async def test_a_stateless_handler_runs_anew_with_what_it_gave_the_client_to_keep(revision: Revision) -> None:
    async with connect(server, revision, answers=ANSWERS) as client:
        assert text(await client.call("in_two_runs")) == "Oslo after 1"


@pytest.mark.requirement("M183")
async def test_a_stateless_handler_asks_again_survives_its_server_and_refuses_a_second_use() -> None:
    async with connect(server, answers=ANSWERS) as client:
        asked = await client.request("tools/call", name="in_two_runs")
        assert list(asked["inputRequests"]) == ["where"]
        state = asked["requestState"]
        again = await client.request("tools/call", name="in_two_runs", requestState=state, inputResponses={})
        assert again["requestState"] != state
        with pytest.raises(Refusal, match="Invalid or expired requestState"):
            await client.request("tools/call", name="in_two_runs", requestState=state, inputResponses={})
        done = await client.request("tools/call", name="in_two_runs", **client.answered(again))
        assert text(done) == "Oslo after 2"


@EVERY
async def test_a_model_is_asked_the_same_way(revision: Revision) -> None:
    async with connect(server, revision, answers=ANSWERS) as client:
        assert text(await client.call("ask_model")) == "boots by m-1"


@EVERY
async def test_structured_results_are_shaped_for_the_peer(revision: Revision) -> None:
    async with connect(server, revision) as client:
        result = await client.call("forecast", city="Oslo")
        assert text(result) == '{"city":"Oslo","degrees":23.5}'
        if revision >= "2025-06-18":
            assert result["structuredContent"] == {"city": "Oslo", "degrees": 23.5}
        else:
            assert "structuredContent" not in result
        (tool,) = [tool for tool in (await client.request("tools/list"))["tools"] if tool["name"] == "forecast"]
        assert ("outputSchema" in tool) == (revision >= "2025-06-18")
        assert tool["inputSchema"]["properties"]["city"] == {"type": "string", "description": "Where."}
        assert tool["inputSchema"]["required"] == ["city"]


@pytest.mark.requirement("M266", "L181")
@EVERY
async def test_failures_are_results_that_a_model_can_act_on(revision: Revision) -> None:
    async with connect(server, revision) as client:
        failed = await client.call("fail")
        assert (failed["isError"], text(failed)) == (True, "no weather today")
        crashed = await client.call("crash")
        assert crashed["isError"] is True
        assert "Traceback" not in text(crashed)
        wrong = await client.call("forecast", city=7, dayz=1)
        assert wrong["isError"] is True
        assert "city" in text(wrong)
        assert "dayz" in text(wrong)
        with pytest.raises(Refusal, match="-32602"):
            await client.call("unknown")


@pytest.mark.requirement("M249", "L189")
@EVERY
async def test_resources_templates_prompts_and_completions(revision: Revision) -> None:
    async with connect(server, revision) as client:
        (resource,) = (await client.request("resources/list"))["resources"]
        assert resource["uri"] == "weather://cities"
        (template,) = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "weather://{city}/now"
        (contents,) = (await client.request("resources/read", uri="weather://bod%C3%B8/now"))["contents"]
        assert contents == {"uri": "weather://bod%C3%B8/now", "mimeType": "text/plain", "text": "sunny in bodø"}
        with pytest.raises(Refusal) as refused:
            await client.request("resources/read", uri="weather://nowhere")
        assert refused.value.code == (-32602 if revision.era == "modern" else -32002)
        assert refused.value.data == {"uri": "weather://nowhere"}
        (prompt,) = (await client.request("prompts/list"))["prompts"]
        assert [argument["name"] for argument in prompt["arguments"]] == ["city", "style"]
        got = await client.request("prompts/get", name="briefing", arguments={"city": "Oslo"})
        assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Brief me about Oslo, short."}}]
        completed = await client.request(
            "completion/complete",
            ref={"type": "ref/prompt", "name": "briefing"},
            argument={"name": "city", "value": "b"},
        )
        assert completed["completion"]["values"] == ["bergen", "bodø"]


@EVERY
async def test_a_declined_question_is_a_clear_tool_error(revision: Revision) -> None:
    if revision < "2025-06-18":
        capabilities: dict[str, Any] = {"sampling": {}, "roots": {}}
        async with connect(server, revision, capabilities=capabilities) as client:
            result = await client.call("plan", days=1)
            assert result["isError"] is True
            assert "elicitation" in text(result)
        return
    answers = {**ANSWERS, "elicitation/create": lambda params: {"action": "decline"}}
    async with connect(server, revision, answers=answers) as client:
        result = await client.call("plan", days=1)
        assert (result["isError"], text(result)) == (True, "the user declined")


@pytest.mark.requirement("M060", "M207", "M208")
async def test_a_server_says_who_it_is(autojump_clock: MockClock) -> None:
    async with connect(server) as client:
        found = await client.request("server/discover")
        assert found["supportedVersions"] == sorted(Revision)
        assert found["instructions"] == "Ask for the weather."
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "weather", "version": "1.2.0"}
        assert found["ttlMs"] >= 0
        assert found["cacheScope"] in ("private", "public")


async def test_tools_come_and_go_and_listeners_hear_of_it() -> None:
    changing = Server("changing")
    async with connect(changing) as client:
        await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        await client.hear()

        @changing.tool
        async def new() -> str:
            return "new"

        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        assert text(await client.call("new")) == "new"
        changing.remove_tool("new")
        assert (await client.hear())["method"] == "notifications/tools/list_changed"


@pytest.mark.requirement("M239")
async def test_long_lists_come_in_pages_whose_cursors_are_ours() -> None:
    many = Server("many")
    for number in range(250):
        many.tool(name=f"t{number:03}")(fail)
    async with connect(many) as client:
        names: list[str] = []
        page: dict[str, Any] = {"nextCursor": None}
        while "nextCursor" in page:
            more = {} if page["nextCursor"] is None else {"cursor": page["nextCursor"]}
            page = await client.request("tools/list", **more)
            names += [tool["name"] for tool in page["tools"]]
        assert names == [f"t{number:03}" for number in range(250)]
        for cursor in ("", "x", "AAAA"):
            with pytest.raises(Refusal, match="-32602"):
                await client.request("tools/list", cursor=cursor)


def test_the_peer_is_exported_for_server_authors() -> None:
    assert Peer is not None
