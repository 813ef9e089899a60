"""Merged lists of thousands of entries: what changes one of them must not hold up the event loop."""

import gc
import time
from typing import Final

import pytest
import structlog.testing

from callboard.actors.broker.policy import BackendSettings
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.bridge.names import foresee
from callboard.codecs.revisions.revision import R5
from tests.broker.back import tool
from tests.broker.listed import listing
from tests.broker.test_catalogue import catalogue

LONG: Final = "\u0431\u0434\u0436\u043b" * 25 + "{}"


@pytest.mark.finding("security-6")
@pytest.mark.parametrize("name", ["t{}", LONG], ids=["short names", "long names in another alphabet"])
def test_no_merge_of_ten_thousand_entries_stalls_the_loop(name: str) -> None:
    many = listing(
        tools=[tool(name.format(number), description="x" * 100) for number in range(10_000)],
        resources=[{"uri": f"x://{number}", "name": "x"} for number in range(10_000)],
    )
    made = catalogue("a", "b", a=BackendSettings(pin=True), b=BackendSettings(prefix=""))
    more = {**many, "tools": [*many["tools"], *listing(tools=[tool("new")])["tools"]]}
    fewer = {**more, "resources": many["resources"][:-1]}
    foresee("a", [one.name for one in many["tools"]])  # as the thread does in which they are examined
    costs: list[float] = []
    for change in (
        lambda: made.put("a", many),
        lambda: made.put("b", listing(tools=[tool("own")])),
        lambda: made.put("a", more),
        lambda: made.put("a", fewer),
        lambda: made.mark("a", is_stale=True),
        lambda: made.page(TOOLS, R5, None),
    ):
        gc.collect()
        gc.disable()  # a process that serves collects the young only; this one has the objects of all tests
        try:
            began = time.process_time()
            change()
            costs.append(time.process_time() - began)
        finally:
            gc.enable()
    assert max(costs) < 0.15, costs  # each some 20 ms on an idle machine, and seconds before


@pytest.mark.finding("security-7")
def test_resources_that_several_backends_list_fill_one_line_of_the_log() -> None:
    many = listing(resources=[{"uri": f"x://{number}", "name": "x"} for number in range(100)])
    made = catalogue("a", "b")
    with structlog.testing.capture_logs() as logged:
        made.put("a", many)
        made.put("b", many)
    (line,) = [line for line in logged if line["event"] == "resource_collision"]
    assert (line["name"], line["backends"], line["count"]) == ("'x://0'", ["a", "b"], 100)
