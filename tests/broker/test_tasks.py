"""Tasks (BRIDGING.md, 14): a client that knows them has its own."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker import tasks
from callboard.codecs.caller import ANYBODY
from callboard.codecs.revisions import Revision, meta
from callboard.codecs.revisions.revision import R3, R4, R5
from callboard.config import Remote
from callboard.errors import OVERLOADED
from callboard.testing import Answer, Refusal
from callboard.transports.client.process import Command
from tests.broker.back import Back, form, named, text, tool
from tests.broker.front import backend, brokered, peer
from tests.broker.task_stage import (
    BOOK,
    EXTENSION,
    THERE,
    back_with_tasks,
    create,
    fetch,
    related,
    stand,
    standing,
)
from tests.client.stage import Json
from tests.node import needs_npm, node
from tests.servers.running import EVERYTHING as REFERENCE
from tests.servers.running import listening, packages


async def test_a_task_goes_by_an_id_of_ours_from_its_beginning_to_its_outcome(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        assert client.agreed["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        _, task = await create(client, back)
        ours = task["taskId"]
        assert ours != THERE
        assert len(ours) >= 22
        assert task == {**standing(), "taskId": ours}
        assert (await stand(client, back, task))["taskId"] == ours
        assert (await stand(client, back, task, status="completed"))["status"] == "completed"
        done = await fetch(client, back, task, **text("done"), _meta=related(THERE))
        assert done["content"][0]["text"] == "done"
        assert done["_meta"] == {**related(ours), "dev.callboard/backend": "back"}
        bare = await fetch(client, back, task, **text("done"))  # known for a while, and named in any case
        assert bare["_meta"] == done["_meta"]
        assert THERE not in str(client.heard)


async def test_a_task_can_be_cancelled_and_a_refusal_names_our_id(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        _, task = await create(client, back)
        cancelled = await stand(client, back, task, "tasks/cancel", "cancelled")
        assert (cancelled["status"], cancelled["taskId"]) == ("cancelled", task["taskId"])
        begun = await client.begin("tasks/cancel", taskId=task["taskId"])
        line, request = await back.hear("tasks/cancel")
        await line.refuse(request, -32602, f"final already: {THERE}", task=THERE)
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
        assert refused.value.code == -32602
        assert refused.value.message == f"final already: {task['taskId']}"
        assert refused.value.data == {"task": task["taskId"]}
        assert not back.told("notifications/cancelled")


async def test_the_error_of_a_call_is_that_of_its_task(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        _, task = await create(client, back)
        begun = await client.begin("tasks/result", taskId=task["taskId"])
        line, request = await back.hear("tasks/result")
        await line.refuse(request, -32050, "no room")
        with pytest.raises(Refusal, match="-32050: no room"):
            await client.finish(begun)


async def test_a_task_is_nobody_elses(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with (
        brokered(back.ways) as host,
        peer(host, R4, principal="ada") as ada,
        peer(host, R4, principal="eve") as eve,
    ):
        _, task = await create(ada, back)
        for client, known in ((eve, task["taskId"]), (ada, "never-was"), (ada, THERE)):
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                with pytest.raises(Refusal) as refused:
                    await client.request(method, taskId=known)
                assert (refused.value.code, refused.value.message) == (-32602, "Unknown task")
        async with peer(host, R4, principal="ada") as again:  # in another session, too
            assert (await stand(again, back, task))["taskId"] == task["taskId"]
        async with peer(host, R4, principal=ANYBODY) as one, peer(host, R4, principal=ANYBODY) as other:
            _, task = await create(one, back)
            with pytest.raises(Refusal, match="Unknown task"):  # anonymous clients are not one client
                await other.request("tasks/get", taskId=task["taskId"])
            assert (await stand(one, back, task))["taskId"] == task["taskId"]
        assert len(back.told("tasks/get")) == 2


async def test_questions_of_a_task_are_asked_while_its_outcome_is_waited_for(autojump_clock: MockClock) -> None:
    back, seen = back_with_tasks(), list[Json]()

    def answer(params: Json) -> Json:
        seen.append(params)
        return {**named("ada"), "_meta": related(params["_meta"][meta.RELATED_TASK]["taskId"])}

    async with brokered(back.ways) as host, peer(host, R4, answers={"elicitation/create": answer}) as client:
        line, first = await create(client, back)
        begun = await client.begin("tools/call", **BOOK, task={})
        _, request = await back.hear()
        await line.answer(request, task={**standing("input_required"), "taskId": "their-second"})
        second = (await client.finish(begun))["task"]
        waits = [await client.begin("tasks/result", taskId=one["taskId"]) for one in (first, second)]
        requests = [(await back.hear("tasks/result"))[1] for _ in waits]
        for there in (THERE, "their-second"):
            asked = await line.ask("elicitation/create", **form(), _meta=related(there))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.finish, waits[0])  # which deals with the question on its way
                assert (await line.answered(asked))["result"] == {**named("ada"), "_meta": related(there)}
                nursery.cancel_scope.cancel()
        assert [one["_meta"][meta.RELATED_TASK]["taskId"] for one in seen] == [first["taskId"], second["taskId"]]
        for waiting, request in zip(waits, requests, strict=True):
            await line.answer(request, **text(request["params"]["taskId"]))
            assert (await client.finish(waiting))["content"][0]["text"] == request["params"]["taskId"]


async def test_a_client_hears_where_its_task_stands(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client, peer(host, R4) as other:
        line, task = await create(client, back)
        await line.tell("notifications/tasks/status", **standing("input_required"))
        await line.tell("notifications/tasks/status", **{**standing(), "taskId": "nobody-knows"})
        await stand(client, back, task)
        [told] = client.notifications("notifications/tasks/status")
        assert told == {**standing("input_required"), "taskId": task["taskId"]}
        await other.request("ping")
        assert not other.heard


async def test_the_connection_of_a_task_stays_until_its_outcome_was_fetched(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(backend(back.ways, idle_time=20.0)) as host, peer(host, R4) as client:
        line, task = await create(client, back, ttl=600_000)
        assert line is not back.lines[0]
        await trio.sleep(200)
        assert (await stand(client, back, task, status="completed"))["status"] == "completed"
        await trio.sleep(200)
        await fetch(client, back, task, **text("done"))
        await trio.sleep(60)
        with pytest.raises(Refusal, match="Unknown task"):
            await client.request("tasks/get", taskId=task["taskId"])
        await client.begin("tools/call", **BOOK)
        assert (await back.hear())[0] is not line


async def test_a_task_is_forgotten_when_its_time_is_over(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(backend(back.ways, idle_time=20.0)) as host, peer(host, R4) as client:
        line, task = await create(client, back, ttl=30_000)
        assert task["ttl"] == 30_000
        await trio.sleep(29)
        await stand(client, back, task)
        await trio.sleep(1)
        with pytest.raises(Refusal, match="Unknown task"):
            await client.request("tasks/get", taskId=task["taskId"])
        await trio.sleep(60)
        await client.begin("tools/call", **BOOK)
        assert (await back.hear())[0] is not line


async def test_no_task_is_kept_for_ever(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        for ttl in (None, 10**15):
            _, task = await create(client, back, ttl=ttl)
            assert task["ttl"] == tasks.MAX_TTL * 1000
            assert (await stand(client, back, task))["ttl"] == tasks.MAX_TTL * 1000


async def test_one_task_too_many_is_refused_unless_another_was_fetched(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4, principal="ada") as ada, peer(host, R4) as bob:
        known = [(await create(ada, back, ttl=None))[1] for _ in range(tasks.MAX_TASKS_EACH)]
        with pytest.raises(Refusal) as refused:
            await ada.request("tools/call", **BOOK, task={})
        assert refused.value.code == OVERLOADED
        await create(bob, back)
        await fetch(ada, back, known[5], **text("done"))
        await create(ada, back)
        with pytest.raises(Refusal, match="Unknown task"):
            await ada.request("tasks/get", taskId=known[5]["taskId"])
        assert (await stand(ada, back, known[0]))["status"] == "working"


async def test_a_task_is_lost_with_its_connection(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        line, task = await create(client, back)
        line.hang_up()
        await wait_all_tasks_blocked()
        with pytest.raises(Refusal) as lost:
            await client.request("tasks/get", taskId=task["taskId"])
        assert lost.value.data["reason"] == "server lost"


async def test_where_no_backend_runs_tasks_there_are_none(autojump_clock: MockClock) -> None:
    for back in (Back(R4, tools=[tool("book", execution={"taskSupport": "required"})]), Back(R3), Back(R5)):
        async with brokered(back.ways) as host, peer(host, R4) as client:
            assert "tasks" not in client.agreed["capabilities"]
            assert "execution" not in (await client.request("tools/list"))["tools"][0]
            begun = await client.begin("tools/call", **BOOK, task={"ttl": 1000})
            line, request = await back.hear()
            assert "task" not in request["params"]
            await line.answer(request, **text("done"))
            assert (await client.finish(begun))["content"][0]["text"] == "done"
            for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list"):
                with pytest.raises(Refusal, match="-32601"):
                    await client.request(method, taskId="x")


async def test_lists_of_tasks_are_not_offered_and_a_wish_must_make_sense(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        with pytest.raises(Refusal, match="-32601"):
            await client.request("tasks/list")
        for wish in ({"ttl": "long"}, 7):
            with pytest.raises(Refusal, match="-32602"):
                await client.request("tools/call", **BOOK, task=wish)
        assert not back.told("tools/call")
        begun = await client.begin("tools/call", **BOOK, task={})
        line, request = await back.hear()
        await line.answer(request, **text("done at once"))  # a server may not care
        assert (await client.finish(begun))["content"][0]["text"] == "done at once"


async def test_what_is_no_task_is_the_backends_fault(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host, R4) as client:
        wrong: list[Any] = [7, {"taskId": "x"}, standing("surprised")]
        for task in wrong:
            begun = await client.begin("tools/call", **BOOK, task={})
            line, request = await back.hear()
            await line.answer(request, task=task)
            with pytest.raises(Refusal) as refused:
                await client.finish(begun)
            assert refused.value.data["reason"] == "invalid_backend_result"


# The extension of 2026-07-28: see test_task_matrix.py.


async def test_the_tasks_extension_is_refused_by_its_name_where_no_backend_has_tasks(autojump_clock: MockClock) -> None:
    back = Back(R4)
    declared: Json = {"extensions": {EXTENSION: {}}}
    async with brokered(back.ways) as host, peer(host) as plain, peer(host, capabilities=declared) as extended:
        assert "tasks" not in (await plain.request("server/discover"))["capabilities"]
        assert EXTENSION not in str(await extended.request("server/discover"))
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(Refusal) as refused:
                await plain.request(method, taskId="x")
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            with pytest.raises(Refusal, match="-32601"):
                await extended.request(method, taskId="x")
        for method in ("tasks/result", "tasks/list"):
            for client in (plain, extended):
                with pytest.raises(Refusal, match="-32601"):
                    await client.request(method, taskId="x")
        with pytest.raises(Refusal, match="-32021"):
            await plain.request("subscriptions/listen", notifications={"taskIds": ["x"]})


async def test_the_wish_of_a_modern_client_for_a_task_of_the_old_kind_is_ignored(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    async with brokered(back.ways) as host, peer(host) as client:
        assert not any("execution" in one for one in (await client.request("tools/list"))["tools"])
        begun = await client.begin("tools/call", **BOOK, task={"ttl": 1000})
        line, request = await back.hear()
        assert "task" not in request["params"]
        await line.answer(request, **text("done"))
        assert (await client.finish(begun))["content"][0]["text"] == "done"


# Somebody else's server.


@needs_npm
@pytest.mark.parametrize("way", ["stdio", "streamableHttp"])
async def test_the_reference_servers_research_is_a_task_to_who_knows_tasks_and_a_call_to_who_does_not(way: str) -> None:
    research: Json = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}}
    answers: dict[str, Answer] = {
        "elicitation/create": lambda _: {"action": "accept", "content": {"interpretation": "snake"}},
        "roots/list": lambda _: {"roots": []},
    }
    command = [str(node()), REFERENCE, way]
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(120))
        target: Command | Remote = Command(args=tuple(command), cwd=str(packages()))
        if way != "stdio":
            target = Remote(url=await stack.enter_async_context(listening(command, packages(), "/mcp")))
        host = await stack.enter_async_context(brokered(backend(target)))
        async with trio.open_nursery() as nursery:

            async def as_task() -> None:
                async with peer(host, R4, answers=answers) as client:
                    task = (await client.request("tools/call", **research, task={}))["task"]
                    assert (await client.request("tasks/get", taskId=task["taskId"]))["status"] == "working"
                    done = await client.request("tasks/result", taskId=task["taskId"])
                    assert "python (snake)" in done["content"][0]["text"]
                    assert done["_meta"][meta.RELATED_TASK] == {"taskId": task["taskId"]}
                    assert (await client.request("tasks/get", taskId=task["taskId"]))["status"] == "completed"
                    told = client.notifications("notifications/tasks/status")
                    assert {one["taskId"] for one in told} == {task["taskId"]}

            async def as_call(revision: Revision) -> None:
                async with peer(host, revision, answers=answers) as client:
                    done = await client.call("simulate-research-query", topic="python", ambiguous=True)
                    assert "python (snake)" in done["content"][0]["text"]

            nursery.start_soon(as_task)
            for revision in (R3, R4, R5):
                nursery.start_soon(as_call, revision)
