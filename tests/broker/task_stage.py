"""A backend that runs tasks, and what its clients do with one."""

from typing import Any, Final

from callboard.codecs.revisions import meta
from callboard.codecs.revisions.revision import R4
from callboard.testing import Peer
from tests.broker.back import Back, Line, tool
from tests.client.stage import EVERYTHING, Json

TASKS: Final[Json] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
THERE: Final = "their-own-id"
BOOK: Final[Json] = {"name": "book", "arguments": {"day": "fri"}}
EXTENSION: Final = "io.modelcontextprotocol/tasks"


def back_with_tasks(support: str = "optional", **more: Any) -> Back:
    tools = [tool("book", execution={"taskSupport": support}), tool("other")]
    return Back(R4, tools=tools, capabilities={**EVERYTHING, "tasks": TASKS}, **more)


def standing(status: str = "working", **more: Any) -> Json:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {"taskId": THERE, "status": status, "ttl": 60_000, "pollInterval": 2000, **times, **more}


def related(task: str) -> Json:
    return {meta.RELATED_TASK: {"taskId": task}}


async def create(client: Peer, back: Back, **more: Any) -> tuple[Line, Json]:
    """Have a call become a task: where it is, and as the client knows it."""
    begun = await client.begin("tools/call", **BOOK, task={"ttl": 60_000})
    line, request = await back.hear()
    assert request["params"]["task"] == {"ttl": 60_000}
    await line.answer(request, task=standing(**more))
    created = await client.finish(begun)
    task: Json = created["task"]
    return line, task


async def fetch(client: Peer, back: Back, task: Json, **result: Any) -> Json:
    begun = await client.begin("tasks/result", taskId=task["taskId"])
    line, request = await back.hear("tasks/result")
    assert request["params"]["taskId"] == THERE
    await line.answer(request, **result)
    return await client.finish(begun)


async def stand(client: Peer, back: Back, task: Json, method: str = "tasks/get", status: str = "working") -> Json:
    begun = await client.begin(method, taskId=task["taskId"])
    line, request = await back.hear(method)
    assert request["params"]["taskId"] == THERE
    await line.answer(request, **standing(status))
    return await client.finish(begun)
