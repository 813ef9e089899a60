"""Modern calls on a WebSocket whose retries reach another worker than the one that they are parked at."""

import os
import signal
from pathlib import Path
from typing import Any

import trio

from callboard import Context
from callboard.codecs.revisions.revision import LATEST
from callboard.errors import BACKEND_GONE, INVALID_PARAMS
from callboard.testing import Peer
from tests.transports.server.http.house import Name
from tests.transports.server.http.stage import settle
from tests.transports.server.websocket.stage import socket_of
from tests.workers.crowd import crowd, wait_until
from tests.workers.sockets import dial, local_port, modern_peer, socket_peer
from tests.workers.stage import Worker, office
from tests.workers.test_homes import NAME, asked


async def begin_retry(client: Peer, state: str, key: str, tool: str = "ask", **more: Any) -> int:
    params: dict[str, Any] = {"name": tool, "arguments": {}, "inputResponses": {key: NAME}, "requestState": state}
    return await client.begin("tools/call", **params, **more)


async def ask(client: Peer, tool: str = "ask") -> dict[str, Any]:
    """Call a tool that asks something; the result that asks."""
    return await client.request("tools/call", name=tool, arguments={})


async def answer(client: Peer, request_id: int) -> dict[str, Any]:
    """The response to a request, an error too."""
    while True:
        message = await client.hear()
        if message.get("id") == request_id:
            return message


async def parked(worker: Worker) -> tuple[str, str]:
    """A call that is parked at *worker*: its question's key, and its state."""
    async with socket_peer(worker.place.port, LATEST) as client:
        result = await ask(client, "ask")
        (key,) = result["inputRequests"]
        return key, result["requestState"]


async def test_a_parked_call_goes_on_whichever_worker_hears_its_retry(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        for worker in (here, there):
            key, state = await parked(worker)
            async with socket_peer(there.place.port, LATEST) as client:
                told = await answer(client, await begin_retry(client, state, key))
                assert told["result"]["content"][0]["text"] == "hello Ada"
                assert told["result"]["resultType"] == "complete"
        assert (there.forwarded, len(here.place.host.parking)) == (1, 0)
        await settle()
        assert [worker.place.host.in_flight.total for worker in (here, there)] == [0, 0]
        assert [worker.place.host.requests.child_count for worker in (here, there)] == [0, 0]


async def test_a_call_that_was_parked_over_http_goes_on_over_a_websocket(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        key, state = await asked(here)
        async with socket_peer(there.place.port, LATEST) as client:
            told = await answer(client, await begin_retry(client, state, key))
            assert told["result"]["content"][0]["text"] == "hello Ada"


async def test_what_the_home_says_on_the_way_comes_before_its_answer(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):

        @here.house.server.tool(name="slow_ask")
        async def slow_ask(*, ctx: Context) -> str:
            name = (await ctx.elicit("Who?", Name)).name
            for step in range(3):
                await ctx.report(step + 1, total=3)
                await ctx.log("info", f"{name} {step}")
            await here.house.pass_gate("end")
            return name

        there.house.server.tool(name="slow_ask")(slow_ask)
        async with socket_peer(here.place.port, LATEST) as client:
            result = await ask(client, "slow_ask")
            (key,) = result["inputRequests"]
        async with socket_peer(there.place.port, LATEST) as client:
            client.log_level = "info"
            meta = {"progressToken": "t"}
            call = await begin_retry(client, result["requestState"], key, "slow_ask", meta=meta)
            await here.house.wait_started("end")
            here.house.gates["end"].set()
            result = await client.finish(call)
            assert result["content"][0]["text"] == "Ada"
            told = [params["data"] for params in client.notifications("notifications/message")]
            assert told == [f"Ada {step}" for step in range(3)]
            reports = client.notifications("notifications/progress")
            assert (reports[-1]["progressToken"], reports[-1]["progress"]) == ("t", 3)


async def test_a_retry_that_its_client_cancels_or_leaves_ends_at_its_home(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):

        @here.house.server.tool(name="waits")
        async def waits(name: str = "", *, ctx: Context) -> str:
            await here.house.pass_gate((await ctx.elicit("Who?", Name)).name + str(len(here.house.cut)))
            return "done"

        there.house.server.tool(name="waits")(waits)
        for number in range(2):
            async with socket_peer(here.place.port, LATEST) as client:
                result = await ask(client, "waits")
                (key,) = result["inputRequests"]
            async with socket_peer(there.place.port, LATEST) as client:
                call = await begin_retry(client, result["requestState"], key, "waits")
                await here.house.wait_started(f"Ada{number}")
                if number == 0:
                    await client.say({"method": "notifications/cancelled", "params": {"requestId": call}})
                    await here.house.wait_cut(f"Ada{number}")
            await here.house.wait_cut(f"Ada{number}")
        await settle()
        assert [worker.place.host.in_flight.total for worker in (here, there)] == [0, 0]


async def test_a_state_is_spent_once_though_it_is_sent_to_all(tmp_path: Path) -> None:
    async with office(tmp_path, 3) as (_, workers):
        key, state = await parked(workers[0])
        told: list[dict[str, Any]] = []

        async def retry(worker: Worker) -> None:
            async with socket_peer(worker.place.port, LATEST) as client:
                told.append(await answer(client, await begin_retry(client, state, key)))

        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(retry, worker)
        assert sorted("result" in one for one in told) == [False, False, True]
        assert {one["error"]["code"] for one in told if "error" in one} == {INVALID_PARAMS}


async def test_the_retry_of_a_call_whose_home_is_gone_is_answered_so(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        key, state = await parked(here)
        async with socket_peer(there.place.port, LATEST) as client:
            await all_.kill(here, is_known=False)
            told = await answer(client, await begin_retry(client, state, key))
            all_.meet()
            again = await answer(client, await begin_retry(client, state, key))
            assert told["error"]["code"] == again["error"]["code"] == INVALID_PARAMS
            assert told["error"]["message"] == again["error"]["message"]


async def test_a_retry_whose_home_ends_while_it_runs_is_answered_that_its_outcome_is_not_known(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):

        @here.house.server.tool(name="waits")
        async def waits(*, ctx: Context) -> str:
            await here.house.pass_gate((await ctx.elicit("Who?", Name)).name)
            return "done"

        there.house.server.tool(name="waits")(waits)
        async with socket_peer(here.place.port, LATEST) as client:
            result = await ask(client, "waits")
            (key,) = result["inputRequests"]
        async with socket_peer(there.place.port, LATEST) as client:
            call = await begin_retry(client, result["requestState"], key, "waits")
            await here.house.wait_started("Ada")
            await all_.kill(here)
            assert (await answer(client, call))["error"]["code"] == BACKEND_GONE


async def test_real_processes_pass_retries_on_and_say_so_when_the_home_is_killed() -> None:
    async with crowd() as many:
        homes = set[tuple[int, int]]()
        for _ in range(8):
            socket = await dial(many.ws)
            client = modern_peer(socket)
            result = await ask(client, "ask")
            (key,) = result["inputRequests"]
            socket.close()
            other = modern_peer(await dial(many.ws))
            edge = many.edge_of(local_port(socket_of(other)))
            told = await answer(other, await begin_retry(other, result["requestState"], key))
            pid, name = told["result"]["content"][0]["text"].split()
            assert name == "Ada"
            homes.add((edge, int(pid)))
            socket_of(other).close()
        assert any(edge != home for edge, home in homes)
        socket = await dial(many.ws)
        home = many.edge_of(local_port(socket))
        result = await ask(modern_peer(socket))
        os.kill(home, signal.SIGKILL)
        socket.close()
        (key,) = result["inputRequests"]
        other = modern_peer(await dial(many.ws))
        told = await answer(other, await begin_retry(other, result["requestState"], key))
        assert told["error"]["code"] in (INVALID_PARAMS, BACKEND_GONE)  # its end may not have been heard of yet
        await wait_until(lambda: home not in many.workers())
        told = await answer(other, await begin_retry(other, result["requestState"], key))
        assert told["error"]["code"] == INVALID_PARAMS
        socket_of(other).close()
