"""Tasks between clients and backends of both protocols (BRIDGING.md, 14), in every combination."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Server
from callboard.actors.rules import AccessRules, Rule
from callboard.actors.server.host import Host
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.revisions import LATEST, Revision, meta
from callboard.codecs.revisions.revision import R3, R4, R5
from callboard.errors import InvalidParams
from callboard.server import Context, Tasks, ToolError
from callboard.testing import EVERYTHING, Answer, Peer, Refusal
from tests.broker.front import backend, brokered, peer

ABLE: Final = {**EVERYTHING, "extensions": {EXTENSION: {}}}
BACKS: Final = pytest.mark.parametrize("back", [R4, R5], ids=["2025-11-25 behind", "2026-07-28 behind"])


@attrs.define
class Name:
    name: str


@attrs.define(eq=False)
class Stage:
    """A server with tasks, and what became of its calls."""

    server: Server
    ended: list[str] = attrs.field(factory=list)
    declared: list[bool] = attrs.field(factory=list)
    """Whether the extension was declared, of each call of `plain`."""


def stage(**options: Any) -> Stage:
    made = Stage(Server("s", extensions=[Tasks(**{"poll_interval": 0.5, **options})]))
    server = made.server

    @server.tool(task="required")
    async def work(seconds: float, *, ctx: Context) -> str:
        try:
            if ctx.task is not None:
                ctx.task.status_message = "working hard"
            await trio.sleep(seconds)
        except trio.Cancelled:
            made.ended.append("cancelled")
            raise
        made.ended.append("done")
        return f"worked {seconds:g}"

    @server.tool(task="required")
    async def greet(*, ctx: Context) -> str:
        first, second = await ctx.ask_all(ctx.elicit("First?", Name, key="one"), ctx.elicit("Second?", Name, key="two"))
        return f"{first.name} {second.name} {(await ctx.elicit('Third?', Name)).name}"

    @server.tool(task="required")
    async def fail(how: str) -> str:
        await trio.sleep(1)
        raise InvalidParams("wrong") if how == "protocol" else ToolError("no luck")

    @server.tool(task="optional")
    async def compose(*, ctx: Context) -> str:
        name = (await ctx.elicit("Name?", Name, key="name")).name
        await trio.sleep(2)
        return f"Hello, {name}"

    @server.tool
    async def plain(*, ctx: Context) -> str:
        extensions = ctx.client_capabilities.extensions
        made.declared.append(isinstance(extensions, dict) and EXTENSION in extensions)
        return "plain"

    return made


def said(params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": params["message"].rstrip("?").lower()}}


ANSWERS: Final[dict[str, Answer]] = {"elicitation/create": said}


@asynccontextmanager
async def met(
    here: Stage, back: Revision, front: Revision = LATEST, *, capabilities: Any = ABLE, **settings: Any
) -> AsyncIterator[tuple[Host, Peer]]:
    spec = backend(here.server, revision=back, **settings)
    async with (
        brokered(spec) as host,
        peer(host, front, capabilities=capabilities, answers=ANSWERS) as client,
    ):
        yield host, client


async def final(client: Peer, task_id: str) -> Any:
    """Ask for a task until it is final, and answer what it asks."""
    answered = set[str]()
    while True:
        task = await client.request("tasks/get", taskId=task_id)
        if task["status"] in ("completed", "failed", "cancelled"):
            return task
        asked = {key: one for key, one in task.get("inputRequests", {}).items() if key not in answered}
        for key, one in asked.items():  # one at a time: in part
            answered.add(key)
            given = {key: said(one["params"]), "unknown": {}}
            told = await client.request("tasks/update", taskId=task_id, inputResponses=given)
            assert told.keys() - {"_meta"} == {"resultType"}
        await trio.sleep(task["pollIntervalMs"] / 1000)


async def call(client: Peer, tool: str, **arguments: Any) -> Any:
    return await client.request("tools/call", name=tool, arguments=arguments)


def text(result: Any) -> str:
    words: str = result["content"][0]["text"]
    return words


# A client with the extension.


@BACKS
async def test_a_task_of_the_backend_is_one_of_the_brokers_for_a_client_with_the_extension(
    back: Revision, autojump_clock: object
) -> None:
    async with met(stage(), back) as (_, client):
        found = (await client.request("server/discover"))["capabilities"]
        assert found["extensions"] == {EXTENSION: {}}
        assert "tasks" not in found
        created = await call(client, "work", seconds=3)
        assert created.keys() - {"_meta", "statusMessage"} == {
            *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")
        }
        assert (created["resultType"], created["status"], created["ttlMs"]) == ("task", "working", 3_600_000)
        await trio.sleep(1)
        assert (await client.request("tasks/get", taskId=created["taskId"]))["statusMessage"] == "working hard"
        done = await final(client, created["taskId"])
        assert (done["resultType"], done["status"]) == ("complete", "completed")
        assert text(done["result"]) == "worked 3"
        assert meta.RELATED_TASK not in str(done)


@BACKS
async def test_questions_of_a_backends_task_are_answered_in_part_by_keys_that_never_come_twice(
    back: Revision, autojump_clock: object
) -> None:
    async with met(stage(), back) as (_, client):
        task_id = (await call(client, "greet"))["taskId"]
        await trio.sleep(2)
        asked = await client.request("tasks/get", taskId=task_id)
        assert asked["status"] == "input_required"
        assert len(asked["inputRequests"]) == 2
        if back is R5:
            assert asked["inputRequests"].keys() == {"one", "two"}
        assert text((await final(client, task_id))["result"]) == "first second third"


@BACKS
async def test_how_a_backends_task_ends_is_told_in_the_words_of_the_extension(
    back: Revision, autojump_clock: object
) -> None:
    async with met(stage(), back) as (_, client):
        done = await final(client, (await call(client, "fail", how="tool"))["taskId"])
        assert (done["status"], done["result"]["isError"]) == ("completed", True)
        done = await final(client, (await call(client, "fail", how="protocol"))["taskId"])
        if back is R5:
            assert (done["status"], done["error"]["code"]) == ("failed", -32602)
            assert "result" not in done
        else:  # a server of 2025-11-25 has no errors of the protocol for what a tool raises
            assert (done["status"], done["result"]["isError"]) == ("completed", True)


@BACKS
async def test_a_cancelled_task_is_cancelled_at_the_backend(back: Revision, autojump_clock: object) -> None:
    here = stage()
    async with met(here, back) as (_, client):
        task_id = (await call(client, "work", seconds=60))["taskId"]
        await trio.sleep(1)
        for _ in range(2):
            told = await client.request("tasks/cancel", taskId=task_id)
            assert told.keys() - {"_meta"} == {"resultType"}
            assert (await client.request("tasks/get", taskId=task_id))["status"] == "cancelled"
        await wait_all_tasks_blocked()
        assert here.ended == ["cancelled"]
        with pytest.raises(Refusal, match="-32602: Unknown task"):
            await client.request("tasks/get", taskId="unknown")


@BACKS
async def test_a_followed_task_of_a_backend_is_told_by_the_broker(back: Revision, autojump_clock: object) -> None:
    async with met(stage(), back) as (_, client):
        task_id = (await call(client, "work", seconds=2))["taskId"]
        await client.begin("subscriptions/listen", notifications={"taskIds": [task_id]})
        assert (await client.hear())["params"]["notifications"] == {"taskIds": [task_id]}
        heard: list[Any] = []
        while not heard or heard[-1]["status"] != "completed":
            heard.append((await client.hear())["params"])
        assert text(heard[-1]["result"]) == "worked 2"


async def test_a_call_that_asks_before_it_is_a_task_asks_in_its_result(autojump_clock: object) -> None:
    async with met(stage(), R5) as (_, client):
        first = await call(client, "compose")
        assert first["resultType"] == "input_required"
        answered = client.answered(first)
        created = await client.request("tools/call", name="compose", arguments={}, **answered)
        assert (created["resultType"], "requestState" in created) == ("task", False)
        assert text((await final(client, created["taskId"]))["result"]) == "Hello, name"


@BACKS
async def test_a_plain_call_stays_plain_and_tasks_are_known_to_their_client_alone(
    back: Revision, autojump_clock: object
) -> None:
    here = stage()
    async with (
        brokered(backend(here.server, revision=back)) as host,
        peer(host, capabilities=ABLE, principal="alice") as alice,
        peer(host, capabilities=ABLE, principal="bob") as bob,
    ):
        assert text(await call(alice, "plain")) == "plain"
        task_id = (await call(alice, "work", seconds=60))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(Refusal, match="-32602: Unknown task"):
                await bob.request(method, taskId=task_id, inputResponses={})
        assert (await alice.request("tasks/get", taskId=task_id))["status"] == "working"


# A client of 2025-11-25 that says `task`, and a modern backend.


async def test_a_client_of_2025_11_25_has_tasks_of_the_brokers_at_a_modern_backend(autojump_clock: object) -> None:
    async with met(stage(), R5, R4, capabilities=EVERYTHING) as (_, client):
        assert client.agreed["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in client.agreed["capabilities"]
        tools = (await client.request("tools/list"))["tools"]
        assert {one["execution"]["taskSupport"] for one in tools} == {"optional"}
        for tool, words in (("greet", "first second third"), ("plain", "plain")):
            task = (await client.request("tools/call", name=tool, arguments={}, task={"ttl": 60_000}))["task"]
            assert (task["status"], task["ttl"]) == ("working", 60_000)
            result = await client.request("tasks/result", taskId=task["taskId"])
            assert text(result) == words
            assert result["_meta"][meta.RELATED_TASK] == {"taskId": task["taskId"]}
            assert (await client.request("tasks/get", taskId=task["taskId"]))["status"] == "completed"
        failing = await client.request("tools/call", name="fail", arguments={"how": "tool"}, task={})
        assert (await client.request("tasks/result", taskId=failing["task"]["taskId"]))["isError"] is True
        assert (await client.request("tasks/get", taskId=failing["task"]["taskId"]))["status"] == "failed"


async def test_a_client_of_2025_11_25_cancels_for_good(autojump_clock: object) -> None:
    here = stage()
    async with met(here, R5, R4, capabilities=EVERYTHING) as (_, client):
        task = (await client.request("tools/call", name="work", arguments={"seconds": 60}, task={}))["task"]
        await trio.sleep(1)
        assert (await client.request("tasks/cancel", taskId=task["taskId"]))["status"] == "cancelled"
        await wait_all_tasks_blocked()
        assert here.ended == ["cancelled"]
        with pytest.raises(Refusal, match="-32602"):
            await client.request("tasks/cancel", taskId=task["taskId"])


# Clients without tasks.


@BACKS
@pytest.mark.parametrize("front", [R3, R4, R5])
async def test_the_broker_sees_a_task_through_for_a_client_without_tasks(
    front: Revision, back: Revision, autojump_clock: object
) -> None:
    here = stage()
    async with met(here, back, front, capabilities=EVERYTHING, drive_tasks=True) as (_, client):
        assert text(await client.call("work", seconds=3)) == "worked 3"
        assert text(await client.call("greet")) == "first second third"
        assert (await client.call("fail", how="tool"))["isError"] is True
        assert text(await client.call("plain")) == "plain"
        begun = await client.begin("tools/call", name="work", arguments={"seconds": 60})
        await trio.sleep(2)
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        await wait_all_tasks_blocked()
        assert here.ended == ["done", "cancelled"]


async def test_a_modern_client_without_tasks_is_told_to_declare_them_unless_they_are_driven(
    autojump_clock: object,
) -> None:
    here = stage()
    async with met(here, R5, capabilities=EVERYTHING) as (_, client):
        with pytest.raises(Refusal) as refused:
            await call(client, "work", seconds=1)
        assert refused.value.code == -32021
        assert refused.value.data["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}
        assert text(await call(client, "plain")) == "plain"
    async with met(here, R5, R4, capabilities=EVERYTHING) as (_, client):
        assert text(await call(client, "work", seconds=1)) == "worked 1"
        assert text(await call(client, "plain")) == "plain"
    async with met(here, R5) as (_, client):
        assert text(await call(client, "plain")) == "plain"
    assert here.declared == [False, False, True]  # only where the broker holds the task for its client


# Calls that the broker itself makes a task of.


async def test_a_long_call_of_any_backend_becomes_a_task_if_the_operator_wants_that(autojump_clock: object) -> None:
    made = Server("old")

    @made.tool
    async def slow(seconds: float) -> str:
        await trio.sleep(seconds)
        return "slowly"

    async with (
        brokered(backend(made, revision=R3, task_after=1.0)) as host,
        peer(host, capabilities=ABLE) as able,
        peer(host) as other,
    ):
        assert text(await call(able, "slow", seconds=0.5)) == "slowly"
        created = await call(able, "slow", seconds=5)
        assert created["resultType"] == "task"
        assert text((await final(able, created["taskId"]))["result"]) == "slowly"
        assert text(await call(other, "slow", seconds=5)) == "slowly"


# What ends one.


async def test_a_task_whose_time_is_over_is_cancelled_at_the_backend_and_unknown(autojump_clock: object) -> None:
    here = stage(ttl=10)
    async with met(here, R5) as (_, client):
        created = await call(client, "work", seconds=60)
        assert created["ttlMs"] == 10_000
        await trio.sleep(11)
        with pytest.raises(Refusal, match="Unknown task"):
            await client.request("tasks/get", taskId=created["taskId"])
        assert here.ended == ["cancelled"]


async def test_the_end_of_the_backend_fails_its_tasks(autojump_clock: object) -> None:
    here = stage()
    async with met(here, R5) as (host, client):
        task_id = (await call(client, "work", seconds=60))["taskId"]
        await trio.sleep(1)
        [(connection, _)] = (
            host.root.supervisor_of("backends").supervisor_of("back").supervisor_of("connections").actors()
        )
        connection.kill()
        done = await final(client, task_id)
        assert (done["status"], done["error"]["code"]) == ("failed", -31001)


async def test_a_task_begun_at_the_path_of_a_server_is_found_at_mcp_until_a_rule_forbids_its_tool(
    autojump_clock: object,
) -> None:
    async with brokered(backend(stage().server, revision=R5, prefix=None)) as host:
        async with peer(host, capabilities=ABLE) as client:
            await call(client, "back__plain")  # its lists are read
        assert host.paths is not None
        narrow = host.paths.find("back", ANONYMOUS)
        assert narrow is not None
        async with peer(narrow, capabilities=ABLE) as there, peer(host, capabilities=ABLE) as here:
            task_id = (await call(there, "work", seconds=600))["taskId"]
            for client in (there, here):
                assert (await client.request("tasks/get", taskId=task_id))["status"] == "working"
            host.rules = AccessRules([Rule(tools=("work",), deny=True)])
            assert (await here.request("tasks/get", taskId=task_id))["status"] == "working"
            host.rules = AccessRules([Rule(tools=("back__work",), deny=True)])
            for client in (there, here):
                with pytest.raises(Refusal, match="-32602: Unknown task"):
                    await client.request("tasks/get", taskId=task_id)
