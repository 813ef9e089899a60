"""What a handler may ask a client: forms, addresses, its model. And how a round of questions is written."""

from typing import Annotated, Any

import attrs
import msgspec
import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import (
    Revision,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Server
from callboard.server.context import Asking, Context, Declined, InputRequired
from callboard.testing import Answer, Peer, Refusal
from tests.protocol.house import open_house, recorded, text

WITH_FORMS = pytest.mark.parametrize("revision", [r for r in Revision if r >= "2025-06-18"], ids=str)
WITH_MODES = pytest.mark.parametrize("revision", [R4, R5], ids=str)
URL = "https://example.com/login"
LOOKUP = Tool(name="lookup", input_schema={"type": "object"})

server = Server("asking")


@attrs.frozen
class Guest:
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0


@server.tool
async def form(*, ctx: Context) -> str:
    try:
        guest = await ctx.elicit("Who are you?", Guest)
    except Declined:
        return "declined, and that is fine"
    return f"{guest.name} {guest.age}"


@server.tool
async def address(*, ctx: Context) -> str:
    await ctx.elicit_url("Please log in", URL)
    return "opened"


@server.tool
async def with_tools(*, ctx: Context) -> str:
    return (await ctx.sample("Look it up", max_tokens=9, tools=[LOOKUP])).text


@server.tool
async def twice_one_key(*, ctx: Context) -> str:
    await ctx.ask_all(ctx.roots(key="k"), ctx.roots(key="k"))
    return "unreachable"


@server.tool
async def many(*, ctx: Context) -> str:
    await ctx.ask_all(ctx.roots(), ctx.roots(), ctx.elicit("Who?", Guest, key="who"))
    return "asked"


@server.tool
async def only_state(*, ctx: Context) -> str | InputRequired:
    return "done" if ctx.state == "again" else InputRequired([], state="again")


def answering(**answers: Any) -> dict[str, Answer]:
    names = {"elicit": "elicitation/create", "sample": "sampling/createMessage", "roots": "roots/list"}

    def answer(value: Any) -> Answer:
        return lambda params: value

    return {names[name]: answer(value) for name, value in answers.items()}


def asked_of(peer: Peer, method: str) -> list[Any]:
    """The params of all such questions to a client, by a request or in a result."""
    found: list[Any] = []
    for frame in recorded(peer):
        inputs = frame.get("result", {}).get("inputRequests", {}).values()
        found += [one.get("params", {}) for one in (frame, *inputs) if one.get("method") == method]
    return found


@pytest.mark.requirement("M283", "M285", "L131")
@WITH_FORMS
async def test_a_form_has_a_message_and_a_schema(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        answers = answering(elicit={"action": "accept", "content": {"name": "Ada", "age": 36}})
        peer = await house.peer(revision, answers=answers)
        assert text(await peer.call("form")) == "Ada 36"
        (asked,) = asked_of(peer, "elicitation/create")
        assert asked["message"] == "Who are you?"
        assert asked.get("mode", "form") == "form"
        assert asked["requestedSchema"]["type"] == "object"
        assert asked["requestedSchema"]["properties"].keys() == {"name", "age"}


@pytest.mark.requirement("M294")
@WITH_FORMS
async def test_no_answer_of_a_user_is_a_failure_of_the_server(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision, answers=answering(elicit={"action": "decline"}))
        assert text(await peer.call("form")) == "declined, and that is fine"
        peer = await house.peer(revision, answers=answering(elicit={"action": "cancel"}))
        dismissed = await peer.call("form")
        assert (dismissed["isError"], text(dismissed)) == (True, "the user dismissed the question")


@pytest.mark.requirement("M308")
@WITH_FORMS
@pytest.mark.parametrize("content", [{}, {"name": 7}, {"name": "Ada", "age": -1}, {"name": "Ada", "age": "x"}])
async def test_an_answer_that_does_not_fit_the_form_never_reaches_the_handler(
    revision: Revision, content: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision, answers=answering(elicit={"action": "accept", "content": content}))
        failed = await peer.call("form")
        assert failed["isError"] is True
        assert "does not match" in text(failed)


@pytest.mark.requirement("M286", "L133")
@WITH_MODES
async def test_an_address_comes_with_its_mode_and_message(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision, answers=answering(elicit={"action": "accept"}))
        for _ in range(2):
            assert text(await peer.call("address")) == "opened"
        one, two = asked_of(peer, "elicitation/create")
        assert (one["mode"], one["message"], one["url"]) == ("url", "Please log in", URL)
        if revision is R4:
            assert one["elicitationId"] != two["elicitationId"]
        else:
            assert "elicitationId" not in one


@pytest.mark.requirement("M286")
@pytest.mark.parametrize("url", ["", "example.com", "/login", "javascript:alert(1)", "https://", "file:///etc/x"])
async def test_what_no_browser_opens_is_no_address(url: str, autojump_clock: MockClock) -> None:
    fresh = Server("fresh")

    @fresh.tool
    async def wrong(*, ctx: Context) -> str:
        with pytest.raises(ValueError, match="https"):
            ctx.elicit_url("Open it", url)
        return "refused"

    async with open_house(fresh) as house:
        assert text(await (await house.peer(R5)).call("wrong")) == "refused"


@pytest.mark.requirement("M282", "M318", "L130", "L163")
@WITH_MODES
@pytest.mark.parametrize(
    ("tool", "declared", "missing"),
    [
        ("form", {"elicitation": {"url": {}}}, {"elicitation": {}}),
        ("form", {"sampling": {}}, {"elicitation": {}}),
        ("address", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("address", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("with_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
    ],
)
async def test_a_client_is_not_asked_in_a_way_that_it_did_not_declare(
    revision: Revision, tool: str, declared: Any, missing: Any, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision, capabilities=declared)
        if revision is R5:
            with pytest.raises(Refusal) as refused:
                await peer.call(tool)
            assert (refused.value.code, refused.value.data) == (-32021, {"requiredCapabilities": missing})
        else:
            assert (await peer.call(tool))["isError"] is True
        assert asked_of(peer, "elicitation/create") == asked_of(peer, "sampling/createMessage") == []


USE = ToolUseContent(id="u1", name="lookup", input={})
USE_2 = ToolUseContent(id="u2", name="lookup", input={})
DONE = ToolResultContent(tool_use_id="u1", content=[TextContent(text="42")])
DONE_2 = ToolResultContent(tool_use_id="u2", content=[TextContent(text="43")])
WORDS = TextContent(text="So?")


def user(*blocks: Any) -> SamplingMessage:
    return SamplingMessage(role="user", content=list(blocks))


def assistant(*blocks: Any) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=list(blocks))


def sampling(messages: list[SamplingMessage]) -> Asking[Any]:
    return Context(None, server).sample(messages, max_tokens=1)  # type: ignore[arg-type]  # nobody is asked


@pytest.mark.requirement("M319", "M320", "M321", "L164", "L165")
@pytest.mark.parametrize(
    "messages",
    [
        [user(WORDS), assistant(USE), user(DONE, WORDS)],
        [user(WORDS), assistant(USE)],
        [user(WORDS), assistant(USE), user(WORDS)],
        [user(WORDS), assistant(USE), assistant(DONE)],
        [user(WORDS), assistant(USE), user(WORDS), user(DONE)],
        [user(WORDS), assistant(USE, USE_2), user(DONE)],
        [user(WORDS), assistant(USE), user(DONE, DONE_2)],
        [user(DONE)],
    ],
    ids=str,
)
def test_results_of_tools_stand_alone_and_answer_every_use_at_once(messages: list[SamplingMessage]) -> None:
    with pytest.raises(ValueError, match="tool"):
        sampling(messages)
    sampling([user(WORDS), assistant(WORDS, USE, USE_2), user(DONE_2, DONE), assistant(WORDS), user(WORDS)])


@pytest.mark.requirement("M172", "M173", "M174")
async def test_a_round_has_different_keys_and_known_questions(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        asked = await peer.request("tools/call", name="many")
        assert len(asked["inputRequests"]) == 3
        assert "who" in asked["inputRequests"]
        assert {one["method"] for one in asked["inputRequests"].values()} == {"roots/list", "elicitation/create"}
        assert asked["requestState"]
        failed = await peer.call("twice_one_key")
        assert failed["isError"] is True
        assert not [frame for frame in recorded(peer) if "k" in frame.get("result", {}).get("inputRequests", {})]
        again = await peer.request("tools/call", name="only_state")
        assert "inputRequests" not in again  # a state alone will do
        done = await peer.request("tools/call", name="only_state", requestState=again["requestState"])
        assert text(done) == "done"
