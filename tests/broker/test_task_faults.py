"""Modern backends whose tasks are not what the extension says: each harms its own call, and no other."""

from typing import Any, Final

import pytest
import trio

from callboard.actors.broker import task_drive
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions import meta
from callboard.codecs.revisions.revision import R4
from callboard.testing import EVERYTHING, Refusal
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING as OFFERED
from tests.client.stage import Json

ABLE: Final = {**EVERYTHING, "extensions": {EXTENSION: {}}}
BOOK: Final[Json] = {"name": "book", "arguments": {}}
TIMES: Final = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}


def back_with_tasks() -> Back:
    return Back(capabilities={**OFFERED, "extensions": {EXTENSION: {}}})


def standing(status: str = "working", **more: Any) -> Json:
    return {"taskId": "theirs", "status": status, "ttlMs": None, "pollIntervalMs": 1000, **TIMES, **more}


async def created(back: Back, **more: Any) -> Line:
    line, request = await back.hear()
    assert EXTENSION in request["params"]["_meta"][meta.CLIENT_CAPABILITIES]["extensions"]
    await line.answer(request, **standing(**more), resultType="task")
    return line


async def told(back: Back, **task: Any) -> None:
    line, request = await back.hear("tasks/get")
    assert request["params"]["taskId"] == "theirs"
    assert EXTENSION in request["params"]["_meta"][meta.CLIENT_CAPABILITIES]["extensions"]
    await line.answer(request, **task)


async def test_the_backends_id_and_endless_ttl_never_reach_the_client(autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back, statusMessage="m" * 5000)
        task = await client.finish(begun)
        assert "theirs" not in str(task)
        assert (task["ttlMs"], task["pollIntervalMs"], task["statusMessage"]) == (3_600_000, 1000, "m" * 1024)
        await told(back, **standing("completed", result=text("done")))
        await trio.sleep(1)
        done = await client.request("tasks/get", taskId=task["taskId"])
        assert done["result"]["content"] == text("done")["content"]


@pytest.mark.parametrize(
    "task",
    [
        {"taskId": 7},
        {"taskId": "theirs" * 1000, "status": "working"},
        {"taskId": "theirs", "status": "happy"},
        standing("completed"),
        standing("completed", result=7),
        standing("failed", error=[]),
        standing("input_required", inputRequests={"a": {"method": "tools/call"}}),
        standing("input_required", inputRequests={str(n): {} for n in range(2000)}),
    ],
    ids=[
        "no id",
        "an endless id",
        "no status",
        "no result",
        "not a result",
        "not an error",
        "not a question",
        "too many questions",
    ],
)
async def test_what_is_not_a_task_fails_its_task_and_the_next_call_goes_on(task: Json, autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        await told(back, **task)
        await trio.sleep(1)
        found = await client.request("tasks/get", taskId=task_id)
        assert found["status"] == "failed"
        assert found["error"]["code"]
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("fine"))
        assert (await client.finish(begun))["content"] == text("fine")["content"]


async def test_a_task_that_was_not_asked_for_is_an_invalid_result(autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        assert "extensions" not in request["params"]["_meta"][meta.CLIENT_CAPABILITIES]
        await line.answer(request, **standing(), resultType="task")
        with pytest.raises(Refusal, match="unknown resultType"):
            await client.finish(begun)


async def test_a_question_is_asked_once_however_often_it_is_told(autojump_clock: object) -> None:
    back = back_with_tasks()
    question = {"method": "elicitation/create", "params": {"mode": "form", **form()}}
    asking = standing("input_required", inputRequests={"who": question})
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        for _ in range(3):
            await told(back, **asking)
        await trio.sleep(0.5)
        asked = await client.request("tasks/get", taskId=task_id)
        assert asked["inputRequests"].keys() == {"who"}
        await client.request("tasks/update", taskId=task_id, inputResponses={"who": named("Ada")})
        line, update = await back.hear("tasks/update")
        assert update["params"]["inputResponses"] == {"who": named("Ada")}
        await line.answer(update)
        await told(back, **asking)  # it has not looked at the answer yet
        await told(back, **standing("completed", result=text("hello")))
        await trio.sleep(1)
        assert (await client.request("tasks/get", taskId=task_id))["status"] == "completed"
        assert len(back.told("tasks/update")) == 1


async def test_a_task_asks_only_so_many_questions(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_drive, "MAX_ASKED", 3)
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        for key in "abcd":
            question = {"method": "elicitation/create", "params": {"mode": "form", **form()}}
            await told(back, **standing("input_required", inputRequests={key: question}))
        await trio.sleep(1)
        found = await client.request("tasks/get", taskId=task_id)
        assert found["status"] == "failed"
        assert "more than 3 questions" in found["error"]["message"]


async def test_a_task_asks_no_more_bytes_than_may_be_kept(autojump_clock: object) -> None:
    """Each poll brings another question, which waits for the client as long as the task goes on."""
    back, words = back_with_tasks(), form()["message"] + "m" * 400_000
    question = {"method": "elicitation/create", "params": {"mode": "form", **form(), "message": words}}
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        for number in range(3):
            await told(back, **standing("input_required", inputRequests={f"q{number}": question}))
        await trio.sleep(0.5)
        found = await client.request("tasks/get", taskId=task_id)
        assert found["status"] == "failed"
        assert "bytes of questions" in found["error"]["message"]


async def test_a_backend_that_cancels_its_task_cancels_the_clients(autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        await told(back, **standing("cancelled"))
        await trio.sleep(1)
        assert (await client.request("tasks/get", taskId=task_id))["status"] == "cancelled"


async def test_a_late_poll_is_repeated_and_a_backend_that_stays_silent_fails_its_task(autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, capabilities=ABLE) as client:
        begun = await client.begin("tools/call", **BOOK)
        await created(back)
        task_id = (await client.finish(begun))["taskId"]
        await back.hear("tasks/get")  # which is not answered
        await told(back, **standing(statusMessage="still here"))
        await trio.sleep(1)
        assert (await client.request("tasks/get", taskId=task_id))["statusMessage"] == "still here"
        await trio.sleep(600)
        found = await client.request("tasks/get", taskId=task_id)
        assert (found["status"], found["error"]["code"]) == ("failed", -31002)


async def test_a_legacy_client_waits_no_longer_than_a_call_may_take(autojump_clock: object) -> None:
    back = back_with_tasks()
    async with brokered(backend(back.ways, cap=9.0)) as host, peer(host, R4, capabilities={}) as client:
        begun, began = await client.begin("tools/call", **BOOK), trio.current_time()
        line, request = await back.hear()
        needed: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        await line.refuse(request, -32021, "tasks are needed", **needed)
        await created(back)
        for _ in range(8):
            await told(back, **standing())
        with pytest.raises(Refusal, match="timed out"):
            await client.finish(begun)
        assert trio.current_time() - began == 9
        _, cancel = await back.hear("tasks/cancel")
        assert cancel["params"]["taskId"] == "theirs"
