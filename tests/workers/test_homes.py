"""Requests that reach another worker than the one that has what they name: they are answered as if they had not."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard.codecs.link import LAST, write_frame
from callboard.codecs.revisions.revision import R3, R4
from callboard.errors import BACKEND_GONE, INVALID_PARAMS
from callboard.transports.client.pool import Origin
from callboard.workers.link_server import _ACCEPTED
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import QUICK, Answer, settle
from tests.workers.stage import Worker, office

NAME = {"action": "accept", "content": {"name": "Ada"}}


def via(session: OpenSession, worker: Worker) -> Callable[[], Awaitable[OpenSession]]:
    """The same session, whose requests go to another worker's listener."""

    async def move() -> OpenSession:
        return attrs.evolve(session, place=worker.place, client=await worker.place.connect())

    return move


async def text_of(answer: Answer) -> str:
    text: str = answer.result["content"][0]["text"]
    return text


async def test_a_session_is_served_by_its_home_whichever_worker_hears_it(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        assert (await away.call("echo", text="hi")).result["content"][0]["text"] == "hi"
        assert (await session.call("echo", text="ho")).result["content"][0]["text"] == "ho"
        assert (here.forwarded, there.forwarded) == (0, 1)
        assert len(here.place.endpoint.legacy) == 1
        assert len(there.place.endpoint.legacy) == 0


async def test_a_stream_of_another_worker_is_copied_as_it_comes(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        stream = await away.streamed("steps", number=2, name="s")
        assert (await stream.message())["params"]["data"] == "1"
        here.house.gates["s1"].set()
        assert (await stream.message())["params"]["data"] == "2"
        here.house.gates["s2"].set()
        assert (await stream.message())["result"]["content"][0]["text"] == "done"
        assert await stream.rest() == []


async def test_changes_are_heard_on_a_stream_that_another_worker_carries(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        listening = await away.listen()
        here.house.server.notify_changed("tools")
        assert (await listening.message())["method"] == "notifications/tools/list_changed"


async def test_a_stream_that_was_left_is_resumed_through_another_worker(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        stream = await session.streamed("steps", number=2, name="s")
        first = await stream.event()
        assert first is not None
        while not first.data:
            first = await stream.event()
            assert first is not None
        assert first.id.startswith(here.homes.incarnation)
        await stream.client.aclose()
        here.house.gates["s1"].set()
        here.house.gates["s2"].set()
        await settle()
        away = await via(session, there)()
        rest = await (await away.listen(first.id)).rest()
        assert rest[-1]["result"]["content"][0]["text"] == "done"


async def test_a_client_that_leaves_another_worker_is_heard_to_leave(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        client = await away.begin("work", name="w", id=7)
        await here.house.wait_started("w")
        await away.say({"method": "notifications/cancelled", "params": {"requestId": 7}})
        await here.house.wait_cut("w")
        await client.aclose()
        await settle()
        assert there.place.host.requests.child_count == 0


async def test_a_session_that_was_ended_through_another_worker_is_gone_everywhere(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        assert (await away.delete()).status == 204
        assert (await away.call("echo", text="hi")).status == 404
        assert (await session.call("echo", text="hi")).status == 404
        assert len(all_.book) == 0


@pytest.mark.parametrize("name", ["x", "A" * 87, "", "é"])
async def test_a_forged_name_costs_no_hop(name: str, tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        forged = attrs.evolve(session, id=name, place=there.place, client=await there.place.connect())
        assert (await forged.call("echo", text="hi")).status == 404
        assert there.forwarded == 0


async def test_the_name_of_another_principal_costs_no_hop(tmp_path: Path) -> None:
    async def authenticate(token: str) -> str | None:
        return token

    async with office(tmp_path, authenticate=authenticate) as (_, (here, there)):
        ada = await OpenSession.open(here.place, R4, "authorization: Bearer ada")
        bob = attrs.evolve(ada, lines=("authorization: Bearer bob",), client=await there.place.connect())
        assert (await bob.call("echo", text="hi")).status == 404
        assert there.forwarded == 0
        again = attrs.evolve(ada, client=await there.place.connect())
        assert (await again.call("who")).result["content"][0]["text"] == "ada"


# When the home is gone.


async def test_a_call_whose_home_ends_is_answered_that_its_outcome_is_not_known(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        waiting = await away.begin("work", name="w")
        await here.house.wait_started("w")
        await all_.kill(here)
        answer = await waiting.answer()
        assert (answer.status, answer.code) == (200, BACKEND_GONE)
        assert answer.json["error"]["data"]["reason"] == "home lost"
        assert there.house.started == []


async def test_a_session_is_opened_again_by_the_worker_that_is_asked(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        await session.ask("logging/setLevel", level="error")
        await session.ask("resources/subscribe", uri="file:///a")
        await all_.kill(here)
        away = await via(session, there)()
        assert (await away.call("echo", text="hi")).result["content"][0]["text"] == "hi"
        opened = there.place.endpoint.legacy._sessions[session.id].session
        assert opened.terms is not None
        assert (opened.terms.revision, opened.terms.log_level) == (R4, "error")
        listening = await away.listen()
        heard = [await listening.message() for _ in range(4)]
        assert sorted(one["method"] for one in heard) == [
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        there.house.server.notify_updated("file:///a")
        assert (await listening.message())["params"]["uri"] == "file:///a"


async def test_two_workers_that_are_asked_at_once_open_a_session_once(tmp_path: Path) -> None:
    async with office(tmp_path, 3) as (all_, (first, second, third)):
        session = await OpenSession.open(first.place, R4)
        await all_.kill(first)
        answers: list[Answer] = []

        async def ask(worker: Worker) -> None:
            answers.append(await (await via(session, worker)()).call("echo", text="hi"))

        async with trio.open_nursery() as nursery:
            for worker in (second, third, second, third):
                nursery.start_soon(ask, worker)
        assert [answer.status for answer in answers] == [200] * 4
        assert len(second.place.endpoint.legacy) + len(third.place.endpoint.legacy) == 1


async def test_a_worker_whose_end_was_not_heard_of_yet_is_found_out(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        await all_.kill(here, is_known=False)
        away = await via(session, there)()
        assert (await away.call("echo", text="hi")).status == 200


async def test_events_of_the_session_that_was_are_never_taken_for_those_of_the_one_that_is(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R3)
        stream = await session.streamed("chat", words=["a", "b"], name="gate")
        first = await stream.event()
        assert first is not None
        await all_.kill(here)
        away = await via(session, there)()
        other = await away.streamed("chat", words=["x", "y"], name="gate")
        await other.event()
        client = await there.place.connect()
        await client.send(away.get(first.id))
        assert (await client.answer()).status == 400


async def test_a_session_that_was_handed_over_goes_on_elsewhere_and_is_not_opened_where_it_was(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        all_.leaving.add(here.name)
        here.place.endpoint.legacy.hand_over(here.homes.release)
        away = await via(session, there)()
        assert (await away.call("echo", text="hi")).status == 200
        assert (await session.call("echo", text="ho")).status == 200  # by way of the worker that had it
        assert (len(here.place.endpoint.legacy), len(there.place.endpoint.legacy)) == (0, 1)


async def test_a_busy_session_is_not_handed_over(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, _)):
        session = await OpenSession.open(here.place, R4)
        waiting = await session.begin("work", name="w")
        await here.house.wait_started("w")
        here.place.endpoint.legacy.hand_over(here.homes.release)
        here.house.gates["w"].set()
        assert (await waiting.answer()).status == 200


# What modern clients hold.


async def asked(worker: Worker, **more: Any) -> tuple[Any, str]:
    client = await worker.place.connect()
    answer = await client.call("ask")
    (key,) = answer.result["inputRequests"]
    return key, answer.result["requestState"]


async def answer_to(worker: Worker, key: Any, state: str) -> Answer:
    client = await worker.place.connect()
    await client.send(
        client.modern("tools/call", name="ask", arguments={}, inputResponses={key: NAME}, requestState=state)
    )
    return await client.answer()


async def test_a_parked_call_goes_on_whichever_worker_hears_the_retry(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        key, state = await asked(here)
        answer = await answer_to(there, key, state)
        assert answer.result["content"][0]["text"] == "hello Ada"
        assert there.forwarded == 1


async def test_the_retry_of_a_call_whose_worker_is_gone_has_the_text_of_any_invalid_state(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)):
        key, state = await asked(here)
        await all_.kill(here)
        answer = await answer_to(there, key, state)
        assert answer.code == INVALID_PARAMS
        other = await answer_to(there, key, state[:-2] + "AA")
        assert answer.json["error"]["message"] == other.json["error"]["message"]


async def test_a_cursor_is_good_at_every_worker(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        for worker in (here, there):
            for number in range(300):
                worker.house.server.tool(name=f"tool-{number:03}")(_nothing)
        client = await here.place.connect()
        await client.send(client.modern("tools/list"))
        first = (await client.answer()).result
        other = await there.place.connect()
        await other.send(other.modern("tools/list", cursor=first["nextCursor"]))
        second = (await other.answer()).result
        assert {tool["name"] for tool in second["tools"]}.isdisjoint(tool["name"] for tool in first["tools"])


async def _nothing() -> None:
    pass


async def test_a_request_of_http_and_sse_is_posted_through_another_worker(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        client = await here.place.connect()
        await client.send(b"GET /sse HTTP/1.1\r\nhost: " + client.host + b"\r\naccept: text/event-stream\r\n\r\n")
        stream = await client.stream_of()
        endpoint = await stream.event()
        assert endpoint is not None
        other = await there.place.connect()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await other.send(head % (endpoint.data, other.host, len(body)) + body)
        assert (await other.answer()).status == 202
        assert (await stream.message())["result"] == {}


# What is large, and what is slow.


@pytest.mark.parametrize("size", [10, 65_536, 300_000, 3_000_000])
async def test_a_message_of_any_size_is_forwarded_both_ways(size: int, tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        assert await text_of(await away.call("echo", text="x" * size)) == "x" * size
        assert there.forwarded == 1


async def test_a_client_that_does_not_read_holds_up_its_own_stream_alone(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        lazy = await there.place.connect(receive_buffer=4096)
        flood = away.request("tools/call", name="flood", arguments={"size": 100_000, "count": 400, "name": "f"})
        await lazy.send(away.post(flood))
        for _ in range(20):
            assert await text_of(await away.call("echo", text="hi")) == "hi"
        assert here.place.host.in_flight.total == 1
        with trio.fail_after(QUICK.write_time + 8):  # then its stream is cut, and the call goes on without a reader
            while there.place.host.requests.child_count:  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_many_requests_are_on_their_way_at_once(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        sessions = [await OpenSession.open(here.place, R4) for _ in range(10)]
        answers: list[str] = []

        async def ask(session: OpenSession, number: int) -> None:
            away = await via(session, there)()
            waiting = await away.begin("work", name=f"w{number}", id=number)
            await here.house.wait_started(f"w{number}")
            here.house.gates[f"w{number}"].set()
            answers.append(await text_of(await waiting.answer()))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, sessions[number % 10], number)
        assert sorted(answers) == sorted(f"w{number}" for number in range(50))
        assert there.place.host.requests.child_count == 0


async def test_what_is_forwarded_is_in_the_tree_until_it_is_over(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await via(session, there)()
        waiting = await away.begin("work", name="w")
        await here.house.wait_started("w")
        (relayed,) = there.place.host.requests.snapshots(0)
        assert (relayed.kind, relayed.facts["worker"]) == ("RelayedRequest", here.name.hex())
        here.house.gates["w"].set()
        await waiting.answer()
        await settle()
        assert there.place.host.requests.child_count == 0


async def test_a_request_that_a_worker_did_not_begin_before_its_end_is_sent_again(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        link = there.homes.links[here.name]
        real, path, asked = link.origin, str(tmp_path / "ends"), list[bytes]()

        async def end(stream: trio.SocketStream) -> None:
            """What a worker does that ends with a request in its socket."""
            await stream.receive_some(65_536)
            await stream.send_all(_ACCEPTED)
            asked.append(bytes(await stream.receive_some(65_536)))
            link.origin = real
            await stream.send_all(write_frame(0, LAST, b"0"))
            await stream.aclose()

        with trio.socket.socket(trio.socket.AF_UNIX) as listening:
            await listening.bind(path)
            listening.listen(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, end, [trio.SocketListener(listening)])
                link.origin = Origin("http", "worker", 0, path)
                assert link._writer is not None
                link._writer.wire.close()
                await trio.sleep(0.2)
                away = await via(session, there)()
                assert await text_of(await away.call("echo", text="hi")) == "hi"
                nursery.cancel_scope.cancel()
        assert len(asked) == 1
