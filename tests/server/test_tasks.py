"""A hosted tool runs as a task: in the extension of 2026-07-28, and in 2025-11-25."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.session_tree import open_session
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions import LATEST, Revision
from callboard.server import Context, Tasks, ToolError
from callboard.testing import EVERYTHING, Peer, Refusal, connect
from callboard.transports.memory import memory_pair

R4 = Revision("2025-11-25")
ABLE = {**EVERYTHING, "extensions": {EXTENSION: {}}}


@attrs.define
class Name:
    name: str


def server(**options: Any) -> Server:
    made = Server("s", extensions=[Tasks(**options)])

    @made.tool(task="optional")
    async def compute(seconds: float, *, ctx: Context) -> str:
        if ctx.task is not None:
            ctx.task.status_message = "computing"
        await trio.sleep(seconds)
        return f"done after {seconds:g}"

    @made.tool(task="required")
    async def fail() -> str:
        await trio.sleep(1)
        raise ToolError("no luck")

    @made.tool(task="required")
    async def greet(*, ctx: Context) -> str:
        first = await ctx.elicit("Your name?", Name, key="name")
        second, third = await ctx.ask_all(
            ctx.elicit("And again?", Name, key="name"), ctx.elicit("Your dog's?", Name, key="dog")
        )
        return f"{first.name} {second.name} {third.name}"

    @made.tool(task="optional")
    async def compose(*, ctx: Context) -> str:
        name = (await ctx.elicit("Your name?", Name, key="name")).name
        await trio.sleep(1)
        return f"Hello, {name}"

    @made.tool
    async def plain() -> str:
        return "plain"

    return made


def accepted(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def final(client: Peer, task_id: str) -> Any:
    while True:
        task = await client.request("tasks/get", taskId=task_id)
        if task["status"] != "working":
            return task
        await trio.sleep(0.5)


async def test_a_quick_call_is_answered_plainly_and_a_long_one_by_a_task(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE) as client:
        quick = await client.request("tools/call", name="compute", arguments={"seconds": 0})
        assert quick["content"][0]["text"] == "done after 0"
        created = await client.request("tools/call", name="compute", arguments={"seconds": 3})
        assert created["resultType"] == "task"
        assert created.keys() - {"_meta"} == {
            *(
                "resultType",
                "taskId",
                "status",
                "statusMessage",
                "createdAt",
                "lastUpdatedAt",
                "ttlMs",
                "pollIntervalMs",
            )
        }
        assert (created["status"], created["statusMessage"]) == ("working", "computing")
        done = await final(client, created["taskId"])
        assert (done["resultType"], done["status"]) == ("complete", "completed")
        assert done["result"]["content"][0]["text"] == "done after 3"


async def test_without_the_opt_in_an_optional_call_waits_and_a_required_one_is_refused(autojump_clock: object) -> None:
    async with connect(server(), LATEST) as client:
        result = await client.request("tools/call", name="compute", arguments={"seconds": 3})
        assert result["content"][0]["text"] == "done after 3"
        refusals: tuple[tuple[str, dict[str, Any]], ...] = (
            ("tools/call", {"name": "fail"}),
            ("tasks/get", {"taskId": "x"}),
        )
        for method, params in refusals:
            with pytest.raises(Refusal) as refused:
                await client.request(method, **params)
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        for method in ("tasks/result", "tasks/list"):
            with pytest.raises(Refusal, match="-32601"):
                await client.request(method, taskId="x")


async def test_a_tool_that_fails_completes_its_task(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE) as client:
        created = await client.request("tools/call", name="fail")
        done = await final(client, created["taskId"])
        assert (done["status"], done["result"]["isError"]) == ("completed", True)
        with pytest.raises(Refusal, match="-32602"):
            await client.request("tasks/get", taskId="unknown")


async def test_questions_of_a_task_are_answered_in_parts_and_no_key_comes_twice(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE) as client:
        task_id = (await client.request("tools/call", name="greet"))["taskId"]
        asked = await final(client, task_id)
        assert asked["status"] == "input_required"
        assert asked["inputRequests"].keys() == {"name"}
        assert asked["inputRequests"]["name"]["method"] == "elicitation/create"
        told = await client.request("tasks/update", taskId=task_id, inputResponses={"name": accepted("A"), "x": {}})
        assert told.keys() - {"_meta"} == {"resultType"}
        asked = await final(client, task_id)
        assert asked["inputRequests"].keys() == {"name~2", "dog"}
        await client.request("tasks/update", taskId=task_id, inputResponses={"dog": accepted("C")})
        asked = await client.request("tasks/get", taskId=task_id)
        assert (asked["status"], asked["inputRequests"].keys()) == ("input_required", {"name~2"})
        await client.request("tasks/update", taskId=task_id, inputResponses={"name~2": accepted("B")})
        assert (await final(client, task_id))["result"]["content"][0]["text"] == "A B C"


async def test_a_call_that_asks_before_it_is_a_task_asks_in_its_result(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE) as client:
        first = await client.request("tools/call", name="compose")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        await trio.sleep(10)
        created = await client.request(
            "tools/call", name="compose", requestState=first["requestState"], inputResponses={"name": accepted("Al")}
        )
        assert created["resultType"] == "task"
        assert "requestState" not in created
        assert (await final(client, created["taskId"]))["result"]["content"][0]["text"] == "Hello, Al"


async def test_a_cancelled_task_ends_and_is_kept_until_its_time_is_over(autojump_clock: object) -> None:
    async with connect(server(ttl=60), LATEST, capabilities=ABLE) as client:
        task_id = (await client.request("tools/call", name="compute", arguments={"seconds": 30}))["taskId"]
        for _ in range(2):
            told = await client.request("tasks/cancel", taskId=task_id)
            assert told.keys() - {"_meta"} == {"resultType"}
            assert (await client.request("tasks/get", taskId=task_id))["status"] == "cancelled"
        await trio.sleep(61)
        with pytest.raises(Refusal, match="Unknown task"):
            await client.request("tasks/get", taskId=task_id)


async def test_one_client_has_only_so_many_tasks(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE, principal="alice") as client:
        for _ in range(64):
            await client.request("tools/call", name="fail")
        with pytest.raises(Refusal, match="too many tasks"):
            await client.request("tools/call", name="fail")
        waited = await client.request("tools/call", name="compute", arguments={"seconds": 3})
        assert waited["content"][0]["text"] == "done after 3"


async def test_a_client_of_2025_11_25_runs_a_call_as_a_task(autojump_clock: object) -> None:
    names = {"Your name?": "A", "And again?": "B", "Your dog's?": "C"}
    answers = {"elicitation/create": lambda params: accepted(names[params["message"]])}
    async with connect(server(), R4, answers=answers) as client:
        assert client.agreed["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = {one["name"]: one for one in (await client.request("tools/list"))["tools"]}
        assert tools["greet"]["execution"] == {"taskSupport": "required"}
        assert "execution" not in tools["plain"]
        task = (await client.request("tools/call", name="greet", task={"ttl": 60000}))["task"]
        assert task["ttl"] == 60000
        result = await client.request("tasks/result", taskId=task["taskId"])
        assert result["content"][0]["text"] == "A B C"
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
        assert (await client.request("tasks/get", taskId=task["taskId"]))["status"] == "completed"
        with pytest.raises(Refusal, match="-32602"):
            await client.request("tasks/cancel", taskId=task["taskId"])
        task = (await client.request("tools/call", name="fail", task={}))["task"]
        assert (await client.request("tasks/result", taskId=task["taskId"]))["isError"] is True
        assert (await client.request("tasks/get", taskId=task["taskId"]))["status"] == "failed"
        wrong: tuple[tuple[str, dict[str, Any]], ...] = (("greet", {}), ("plain", {"task": {}}))
        for name, params in wrong:
            with pytest.raises(Refusal, match="-32601"):
                await client.request("tools/call", name=name, **params)


def test_a_tool_says_how_it_runs_as_a_task_or_is_refused() -> None:
    made = Server("s")
    made.tool(task="optional")(_nothing)
    assert [one.id for one in made.extensions] == [EXTENSION]
    with pytest.raises(ValueError, match="task='often'"):
        made.tool(task="often")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="ttl"):
        Tasks(ttl=0)


async def _nothing() -> None: ...


async def test_a_task_is_unknown_to_any_other_client(autojump_clock: object) -> None:
    made = server()
    async with made.host() as host, peer_of(host, "alice") as alice, peer_of(host, "bob") as bob:
        task_id = (await alice.request("tools/call", name="fail"))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(Refusal, match="-32602: Unknown task"):
                await bob.request(method, taskId=task_id, inputResponses={})
        assert (await alice.request("tasks/get", taskId=task_id))["status"] == "working"


@asynccontextmanager
async def peer_of(host: Host, principal: str) -> AsyncIterator[Peer]:
    there, here = memory_pair()
    await open_session(host, here, f"s-{principal}", principal)
    try:
        yield Peer(there, LATEST, ABLE, {}, None)
    finally:
        there.close()
