"""callboard passes the official conformance suite: by both doors, at every revision the suite knows."""

import pytest

from tests.conformance import suite
from tests.conformance.brokered import EVERYTHING
from tests.conformance.run import HTTP_ENGINES
from tests.conformance.suite import SELECTIONS, Check, Report, Scenario
from tests.node import needs_npm
from tests.served import served

APART = [revision for revision in SELECTIONS if revision != "2025-11-25"]
"""Those whose scenarios `test_whole` does not run anyhow: by itself the suite speaks 2025-11-25, or 2026-07-28 where a
scenario is about that."""

TRAFFIC = Check("wire-schema-valid", "SUCCESS", "")


@needs_npm
@pytest.mark.parametrize("revision", APART)
@pytest.mark.parametrize("engine", HTTP_ENGINES)
def test_the_official_suite_finds_nothing_wrong(engine: str, revision: str) -> None:
    with served(EVERYTHING, "--http-engine", engine) as at:
        report = suite.run(at.http, revision)
    assert report.good, f"\n{report}"


@needs_npm
def test_the_official_suite_finds_nothing_wrong_with_two_workers() -> None:
    with served(EVERYTHING, "--workers", "2") as at:
        report = suite.run(at.http, "2026-07-28")
    assert report.good, f"\n{report}"


@needs_npm
def test_no_scenario_of_a_revision_is_left_out() -> None:
    """Those of extensions are in `test_whole`."""
    ours = {name for name, tag in suite.listed().items() if tag != "extension"}
    assert len(ours) > 50
    assert ours <= suite.required("2025-11-25") | suite.required("2026-07-28")


@needs_npm
def test_a_server_that_is_not_there_passes_nothing() -> None:
    report = suite.run("http://127.0.0.1:9/mcp", "2025-03-26")
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
    scenario = Scenario("s", tuple(checks), extension=False)
    assert scenario.verdict == verdict
    assert Report((scenario,)).good == (verdict == "passed")
    assert Scenario("s", tuple(checks), extension=True).verdict == "extension"
