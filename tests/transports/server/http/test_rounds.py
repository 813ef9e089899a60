"""Questions to a modern client over HTTP: parked between two requests, whichever connection brings them."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Context
from callboard.actors.server.parking import Parking
from tests.transports.server.http.house import Name, open_house
from tests.transports.server.http.stage import Answer, Client, Json, Place, serving, settle

ADA = {"action": "accept", "content": {"name": "Ada"}}


async def begin(client: Client, *lines: str) -> Answer:
    await client.send(client.modern("tools/call", *lines, name="ask", arguments={}))
    asked = await client.answer()
    assert asked.result["resultType"] == "input_required"
    return asked


def retry(client: Client, asked: Answer, *lines: str, **changes: Any) -> bytes:
    keys = asked.result["inputRequests"]
    params: Json = {
        "name": "ask",
        "arguments": {},
        "inputResponses": dict.fromkeys(keys, ADA),
        "requestState": asked.result["requestState"],
    }
    return client.modern("tools/call", *lines, **(params | changes))


def parked(place: Place) -> int:
    return len(place.host.parking)


async def test_a_retry_goes_on_where_the_handler_waited_on_any_connection() -> None:
    async with serving(open_house().server) as place:
        first, second = [await place.connect() for _ in range(2)]
        asked = await begin(first)
        assert parked(place) == 1
        await second.send(retry(second, asked, id="retry"))
        answer = await second.answer()
        assert answer.json["id"] == "retry"
        assert answer.result["content"][0]["text"] == "hello Ada"
        assert parked(place) == 0


async def test_who_leaves_while_it_is_parked_may_come_back() -> None:
    async with serving(open_house().server) as place:
        first = await place.connect()
        asked = await begin(first)
        await first.aclose()
        await settle()
        assert (parked(place), place.connections) == (1, 0)
        second = await place.connect()
        await second.send(retry(second, asked))
        assert (await second.answer()).result["content"][0]["text"] == "hello Ada"


async def test_who_leaves_after_the_retry_takes_it_along() -> None:
    house = open_house()

    @house.server.tool
    async def ask_then_wait(*, ctx: Context) -> str:
        name = await ctx.elicit("Who?", Name)
        await house.pass_gate("asked")
        return name.name

    async with serving(house.server) as place:
        first, second = [await place.connect() for _ in range(2)]
        await first.send(first.modern("tools/call", name="ask_then_wait", arguments={}))
        asked = await first.answer()
        await second.send(retry(second, asked, name="ask_then_wait"))
        await house.wait_started("asked")
        await first.aclose()  # has nothing to do with it any more
        await settle()
        assert "asked" not in house.cut
        await second.aclose()
        left = trio.current_time()
        assert await house.wait_cut("asked") - left < 0.5
        await settle()
        assert parked(place) == 0


async def test_a_state_is_good_for_one_retry() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        asked = await begin(client)
        assert [await code(client, retry(client, asked)) for _ in range(2)] == [200, -32602]


async def code(client: Client, data: bytes) -> int:
    await client.send(data)
    answer = await client.answer()
    assert answer.status == 200
    return answer.code if "error" in answer.json else 200


@pytest.mark.parametrize(
    "changes",
    [
        {"requestState": "nonsense"},
        {"requestState": ""},
        {"arguments": {"other": 1}},
        {"name": "echo"},
    ],
)
async def test_a_state_is_good_for_its_own_request_only(changes: Json) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        asked = await begin(client)
        assert await code(client, retry(client, asked, **changes)) == -32602
        assert await code(client, retry(client, asked)) == 200


async def test_a_state_is_good_for_its_own_principal_only() -> None:
    async def authenticate(token: str) -> str | None:
        return token

    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        asked = await begin(client, "Authorization: Bearer alice")
        assert await code(client, retry(client, asked, "Authorization: Bearer bob")) == -32602
        assert await code(client, retry(client, asked, "Authorization: Bearer alice")) == 200


async def test_what_is_not_retried_in_time_is_given_up() -> None:
    house = open_house()
    async with serving(house.server, parking=Parking("house", ttl=0.2)) as place:
        client = await place.connect()
        asked = await begin(client)
        while parked(place):
            await wait_all_tasks_blocked(0.05)
        assert await code(client, retry(client, asked)) == -32602
