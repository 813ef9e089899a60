"""Answers that are odd, wrong, nobody's or never come: each fails its own call, by name, and no other."""

from typing import Any

import pytest
import trio
from msgspec import UNSET, Raw
from trio.testing import MockClock

from callboard.client import connect
from callboard.codecs.revisions import CreateMessageRequestParams, Revision, meta
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import BadAnswer, ConnectionLost, ServerRefused
from tests.client.stage import CACHED, Json, Puppet, every_revision, played, text


@pytest.mark.requirement("M011")
async def test_a_result_that_does_not_say_what_it_is_is_complete(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result={"content": [{"type": "text", "text": "fine"}]})

    async with connect(played(play)) as client:
        assert text(await client.call("echo")) == "fine"


@pytest.mark.requirement("M010", "M009", "M063")
@pytest.mark.parametrize("kind", ["task", "partial", "", 7, None])
async def test_a_result_of_an_unknown_kind_is_no_answer(kind: Any, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result={"resultType": kind, "content": []})

    async with connect(played(play)) as client:
        with pytest.raises(BadAnswer, match="tools/call"):
            await client.call("echo")


@pytest.mark.parametrize("result", [{}, {"content": 7}, {"content": [{"type": "text"}]}, {"content": [7]}])
@every_revision
async def test_a_result_of_the_wrong_shape_is_no_answer_and_says_of_what(
    revision: Revision, result: Json, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        while True:
            await puppet.answer(await puppet.hear("tools/call"), **result)

    async with connect(played(play, revision)) as client:
        with pytest.raises(BadAnswer, match="tools/call"):
            await client.call("echo")
        with pytest.raises(BadAnswer):
            await client.call("echo")


@every_revision
async def test_null_where_something_may_be_absent_is_borne(revision: Revision, autojump_clock: MockClock) -> None:
    hints = {"readOnlyHint": None, "title": None}
    block = {"type": "text", "text": "fine", "annotations": None, "_meta": None}

    async def play(puppet: Puppet) -> None:
        more = CACHED if puppet.is_modern else {}
        tool = {"name": "echo", "inputSchema": {"type": "object"}, "description": None, "annotations": hints}
        await puppet.answer(await puppet.hear("tools/list"), tools=[tool], nextCursor=None, **more)
        request = await puppet.hear("tools/call")
        report = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1, "total": None}
        await puppet.say(method="notifications/progress", params={**report, "message": None})
        await puppet.answer(request, content=[block], isError=None, _meta=None)

    async with connect(played(play, revision)) as client:
        [tool] = await client.tools()
        assert tool.description is UNSET
        async with client.call("echo") as call:
            assert [update.total async for update in call.progress] == [UNSET]
        assert text(call.result) == "fine"


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": None}], [None]])
async def test_null_where_something_is_required_is_no_answer(content: Any, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("tools/call"), content=content)

    async with connect(played(play)) as client:
        with pytest.raises(BadAnswer, match="null"):
            await client.call("echo")


async def test_null_in_a_question_is_borne_too(autojump_clock: MockClock) -> None:
    asked: list[CreateMessageRequestParams] = []
    params = {"messages": [], "maxTokens": 5, "systemPrompt": None, "temperature": None, "modelPreferences": None}

    async def play(puppet: Puppet) -> None:
        await puppet.say(id="q", method="sampling/createMessage", params=params)
        answer = await puppet.hear()
        assert answer["result"]["model"] == "unknown"
        await puppet.answer(await puppet.hear("tools/call"), content=[])

    def sample(params: CreateMessageRequestParams) -> str:
        asked.append(params)
        return "fine"

    async with connect(played(play, R4), sampling=sample) as client:
        await trio.sleep(1)
        await client.call("echo")
    assert asked[0].system_prompt is UNSET


@pytest.mark.requirement("M250")
@pytest.mark.parametrize("code", [-32002, -32602, -32000, -32001, 7])
@every_revision
async def test_an_error_is_told_with_its_code_its_words_and_its_data(
    revision: Revision, code: int, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.refuse(await puppet.hear("resources/read"), code, "not here", uri="house://attic")

    async with connect(played(play, revision)) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.read("house://attic")
    assert (refused.value.error_code, refused.value.error_message) == (code, "not here")
    assert isinstance(refused.value.data, Raw)
    assert b"attic" in bytes(refused.value.data)


@pytest.mark.parametrize("revision", [R4, R5])
async def test_answers_to_nobody_twice_or_in_no_language_do_not_disturb_the_one_that_is_waited_for(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        other = {"content": [{"type": "text", "text": "wrong"}]}
        await puppet.say(id=999, result=other)
        await puppet.say(id=str(request["id"]), result=other)  # a string is another id
        await puppet.write(b"hello?")
        await puppet.write(b'{"jsonrpc": "2.0", "method": ')
        await puppet.write(b"[]")
        await puppet.say(id=None, error={"code": -32700, "message": "what?"})
        await puppet.answer(request, content=[{"type": "text", "text": "right"}])
        await puppet.answer(request, content=[{"type": "text", "text": "again"}])
        request = await puppet.hear("tools/call")
        await puppet.answer(request, content=[{"type": "text", "text": "next"}])

    async with connect(played(play, revision)) as client:
        assert text(await client.call("echo")) == "right"
        assert text(await client.call("echo")) == "next"


@pytest.mark.parametrize(
    "written",
    [
        b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [NaN]}}',
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":[' + b"0," * 120_000 + b"0]}}",
        b'{"result": {"content": [], "x": 1e400}, "jsonrpc": "2.0", "id": %d}',
        b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"\xff"}}',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_own_call_at_once(
    written: bytes, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        first, second = await puppet.hear("tools/call"), await puppet.hear("tools/call")
        await puppet.write(written % first["id"])
        await trio.sleep(5)
        await puppet.answer(second, content=[])

    async with connect(played(play)) as client, trio.open_nursery() as nursery:

        async def doomed() -> None:
            with pytest.raises(BadAnswer):
                await client.call("x")
            assert trio.current_time() == 0

        nursery.start_soon(doomed)
        await trio.testing.wait_all_tasks_blocked()
        await client.call("y")


@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_lost_connection_fails_all_calls_at_once_and_whoever_listens(
    revision: Revision, autojump_clock: MockClock
) -> None:
    gone = trio.Event()

    async def play(puppet: Puppet) -> None:
        for _ in range(3):
            await puppet.hear("tools/call")
        if puppet.is_modern:
            request = await puppet.hear("subscriptions/listen")
            said = {meta.SUBSCRIPTION_ID: request["id"]}
            params = {"_meta": said, "notifications": {"toolsListChanged": True}}
            await puppet.say(method="notifications/subscriptions/acknowledged", params=params)
        await gone.wait()
        puppet.connection.close()

    lost: list[float] = []
    async with connect(played(play, revision)) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionLost, match="connection closed by the server"):
                await client.call("echo")
            lost.append(trio.current_time())

        async def listen() -> None:
            async with client.listen(tools=True) as changes:
                gone.set()
                with pytest.raises(ConnectionLost):
                    await anext(changes)
            lost.append(trio.current_time())

        for _ in range(3):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(listen)
    assert len(lost) == 4
    assert len(set(lost)) == 1
