"""The promises that the company keeps above any transport, each with its figure.

The figures are printed (`pytest -s`).
"""

import random
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.changes import ResourceUpdated
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.session import OUTBOX_SIZE
from callboard.codecs.revisions import CallToolResult, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Refusal
from tests.actors.server.stage import said, stage, text
from tests.actors.server.test_parking import ROOTS, form
from tests.figures import LONG, figure


async def wait_for_ever(exchange: Exchange) -> CallToolResult:
    await trio.sleep_forever()
    raise AssertionError


async def greet(exchange: Exchange) -> CallToolResult:
    return text("hello")


async def flood(exchange: Exchange) -> CallToolResult:
    for number in range(5_000):
        await exchange.report(number, 5_000)
        await exchange.log("info", number)
    return text("done")


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_5_every_request_ends_at_its_deadline_exactly(revision: Revision, autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([ROOTS], at_once=True)
        return text("answered")

    async with stage({"wait": wait_for_ever, "ask": ask}) as here:
        peer = await here.peer(revision)
        started = trio.current_time()
        with pytest.raises(Refusal, match="-31002"):
            await peer.call("wait")
        assert trio.current_time() - started == 600
        if revision is R4:  # a client that never answers our question
            request_id = await peer.begin("tools/call", name="ask", arguments={})
            question = await peer.hear()
            taken_back = await peer.hear()
            assert taken_back["params"]["requestId"] == question["id"]
            assert trio.current_time() - started == 1200
            with pytest.raises(Refusal, match="-31002"):
                await peer.finish(request_id)
    figure("promise 5", f"a silent handler or client costs 600 s of virtual time, exactly ({revision})")


async def test_7_overflow_is_chosen_by_the_kind_of_message(autojump_clock: MockClock) -> None:
    async with stage({"flood": flood, "greet": greet}) as here:
        peer = await here.peer(R4)
        for uri in ("file:///a", "file:///b"):
            await peer.request("resources/subscribe", uri=uri)
        first = await peer.begin("tools/call", name="flood", arguments={}, meta={"progressToken": "t"})
        second = await peer.begin("tools/call", name="greet", arguments={})
        for number in range(10_000):  # the peer reads nothing all the while
            here.host.topics.publish(ResourceUpdated(f"file:///{'ab'[number % 2]}"))
        await wait_all_tasks_blocked()
        (session,) = here.root.supervisor_of("sessions").tree().children
        depth = session.children[0].mailbox_depth
        assert depth <= OUTBOX_SIZE
        assert said(await peer.finish(second)) == "hello"
        assert said(await peer.finish(first)) == "done"
        progress = [note["progress"] for note in peer.notifications("notifications/progress")]
        assert progress == sorted(set(progress))
        updates = len(peer.notifications("notifications/resources/updated"))
        assert 2 <= updates <= 2 + 20  # two resources, and what was on its way before the peer stopped reading
        figure("promise 7", f"10,000 changes became {updates}, {depth} frames waited at most, no answer was lost")


async def test_10_a_storm_of_cancellations_is_over_in_time() -> None:
    count = 10_000 if LONG else 2_000
    async with stage({"wait": wait_for_ever, "greet": greet}) as here:
        here.host.most_in_flight = count
        peer, other = await here.peer(R4), await here.peer(R5)
        ids = [await peer.begin("tools/call", name="wait", arguments={}) for _ in range(count)]
        await wait_all_tasks_blocked()
        started = time.perf_counter()
        for request_id in ids:
            await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        during = time.perf_counter()
        assert said(await other.call("greet")) == "hello"
        waited = time.perf_counter() - during
        await wait_all_tasks_blocked()
        took = time.perf_counter() - started
        assert said(await peer.call("greet")) == "hello"
        assert not peer.heard  # not one answer after a cancel
    figure("promise 10", f"{count} requests cancelled in {took:.2f} s, an unrelated one took {waited * 1000:.1f} ms")
    assert took <= 2 * count / 10_000 * 5  # five times the promise: the machine may be busy


async def test_16_reports_come_before_the_answer_and_the_acknowledgement_first(autojump_clock: MockClock) -> None:
    async def work(exchange: Exchange) -> CallToolResult:
        for number in range(20):
            await exchange.report(number)
            await trio.sleep(random.choice((0.0, 0.004, 0.02)))
        return text("done")

    messages = 0
    async with stage({"work": work}) as here:
        count = here.host.most_in_flight = 2_000 if LONG else 100
        peer = await here.peer(R5)
        tokens = {await peer.begin("tools/call", name="work", meta={"progressToken": n}): n for n in range(count)}
        last: dict[int, float] = {}
        finished: set[int] = set()
        while len(finished) < count:
            message = await peer.hear()
            messages += 1
            if "id" in message:
                finished.add(tokens[message["id"]])
                assert last[tokens[message["id"]]] == 19  # the last report always goes out
            else:
                token, progress = message["params"]["progressToken"], message["params"]["progress"]
                assert token not in finished
                assert progress > last.get(token, -1)
                last[token] = progress
    figure("promise 16", f"{messages} messages of {count} requests, all in order")


async def test_20_what_reaches_no_one_is_counted(autojump_clock: MockClock) -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(R4)
        for number in range(50):
            await peer.say({"id": 10_000 + number, "result": {}})
            await peer.say({"method": "notifications/cancelled", "params": {"requestId": number + 10_000}})
        assert said(await peer.call("greet")) == "hello"
        (session,) = here.root.supervisor_of("sessions").tree().children
        assert session.children[0].facts["ignored"] == 100
    figure("promise 20", "100 answers and cancellations for nobody, 100 counted")


async def test_s10_and_s11_no_forged_or_used_state_is_accepted(autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([form()], at_once=True)
        return text("done")

    draw, tried = random.Random(10), 0
    async with stage({"ask": ask}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="ask", arguments={})
        good = peer.answered(asked)
        state = good["requestState"]
        for _ in range(100_000 if LONG else 1_000):
            forged = bytearray(state, "ascii")
            forged[draw.randrange(len(forged))] ^= 1 << draw.randrange(7)
            if draw.random() < 0.2:
                del forged[draw.randrange(len(forged)) :]
            if bytes(forged) == state.encode():
                continue
            tried += 1
            changed: dict[str, Any] = {**good, "requestState": forged.decode("ascii", "replace")}
            with pytest.raises(Refusal, match="Invalid or expired requestState"):
                await peer.request("tools/call", name="ask", arguments={}, **changed)
        assert said(await peer.request("tools/call", name="ask", arguments={}, **good)) == "done"
        with pytest.raises(Refusal, match="Invalid or expired requestState"):
            await peer.request("tools/call", name="ask", arguments={}, **good)
    figure("S10, S11", f"{tried} forged states and one used one, 0 accepted")


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_s22_a_client_is_never_asked_for_what_it_did_not_declare(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([form()])
        raise AssertionError

    async with stage({"ask": ask}) as here:
        peer = await here.peer(revision, capabilities={"sampling": {}})
        with pytest.raises(Refusal) as refused:
            await peer.call("ask")
        assert refused.value.data == {"requiredCapabilities": {"elicitation": {}}}
        assert not peer.heard
    figure("S22", f"refused with {refused.value.code}, nothing asked ({revision})")
