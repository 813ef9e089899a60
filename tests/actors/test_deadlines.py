"""One timer for many: each hears of its own time, at that time, and nobody of another's."""

import math
from typing import TypeAlias

import trio
from trio.testing import MockClock

from callboard.actors.deadlines import Deadline, DeadlineTimer

Heard: TypeAlias = list[tuple[str, float]]


class Told(Deadline):
    """Notes when it has passed."""

    def __init__(self, at: float, name: str, heard: Heard) -> None:
        super().__init__(at)
        self.name, self.heard, self.began = name, heard, trio.current_time()

    def pass_time(self) -> None:
        self.heard.append((self.name, trio.current_time() - self.began))


async def keep(times: dict[str, float], moves: dict[float, tuple[str, float]], until: float) -> Heard:
    """Who hears that its time has passed, and when, if limits are moved at these times."""
    heard: Heard = []
    keeper, began = DeadlineTimer(), trio.current_time()
    limits = {name: Told(began + at, name, heard) for name, at in times.items()}
    for limit in limits.values():
        keeper.keep(limit)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        for at, (name, deadline) in sorted(moves.items()):
            await trio.sleep_until(began + at)
            if deadline == math.inf:
                keeper.forget(limits[name])
            else:
                limits[name].deadline = began + deadline
        await trio.sleep_until(began + until)
        nursery.cancel_scope.cancel()
    return heard


async def test_each_passes_at_its_time_in_order(autojump_clock: MockClock) -> None:
    assert await keep({"late": 9, "soon": 1, "middle": 4}, {}, 20) == [("soon", 1), ("middle", 4), ("late", 9)]


async def test_one_that_is_put_off_passes_later_and_once(autojump_clock: MockClock) -> None:
    assert await keep({"it": 2}, {1: ("it", 5), 4: ("it", 8)}, 20) == [("it", 8)]


async def test_one_that_is_brought_forward_passes_sooner(autojump_clock: MockClock) -> None:
    assert await keep({"it": 60, "other": 50}, {1: ("it", 3)}, 100) == [("it", 3), ("other", 50)]


async def test_one_that_is_forgotten_never_passes_and_may_be_forgotten_twice(autojump_clock: MockClock) -> None:
    moves = {1: ("it", math.inf), 1.5: ("it", math.inf)}
    assert await keep({"it": 2, "other": 3}, moves, 20) == [("other", 3)]


async def test_what_has_passed_before_anybody_keeps_time_is_told_at_once(autojump_clock: MockClock) -> None:
    assert await keep({"it": -1}, {}, 5) == [("it", 0)]


async def test_nobody_is_woken_for_those_that_end_in_time(autojump_clock: MockClock) -> None:
    """The timer sleeps until the first that it knows of is due, not for each."""
    keeper, naps = DeadlineTimer(), 0

    class Counting(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal naps
            naps += task.name.endswith("DeadlineTimer.run")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        await trio.lowlevel.checkpoint()
        trio.lowlevel.add_instrument(counting := Counting())
        for _ in range(1000):
            limit = Deadline(trio.current_time() + 60)
            keeper.keep(limit)
            await trio.sleep(0.001)
            keeper.forget(limit)
        trio.lowlevel.remove_instrument(counting)
        nursery.cancel_scope.cancel()
    assert naps <= 2


async def test_a_cancel_scope_keeps_it_as_well(autojump_clock: MockClock) -> None:
    limit, began = Deadline(trio.current_time() + 2), trio.current_time()
    with limit.scope() as scope:
        limit.deadline += 3
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() - began == 5
