"""A client hears how its tasks stand: by `subscriptions/listen`, and in 2025-11-25 by `notifications/tasks/status`."""

from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

from callboard import Server
from callboard.actors.server.task import MAX_STATUS_MESSAGE
from callboard.actors.server.task_following import TaskFollowing
from callboard.actors.server.task_store import TaskStore
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions import LATEST, Revision
from callboard.server import Context
from callboard.testing import EVERYTHING, Peer, Refusal, connect
from tests.server.test_tasks import peer_of

R4 = Revision("2025-11-25")
ABLE = {**EVERYTHING, "extensions": {EXTENSION: {}}}


@attrs.define
class Name:
    name: str


def server() -> Server:
    made = Server("s")

    @made.tool(task="required")
    async def count(to: int, *, ctx: Context) -> str:
        """Says every 20 ms how far it is."""
        assert ctx.task is not None
        for step in range(to):
            ctx.task.status_message = f"step {step}"
            await ctx.report(step + 1)
            await ctx.log("info", "counting")
            await trio.sleep(0.02)
        return "counted"

    @made.tool(task="required")
    async def greet(*, ctx: Context) -> str:
        return (await ctx.elicit("Name?", Name, key="name")).name

    return made


async def begin(client: Peer, tool: str, **arguments: Any) -> str:
    task_id: str = (await client.request("tools/call", name=tool, arguments=arguments))["taskId"]
    return task_id


async def until_final(client: Peer, task_id: str) -> list[tuple[float, dict[str, Any]]]:
    """What is told of a task, and when, up to its end."""
    heard: list[tuple[float, dict[str, Any]]] = []
    while not heard or heard[-1][1]["status"] not in ("completed", "failed", "cancelled"):
        message = await client.hear()
        assert message["method"] == "notifications/tasks", message
        heard.append((trio.current_time(), message["params"]))
        assert message["params"]["taskId"] == task_id
    return heard


async def test_a_followed_task_is_told_whole_at_most_ten_times_a_second(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE, log_level="debug") as client:
        task_id = await begin(client, "count", to=50)
        number = await client.begin("subscriptions/listen", notifications={"taskIds": [task_id, "other", task_id]})
        acknowledged = (await client.hear())["params"]
        assert acknowledged["notifications"] == {"taskIds": [task_id]}
        heard = await until_final(client, task_id)
        times = [when for when, _ in heard]
        assert 8 <= len(heard) <= 12
        assert all(later - sooner > 0.0999 for sooner, later in pairwise(times))
        last = heard[-1][1]
        assert last["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
        assert last["result"]["content"][0]["text"] == "counted"
        assert "resultType" not in last
        fetched = await client.request("tasks/get", taskId=task_id)
        assert {key: value for key, value in fetched.items() if key not in ("_meta", "resultType")} == {
            key: value for key, value in last.items() if key != "_meta"
        }
        assert not client.notifications("notifications/progress")
        assert not client.notifications("notifications/message")


async def test_a_message_that_is_said_again_is_no_news(autojump_clock: object) -> None:
    """A broker says what it hears with each poll of a backend; of a long one, all but the beginning is cut off."""
    made = Server("s")

    @made.tool(task="required")
    async def repeat(*, ctx: Context) -> str:
        assert ctx.task is not None
        for _ in range(5):
            ctx.task.status_message = "far " * MAX_STATUS_MESSAGE
            await trio.sleep(1)
        return "done"

    async with connect(made, LATEST, capabilities=ABLE) as client:
        task_id = await begin(client, "repeat")
        await client.begin("subscriptions/listen", notifications={"taskIds": [task_id]})
        await client.hear()
        heard = await until_final(client, task_id)
        assert len(heard) <= 2


async def test_a_subscription_that_begins_late_hears_at_once_what_a_task_asks(autojump_clock: object) -> None:
    async with connect(server(), LATEST, capabilities=ABLE) as client:
        task_id = await begin(client, "greet")
        await trio.sleep(1)
        await client.begin("subscriptions/listen", notifications={"taskIds": [task_id], "toolsListChanged": True})
        assert (await client.hear())["params"]["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
        told = (await client.hear())["params"]
        assert (told["status"], told["inputRequests"].keys()) == ("input_required", {"name"})
        await client.request("tasks/cancel", taskId=task_id)
        while not client.heard:
            client.heard.append(await client.hear())
        assert client.heard[0]["params"]["status"] == "cancelled"


async def test_only_ones_own_tasks_are_followed(autojump_clock: object) -> None:
    async with server().host() as host, peer_of(host, "alice") as alice, peer_of(host, "bob") as bob:
        task_id = await begin(alice, "greet")
        await bob.begin("subscriptions/listen", notifications={"taskIds": [task_id]})
        assert (await bob.hear())["params"]["notifications"] == {"taskIds": []}
        await alice.request("tasks/cancel", taskId=task_id)
        with trio.move_on_after(5) as silence:
            await bob.hear()
        assert silence.cancelled_caught


async def test_a_client_that_does_not_declare_the_extension_may_not_follow_tasks(autojump_clock: object) -> None:
    async with connect(server(), LATEST) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("subscriptions/listen", notifications={"taskIds": ["x"]})
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    for wrong in ("x", [1], {"a": 1}, None):
        async with connect(server(), LATEST, capabilities=ABLE) as client:
            with pytest.raises(Refusal, match=r"-32602: params\.notifications\.taskIds"):
                await client.request("subscriptions/listen", notifications={"taskIds": wrong})


async def test_a_subscription_leaves_nothing_behind(autojump_clock: object) -> None:
    async with server().host() as host, peer_of(host, "alice") as alice:
        assert host.offer.task_store is not None
        task_id = await begin(alice, "greet")
        number = await alice.begin("subscriptions/listen", notifications={"taskIds": [task_id]})
        await alice.hear()
        (task,) = host.offer.task_store._held.values()
        assert len(task.followers) == 1
        await alice.say({"method": "notifications/cancelled", "params": {"requestId": number}})
        await trio.testing.wait_all_tasks_blocked()
        assert not task.followers


async def test_a_client_of_2025_11_25_is_told_how_its_task_stands(autojump_clock: object) -> None:
    answers = {"elicitation/create": lambda _: {"action": "accept", "content": {"name": "Ada"}}}
    async with connect(server(), R4, answers=answers) as client:
        task = (await client.request("tools/call", name="greet", task={}))["task"]
        result = await client.request("tasks/result", taskId=task["taskId"])
        assert result["content"][0]["text"] == "Ada"
        told = client.notifications("notifications/tasks/status")
        assert {one["taskId"] for one in told} == {task["taskId"]}
        assert told[-1]["status"] == "completed"
        assert told[-1].keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


async def test_ids_of_no_task_are_not_kept_as_long_as_a_subscription() -> None:
    made = [f"made-up-{number}" for number in range(20_000)]
    following = TaskFollowing(TaskStore(60.0, 1.0), made)
    unused: Any = None
    following.begin(unused, lambda _: None)
    del made
    assert list(following.wanted) == list(following.granted) == []
