"""Rounds of input cost a stranger's share at most: forged states, long arguments, clocks that jump, and greed."""

import threading
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.server import parking as parking_module
from callboard.actors.server.exchange import Exchange
from callboard.codecs.revisions.revision import R5
from callboard.codecs.state import salient_digest
from callboard.testing.peer import Peer, Refusal
from tests.actors.server.stage import said, stage, text
from tests.actors.server.test_parking import TOOLS, form


def carrying(asked: list[int]) -> Any:
    """A tool that forgets, and lets the client keep everything."""

    async def carry(exchange: Exchange) -> Any:
        asked.append(len(asked))
        if exchange.carried is not None:
            return text("done")
        return await exchange.parking.hand_over(exchange, [form()], b"carried")

    return carry


@pytest.mark.finding("security-12")
@pytest.mark.parametrize("state", ["AAAA", "A" * 200, "", "x" * 70_000])
async def test_a_forged_state_is_refused_before_the_arguments_are_looked_at(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(parking_module, "salient_digest", lambda *args: looked.append(args))
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="together", arguments={"n": [1.5e-9]}, requestState=state)
        assert looked == []


@pytest.mark.finding("security-12")
async def test_a_spent_state_is_refused_before_the_arguments_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with stage({"carry": carrying([])}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="carry", arguments={})
        await peer.request("tools/call", name="carry", arguments={}, **peer.answered(asked))
        monkeypatch.setattr(parking_module, "salient_digest", lambda *args: pytest.fail("looked at"))
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="carry", arguments={}, **peer.answered(asked))


@pytest.mark.finding("security-12")
async def test_long_arguments_of_a_round_are_digested_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def noted(method: str, params: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return salient_digest(method, params)

    monkeypatch.setattr(parking_module, "salient_digest", noted)
    long = {"n": [1.5e-9] * 10_000}
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="together", arguments=long)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="together", arguments={"n": [1]}, **peer.answered(asked))
        main = threading.main_thread().name
        assert main in threads  # the short ones
        assert len(threads) > 1
        assert said(await peer.request("tools/call", name="together", arguments=long, **peer.answered(asked)))


@pytest.mark.finding("faults-M5")
async def test_a_clock_on_the_wall_that_jumps_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    runs: list[int] = []
    wall = [1e9]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    async with stage({"carry": carrying(runs)}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="carry", arguments={})
        wall[0] += 700  # forwards: it is as valid as before
        assert said(await peer.request("tools/call", name="carry", arguments={}, **peer.answered(asked))) == "done"
        wall[0] -= 700  # and back: a spent one stays spent
        for _ in range(2):
            with pytest.raises(Refusal, match="-32602"):
                await peer.request("tools/call", name="carry", arguments={}, **peer.answered(asked))
            await peer.request("tools/call", name="carry", arguments={})
        assert runs == [0, 1, 2, 3]


@pytest.mark.finding("security-11", "faults-H2")
async def test_one_client_that_answers_many_rounds_leaves_the_others_theirs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with stage({"carry": carrying([])}) as here:
        here.host.parking._spenders.allow(100, 10)
        alice, bob = await here.peer(R5, principal="alice"), await here.peer(R5, principal="bob")

        async def round_of(peer: Peer) -> str:
            asked = await peer.request("tools/call", name="carry", arguments={})
            return said(await peer.request("tools/call", name="carry", arguments={}, **peer.answered(asked)))

        for _ in range(10):
            assert await round_of(alice) == "done"
        for _ in range(200):
            with pytest.raises(Refusal, match="-31003"):
                await round_of(alice)
        assert await round_of(bob) == "done"
        await trio.sleep(601)  # they are forgotten with their states
        assert await round_of(alice) == "done"
        assert len(here.host.parking._spent) == 1


@pytest.mark.finding("security-11", "faults-H2")
async def test_anonymous_clients_of_one_address_never_take_all_places(autojump_clock: MockClock) -> None:
    async with stage(TOOLS, most=8, most_each=6) as here:
        peer, bob = await here.peer(R5), await here.peer(R5, principal="bob")
        parked_so_far = 0
        for _ in range(8):
            try:
                await peer.request("tools/call", name="together", arguments={})
                parked_so_far += 1
            except Refusal:
                break
        assert parked_so_far == 6
        assert (await bob.request("tools/call", name="together", arguments={}))["resultType"] == "input_required"


@pytest.mark.finding("security-22")
async def test_large_requests_that_wait_for_input_are_bounded_in_bytes(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        here.host.parking._bytes.allow(4000, 1000)
        alice, bob = await here.peer(R5, principal="alice"), await here.peer(R5, principal="bob")
        large = {"text": "x" * 600}
        await alice.request("tools/call", name="together", arguments=large)
        with pytest.raises(Refusal, match="-31003"):
            await alice.request("tools/call", name="together", arguments=large)
        await alice.request("tools/call", name="together", arguments={})  # a small one has room
        assert (await bob.request("tools/call", name="together", arguments=large))["resultType"] == "input_required"
        await trio.sleep(601)  # nobody came back
        assert here.host.parking._bytes.total == 0
        assert (await alice.request("tools/call", name="together", arguments=large))["resultType"] == "input_required"
