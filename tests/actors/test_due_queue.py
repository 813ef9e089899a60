"""A queue in which all wait equally long."""

import math

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.due_queue import DueQueue


def test_items_come_out_in_order_when_they_are_due_and_once() -> None:
    queue = DueQueue[str]()
    for due, item in enumerate("abcd"):
        queue.put(item, due)
    queue.discard("b")
    queue.discard("nothing")
    assert list(queue.pop_due(-1)) == []
    assert list(queue.pop_due(2)) == [("a", 0), ("c", 2)]
    assert (len(queue), queue.first) == (1, 3)
    assert list(queue.pop_due(math.inf)) == [("d", 3)]
    assert (len(queue), queue.first) == (0, math.inf)


def test_an_item_may_be_put_again_or_taken_out_while_others_are_popped() -> None:
    queue = DueQueue[str]()
    for item in "abc":
        queue.put(item, 1)
    popped = []
    for item, _ in queue.pop_due(1):
        popped.append(item)
        queue.put(item, 2)
        queue.discard("b")
    assert popped == ["a", "c"]
    assert list(queue.pop_due(2)) == [("a", 2), ("c", 2)]


async def test_a_task_waits_for_the_first_item(autojump_clock: MockClock) -> None:
    queue = DueQueue[str]()
    found: list[float] = []

    async def look() -> None:
        await queue.wait_filled()
        await trio.sleep_until(queue.first)
        found.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await wait_all_tasks_blocked()
        queue.put("gone", 1)
        queue.discard("gone")  # before the task runs
        await wait_all_tasks_blocked()
        assert not found
        queue.put("a", 5)
    assert found == [5]
