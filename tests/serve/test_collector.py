"""The collector in a process that serves: it never looks at everything while there is something to do."""

import gc

import pytest
import trio
from trio.testing import MockClock

from callboard.serve.collector import EVERY, FEW, MIDDLE, THOROUGH, YOUNG, collect_now_and_then, collecting_seldom


@pytest.mark.finding("faults-M1")
def test_nothing_but_young_objects_is_looked_at_unasked() -> None:
    before = gc.get_threshold()
    with collecting_seldom():
        looked: list[int] = []

        def note(phase: str, info: dict[str, int]) -> None:
            if phase == "start":
                looked.append(info["generation"])

        gc.callbacks.append(note)
        try:
            kept = [[number] for number in range(30 * YOUNG)]
        finally:
            gc.callbacks.remove(note)
        assert set(looked) == {0, 1}
        assert looked.count(1) <= len(looked) / MIDDLE
        assert len(kept) == 30 * YOUNG
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.finding("faults-M1")
@pytest.mark.parametrize(("share", "old", "thorough"), [(0.01, 10, 9), (0.5, 10, 0), (0.01, FEW + 1, 0)])
async def test_everything_is_looked_at_only_while_it_is_little_and_nobody_waits(
    share: float, old: int, thorough: int, autojump_clock: MockClock
) -> None:
    looked: list[int] = []
    with trio.move_on_after(10 * THOROUGH - 1):
        counts = iter([0])
        await collect_now_and_then(looked.append, lambda: next(counts, old), lambda: share * trio.current_time())
    assert looked.count(2) == thorough
    assert looked.count(1) == int((10 * THOROUGH - 1) / EVERY)
