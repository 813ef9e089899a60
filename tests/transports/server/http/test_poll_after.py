"""Calls that take long (2025-11-25): their streams are closed if the operator wants it, and clients come back."""

import pytest
import trio
from trio.testing import MockClock

from callboard import Revision
from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession, said
from tests.transports.server.http.stage import serving, settle

LAST = Revision.V2025_11_25
AFTER = 2.0
POLLING = Settings(poll_after=AFTER, write_time=2.0, retry=3.0)
"""A whole test may take `PATIENCE`, in virtual time too."""


async def test_a_quiet_call_is_closed_each_time_and_its_answer_comes_when_the_client_is_back(
    autojump_clock: MockClock,
) -> None:
    house = open_house()
    async with serving(house.server, POLLING) as place:
        session = await OpenSession.open(place, LAST)
        begun = trio.current_time()
        stream = await session.streamed("work", name="gate", id="x")
        for turn in (1, 2):
            assert await stream.rest() == []
            assert stream.decoder.retry == 3000
            assert turn * AFTER <= trio.current_time() - begun < turn * AFTER + 1
            assert (await stream.client.call("echo", text="x")).result  # only the stream ended
            stream = await session.listen(stream.decoder.last_event_id)  # some clients forget that of the stream before
        house.gates["gate"].set()
        [answer] = await stream.rest()
        assert (answer["id"], said([answer])) == ("x", ["gate"])
        assert house.cut == {}


async def test_a_client_that_is_away_finds_the_answer_when_it_comes_back(autojump_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, POLLING) as place:
        session = await OpenSession.open(place, LAST)
        stream = await session.streamed("work", name="gate")
        await stream.rest()
        house.gates["gate"].set()
        await settle()
        assert said(await (await session.listen(stream.decoder.last_event_id)).rest()) == ["gate"]


async def test_the_answer_for_a_client_that_is_away_outlasts_those_that_were_read(autojump_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, Settings(poll_after=AFTER, write_time=2.0, max_streams=3)) as place:
        session = await OpenSession.open(place, LAST)
        stream = await session.streamed("work", name="gate")
        await stream.rest()
        house.gates["gate"].set()
        await settle()
        for word in "abcdef":
            assert said(await (await session.streamed("chat", words=[word])).rest()) == [word, "done"]
        assert said(await (await session.listen(stream.decoder.last_event_id)).rest()) == ["gate"]


async def test_a_call_that_says_something_in_time_is_not_closed(autojump_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, POLLING) as place:
        session = await OpenSession.open(place, LAST)
        begun = trio.current_time()
        stream = await session.streamed("steps", number=3, name="s")
        for step in ("1", "2", "3"):
            assert said([await stream.message()]) == [step]
            if step != "3":
                await trio.sleep(0.75 * AFTER)
                house.gates[f"s{step}"].set()
        assert await stream.rest() == []  # it is quiet now
        assert 2.5 * AFTER <= trio.current_time() - begun < 2.5 * AFTER + 1
        house.gates["s3"].set()
        assert said(await (await session.listen(stream.decoder.last_event_id)).rest()) == ["done"]


async def test_a_call_whose_client_never_comes_back_can_be_cancelled_and_ends_with_its_session(
    autojump_clock: MockClock,
) -> None:
    house = open_house()
    async with serving(house.server, POLLING) as place:
        session = await OpenSession.open(place, LAST)
        first = await session.streamed("work", name="a", id=70)
        other = await session.streamed("work", name="b")
        assert await first.rest() == await other.rest() == []
        assert (await session.say({"method": "notifications/cancelled", "params": {"requestId": 70}})).status == 202
        await house.wait_cut("a")
        assert "b" not in house.cut
        assert await (await session.listen(first.decoder.last_event_id)).rest() == []
        await session.delete()
        await house.wait_cut("b")
        assert len(place.host.in_flight) == 0


@pytest.mark.parametrize("revision", [Revision.V2025_06_18, Revision.V2026_07_28], ids=str)
async def test_only_clients_that_poll_are_let_go(revision: Revision, autojump_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, POLLING) as place:
        if revision is Revision.V2026_07_28:
            client = await place.connect()
            await client.send(client.modern("tools/call", name="work", arguments={"name": "gate"}))
        else:
            client = await (await OpenSession.open(place, revision)).begin("work", name="gate")
        await house.wait_started("gate")
        await trio.sleep(3 * AFTER)
        house.gates["gate"].set()
        assert (await client.answer()).result


async def test_what_belongs_to_no_call_and_what_ends_are_not_closed(autojump_clock: MockClock) -> None:
    """The GET stream is kept alive by comments; at the end a client would find no way back."""
    house = open_house()
    async with serving(house.server, POLLING) as place:
        session = await OpenSession.open(place, LAST)
        listening = await session.listen()
        await trio.sleep(2 * AFTER)
        house.server.notify_changed("tools")
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        client = await session.begin("work", name="gate")
        await house.wait_started("gate")
        place.host.begin_drain()
        await trio.sleep(2 * AFTER)
        house.gates["gate"].set()
        assert (await client.answer()).result
