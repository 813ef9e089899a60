"""callboard's client passes the official conformance suite: at every revision it knows, authorization included."""

import pytest

from tests.conformance import client_suite, suite
from tests.conformance.client_suite import EXTENSIONS, REVISIONS, command, examine, scenarios
from tests.node import needs_npm

README_SAYS = 48


@needs_npm
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_finds_nothing_wrong_with_the_client(revision: str) -> None:
    report = client_suite.run(revision)
    assert report.good, f"\n{report}"
    assert len(report.scenarios) == len(scenarios(revision))


@needs_npm
def test_no_scenario_for_clients_is_left_out() -> None:
    every = {name for name, tag in suite.listed(leg="client").items() if tag != "extension"}
    assert len(every) > 35
    assert every == {name for revision in REVISIONS for name in scenarios(revision)}
    assert sum(name.startswith("auth/") for name in every) > 25
    assert len(every) + len(scenarios(EXTENSIONS)) == len(suite.listed(leg="client")) == README_SAYS


@needs_npm
def test_a_client_that_does_nothing_passes_nothing() -> None:
    assert examine("tools_call", "2025-11-25", "true").verdict == "failed"
    assert examine("auth/metadata-default", "2026-07-28", "false").verdict == "failed"


@needs_npm
def test_the_authorization_extensions_pass_too() -> None:
    """Nothing demands it. What passes now shall not stop passing unnoticed."""
    names = {name for name in scenarios(EXTENSIONS) if name.startswith("auth/")}
    found = [examine(name, EXTENSIONS, command()) for name in sorted(names)]
    assert len(found) == 6
    assert [scenario.name for scenario in found if scenario.verdict != "passed"] == []


@needs_npm
def test_a_client_uses_skills_as_the_extension_demands() -> None:
    names = sorted(name for name in scenarios(EXTENSIONS) if name.startswith("sep-2640-client-"))
    found = [examine(name, EXTENSIONS, command()) for name in names]
    assert len(found) == 4
    assert [scenario.name for scenario in found if scenario.verdict != "passed"] == []
