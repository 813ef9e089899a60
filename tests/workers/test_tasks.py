"""Tasks with several workers: a task id leads to the worker that has the task, whichever worker hears it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard import Context
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions.revision import LATEST
from callboard.testing import Peer, Refusal
from callboard.transports.server.http.guard import Authenticate
from tests.transports.server.http.house import House, Name
from tests.transports.server.http.stage import META, Answer
from tests.workers.sockets import socket_peer
from tests.workers.stage import Office, Worker, office

ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
UNKNOWN = {"code": -32602, "message": "Unknown task"}


def arrange(house: House) -> None:
    @house.server.tool(task="required")
    async def greet(*, ctx: Context) -> str:
        return f"hello {(await ctx.elicit('Who?', Name, key='who')).name}"


async def ask(worker: Worker, method: str, *lines: str, **params: Any) -> Answer:
    client = await worker.place.connect()
    meta = {f"{META}clientCapabilities": ABLE}
    headers = {"mcp_name": params["taskId"]} if "taskId" in params else {}
    await client.send(client.modern(method, *lines, headers=headers, meta=meta, **params))
    return await client.answer()


async def begin(worker: Worker, *lines: str) -> str:
    answer = await ask(worker, "tools/call", *lines, name="greet", arguments={})
    task_id: str = answer.result["taskId"]
    return task_id


@asynccontextmanager
async def two(folder: Path, authenticate: Authenticate | None = None) -> AsyncIterator[tuple[Office, Worker, Worker]]:
    async with office(folder, arrange=arrange, authenticate=authenticate) as (all_, (here, there)):
        yield all_, here, there


async def test_a_task_is_asked_for_answered_and_fetched_through_another_worker(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, here, there):
        task_id = await begin(here)
        asked = await ask(there, "tasks/get", taskId=task_id)
        assert asked.result["status"] == "input_required"
        given = {"who": {"action": "accept", "content": {"name": "Ada"}}}
        await ask(there, "tasks/update", taskId=task_id, inputResponses=given)
        done = (await ask(there, "tasks/get", taskId=task_id)).result
        assert (done["status"], done["result"]["content"][0]["text"]) == ("completed", "hello Ada")
        assert (here.forwarded, there.forwarded) == (0, 3)
        another = await begin(there)
        await ask(here, "tasks/cancel", taskId=another)
        assert (await ask(there, "tasks/get", taskId=another)).result["status"] == "cancelled"


async def test_a_task_is_found_through_another_worker_on_a_websocket(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, here, there), socket_peer(there.place.port, LATEST) as client:
        client.capabilities = ABLE
        task_id = await begin(here)
        assert (await client.request("tasks/get", taskId=task_id))["status"] == "input_required"
        await client.request("tasks/cancel", taskId=task_id)
        assert (await client.request("tasks/get", taskId=task_id))["status"] == "cancelled"
        own = (await client.request("tools/call", name="greet", arguments={}))["taskId"]
        assert (await ask(here, "tasks/get", taskId=own)).result["status"] == "input_required"


async def test_a_task_is_followed_at_its_home(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, here, there):
        task_id = await begin(here)
        client = await there.place.connect()
        meta = {f"{META}clientCapabilities": ABLE}
        wanted = {"taskIds": [task_id, "unknown"]}
        await client.send(client.modern("subscriptions/listen", meta=meta, notifications=wanted))
        stream = await client.stream_of()
        assert (await stream.message())["params"]["notifications"] == {"taskIds": [task_id]}
        assert (await stream.message())["params"]["status"] == "input_required"
        await ask(here, "tasks/cancel", taskId=task_id)
        assert (await stream.message())["params"]["status"] == "cancelled"


async def errors(worker: Worker, task_id: str, *lines: str) -> list[Any]:
    methods = ("tasks/get", "tasks/update", "tasks/cancel")
    answers = [await ask(worker, method, *lines, taskId=task_id, inputResponses={}) for method in methods]
    return [answer.json["error"] for answer in answers]


@pytest.mark.parametrize("forged", ["", "x", "A" * 87, "zz--__"])
async def test_a_forged_id_is_an_unknown_task_and_costs_no_hop(forged: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _here, there):
        assert await errors(there, forged) == [UNKNOWN] * 3
        assert there.forwarded == 0


async def test_another_principal_reads_what_it_would_read_of_a_forged_id(tmp_path: Path) -> None:
    async def authenticate(token: str) -> str | None:
        return token

    async with two(tmp_path, authenticate) as (_, here, there):
        task_id = await begin(here, "authorization: Bearer ada")
        for worker in (here, there):
            assert await errors(worker, task_id, "authorization: Bearer bob") == [UNKNOWN] * 3
        assert there.forwarded == 0
        answer = await ask(there, "tasks/get", "authorization: Bearer ada", taskId=task_id)
        assert answer.result["status"] == "input_required"


async def test_a_task_whose_worker_has_ended_is_unknown(tmp_path: Path) -> None:
    async with two(tmp_path) as (all_, here, there):
        task_id = await begin(here)
        async with socket_peer(there.place.port, LATEST) as client:
            client.capabilities = ABLE
            await all_.kill(here, is_known=False)
            assert await told(client, task_id) == UNKNOWN
            assert (await ask(there, "tasks/get", taskId=task_id)).json["error"] == UNKNOWN
            all_.meet()
            assert await told(client, task_id) == UNKNOWN
        assert await errors(there, task_id) == [UNKNOWN] * 3


async def told(client: Peer, task_id: str) -> dict[str, Any]:
    with pytest.raises(Refusal) as refused:
        await client.request("tasks/get", taskId=task_id)
    return {"code": refused.value.code, "message": refused.value.message}
