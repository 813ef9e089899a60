"""Streams that a legacy client left, or was let go from: what it missed comes when it is back, in order and once."""

import json
import random

import pytest

from callboard import Context, Revision
from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import HTTP_REVISIONS, OpenSession, said
from tests.transports.server.http.stage import Json, serving, settle

EACH = pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)
UNPOLLED = pytest.mark.parametrize("revision", HTTP_REVISIONS[:-1], ids=str)
LAST = Revision.V2025_11_25


@EACH
@pytest.mark.requirement("L052")
@pytest.mark.parametrize("tool", ["work", "errand", "chat"])
async def test_leaving_cancels_nothing(revision: Revision, tool: str) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        arguments: Json = {"words": ["a"]} if tool == "chat" else {}
        client = await session.begin(tool, name="gate", **arguments)
        await house.wait_started("gate")
        client.reset()
        await settle()
        assert house.cut == {}
        house.gates["gate"].set()
        await settle()
        assert house.done == ["gate"]


@EACH
async def test_the_answer_is_found_by_coming_back(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=["a", "b"], name="gate", id="x")
        assert (await stream.message())["params"]["data"] == "a"
        assert (await stream.message())["params"]["data"] == "b"
        seen = stream.decoder.last_event_id
        await stream.client.aclose()
        await settle()
        house.gates["gate"].set()
        await settle()
        [answer] = await (await session.listen(seen)).rest()
        assert answer["id"] == "x"
        assert said([answer]) == ["done"]


WORDS = [str(number) for number in range(6)]


@EACH
@pytest.mark.parametrize("seen", range(1, len(WORDS) + 2))
async def test_wherever_a_stream_is_cut_the_rest_comes_in_order_and_once(revision: Revision, seen: int) -> None:
    """Cut after every event, while the handler still works, and again after its end."""
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=WORDS, name="gate")
        heard: list[Json] = []
        last = ""
        while len(heard) < min(seen, len(WORDS)):
            event = await stream.event()
            assert event is not None
            last = event.id
            heard += [json.loads(event.data)] if event.data else []
        await stream.client.aclose()
        await settle()
        if seen > len(WORDS):
            house.gates["gate"].set()
            await settle()
        resumed = await session.listen(last)
        house.gates["gate"].set()
        assert said(heard + await resumed.rest()) == [*WORDS, "done"]
        assert await (await session.listen(resumed.decoder.last_event_id)).rest() == []


@EACH
async def test_a_client_may_come_back_again_and_again(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("steps", number=4, name="s")
        heard = [await stream.message()]
        for step in range(1, 4):
            last = stream.decoder.last_event_id
            stream.client.reset()
            await settle()
            stream = await session.listen(last)
            house.gates[f"s{step}"].set()
            heard.append(await stream.message())
        house.gates["s4"].set()
        assert said(heard + await stream.rest()) == ["1", "2", "3", "4", "done"]


@EACH
@pytest.mark.parametrize("seed", range(5))
async def test_whatever_a_restless_client_does_it_hears_everything_in_order_and_once(
    revision: Revision, seed: int
) -> None:
    house, draw = open_house(), random.Random(seed)
    words = [str(number) for number in range(200)]
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=words)
        heard: list[Json] = []
        last = ""
        while not heard or "result" not in heard[-1]:
            for _ in range(draw.randrange(1, 20)):
                event = await stream.event()
                if event is None:
                    break
                last = event.id
                heard += [json.loads(event.data)] if event.data else []
            if draw.random() < 0.5:
                stream.client.reset()
            elif draw.random() < 0.5:
                await stream.client.aclose()  # else it comes back without having left
            stream = await session.listen(last)
        assert said(heard) == [*words, "done"]
        assert await stream.rest() == []


@EACH
async def test_a_question_that_was_missed_is_found_by_coming_back(revision: Revision) -> None:
    house = open_house()

    @house.server.tool
    async def ask_later(*, ctx: Context) -> str:
        await ctx.log("info", "a")
        await house.pass_gate("gate")
        return (await ctx.roots())[0].uri

    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("ask_later")
        await stream.message()
        last = stream.decoder.last_event_id
        await stream.client.aclose()
        await settle()
        house.gates["gate"].set()
        await settle()
        back = await session.listen(last)
        question = await back.message()
        assert question["method"] == "roots/list"
        await session.say({"id": question["id"], "result": {"roots": [{"uri": "file:///home"}]}})
        assert said(await back.rest()) == ["file:///home"]


@EACH
async def test_who_comes_back_takes_over_from_a_connection_that_only_seems_alive(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        old = await session.streamed("chat", words=["a"], name="gate")
        await old.message()
        new = await session.listen(old.decoder.last_event_id)
        assert await old.rest() == []
        house.gates["gate"].set()
        assert said(await new.rest()) == ["done"]


@EACH
async def test_news_that_a_listener_missed_come_when_it_is_back(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.listen()
        house.server.notify_changed("tools")
        await stream.message()
        last = stream.decoder.last_event_id
        house.server.notify_changed("prompts")
        await settle()  # written, and never read
        stream.client.reset()
        await settle()
        house.server.notify_changed("resources")
        back = await session.listen(last)
        heard = [(await back.message())["method"] for _ in range(2)]
        assert heard == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]


@EACH
@pytest.mark.requirement("L059", "L060")
async def test_every_event_has_an_id_of_its_own_and_brings_back_its_own_stream_only(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        listening = await session.listen()
        house.server.notify_changed("tools")
        event = await listening.event()
        while event is not None and not event.data:
            event = await listening.event()
        assert event is not None
        ids = [event.id]
        firsts: dict[str, str] = {}
        for name in "abc":
            stream = await session.streamed("chat", words=[name] * 3)
            while (event := await stream.event()) is not None:
                ids.append(event.id)
                firsts.setdefault(name, event.id)
        assert len(set(ids)) == len(ids)
        for name, first in firsts.items():
            assert set(said(await (await session.listen(first)).rest())) == {name, "done"}


@EACH
@pytest.mark.parametrize(
    "last",
    ["1", "-1", "1-", "a-b", "99-1", "1-99", "1-1-1", " ", "1-" + "9" * 50, "²-1", "0-99", "1_0-1", "+1-1", "\xff"],
)
async def test_an_event_that_never_was_is_refused(revision: Revision, last: str) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        await (await session.streamed("chat", words=["a"])).rest()
        data = session.get(last.encode().decode("latin-1"))
        assert (await place.ask(data)).status == 400
        assert (await session.call("echo", text="x")).result


async def test_an_event_of_another_session_is_refused() -> None:
    async with serving(open_house().server) as place:
        one, other = [await OpenSession.open(place, LAST) for _ in range(2)]
        stream = await one.streamed("chat", words=["secret"])
        await stream.rest()
        assert (await place.ask(other.get(stream.decoder.last_event_id))).status == 400


@EACH
@pytest.mark.parametrize("limit", [{"max_events": 4}, {"max_event_bytes": 500}])
async def test_what_is_no_longer_kept_is_refused_and_the_rest_is_not(revision: Revision, limit: dict[str, int]) -> None:
    async with serving(open_house().server, Settings(**limit, write_time=1)) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=[str(number) for number in range(20)])
        ids = []
        while (event := await stream.event()) is not None:
            ids.append(event.id)
        assert (await place.ask(session.get(ids[0]))).status == 400
        assert said(await (await session.listen(ids[-2])).rest()) == ["done"]


async def test_streams_that_have_ended_are_forgotten_before_one_is_refused() -> None:
    async with serving(open_house().server, Settings(max_streams=2, write_time=1)) as place:
        session = await OpenSession.open(place, LAST)
        lasts = []
        for _ in range(6):
            stream = await session.streamed("chat", words=["a"])
            await stream.event()
            lasts.append(stream.decoder.last_event_id)
            await stream.rest()
        assert (await place.ask(session.get(lasts[0]))).status == 400
        assert said(await (await session.listen(lasts[-1])).rest()) == ["a", "done"]


async def test_of_two_that_come_back_at_once_the_last_one_stays() -> None:
    house = open_house()
    async with serving(house.server, send_buffer=4096) as place:
        session = await OpenSession.open(place, LAST)
        stream = await session.streamed("chat", words=["x" * 300_000] * 3, name="gate")
        first = await stream.event()
        assert first is not None
        await stream.client.aclose()
        await settle()
        slow = await place.connect(receive_buffer=4096)
        await slow.send(session.get(first.id))
        await settle()  # it does not read, and is being told what it missed
        fast = await session.listen(first.id)
        house.gates["gate"].set()
        assert len(await fast.rest()) == 4
        await slow.ended()
        assert place.endpoint.pulse.facts() == {"streams": 0}


# Polling.


@pytest.mark.requirement("L049")
async def test_a_stream_begins_with_an_event_to_come_back_by() -> None:
    async with serving(open_house().server, Settings(retry=3.5, write_time=1)) as place:
        session = await OpenSession.open(place, LAST)
        for stream in (await session.streamed("chat", words=["a"]), await session.listen()):
            first = await stream.event()
            assert first is not None
            assert (first.data, first.event) == (b"", "message")
            assert first.id
            assert stream.decoder.retry == 3500


@UNPOLLED
async def test_older_clients_are_sent_no_empty_event(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("chat", words=["a"])
        first = await stream.event()
        assert first is not None
        assert first.data
        assert stream.decoder.retry is None


@pytest.mark.requirement("L050")
@pytest.mark.parametrize("words", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_client_is_let_go_and_comes_back_for_the_rest(words: list[str], is_late: bool) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, LAST)
        stream = await session.streamed("poll", name="gate", words=words, retry=0.25)
        heard = await stream.rest()
        assert stream.decoder.retry == 250  # said before the end
        last = stream.decoder.last_event_id
        assert last
        assert (await stream.client.call("echo", text="x")).result  # only the stream ended, not the connection
        if is_late:
            house.gates["gate"].set()
            await settle()
        resumed = await session.listen(last)
        house.gates["gate"].set()
        assert said(heard + await resumed.rest()) == [*words, "last", "done"]


@UNPOLLED
async def test_older_clients_are_not_let_go(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.streamed("poll", name="gate", words=["a"])
        await house.wait_started("gate")
        house.gates["gate"].set()
        assert said(await stream.rest()) == ["a", "last", "done"]


async def test_modern_clients_are_not_let_go() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="poll", arguments={"name": "gate", "words": []}))
        await house.wait_started("gate")
        house.gates["gate"].set()
        assert (await client.answer()).result
