"""The root: what comes out of the block, and what is left after it."""

from collections.abc import Callable

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard.errors import TooManyRestarts
from callboard.supervisor import Ended, How, Intensity, Supervisor, SupervisorSpec, live_trees, open_tree
from tests.supervisor.players import Boom, Crash, History, Player, player


async def test_a_tree_is_live_while_its_block_is() -> None:
    assert live_trees() == frozenset()
    async with open_tree(SupervisorSpec("one")) as one, open_tree(SupervisorSpec("two")) as two:
        assert live_trees() == {one, two}
    assert live_trees() == frozenset()


async def test_what_the_block_raises_comes_out_as_it_is_and_cancels_the_tree(autojump_clock: MockClock) -> None:
    history = History()
    with pytest.raises(Boom) as caught:
        async with open_tree(SupervisorSpec("top", children=(player("a", history, linger=99),))):
            raise Boom("block") from KeyError("cause")
    assert isinstance(caught.value.__cause__, KeyError)
    assert history.take() == ["a+ 0", "a- 0"]
    assert live_trees() == frozenset()


async def test_the_block_and_the_tree_may_both_fail() -> None:
    p = player("p", History())
    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with open_tree(SupervisorSpec("top", children=(p,), intensity=Intensity(0, per=1))) as root:
            await root.address_of(p).send(Crash())
            try:
                await trio.sleep_forever()
            finally:
                raise Boom("clean-up")
    assert caught.group_contains(Boom)
    assert caught.group_contains(TooManyRestarts)
    assert live_trees() == frozenset()


async def test_a_cancelled_block_leaves_at_once(autojump_clock: MockClock) -> None:
    history = History()
    with trio.move_on_after(2) as scope:
        async with open_tree(SupervisorSpec("top", children=(player("a", history, linger=99),))) as root:
            root.spawn(Player("p", history), name="p")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert sorted(history.take()) == ["a+ 0", "a- 2", "p+ 0", "p- 2"]
    assert live_trees() == frozenset()


async def test_a_root_that_was_stopped_inside_the_block_is_no_trouble() -> None:
    async with open_tree(SupervisorSpec("top", children=(player("a", History()),))) as root:
        assert (await root.address.stop()).why == "stopped"
        assert root.tree().children == ()


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        (lambda root: root.address.kill("enough"), Ended(How.CANCELLED, "enough")),
        (lambda root: root.address.begin_stop(), Ended(How.CANCELLED, "drain time passed")),
    ],
)
async def test_a_root_says_how_it_ended(
    end: Callable[[Supervisor], None], ended: Ended, autojump_clock: MockClock
) -> None:
    class Stubborn(Player):
        async def run(self) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)

    async with open_tree(SupervisorSpec("top")) as root:
        root.spawn(Stubborn(), name="p")
        await trio.sleep(1)
        end(root)
        assert await root.address.wait_ended() == ended


async def test_what_breaks_while_all_is_cancelled_is_logged_and_goes_no_further(autojump_clock: MockClock) -> None:
    class Untidy(Player):
        async def run(self) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.clean_up)
                await trio.sleep_forever()

        async def clean_up(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise Boom("clean-up")

    with capture_logs() as logs, trio.move_on_after(1) as scope:
        async with open_tree(SupervisorSpec("top")) as root:
            root.spawn(Untidy(), name="p")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [(line["event"], line["failure"]) for line in logs] == [("actor_crashed", "Boom: clean-up")]
