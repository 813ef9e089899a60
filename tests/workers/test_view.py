"""What operators see of a server in several processes: all of them as one."""

import os
import signal
import time
from collections import Counter
from typing import Any

import attrs
import trio
from prometheus_client.parser import text_string_to_metric_families

from callboard.serve.node_view import NodeView
from tests.process import CALLBOARD
from tests.workers.crowd import Crowd, crowd

CALLS = 30


async def samples(many: Crowd) -> Counter[str]:
    """Counts of calls by tool."""
    found = Counter[str]()
    for family in text_string_to_metric_families((await many.look("/metrics")).body.decode()):
        for one in family.samples:
            if one.name == "mcp_server_operation_duration_seconds_count":
                found[one.labels.get("gen_ai_tool_name", "")] += int(one.value)
    return found


async def test_all_workers_are_seen_as_one_server() -> None:
    async with crowd(program=CALLBOARD) as many:  # the view has process ids of the parent
        sessions = [await many.session() for _ in range(6)]
        homes = Counter[int]()
        for number in range(CALLS):
            homes[await sessions[number % 6].call("where")] += 1
        assert len(homes) == 2
        view: Any = (await many.look()).json
        assert {row["name"] for row in view["server"]["workers"]} == {"worker-1", "worker-2"}
        assert all(row["answers"] for row in view["server"]["workers"])
        assert {row["pid"] for row in view["server"]["workers"]} == set(many.workers())
        assert view["totals"]["sessions"] == 6
        (tool,) = [row for row in view["tools"] if row["name"] == "where"]
        assert (tool["calls"], tool["errors"]) == (CALLS, 0)
        assert {row["worker"] for row in view["clients"]} == {"worker-1", "worker-2"}
        assert [branch["name"] for branch in view["tree"]["children"]] == ["worker-1", "worker-2"]
        assert (await samples(many))["where"] == CALLS
        # One that hangs is left out, and that is said.
        stopped = many.workers()[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            asked = time.monotonic()
            while all(row["answers"] for row in view["server"]["workers"]):  # for half a second an older view is shown
                view = (await many.look()).json
            assert time.monotonic() - asked < 4.5
            assert Counter(row["answers"] for row in view["server"]["workers"]) == {True: 1, False: 1}
            assert len(view["tree"]["children"]) == 1
        finally:
            os.kill(stopped, signal.SIGCONT)
        await trio.sleep(0.1)


@attrs.frozen
class FakeWorker:
    """As much of a worker process as is looked at. It says nothing of itself."""

    label: str
    is_serving: bool = False
    is_over: bool = False
    asked: list[str] = attrs.field(factory=list)

    def facts(self) -> dict[str, object]:
        return {"state": "serving" if self.is_serving else "starting", "pid": 7}

    async def show(self, what: str) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(what)


async def test_workers_that_do_not_serve_are_listed_and_not_asked() -> None:
    some: Any = [FakeWorker("worker-1", is_serving=True), FakeWorker("worker-2"), FakeWorker("worker-3", is_over=True)]
    view = await NodeView(lambda: some, lambda: False).view()
    told = [(row["name"], row["state"], row["answers"]) for row in view["server"]["workers"]]
    assert told == [
        ("worker-1", "serving", False),
        ("worker-2", "starting", False),
        ("worker-3", "restarting", False),
    ]
    assert [worker.asked for worker in some] == [["view"], [], []]
