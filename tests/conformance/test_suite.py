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
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_what_a_revision_requires_is_what_the_suite_runs_at_its_wire(revision: str) -> None:
    """So it is among what is run here, which names a wire and no requirement set."""
    extensions = {name for name, tag in suite.listed().items() if tag == "extension"}
    required = suite.required(revision) - extensions
    assert len(required) > 30
    assert required == set(suite.listed("--spec-version", revision)) - extensions


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
