"""Promises 1 and 2: a backend that dies takes nobody's request with it, however it dies."""

import pytest

from benchmarks.nemesis import Plan, play
from benchmarks.nemesis_history import share
from tests.soak.stage import BUSY
from tests.test_promises import LONG, figure


@pytest.mark.parametrize(("front", "is_legacy"), [("ws", False), ("http", False), ("ws", True)])
async def test_1_killing_a_backend_hangs_nothing(front: str, is_legacy: bool) -> None:
    short, long = (22, 1000) if (front, is_legacy) == ("ws", False) else (8, 100)
    plan = Plan(kills=long if LONG else short, front=front, is_legacy=is_legacy, in_flight=200)
    report = await play("kills", plan)
    figure("promise 1", f"{front}{', legacy' if is_legacy else ''}, seed {plan.seed}: {report.text()}")
    assert report.is_well, report.text()
    verdict = report.verdict
    assert verdict.deaths == plan.kills + plan.backends
    assert verdict.outcomes["-31001"] == 200 * verdict.deaths == len(verdict.after_death)
    assert share(verdict.after_death, 0.99) <= 0.1 * BUSY
    assert verdict.after_death[-1] <= 0.5 * BUSY
