"""Streams of legacy sessions: what travels on which, and what is left of one that was cancelled."""

import json

import pytest
import trio

from callboard import Revision
from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import HTTP_REVISIONS, OpenSession, said
from tests.transports.server.http.stage import Json, Stream, serving, settle

EACH = pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)
LAST = Revision.V2025_11_25


async def hears_nothing(stream: Stream, seconds: float = 0.1) -> None:
    await settle()
    with trio.move_on_after(seconds):
        pytest.fail(f"heard {await stream.message()}")


# What travels where.


@EACH
async def test_an_answer_is_a_stream_when_something_must_be_said_before_it(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=["a", "b"])
        assert said(await stream.rest()) == ["a", "b", "done"]
        assert "mcp-session-id" not in stream.head.headers
        assert (await session.call("chat", words=[])).result  # and JSON when nothing must


@EACH
@pytest.mark.requirement("L055", "L057", "L058")
async def test_what_belongs_to_no_request_is_told_on_the_get_stream_and_only_there(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        listening = await session.listen()
        talking = await session.streamed("chat", words=["a"], name="gate")
        await house.wait_started("gate")
        house.server.notify_changed("tools")
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        house.gates["gate"].set()
        assert said(await talking.rest()) == ["a", "done"]
        await hears_nothing(listening)


@EACH
@pytest.mark.requirement("L056")
async def test_no_answer_ever_comes_on_the_get_stream(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        listening = await session.listen()
        assert (await session.call("echo", text="x")).result
        assert said(await (await session.streamed("chat", words=["a"])).rest()) == ["a", "done"]
        await hears_nothing(listening)


@EACH
async def test_news_wait_for_a_get_stream(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        house.server.notify_changed("tools")
        house.server.notify_changed("tools")  # the latest news is all the news
        house.server.notify_changed("prompts")
        listening = await session.listen()
        heard = [(await listening.message())["method"] for _ in range(2)]
        assert sorted(heard) == ["notifications/prompts/list_changed", "notifications/tools/list_changed"]
        await hears_nothing(listening)


@EACH
async def test_the_second_get_stream_takes_over(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        first = await session.listen()
        second = await session.listen()
        assert await first.rest() == []  # it ended, politely
        assert first.is_over
        house.server.notify_changed("tools")
        assert (await second.message())["method"] == "notifications/tools/list_changed"


@EACH
async def test_two_sessions_hear_of_a_change_once_each(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        streams = [await (await OpenSession.open(place, revision)).listen() for _ in range(2)]
        house.server.notify_changed("tools")
        for stream in streams:
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            await hears_nothing(stream)


@EACH
async def test_what_the_server_asks_travels_on_the_stream_of_the_request(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        listening = await session.listen()
        stream = await session.streamed("folders")
        question = await stream.message()
        assert question["method"] == "roots/list"
        answer = await session.say({"id": question["id"], "result": {"roots": [{"uri": "file:///home"}]}})
        assert (answer.status, answer.body) == (202, b"")
        assert said(await stream.rest()) == ["file:///home"]
        await hears_nothing(listening)


async def test_a_question_can_be_answered_when_all_streams_are_taken() -> None:
    async with serving(open_house().server, Settings(max_streams=3, write_time=1)) as place:
        session = await OpenSession.open(place, LAST)
        streams = [await session.streamed("folders") for _ in range(3)]
        questions = [await stream.message() for stream in streams]
        answer = await session.call("echo", text="x")
        assert (answer.status, answer.code) == (429, -31003)
        assert "retry-after" in answer.headers
        for question, stream in zip(questions, streams, strict=True):
            result = {"roots": [{"uri": f"file:///{question['id']}"}]}
            assert (await session.say({"id": question["id"], "result": result})).status == 202
            assert said(await stream.rest()) == [f"file:///{question['id']}"]
        assert (await session.call("echo", text="x")).result


@EACH
async def test_an_id_that_is_in_flight_is_not_taken_twice_and_the_first_goes_on(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        first = await session.begin("work", id="x", name="gate")
        await house.wait_started("gate")
        second = await session.ask("tools/call", id="x", name="echo", arguments={"text": "x"})
        assert second.code == -32600
        house.gates["gate"].set()
        assert (await first.answer()).json["id"] == "x"
        assert (await session.ask("ping", id="x")).result == {}  # and it may be used again


# Cancelling.


@EACH
@pytest.mark.parametrize("tool", ["work", "errand", "chat"])
async def test_a_cancelled_post_ends_without_an_answer(revision: Revision, tool: str) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        arguments: Json = {"words": ["a"]} if tool == "chat" else {}
        client = await session.begin(tool, id="x", name="gate", **arguments)
        await house.wait_started("gate")
        answer = await session.say({"method": "notifications/cancelled", "params": {"requestId": "x"}})
        assert answer.status == 202
        answer = await client.answer()
        assert answer.status == 200
        heard = [json.loads(event.data) for event in answer.events if event.data]
        assert [message["method"] for message in heard] == (["notifications/message"] if tool == "chat" else [])
        assert "gate" in house.cut
        assert (await session.call("echo", text="x")).result


@EACH
async def test_a_cancellation_that_comes_too_late_is_nothing(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        assert (await session.call("echo", text="x")).result
        for request_id in (1, "1", 99, None):
            params = {"requestId": request_id}
            assert (await session.say({"method": "notifications/cancelled", "params": params})).status == 202
        assert (await session.call("echo", text="x")).result


@pytest.mark.parametrize("revision", HTTP_REVISIONS[1:], ids=str)  # those that know forms
@pytest.mark.finding("protocol-1.12c")
async def test_a_client_that_cancels_while_it_is_asked_is_told_that_the_question_is_void(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("ask", id="x")
        asked = await stream.message()
        await session.say({"method": "notifications/cancelled", "params": {"requestId": "x"}})
        with trio.fail_after(5):
            [told] = await stream.rest()
        assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
