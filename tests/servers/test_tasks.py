"""Tasks of another project's server: for our client, and through the broker for clients of every kind."""

from typing import Any

import pytest
import trio

from callboard import connect
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions.revision import R3, R4, R5
from callboard.config import Remote
from callboard.testing import EVERYTHING, Peer
from callboard.transports.client.process import Command
from tests.broker.front import backend, brokered, peer
from tests.servers.running import HERE, fastmcp_with_tasks, listening
from tests.shared import ROOT

ABLE = {**EVERYTHING, "extensions": {EXTENSION: {}}}
ANSWERS = {"elicitation/create": lambda _: {"action": "accept", "content": {"name": "Ada"}}}
PATIENCE = 120.0


def command(*words: str) -> list[str]:
    return [str(fastmcp_with_tasks()), str(HERE / "fast_tasks.py"), *words]


async def test_our_client_drives_tasks_of_fastmcp() -> None:
    heard: dict[str, Any] = {}
    with trio.fail_after(PATIENCE):
        target = Command(args=tuple(command("stdio")))
        async with (
            connect(target, elicitation=lambda _: {"name": "Ada"}) as client,
            trio.open_nursery() as nursery,
        ):

            async def call(tool: str, arguments: dict[str, Any]) -> None:
                heard[tool] = (await client.call_with(tool, arguments)).content[0].text  # type: ignore[union-attr]

            async def handle() -> None:
                task = await client.call("compute", task=True, seconds=0.2)
                heard["handle"] = task.status, (await task).content[0].text  # type: ignore[union-attr]

            nursery.start_soon(call, "ask", {})
            nursery.start_soon(call, "fail", {})
            nursery.start_soon(call, "echo", {"text": "hi"})
            nursery.start_soon(handle)
    assert heard == {
        "ask": "hello Ada",
        "fail": "it did not work",
        "echo": "hi",
        "handle": ("working", "computed in 0.2"),
    }


async def with_extension(client: Peer) -> str:
    created = await client.request("tools/call", name="ask", arguments={})
    assert created["resultType"] == "task"
    asked = created
    while asked["status"] == "working":
        await trio.sleep(0.2)
        asked = await client.request("tasks/get", taskId=created["taskId"])
    [key] = asked["inputRequests"]
    given = {key: {"action": "accept", "content": {"name": "Ada"}}}
    await client.request("tasks/update", taskId=created["taskId"], inputResponses=given)
    while asked["status"] != "completed":
        await trio.sleep(0.2)
        asked = await client.request("tasks/get", taskId=created["taskId"])
    return str(asked["result"]["content"][0]["text"])


async def of_2025_11_25(client: Peer) -> str:
    task = (await client.request("tools/call", name="ask", arguments={}, task={}))["task"]
    result = await client.request("tasks/result", taskId=task["taskId"])
    return str(result["content"][0]["text"])


async def without_tasks(client: Peer) -> str:
    return str((await client.call("ask"))["content"][0]["text"])


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_tasks_of_fastmcp_reach_every_client_through_the_broker(way: str) -> None:
    heard: list[str] = []
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            if way == "stdio":
                target: Any = Command(args=tuple(command("stdio")))
            else:
                url = await nursery.start(_serve)
                target = Remote(url=url)
            async with (
                brokered(backend(target)) as host,
                peer(host, R5, capabilities=ABLE) as extended,
                peer(host, R4, answers=ANSWERS) as older,
                peer(host, R3, answers=ANSWERS) as oldest,
                trio.open_nursery() as calls,
            ):

                async def run(drive: Any, client: Peer) -> None:
                    heard.append(await drive(client))

                for drive, client in ((with_extension, extended), (of_2025_11_25, older), (without_tasks, oldest)):
                    calls.start_soon(run, drive, client)
            nursery.cancel_scope.cancel()
    assert heard == ["hello Ada"] * 3


async def _serve(task_status: trio.TaskStatus[str]) -> None:
    async with listening(command("http", "PORT"), ROOT, "/mcp") as url:
        task_status.started(url)
        await trio.sleep_forever()
