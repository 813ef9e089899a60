"""The judge of the fuzz judges: what it must complain about, it does."""

import random
from typing import Any, Never

import trio
from structlog.testing import capture_logs

from callboard.codecs.revisions.revision import R4, R5
from callboard.supervisor import Actor, SupervisorSpec, open_tree
from callboard.transports.memory import memory_pair
from tests.fuzz.offers import LISTS
from tests.fuzz.strict import Complaints, Customer, complaint_of
from tests.fuzz.values import Again, spoiled, written
from tests.shared import needs_protocol


class Crashing(Actor[Never]):
    mailbox = None

    async def run(self) -> None:
        raise TypeError("list indices must be integers")


async def test_an_actor_that_crashes_is_noticed() -> None:
    complaints = Complaints()
    with capture_logs() as logs:
        async with open_tree(SupervisorSpec("root")) as root:
            await root.spawn(Crashing(), name="one").wait_ended()
        complaints.heed(logs)
    [kind] = complaints.first
    assert kind.startswith("actor_crashed Crashing TypeError")


@needs_protocol
def test_messages_that_no_schema_allows_are_noticed() -> None:
    asked = {1: "tools/list"}
    tool: dict[str, Any] = {"name": "x", "inputSchema": {}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}
    assert complaint_of(R4, answer, asked) == "invalid tools/list (2025-11-25): $.tools[].inputSchema: required"
    tool["inputSchema"]["type"] = "object"
    assert complaint_of(R4, answer, asked) == ""
    assert "required" in complaint_of(R5, answer, asked)
    assert "impossible" in complaint_of(R5, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, asked)
    assert "invalid tools/call" in complaint_of(R4, {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, None)


async def test_an_answer_that_comes_twice_and_one_that_never_does_are_noticed() -> None:
    near, far = memory_pair()
    complaints = Complaints()
    customer = Customer(near, R4, complaints, random.Random(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(customer.read)
        request_id = await customer.begin("ping")
        for _ in range(2):
            await far.send(written({"jsonrpc": "2.0", "id": request_id, "result": {}}))
        assert "result" in await customer.finish(request_id, "ping")
        assert await customer.finish(await customer.begin("ping"), "ping", within=0.01) == {}
        nursery.cancel_scope.cancel()
    assert sorted(complaints.first) == [
        "an answer to nothing that was asked, or a second one",
        "no answer: ping (2025-11-25)",
    ]


def test_spoiled_values_are_others_and_the_original_stays() -> None:
    draw, before = random.Random(1), written(LISTS)
    seen = {written(spoiled(draw, LISTS["tools/list"][1])) for _ in range(300)}
    assert len(seen) > 200
    assert any(b"x-mcp-header" in one and one != before for one in seen)
    assert written(LISTS) == before
    assert written({"a": 1, Again("a"): 2}) == b'{"a":1,"a":2}'
