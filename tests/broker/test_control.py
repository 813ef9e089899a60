"""The broker's own actor: what it is told is merged, a reload holds nothing up, and a crash of it loses nothing."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.broker.broker import BrokerActor, News
from callboard.actors.broker.news import Listed, StateChanged
from callboard.broker import Broker
from callboard.errors import ActorGone
from callboard.supervisor import Mailbox
from tests.broker.back import Back, tool
from tests.broker.front import backend
from tests.broker.test_trial_lists import names


class Owner:
    """Counts what a mailbox could not keep."""

    lost = 0

    def lose(self, *_: object) -> None:
        self.lost += 1


def test_a_backend_takes_two_places_however_often_it_speaks() -> None:
    mailbox: Mailbox[News] = Mailbox(BrokerActor.mailbox, Owner())
    for _ in range(1000):
        for name in ("a", "b"):
            mailbox.put_nowait(Listed(name))
            mailbox.put_nowait(StateChanged(name))
    assert mailbox.depth == 4


async def test_while_a_backend_takes_its_time_to_end_the_lists_of_others_are_read(autojump_clock: MockClock) -> None:
    slow, quick = Back(tools=[tool("slow")], ends_in=3.0), Back(tools=[tool("quick")])
    specs = [backend(slow.ways, "slow"), backend(quick.ways, "quick")]
    broker = Broker(specs)
    async with broker.host() as host, trio.open_nursery() as nursery:
        nursery.start_soon(broker.reload, [specs[1]])
        await wait_all_tasks_blocked()
        assert await names(host) == ["quick"]
        quick.tools = [tool("quick"), tool("new")]
        [about] = [{"_meta": {"io.modelcontextprotocol/subscriptionId": begun}} for begun in quick.lines[0].listens]
        await quick.lines[0].tell("notifications/tools/list_changed", **about)
        await trio.sleep(1)
        assert await names(host) == ["quick", "new"]
        assert not slow.lines[0].is_gone
    assert slow.lines[0].is_gone


async def test_a_reload_that_a_crash_cut_short_can_be_made_again(autojump_clock: MockClock) -> None:
    gone, stays, new = Back(tools=[tool("gone")], ends_in=3.0), Back(tools=[tool("stays")]), Back(tools=[tool("new")])
    specs = [backend(gone.ways, "gone"), backend(stays.ways, "stays")]
    after = [specs[1], backend(new.ways, "new")]
    broker = Broker(specs)
    async with broker.host() as host:
        control = broker._control()

        async def crash() -> None:
            await trio.sleep(1)
            control.kill("a fault")

        with pytest.RaisesGroup(ActorGone):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(crash)
                nursery.start_soon(broker.reload, after)
        await broker.reload(after)
        await trio.sleep(5)
        assert await names(host) == ["stays", "new"]
        assert list(broker.backends) == ["stays", "new"]
        assert all(line.is_gone for line in gone.lines)
        assert len(stays.lines) == 1
