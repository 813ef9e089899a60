"""`connect(..., input="manual")`: what a server asks is handed to whoever called, who answers when it suits him."""

import re
import textwrap
from collections.abc import Callable
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock

from callboard.client import Asked, ManualClient, connect
from callboard.codecs.revisions import (
    CallToolResult,
    ClientCapabilities,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequest,
    ElicitResult,
    InputResponses,
    ListRootsResult,
    Root,
    TextContent,
)
from callboard.codecs.revisions.revision import R4
from callboard.errors import BadAnswer, RequestTimedOut
from callboard.server import Server
from tests.client.stage import CACHED, Json, Puppet, played
from tests.client.test_rounds import ASKED, FORM, STATE, result
from tests.shared import ROOT

PAGE: Final = ROOT / "docs" / "howto" / "connect.md"
FORMS: Final = ClientCapabilities(elicitation=ElicitationCapability(form={}))

REQUESTS: Final[dict[str, Callable[[ManualClient], Any]]] = {
    "tools/call": lambda client: client.call("x", a=1)._run(),
    "resources/read": lambda client: client.read("house://hall"),
    "prompts/get": lambda client: client.prompt("x", a="1"),
}
every_request = pytest.mark.parametrize("method", REQUESTS)

GIVEN: Final[InputResponses] = {
    "who": ElicitResult(action="accept", content={"name": "ada"}),
    "what": CreateMessageResult(role="assistant", content=TextContent(text="fine"), model="m"),
    "where": ListRootsResult(roots=[Root(uri="file:///here")]),
}


def asks(**members: Any) -> Json:
    return {"resultType": "input_required", **members}


def rest(request: Json) -> Json:
    """What a retry has in common with the first request."""
    own = ("_meta", "inputResponses", "requestState")
    return {key: value for key, value in request["params"].items() if key not in own}


@every_request
@pytest.mark.requirement("M184", "M185", "M186", "M188", "M189")
async def test_the_caller_sees_each_question_and_resumes_the_same_request_with_its_state(
    method: str, autojump_clock: MockClock
) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        for state in (STATE, ""):
            heard.append(await puppet.hear(method))
            await puppet.say(id=heard[-1]["id"], result=asks(inputRequests=ASKED, requestState=state))
        heard.append(await puppet.hear(method))
        await puppet.answer(heard[-1], **result(method))

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        asked = await REQUESTS[method](client)
        assert isinstance(asked, Asked)
        assert asked.result.request_state == STATE
        assert list(asked.questions) == ["who", "what", "where"]
        assert isinstance(asked.questions["who"], ElicitRequest)
        assert asked.questions["who"].params.message == "Who?"
        again = await client.answer(asked, GIVEN)
        assert isinstance(again, Asked)
        done = await client.answer(again, {"who": ElicitResult(action="cancel")})
        assert not isinstance(done, Asked)
    first, second, third = (request["params"] for request in heard)
    assert not {"requestState", "inputResponses"} & first.keys()
    assert second["requestState"] == STATE
    assert second["inputResponses"] == {
        "who": {"action": "accept", "content": {"name": "ada"}},
        "what": {"role": "assistant", "content": {"type": "text", "text": "fine"}, "model": "m"},
        "where": {"roots": [{"uri": "file:///here"}]},
    }
    assert third["requestState"] == ""
    assert third["inputResponses"] == {"who": {"action": "cancel"}}  # of this round alone
    assert rest(heard[0]) == rest(heard[1]) == rest(heard[2])
    assert len({request["id"] for request in heard}) == 3


@pytest.mark.requirement("M187")
async def test_no_state_goes_back_where_none_came_and_no_answers_where_nothing_was_asked(
    autojump_clock: MockClock,
) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        for said in (asks(inputRequests={"who": ASKED["who"]}), asks(requestState="later")):
            heard.append(await puppet.hear("tools/call"))
            await puppet.say(id=heard[-1]["id"], result=said)
        heard.append(await puppet.hear("tools/call"))
        await puppet.answer(heard[-1], content=[])

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        asked = await client.call("x")
        assert isinstance(asked, Asked)
        asked = await client.answer(asked, {"who": GIVEN["who"]})
        assert isinstance(asked, Asked)
        assert asked.questions == {}
        await client.answer(asked)
    assert "requestState" not in heard[1]["params"]
    assert heard[2]["params"]["requestState"] == "later"
    assert "inputResponses" not in heard[2]["params"]


async def test_what_is_declared_is_what_the_caller_says_or_has_functions_for(autojump_clock: MockClock) -> None:
    declared: list[Json] = []

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        declared.append(request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"])
        await puppet.answer(request, content=[])

    async with connect(played(play), input="manual", capabilities=FORMS, roots=["file:///here"]) as client:
        await client.call("x")
    async with connect(played(play), input="manual", roots=["file:///here"]) as client:
        await client.call("x")
    async with connect(played(play), input="manual") as client:
        await client.call("x")
    assert declared == [{"elicitation": {"form": {}}}, {"roots": {}}, {}]


async def test_functions_are_not_asked_in_a_round_that_is_handed_over(autojump_clock: MockClock) -> None:
    def never(_: object) -> None:
        raise AssertionError

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result=asks(inputRequests=ASKED))

    async with connect(played(play), input="manual", elicitation=never) as client:
        assert isinstance(await client.call("x"), Asked)


@pytest.mark.requirement("M214")
async def test_nothing_is_kept_of_a_question_nor_of_its_retry(autojump_clock: MockClock) -> None:
    asked_for = 0

    async def play(puppet: Puppet) -> None:
        nonlocal asked_for
        while True:
            request = await puppet.hear("resources/read")
            asked_for += 1
            if asked_for % 2:
                await puppet.say(id=request["id"], result=asks(inputRequests={"who": ASKED["who"]}, ttlMs=60_000))
            else:
                await puppet.answer(request, **result("resources/read"))

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        for _ in range(2):
            asked = await client.read("house://hall")
            assert isinstance(asked, Asked)
            assert not isinstance(await client.answer(asked), Asked)  # with nothing: the same request as before
    assert asked_for == 4


async def test_what_took_no_question_is_kept_as_ever(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("resources/read"), **result("resources/read"))
        raise AssertionError(await puppet.hear("resources/read"))

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        assert await client.read("house://hall") == await client.read("house://hall")


async def test_a_question_is_a_value_that_another_client_may_answer(autojump_clock: MockClock) -> None:
    async def ask(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result=asks(requestState=STATE))

    async def end(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        assert request["params"]["name"] == "x"
        assert request["params"]["arguments"] == {"a": 1}
        assert request["params"]["requestState"] == STATE
        await puppet.answer(request, content=[{"type": "text", "text": "done"}])

    async with connect(played(ask), input="manual", capabilities=FORMS) as client:
        asked = await client.call("x", a=1)
    assert isinstance(asked, Asked)
    kept = Asked[CallToolResult](asked.params, asked.result)
    async with connect(played(end), input="manual", capabilities=FORMS) as client:
        done = await client.answer(kept)
        assert not isinstance(done, Asked)
        assert done.content == [TextContent(text="done")]


async def test_an_answer_to_what_was_not_asked_is_an_error_of_the_caller(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result=asks(inputRequests={"who": ASKED["who"]}))
        raise AssertionError(await puppet.hear("tools/call"))

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        asked = await client.call("x")
        assert isinstance(asked, Asked)
        with pytest.raises(ValueError, match="no question has the key 'how'; keys: 'who'"):
            await client.answer(asked, {"how": GIVEN["who"]})


async def test_a_retry_reports_progress_has_its_own_patience_and_is_held_to_what_the_tool_promises(
    autojump_clock: MockClock,
) -> None:
    tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["a"]}}

    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("tools/list"), tools=[tool], **CACHED)
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result=asks(requestState="a"))
        request = await puppet.hear("tools/call")
        report = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1}
        await puppet.say(method="notifications/progress", params=report)
        await puppet.say(id=request["id"], result=asks(requestState="b"))
        await puppet.answer(await puppet.hear("tools/call"), content=[], structuredContent={"b": 1})
        await puppet.answer(await puppet.hear("tools/list"), tools=[tool], **CACHED)
        await puppet.hear("tools/call")
        await trio.sleep_forever()

    async with connect(played(play), input="manual", capabilities=FORMS) as client:
        await client.tools()
        asked = await client.call("x")
        assert isinstance(asked, Asked)
        await trio.sleep(5000)  # a person thinks: no clock runs
        async with client.answer(asked) as call:
            assert [update.progress async for update in call.progress] == [1]
        assert isinstance(call.result, Asked)
        with pytest.raises(BadAnswer, match="output schema"):
            await client.answer(call.result)
        with pytest.raises(RequestTimedOut, match="60"):
            await client.answer(call.result)


async def test_a_legacy_server_asks_by_requests_and_the_functions_answer(autojump_clock: MockClock) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=7, method="elicitation/create", params=FORM)
        heard.append(await puppet.hear())
        await puppet.say(id=8, method="roots/list")
        heard.append(await puppet.hear())
        await puppet.answer(request, content=[])

    async with connect(
        played(play, R4), input="manual", capabilities=FORMS, elicitation=lambda _: {"name": "ada"}
    ) as client:
        assert not isinstance(await client.call("x"), Asked)
    assert heard[0]["result"] == {"action": "accept", "content": {"name": "ada"}}
    assert heard[1]["error"]["code"] == -32601


async def test_a_legacy_server_is_told_only_of_what_a_function_answers(autojump_clock: MockClock) -> None:
    declared: list[Json] = []

    async def play(puppet: Puppet) -> None:
        declared.append(next(said for said in puppet.heard if said["method"] == "initialize")["params"]["capabilities"])
        await trio.sleep_forever()

    everything = {"capabilities": FORMS, "revision": R4}
    async with connect(played(play, R4), input="manual", roots=["file:///here"], **cast("Any", everything)):
        pass
    async with connect(played(play, R4), input="manual", elicitation=lambda _: {}, **cast("Any", everything)):
        pass
    assert declared == [{}, {"elicitation": {"form": {}}}]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"input": "by hand"}, "invalid input='by hand': expected 'answer' or 'manual'"),
        ({"capabilities": FORMS}, "capabilities= is only for input='manual'"),
    ],
)
async def test_what_makes_no_sense_is_said_at_once(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        connect(Server("x"), **wrong)


async def test_the_listing_of_the_page_runs(autojump_clock: MockClock) -> None:
    listings = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    imports, body = next(code for code in listings if '"manual"' in code).split("\n\n", 1)
    shown: list[str] = []

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result=asks(inputRequests={"who": ASKED["who"]}, requestState=STATE))
        request = await puppet.hear("tools/call")
        assert request["params"]["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Who?"}}}
        await puppet.answer(request, content=[{"type": "text", "text": "booked"}])

    async def ask_user(question: ElicitRequest) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        return ElicitResult(action="accept", content={"name": question.params.message})

    names: dict[str, Any] = {
        "ask_user": ask_user,
        "target": played(play),
        "print": lambda said: shown.append(str(said)),
    }
    exec(f"{imports}\nasync def run():\n{textwrap.indent(body, '    ')}", names)  # noqa: S102  # the page is ours
    await names["run"]()
    assert "booked" in shown[0]
