"""A rate is kept exactly: as many at once as it says, then one per interval, for each by themselves."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.rate import Rate, RateLimit


def test_as_many_at_once_as_the_rate_says_and_then_one_per_interval() -> None:
    meters = RateLimit(Rate(10, per=1.0))
    assert [meters.allow("a", 0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not meters.allow("a", 0.04)
    assert meters.allow("a", 0.1)
    assert not meters.allow("a", 0.1)
    assert [meters.allow("a", 5.0) for _ in range(11)] == [True] * 10 + [False]


def test_one_who_does_too_much_leaves_the_others_alone() -> None:
    meters = RateLimit(Rate(1))
    assert meters.allow("a", 0.0)
    assert not meters.allow("a", 0.0)
    assert meters.allow("b", 0.0)


@given(st.lists(st.floats(0, 0.5), max_size=200), st.integers(1, 20))
def test_no_window_ever_sees_more_than_twice_the_rate(gaps: list[float], count: int) -> None:
    meters, now, allowed = RateLimit(Rate(count)), 0.0, []
    for gap in gaps:
        now += gap
        if meters.allow("a", now):
            allowed.append(now)
    for start in allowed:
        assert sum(start <= moment < start + 1 for moment in allowed) <= 2 * count


def test_those_who_are_quiet_are_forgotten() -> None:
    meters = RateLimit(Rate(1), most=100)
    for number in range(1000):
        assert meters.allow(number, float(number))
    assert len(meters._empty_at) <= 101
