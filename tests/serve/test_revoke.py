"""Revocation: what runs, waits and listens for a principal ends at once, and others notice nothing."""

import pytest
import trio

from callboard.serve.revoke import end_all_of
from callboard.transports.server.http.guard import Authenticate
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import Client, Place, serving
from tests.transports.server.http.test_rounds import begin, parked, retry

ALICE, BOB = "Authorization: Bearer alice", "Authorization: Bearer bob"


async def _authenticate(token: str) -> str | None:
    return token


authenticate: Authenticate = _authenticate


async def busy(place: Place, line: str, name: str) -> Client:
    client = await place.connect()
    await client.send(client.modern("tools/call", line, name="work", arguments={"name": name}))
    return client


async def test_calls_that_run_end_and_those_of_others_go_on() -> None:
    house = open_house()
    async with serving(house.server, authenticate=authenticate) as place:
        hers, his = await busy(place, ALICE, "hers"), await busy(place, BOB, "his")
        await house.wait_started("hers", "his")
        begun = trio.current_time()
        await end_all_of(place.host, {"alice"})
        answer = await hers.answer()
        assert (answer.status, answer.body) == (200, b"")  # a stream without an event: there is no result
        assert trio.current_time() - begun < 1
        house.gates["his"].set()
        assert (await his.answer()).result
        assert place.host.in_flight.total == 0


async def test_what_is_parked_is_gone_and_that_of_others_goes_on() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        hers, his = await begin(client, ALICE), await begin(client, BOB)
        await end_all_of(place.host, {"alice"})
        assert parked(place) == 1
        await client.send(retry(client, hers, ALICE))
        assert (await client.answer()).code == -32602
        await client.send(retry(client, his, BOB))
        assert (await client.answer()).result["content"][0]["text"] == "hello Ada"


@pytest.mark.parametrize("whose", ["nobody", ""])
async def test_who_has_nothing_loses_nothing(whose: str) -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        await begin(client, ALICE)
        assert await end_all_of(place.host, {whose}) == 0
        assert parked(place) == 1
