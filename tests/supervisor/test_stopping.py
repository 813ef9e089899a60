"""How a tree stops: in the reverse of its order, each child in its own time, and no longer."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.errors import StartFailed
from callboard.supervisor import (
    Actor,
    ChildSpec,
    Ended,
    How,
    Restart,
    Snapshot,
    SupervisorSpec,
    open_tree,
)
from tests.supervisor.players import Add, Boom, Crash, History, Player, player

TOP = SupervisorSpec("top")


def names(tree: Snapshot) -> list[str]:
    return [child.name for child in tree.children]


async def test_a_tree_stops_in_the_reverse_of_its_order_level_by_level(autojump_clock: MockClock) -> None:
    history = History()

    def p(name: str) -> ChildSpec[object]:
        return player(name, history, linger=1)  # type: ignore[return-value]  # which messages is of no interest

    spec = SupervisorSpec(
        "top",
        children=(
            p("a"),
            SupervisorSpec("x", children=(p("b"), p("c"))),
            p("d"),
            SupervisorSpec("y", children=(p("e"),)),
        ),
    )
    async with open_tree(spec) as root:
        for n in (1, 2):
            root.supervisor_of("x").spawn(Player(f"s{n}", history, linger=1), name=f"s{n}")
        await trio.testing.wait_all_tasks_blocked()
        starts = history.take()
        assert starts[:5] == ["a+ 0", "b+ 0", "c+ 0", "d+ 0", "e+ 0"]
        assert sorted(starts[5:]) == ["s1+ 0", "s2+ 0"]  # Trio starts tasks of one moment in no order
    ends = history.take()
    assert sorted(ends[2:4]) == ["s1- 3", "s2- 3"]  # spawned ones end together
    assert ends[:2] + ends[4:] == ["e- 1", "d- 2", "c- 4", "b- 5", "a- 6"]


async def test_nobody_waits_longer_for_a_tree_than_its_drain_times(autojump_clock: MockClock) -> None:
    class Stubborn(Player):
        async def run(self) -> None:
            with self.history.of(self.name):
                await trio.sleep_forever()

    history = History()
    children = tuple(
        ChildSpec(name, lambda name=name: Stubborn(name, history), shutdown=shutdown)  # type: ignore[misc]
        for name, shutdown in (("a", 2.0), ("b", 30.0))
    )
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("in", children=children),))) as root:
        root.supervisor_of("in").spawn(Stubborn("s", history), name="s")
        await trio.testing.wait_all_tasks_blocked()
        history.take()
    assert history.take() == ["s- 5", "b- 35", "a- 37"]


async def test_a_supervisor_outlasts_the_cleaning_up_of_its_children(autojump_clock: MockClock) -> None:
    class Tidy(Actor[Add]):
        async def run(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.5)

    inner = SupervisorSpec("in", children=(ChildSpec("t", Tidy, shutdown=2),), drain=0)
    async with open_tree(SupervisorSpec("top", children=(inner,))) as root:
        assert await root.supervisor_of("in").address.stop() == Ended(How.RETURNED, "stopped")
        assert trio.current_time() == 2.5


async def test_a_crash_keeps_no_frames_alive() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        await address.send(Crash())
        error = (await address.wait_ended()).error
        assert isinstance(error, Boom)
        assert error.__traceback__ is None


async def test_cancelling_the_block_while_it_drains_ends_everything_at_once(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history, linger=9, shutdown=60), player("b", history, linger=9, shutdown=60)
    with trio.move_on_after(3) as scope:
        async with open_tree(SupervisorSpec("top", children=(a, b))) as root:
            address = root.spawn(Player("s", history, linger=1), name="s")
    assert scope.cancelled_caught
    ends = history.take()[3:]
    assert (ends[0], sorted(ends[1:])) == ("s- 1", ["a- 3", "b- 3"])  # cancelled together, in no order
    assert address.ended is not None
    assert trio.current_time() == 3


async def test_a_stop_during_a_start_does_not_wait_for_it(autojump_clock: MockClock) -> None:
    class Sleeper(Player):
        async def start(self) -> None:
            await trio.sleep_forever()

    async with open_tree(TOP) as root:
        async with trio.open_nursery() as nursery:
            inner = SupervisorSpec("in", children=(ChildSpec("s", Sleeper, shutdown=2),), restart=Restart.TEMPORARY)

            async def add() -> None:
                with pytest.raises(StartFailed):
                    await root.add(inner)

            nursery.start_soon(add)
            await trio.testing.wait_all_tasks_blocked(0)
            root.child("in").kill()
        assert trio.current_time() == 0


class Looping(Actor[Add]):
    """Waits for the clock and not for messages."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.beats: list[str] = []

    async def run(self) -> None:
        async with self.cancel_on_stop() as nursery:
            nursery.start_soon(self._beat)
            await trio.sleep(3)
            if self.fails:
                raise Boom
            await trio.sleep(100)
        self.beats.append("over")

    async def _beat(self) -> None:
        while True:
            self.beats.append("beat")
            await trio.sleep(2)


async def test_a_block_that_is_cancelled_on_stop_ends_at_once_and_the_actor_goes_on(autojump_clock: MockClock) -> None:
    actor = Looping()
    async with open_tree(TOP) as root:
        address = root.spawn(actor, name="a")
        await trio.sleep(5)
        ended = await address.stop()
        assert trio.current_time() == 5
    assert ended.how is How.RETURNED
    assert actor.beats == ["beat", "beat", "beat", "over"]


async def test_a_failure_in_such_a_block_comes_out_by_its_own_name(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        ended = await root.spawn(Looping(fails=True), name="a").wait_ended()
    assert isinstance(ended.error, Boom)
