"""callboard passes every scenario for servers that the official suite has, extensions included, by every door."""

import pytest

from tests.conformance import suite
from tests.conformance.doors import ACROSS, DOORS, Across, stages_of
from tests.conformance.suite import SELECTIONS, SKIPS_ITSELF, Check, Report, Scenario
from tests.node import needs_npm

README_SAYS = 64

TRAFFIC = Check("wire-schema-valid", "SUCCESS", "")


@needs_npm
@pytest.mark.parametrize("door", DOORS)
def test_every_scenario_passes(door: str) -> None:
    with DOORS[door]() as at:
        report = suite.run(at.http, *stages_of(door))
    assert [one.name for one in report.scenarios if one.verdict != "passed"] == [SKIPS_ITSELF], f"\n{report}"
    assert report.is_complete
    assert len(report.of("passed")) == README_SAYS


@needs_npm
@pytest.mark.parametrize("across", ACROSS, ids=lambda across: f"{across.client}-to-{across.backend}")
def test_across_the_eras_only_what_no_bridge_can_carry_is_lost(across: Across) -> None:
    with across() as at:
        report = suite.run(at.http, *across.stages)
    assert {scenario.name for scenario in report.of("failed")} == set(across.lossy), f"\n{report}"
    assert len(report.of("passed")) >= 30


@needs_npm
def test_no_scenario_of_a_revision_is_left_out() -> None:
    """A revision that has a requirement set is run by its wire, and what it requires is among that."""
    both = {name for name, wires in suite.listed().items() if {"2025-11-25", "2026-07-28"} <= set(wires.split(","))}
    assert len(both) > 20
    assert both <= set(suite.listed("--spec-version", "2026-07-28"))
    assert suite.required("2025-11-25") | suite.required("2026-07-28") <= set(suite.listed())


@needs_npm
def test_a_server_that_is_not_there_passes_nothing() -> None:
    report = suite.run("http://127.0.0.1:9/mcp", (SELECTIONS["2025-03-26"],))
    assert not report.good
    assert [scenario.verdict for scenario in report.scenarios] == ["failed"]


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([], "skipped"),
        ([TRAFFIC], "skipped"),
        ([TRAFFIC, Check("about-it", "SKIPPED", "")], "skipped"),
        ([TRAFFIC, Check("about-it", "SUCCESS", "")], "passed"),
        ([TRAFFIC, Check("about-it", "WARNING", "should")], "passed"),
        ([Check("about-it", "SUCCESS", ""), Check("wire-schema-valid", "FAILURE", "no")], "failed"),
    ],
)
def test_a_scenario_passes_if_it_tested_something_and_found_nothing_wrong(checks: list[Check], verdict: str) -> None:
    scenario = Scenario("s", tuple(checks))
    assert scenario.verdict == verdict
    assert Report((scenario,)).good == (verdict == "passed")
