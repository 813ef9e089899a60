"""The official suite finds nothing wrong with a server behind a broker, by whatever transport, and across the eras."""

import pytest

from tests.conformance import suite
from tests.conformance.brokered import ACROSS, EVERYTHING, TRANSPORTS, Across
from tests.node import needs_npm
from tests.served import brokered


@needs_npm
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_official_suite_finds_nothing_wrong_through_a_broker(transport: str) -> None:
    with brokered(EVERYTHING, transport) as at:
        report = suite.run(at.http, "2026-07-28")  # `test_whole` has the other revision
    assert report.good, f"\n{report}"


@needs_npm
@pytest.mark.parametrize("across", ACROSS, ids=lambda across: f"{across.suite}-to-{across.backend}")
def test_across_the_eras_only_what_no_bridge_can_carry_is_lost(across: Across) -> None:
    with brokered(EVERYTHING, "http", "--revisions", across.backend) as at:
        report = suite.run(at.http, across.suite)
    failed = {scenario.name for scenario in report.scenarios if scenario.verdict == "failed"}
    assert failed == set(across.lossy), f"\n{report}"
    assert sum(scenario.verdict == "passed" for scenario in report.scenarios) >= 30
