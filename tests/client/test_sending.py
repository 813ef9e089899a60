"""A request sent as it is, its answer as it comes, and who hears what comes before that."""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw
from trio.testing import MockClock

from callboard.actors.client.hearer import NotificationHandler, Report
from callboard.client import connect
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.members import raw
from callboard.codecs.revisions.revision import R4
from tests.client.stage import Puppet, played
from tests.client.web import Reply, legacy, nothing_unasked, web


async def test_raw_members_go_out_and_come_back_untouched(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.answer(request, content=[], odd=1.0)
        await puppet.refuse(await puppet.hear("tools/call"), -32000, "busy")

    async with connect(played(play)) as client:
        conversation = client._conversation
        body: dict[str, Any] = {
            "name": raw("x"),
            "arguments": Raw(b'{"a": 1.0}'),
            "_meta": raw(dict(conversation.said())),
        }
        answer = await conversation.send("tools/call", body)
        assert isinstance(answer, ResultResponse)
        assert bytes(answer.result["odd"]) == b"1.0"
        refused = await conversation.send("tools/call", body)
        assert isinstance(refused, ErrorResponse)
        assert (refused.code, refused.message) == (-32000, "busy")


async def test_progress_is_heard_by_whoever_made_the_request(autojump_clock: MockClock) -> None:
    heard: dict[str, list[float]] = {"a": [], "b": []}

    async def play(puppet: Puppet) -> None:
        for step in (1, 2):
            request = await puppet.hear("tools/call")
            token = request["params"]["_meta"]["progressToken"]
            await puppet.say(method="notifications/progress", params={"progressToken": token, "progress": step})
            await puppet.answer(request, content=[])

    def note(reports: list[float], report: Report) -> None:
        reports.append(report.progress)

    async with connect(played(play)) as client:
        for name, reports in heard.items():
            hearer = NotificationHandler(on_progress=partial(note, reports))
            body = {"name": name, "_meta": dict(client._conversation.said())}
            await client._conversation.send("tools/call", body, hearer=hearer)
    assert heard == {"a": [1], "b": [2]}


async def test_what_comes_on_the_way_of_a_request_is_for_its_own_hearer(autojump_clock: MockClock) -> None:
    async def serve(reply: Reply) -> None:
        if reply.seen.method != "POST":
            await nothing_unasked(reply)
        elif reply.seen.rpc != "tools/call":
            await reply.whole(202)
        else:
            await reply.stream()
            await reply.event({"method": "notifications/message", "params": {"level": "info", "data": "words"}})
            await reply.event({"method": "notifications/tools/list_changed"})
            await reply.event({"id": 7, "method": "roots/list"})
            await reply.event({"id": reply.seen.body["id"], "result": {"content": []}})
            await reply.end()

    own: list[Any] = []
    elsewhere: list[Any] = []
    hearer = NotificationHandler(
        on_log=lambda said: own.append(said.data),
        on_told=lambda method, _: own.append(method),
        on_question=lambda request: own.append((request.id, request.method)),
    )
    async with web(legacy(serve, R4)) as here, connect(here.ways(), on_log=elsewhere.append) as client:
        answer = await client._conversation.send("tools/call", {"name": "x"}, hearer=hearer)
        assert isinstance(answer, ResultResponse)
        assert msgspec.json.decode(answer.result["content"]) == []
        assert own == ["words", "notifications/tools/list_changed", (7, "roots/list")]
        assert elsewhere == []
        await client._conversation.send("tools/call", {"name": "x"})
        assert [said.data for said in elsewhere] == ["words"]
