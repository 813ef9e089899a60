"""Whether a backend is there, where nothing ends when it does: it is asked, and may be busy."""

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions.revision import R4
from callboard.testing import Refusal
from tests.broker.back import Back, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}


async def test_a_server_that_does_one_thing_at_a_time_is_busy_and_not_gone(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await trio.sleep(45)
        back.holds.clear()
        await line.answer(request, **text("done"))
        assert (await client.finish(begun))["content"][0]["text"] == "done"
        assert len(back.lines) == 1


async def test_a_server_that_answers_nothing_for_long_is_gone_whatever_waits_for_it(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        began = trio.current_time()
        for _ in range(3):
            await client.begin("tools/call", **BOOK)
            await trio.sleep(30)
        while len(back.lines) < 2:
            await back.wait_news()
        assert trio.current_time() - began < 100


async def test_a_silent_server_of_which_nothing_is_wanted_is_gone_at_once(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways):
        back.holds.add("ping")
        began = trio.current_time()
        while len(back.lines) < 2:
            await back.wait_news()
        assert trio.current_time() - began < 25


async def test_a_busy_server_is_waited_for_no_longer_than_its_requests_are(autojump_clock: MockClock) -> None:
    back = Back(R4, looks_like_http=True)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={}) as client:
        back.holds.add("ping")
        began = trio.current_time()
        with pytest.raises(Refusal, match="-31"):
            await client.request("tools/call", **BOOK)
        assert trio.current_time() - began == pytest.approx(60, abs=1)
