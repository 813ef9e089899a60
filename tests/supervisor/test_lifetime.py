"""How an actor is cut short: by name, by a deadline that moves, by the end of a drain; and that it knows which."""

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.supervisor import (
    WHY_DEADLINE,
    WHY_DRAIN,
    WHY_OVERFLOW,
    WHY_SUPERVISOR,
    Actor,
    Ended,
    How,
    MailboxSpec,
    Overflow,
    SupervisorSpec,
    open_tree,
)

TOP = SupervisorSpec("top", drain=5)


@attrs.frozen
class Progress:
    """Moves the deadline."""


@attrs.define(eq=False)
class Request(Actor[Progress]):
    """Its deadline moves with progress; what it is cut short by, it writes down."""

    mailbox = MailboxSpec(size=1, overflow=Overflow.END)
    timeout: float = 10.0
    outcome: str | None = "none"

    async def run(self) -> None:
        self.expire(trio.current_time() + self.timeout)
        try:
            while True:
                await self.inbox.receive()
                self.expire(trio.current_time() + self.timeout)
        except trio.EndOfChannel:
            while True:
                await trio.sleep(1)
                self.expire(trio.current_time() + self.timeout)  # does not put the end of the drain off
        finally:
            self.outcome = self.why_cut


async def test_a_deadline_moves_with_progress(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        request = Request()
        address = root.spawn(request, name="r")
        for _ in range(3):
            await trio.sleep(8)
            await address.send(Progress())
        assert await address.wait_ended() == Ended(How.CANCELLED, WHY_DEADLINE)
        assert (request.outcome, trio.current_time()) == (WHY_DEADLINE, 34)


@pytest.mark.parametrize(("after", "why", "at"), [(10, WHY_DRAIN, 5), (3, WHY_DRAIN, 5), (0.5, WHY_DEADLINE, 0.5)])
async def test_the_drain_time_holds_wherever_the_deadline_is_moved(
    after: float, why: str, at: float, autojump_clock: MockClock
) -> None:
    async with open_tree(TOP) as root:
        request = Request(after)
        address = root.spawn(request, name="r")
        await trio.testing.wait_all_tasks_blocked(0)
        assert await address.stop() == Ended(How.CANCELLED, why)
        assert (request.outcome, trio.current_time()) == (why, at)


async def test_the_first_reason_is_the_reason(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        request = Request()
        address = root.spawn(request, name="r")
        await trio.testing.wait_all_tasks_blocked(0)
        address.kill("peer cancelled")
        address.kill("disconnected")
        assert (await address.wait_ended()).why == request.outcome == "peer cancelled"


async def test_a_deadline_that_passed_first_is_the_reason_even_if_a_kill_comes_before_it_is_heard(
    mock_clock: MockClock,
) -> None:
    async with open_tree(TOP) as root:
        request = Request()
        address = root.spawn(request, name="r")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(11)
        address.kill("peer cancelled")
        assert (await address.wait_ended()).why == request.outcome == WHY_DEADLINE


async def test_a_slow_consumer_knows_that_it_was_one() -> None:
    async with open_tree(TOP) as root:
        request = Request()
        address = root.spawn(request, name="r")
        for _ in range(2):
            address.send_nowait(Progress())
        assert (await address.wait_ended()).why == request.outcome == WHY_OVERFLOW


async def test_one_that_falls_with_its_supervisor_knows_that_too(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("session"),))) as root:
        session = root.supervisor_of("session")
        request = Request()
        address = session.spawn(request, name="r")
        await trio.testing.wait_all_tasks_blocked(0)
        session.address.kill("disconnected")
        assert (await address.wait_ended()).why == request.outcome == WHY_SUPERVISOR


async def test_one_that_ends_by_itself_was_not_cut_short() -> None:
    class Brief(Request):
        async def run(self) -> None:
            self.outcome = self.why_cut

    async with open_tree(TOP) as root:
        request = Brief()
        assert (await root.spawn(request, name="r").wait_ended()).how is How.RETURNED
        assert request.outcome is None


async def test_adopted_blocks_have_the_same(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        with root.adopt("r", kind="Request") as adopted:
            adopted.expire(1)
            adopted.expire(2)
            await trio.sleep_forever()
        assert (adopted.why_cut, trio.current_time()) == (WHY_DEADLINE, 2)
        with root.adopt("r", kind="Request") as adopted:
            adopted.cancel("peer cancelled")
            adopted.cancel()
            await trio.sleep_forever()
        assert adopted.why_cut == "peer cancelled"
        with root.adopt("r", kind="Request") as adopted:
            root.address.begin_stop()
            await trio.testing.wait_all_tasks_blocked(0)
            adopted.expire(99)
            await trio.sleep_forever()
        assert (adopted.why_cut, trio.current_time()) == (WHY_DRAIN, 7)
