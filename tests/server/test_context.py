"""What a handler may ask of whom, and what becomes of questions that a client cannot be asked."""

import threading
from typing import Annotated, Any, Literal

import attrs
import pytest
from trio.testing import MockClock

from callboard import Context, ResourceLink, Revision, Server
from callboard.server.signature.markers import Titles
from callboard.testing import Refusal, connect

server = Server("asking")


@attrs.frozen
class Choice:
    size: Annotated[Literal["s", "l"], Titles({"s": "Small", "l": "Large"})] = "s"


@attrs.frozen
class Choices:
    sizes: list[Literal["s", "l"]]


@server.tool
async def abilities(*, ctx: Context) -> str:
    modes = (ctx.client_can("elicitation.form"), ctx.client_can("elicitation.url"), ctx.client_can("sampling.tools"))
    return " ".join(str(mode) for mode in modes)


@server.tool
async def choose(*, ctx: Context) -> str:
    return (await ctx.elicit("Which?", Choice, key="which")).size


@server.tool
async def choose_many(*, ctx: Context) -> str:
    return " ".join((await ctx.elicit("Which?", Choices)).sizes)


@server.tool
async def point() -> ResourceLink:
    return ResourceLink(name="notes", uri="file:///notes")


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, "False False False"),
        ({"elicitation": {}, "sampling": {}}, "True False False"),
        ({"elicitation": {"url": {}}, "sampling": {"tools": {}}}, "False True True"),
        ({"elicitation": {"form": {}, "url": {}}}, "True True False"),
    ],
)
async def test_a_handler_can_see_what_the_client_declares(
    capabilities: dict[str, Any], expected: str, autojump_clock: MockClock
) -> None:
    async with connect(server, capabilities=capabilities) as client:
        assert text(await client.call("abilities")) == expected


@pytest.mark.parametrize("revision", [revision for revision in Revision if revision >= "2025-06-18"], ids=str)
async def test_a_titled_choice_is_asked_in_the_words_of_the_revision(
    revision: Revision, autojump_clock: MockClock
) -> None:
    asked: list[dict[str, Any]] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["requestedSchema"]["properties"]["size"])
        return {"action": "accept", "content": {"size": "l"}}

    async with connect(server, revision, answers={"elicitation/create": answer}) as client:
        assert text(await client.call("choose")) == "l"
    titles: dict[str, Any] = {"enum": ["s", "l"], "enumNames": ["Small", "Large"]}
    if revision > "2025-06-18":
        titles = {"default": "s", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
    assert asked == [{"type": "string", **titles}]


@pytest.mark.parametrize("revision", [revision for revision in Revision if revision < "2025-11-25"], ids=str)
async def test_what_a_revision_cannot_ask_is_a_tool_error(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(server, revision) as client:
        result = await client.call("choose_many")
        assert result["isError"] is True
        assert ("sizes" if revision == "2025-06-18" else "elicitation") in text(result)


async def test_an_answer_to_another_question_is_refused_and_not_passed_to_the_model(autojump_clock: MockClock) -> None:
    async with connect(server) as client:
        with pytest.raises(Refusal, match="-32602"):
            await client.request("tools/call", name="choose", inputResponses={"which": {"roots": []}})


async def test_a_link_reaches_a_client_that_has_no_links(autojump_clock: MockClock) -> None:
    async with connect(server, min(Revision)) as client:
        assert text(await client.call("point")) == "notes: file:///notes"


async def test_a_plain_function_may_change_the_lists_from_its_thread() -> None:
    changing = Server("changing")

    def more() -> str:
        return threading.current_thread().name

    @changing.tool
    def grow() -> str:
        changing.tool(more)
        return threading.current_thread().name

    async with connect(changing) as client:
        await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        await client.hear()
        name = text(await client.call("grow"))
        assert name != threading.current_thread().name
        assert len(client.notifications("notifications/tools/list_changed")) == 1
