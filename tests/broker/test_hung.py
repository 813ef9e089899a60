"""A server that lives, holds its connection open and answers nothing: it is noticed, ended and started again."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, text
from tests.broker.front import STUCK, backend, brokered, peer, texts
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}
CHECKS = {"ping", "server/discover"}


async def time_out(client: Peer, count: int) -> None:
    for _ in range(count):
        with pytest.raises(Refusal) as refused:
            await client.request("tools/call", **BOOK)
        assert refused.value.code == -31002


@pytest.mark.finding("faults-H4")
@pytest.mark.parametrize("behind", [R4, R5])
async def test_a_hung_server_is_noticed_and_started_again(behind: Revision, autojump_clock: MockClock) -> None:
    back = Back(behind)
    broker = Broker([backend(back.ways, timeout=3.0)])
    with trio.fail_after(STUCK), capture_logs() as logs:
        async with broker.host(parking=Parking("broker")) as host, peer(host, capabilities={}) as client:
            back.holds |= CHECKS
            await time_out(client, 3)
            back.is_down = True  # so that what follows can be seen
            await trio.sleep(10.5)
            assert not broker.is_ready()
            assert {"backend_hung", "backend_lost"} <= {line["event"] for line in logs}
            back.is_down, back.holds = False, set()
            await trio.sleep(60)
            assert broker.is_ready()
            begun = await client.begin("tools/call", **BOOK)
            while len(back.told("tools/call")) < 4:
                await back.wait_news()
            line = back.lines[-1]
            await line.answer(line.heard[-1], **text("well again"))
            assert texts([await client.finish(begun)]) == ["well again"]


@pytest.mark.finding("faults-H4")
async def test_a_server_that_answers_a_ping_keeps_its_process(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, timeout=3.0)) as host, peer(host, capabilities={}) as client:
        await time_out(client, 10)
        await trio.sleep(60)
        assert len(back.lines) == 1


@pytest.mark.finding("faults-H4")
async def test_a_busy_server_that_reports_progress_is_not_hung(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={"ping"})
    async with brokered(backend(back.ways, timeout=3.0)) as host, peer(host, capabilities={}) as client:
        await time_out(client, 3)
        await back.lines[0].tell("notifications/message", level="info", data="working")
        await trio.sleep(60)
        assert len(back.lines) == 1


@pytest.mark.finding("faults-H4")
async def test_a_hung_process_of_one_client_is_ended_without_touching_the_others(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, timeout=3.0)) as host, peer(host, principal="ann") as client:
        await time_out(client, 3)
        await wait_all_tasks_blocked()  # it is pinged, and answers
        back.holds.add("ping")
        await time_out(client, 3)
        await trio.sleep(15)
        await wait_all_tasks_blocked()
        assert len(back.lines) == 2
        await client.begin("tools/call", **BOOK)
        await wait_all_tasks_blocked()
        assert len(back.lines) == 3


@pytest.mark.finding("faults-low-deaf")
async def test_the_timeout_of_a_server_that_does_not_read_is_exact(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, timeout=10.0)) as host, peer(host, capabilities={}) as client:
        back.is_deaf = True
        for _ in range(20):  # more than are on their way at once
            await client.begin("tools/call", **BOOK)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await time_out(client, 1)
        assert trio.current_time() - began == 10.0
