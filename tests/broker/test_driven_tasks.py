"""Tasks that only the backend has (BRIDGING.md, 14): the broker sees them through for its client."""

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker import pool
from callboard.actors.broker.task_drive import FAREWELL
from callboard.codecs.revisions import MODERN, Revision, meta
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.codecs.tasks import LONGEST_POLL, SHORTEST_POLL
from callboard.testing import Answer, Refusal
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import backend, brokered, peer
from tests.broker.task_stage import (
    BOOK,
    THERE,
    back_with_tasks,
    related,
    standing,
)
from tests.client.stage import Json


async def drive(back: Back, *states: str, **result: Any) -> tuple[Line, list[float]]:
    """Play a tool that runs as a task to its outcome. Returns where, and when it was looked at."""
    line, request = await back.hear()
    assert request["params"]["task"]["ttl"] > 0
    await line.answer(request, task=standing())
    looks = [trio.current_time()]
    for status in states:
        _, request = await back.hear("tasks/get")
        assert request["params"] == {"taskId": THERE}
        looks.append(trio.current_time())
        await line.answer(request, **standing(status))
    _, request = await back.hear("tasks/result")
    assert request["params"]["taskId"] == THERE
    if result:
        await line.answer(request, **result, _meta=related(THERE))
    return line, looks


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["mute", "asked"])
@pytest.mark.parametrize("revision", [R1, R2, R3, R4, R5], ids=str)
async def test_a_call_that_must_be_a_task_is_a_plain_call_to_its_client(
    revision: Revision, capabilities: Json, autojump_clock: MockClock
) -> None:
    back = back_with_tasks("required")
    async with brokered(back.ways) as host, peer(host, revision, capabilities=capabilities) as client:
        begun = await client.begin("tools/call", **BOOK)
        _, looks = await drive(back, "working", "working", "completed", **text("done"))
        done = await client.finish(begun)
        assert done["content"] == text("done")["content"]
        assert meta.RELATED_TASK not in done["_meta"]
        assert [later - sooner for sooner, later in pairwise(looks)] == [2, 2, 2]
        assert not back.told("tasks/cancel")


async def test_how_often_a_task_is_looked_at_has_bounds(autojump_clock: MockClock) -> None:
    back = back_with_tasks("required")
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        for said, pause in ((0, SHORTEST_POLL), (10**9, LONGEST_POLL)):
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            began = trio.current_time()
            await line.answer(request, task=standing(pollInterval=said))
            _, request = await back.hear("tasks/get")
            assert trio.current_time() - began == pytest.approx(pause)
            await line.refuse(request, -32603, "lost it")
            with pytest.raises(Refusal, match="-32603: lost it"):
                await client.finish(begun)


async def test_a_task_that_never_ends_costs_its_caller_one_cap_and_is_cancelled(autojump_clock: MockClock) -> None:
    back = back_with_tasks("required")
    async with brokered(backend(back.ways, cap=9.0)) as host, peer(host, R4, capabilities={}) as client:
        begun, began = await client.begin("tools/call", **BOOK), trio.current_time()
        line, request = await back.hear()
        await line.answer(request, task=standing())
        for _ in range(4):
            _, request = await back.hear("tasks/get")
            await line.answer(request, **standing())
        with pytest.raises(Refusal) as late:
            await client.finish(begun)
        assert late.value.data["reason"] == "deadline"
        assert trio.current_time() - began == 10
        _, request = await back.hear("tasks/cancel")
        assert request["params"] == {"taskId": THERE}


@pytest.mark.parametrize("revision", [R3, R4, R5], ids=str)
async def test_questions_of_a_driven_task_reach_the_client_whose_call_it_is(
    revision: Revision, autojump_clock: MockClock
) -> None:
    back, seen = back_with_tasks("required"), list[Json]()

    def answer(params: Json) -> Json:
        seen.append(params)
        return named("ada")

    answers: dict[str, Answer] = {"elicitation/create": answer}
    async with brokered(back.ways) as host, peer(host, revision, answers=answers) as client:
        got: list[Json] = []

        async def call() -> None:
            got.append(await client.call("book", day="fri"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            line, _ = await drive(back, "working", "input_required")
            [request] = [one for one in line.heard if one.get("method") == "tasks/result"]
            asked = await line.ask("elicitation/create", **form(), _meta=related(THERE))
            assert (await line.answered(asked))["result"] == {**named("ada"), "_meta": related(THERE)}
            await trio.sleep(300)  # it works on: no word for longer than a plain call may take
            await line.answer(request, **text("done"), _meta=related(THERE))
        assert got[0]["content"][0]["text"] == "done"
        assert meta.RELATED_TASK not in str(seen)
        assert revision in MODERN or len(back.told("tools/call")) == 1


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["mute", "asked"])
async def test_a_client_that_cancels_its_call_cancels_the_task(
    revision: Revision, capabilities: Json, autojump_clock: MockClock
) -> None:
    back = back_with_tasks("required")
    async with brokered(back.ways) as host, peer(host, revision, capabilities=capabilities) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, task=standing())
        await wait_all_tasks_blocked()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        _, request = await back.hear("tasks/cancel")
        assert request["params"] == {"taskId": THERE}
        await line.answer(request, **standing("cancelled"))
        await wait_all_tasks_blocked()
        assert not back.told("notifications/cancelled")
        assert not client.heard


async def test_a_client_that_gives_up_one_call_after_the_other_is_told_of_only_so_often(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each withdrawal of a task waits for the backend, which does not answer."""
    monkeypatch.setattr(pool, "MAX_WITHDRAWALS", 4)  # of which one address may have three
    back = back_with_tasks("required")
    async with brokered(back.ways) as host, peer(host, R5) as client:
        for number in range(5):
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            await line.answer(request, task={**standing(), "taskId": f"task-{number}"})
            await wait_all_tasks_blocked()
            await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
            await wait_all_tasks_blocked()
        assert len(back.told("tasks/cancel")) == 3
        await trio.sleep(FAREWELL + 1)
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, task=standing())
        await wait_all_tasks_blocked()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        await wait_all_tasks_blocked()
        assert len(back.told("tasks/cancel")) == 4


async def test_a_driven_task_that_fails_fails_the_call(autojump_clock: MockClock) -> None:
    back = back_with_tasks("required")
    async with brokered(back.ways) as host, peer(host, R5) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, _ = await drive(back, "failed")
        [request] = [one for one in line.heard if one.get("method") == "tasks/result"]
        await line.refuse(request, -32050, "no room")
        with pytest.raises(Refusal, match="no room") as refused:
            await client.finish(begun)
        assert refused.value.data["cause"]["code"] == -32050
