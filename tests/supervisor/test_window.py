"""Restart arithmetic, without a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisor import Backoff, Intensity
from callboard.supervisor.window import RestartWindow


def test_the_window_allows_so_many_and_no_more() -> None:
    window = RestartWindow(Intensity(3, per=60))
    assert [window.allow(now) for now in (0, 1, 2, 3)] == [True, True, True, False]


def test_a_restart_exactly_as_old_as_the_period_still_counts() -> None:
    window = RestartWindow(Intensity(1, per=60))
    assert window.allow(0)
    assert not window.allow(60)
    assert window.allow(60.001)


def test_an_intensity_of_none_escalates_at_the_first_death() -> None:
    assert not RestartWindow(Intensity(0, per=1)).allow(0)


@given(gaps=st.lists(st.floats(0, 100), max_size=50), restarts=st.integers(0, 5), per=st.floats(0.1, 100))
def test_no_period_ever_holds_more_than_the_intensity(gaps: list[float], restarts: int, per: float) -> None:
    window = RestartWindow(Intensity(restarts, per=per))
    now, allowed = 0.0, list[float]()
    for gap in gaps:
        now += gap
        expected = sum(1 for at in allowed if at >= now - per) < restarts
        assert window.allow(now) is expected
        if expected:
            allowed.append(now)


def test_back_off_doubles_up_to_its_most() -> None:
    backoff = Backoff(first=0.1, most=5, jitter=0)
    assert [backoff.delay(n) for n in range(1, 9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
    assert backoff.delay(10_000) == 5


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 0.1), (0.5, 0.11), (1.0, 0.12)])
def test_jitter_lengthens_by_at_most_its_fraction(chance: float, delay: float) -> None:
    assert Backoff(first=0.1, jitter=0.2, random=lambda: chance).delay(1) == pytest.approx(delay)


@pytest.mark.parametrize("make", [lambda: Intensity(-1), lambda: Intensity(per=0), lambda: Backoff(jitter=-1)])
def test_nonsense_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError):
        make()
