"""Promise 22: a backend that misbehaves harms itself only; and all faults at once, by lot."""

import pytest

from benchmarks.nemesis import Plan, play
from benchmarks.nemesis_acts import FAULTS
from tests.figures import LONG, figure

PATIENT = 1.5
"""Seconds in which 99 of 100 answers of the good ones come, whatever a busy machine does besides."""

HALVES = (tuple(FAULTS)[::2], tuple(FAULTS)[1::2])


@pytest.mark.parametrize("half", [0, 1])
async def test_22_the_others_do_not_notice(half: int) -> None:
    plan = Plan(backends=50 if LONG else 4, seconds=2.0 if LONG else 0.25, faults=HALVES[half])
    report = await play("neighbours", plan)
    figure("promise 22", f"1 of {plan.backends}, seed {plan.seed}: {report.text()}")
    assert report.is_well, report.text()
    without, *others = report.neighbours
    for one in others:
        assert one.answers, one.line()
        assert one.p99 <= max(10 * without.p99, PATIENT), one.line()


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_all_faults_by_lot(is_legacy: bool) -> None:
    plan = Plan(backends=6, seconds=40.0 if LONG else 1.5, is_legacy=is_legacy)
    report = await play("storm", plan)
    figure("the storm", f"{'legacy, ' if is_legacy else ''}seed {plan.seed}: {report.text()}")
    assert report.is_well, report.text()
