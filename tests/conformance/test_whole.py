"""callboard passes every scenario for servers that the official suite has, extensions included, by every door."""

import pytest

from tests.conformance import suite
from tests.conformance.brokered import POLLING, TRANSPORTS, WHOLE
from tests.conformance.suite import SKIPS_ITSELF, Report
from tests.node import needs_npm
from tests.served import brokered, served

README_SAYS = 64


def check(report: Report) -> None:
    assert {one.name for one in report.scenarios} == set(suite.listed()), "a scenario was left out"
    left = [one.name for one in report.scenarios if one.verdict != "passed"]
    assert left == [SKIPS_ITSELF], f"\n{report}"
    assert not report.of("failed")
    assert len(report.of("passed")) == README_SAYS


@needs_npm
@pytest.mark.parametrize("flags", [(), ("--http-engine", "asgi"), ("--workers", "2")], ids=" ".join)
def test_every_scenario_passes_at_one_server(flags: tuple[str, ...]) -> None:
    with served(WHOLE, *flags) as at:
        check(suite.run_all(at.http))


@needs_npm
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_scenario_passes_through_a_broker(transport: str) -> None:
    with brokered(WHOLE, transport, front=POLLING) as at:
        check(suite.run_all(at.http))


@needs_npm
def test_every_scenario_passes_through_a_broker_of_two_workers() -> None:
    with brokered(WHOLE, "stdio", front=("--workers", "2", *POLLING)) as at:
        check(suite.run_all(at.http))
