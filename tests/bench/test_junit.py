"""Limits as test cases, as a pipeline reads them: parsed by an XML parser that did not write them."""

from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from callboard.bench.found import LimitFound
from callboard.bench.junit import cases, junit
from callboard.bench.limits import Limit
from callboard.bench.result import BenchResult
from callboard.bench.summary import summary
from callboard.cli.bench_view import rows
from tests.at_terminal import piped
from tests.bench.figures import result
from tests.bench.test_nothing import over
from tests.bench.test_provenance import HERE
from tests.shared import APPS

APP = str(APPS / "steady.py")


def told(run: BenchResult, *limits: str) -> dict[str, str | None]:
    """Each case, and how it failed."""
    return cased(junit(run, list(cases(run, [Limit.parse(limit) for limit in limits])), [("p50", "1 ms")]))


def cased(text: str) -> dict[str, str | None]:
    root = ElementTree.fromstring(text)  # noqa: S314  # our own file
    assert root.tag == "testsuites"
    suite = root[0]
    found: dict[str, str | None] = {}
    for case in suite.findall("testcase"):
        failure = case.find("failure") if case.find("error") is None else case.find("error")
        found[case.attrib["name"]] = None if failure is None else failure.attrib["message"]
    failed = len([how for how in found.values() if how is not None])
    for element in (root, suite):
        assert int(element.attrib["tests"]) == len(found)
        assert int(element.attrib["failures"]) + int(element.attrib["errors"]) == failed
    return found


def test_each_limit_is_a_case_that_passed_or_failed() -> None:
    run = attrs.evolve(result(*[0.01] * 100, errors=1), provenance=HERE)
    assert told(run, "p99>20ms", "errors>0") == {
        "requests are answered": None,
        "the server answers throughout": None,
        "not p99>20ms": None,
        "not errors>0": "measured: 1",
    }


def test_a_server_that_died_or_never_answered_is_a_case_that_failed() -> None:
    assert told(result(errors=3))["requests are answered"] == "no request was answered"
    dead = over(0, 1, 2, errors=36)
    assert told(dead)["the server answers throughout"] == "no answer from second 3 to 6"


@pytest.mark.parametrize(("rate", "failure"), [(50.0, None), (None, "none: p99<50ms did not hold at any rate")])
def test_a_search_is_a_case(rate: float | None, failure: str | None) -> None:
    found = LimitFound(conditions="p99<50ms", rate=rate, is_confirmed=True, probes=())
    assert told(attrs.evolve(result(0.1), find_limit=found))["a rate at which p99<50ms"] == failure


def test_what_a_server_calls_itself_does_not_spoil_the_file() -> None:
    run = attrs.evolve(result(0.1, target='"><x>&\x00\x1b'), provenance=attrs.evolve(HERE, label="<&\ud800>"))
    text = junit(run, list(cases(run, [])), [("server", "]]>\x00<b>")])
    suite = ElementTree.fromstring(text)[0]  # noqa: S314
    assert suite.attrib["name"].startswith('callboard bench "><x>&')
    assert suite.attrib["timestamp"] == "2026-11-18T16:05:07"
    assert (suite.findtext("system-out") or "").startswith("server: ]]>")


def test_a_pipeline_has_a_file_also_if_the_server_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "limits.xml"
    done = piped("bench", APP, "--tool", "now", "--requests", "20", "--fail-if", "max>1us", "--junit", str(file))
    assert done.returncode == 1
    found = cased(file.read_text())
    assert (found["requests are answered"], (found["not max>1us"] or "")[:10]) == (None, "measured: ")
    done = piped("bench", "http://127.0.0.1:9/mcp", "--list", "--junit", str(file))
    assert done.returncode == 3
    assert list(cased(file.read_text())) == ["requests are answered"]
    assert cased(file.read_text())["requests are answered"]


# Below a job.


def test_a_summary_has_the_verdicts_first_and_the_figures_in_a_table() -> None:
    run = attrs.evolve(result(*[0.01] * 100, errors=1), server="<b>|`x`", provenance=HERE)
    text = summary(run, rows(run), list(cases(run, [Limit.parse("errors>0")])))
    lines = text.splitlines()
    assert lines[0] == "### callboard bench http://127.0.0.1/mcp: v2"
    assert r"- failed: not errors\>0 (measured: 1)" in lines
    assert "- passed: requests are answered" in lines
    assert "| p99 | 10 ms |" in lines
    assert r"| server | \<b\>\|\`x\` \(2026\-07\-28\) |" in lines
    assert text.endswith("\n\n"), "the next one begins below"


def test_summaries_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    done = piped("bench", APP, "--tool", "now", "--requests", "5", "--summary", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_text().startswith("before\n### callboard bench ")
