"""Promise 18: a broker that is asked to end finishes what is in flight, sends listeners away, and leaves nothing."""

import json
import signal
from typing import Any

import psutil
import pytest
import trio
from trio_websocket import ConnectionClosed

from benchmarks.nemesis_fronts import ABOUT, websocket
from tests.figures import BUSY, figure
from tests.soak.stage import scene

DRAINING = -31004
NAMES = ("b0", "b1", "b2")


def listen(request_id: str, *uris: str) -> str:
    chosen = {"notifications": {"resourceSubscriptions": list(uris)}, "_meta": ABOUT}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "subscriptions/listen", "params": chosen})


async def hear(socket: Any, heard: list[dict[str, Any]]) -> None:
    try:
        while True:
            heard.append(json.loads(await socket.get_message()))
    except ConnectionClosed:
        return


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_18_what_is_in_flight_finishes_and_listeners_are_sent_away(is_legacy: bool) -> None:
    async with scene(NAMES, flags=("--legacy",) if is_legacy else ()) as here:
        run, stand, heard = here.run, here.run.stand, list[dict[str, Any]]()
        for name in NAMES:
            await run.wait_up(name)
        pids = [pid for name in NAMES for pid in stand.pids(name)]
        assert len(pids) == len(NAMES)
        async with websocket(stand.ws) as socket, trio.open_nursery() as nursery:
            await socket.send_message(listen("l", *(f"nemesis://{name}" for name in NAMES)))
            heard.append(json.loads(await socket.get_message()))
            assert heard[0]["method"] == "notifications/subscriptions/acknowledged"
            nursery.start_soon(hear, socket, heard)
            asked = [await run.front.send(name, "echo", pause=1.0) for name in NAMES for _ in range(20)]
            for name in NAMES:
                await run.ask(name, "echo")  # they have arrived
            began = trio.current_time()
            stand.process.send_signal(signal.SIGTERM)
            outcomes = [await run.wait(one) for one in asked]
            with trio.fail_after(20):
                assert await stand.process.wait() == 0
            took = trio.current_time() - began
        assert all(outcome is not None and outcome.is_result for outcome in outcomes)
        assert [message for message in heard if message.get("id") == "l" and "result" in message]
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert not here.verdict().faults
    figure("promise 18", f"60 calls of 1 s finished, exit 0 after {took:.1f} s, no process left ({is_legacy=})")
    assert took <= 30


async def test_18_new_work_is_refused_meanwhile() -> None:
    async with scene() as here:
        run = here.run
        slow = await run.front.send("b0", "echo", pause=1.5)
        await run.ask("b0", "echo")
        run.stand.process.send_signal(signal.SIGTERM)
        codes = set()
        with trio.move_on_after(10):
            while not slow.over.is_set() and DRAINING not in codes:
                outcome = await run.ask("b0", "echo")
                assert outcome is not None
                codes.add(outcome.code)
        assert DRAINING in codes
        outcome = await run.wait(slow)
        assert outcome is not None
        assert outcome.is_result


@pytest.mark.parametrize("fault", ["", "deaf", "stopped"])
async def test_18_a_second_signal_ends_it_soon(fault: str) -> None:
    """Also if a backend does not read, or does not run at all, and so cannot end by itself."""
    async with scene(("b0", "b1")) as here:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        await run.wait_up("b1")
        pids = [*stand.pids("b0"), *stand.pids("b1")]
        if fault == "deaf":
            await run.ask("b0", "fault", how="deaf")
        elif fault == "stopped":
            stand.signal("b0", signal.SIGSTOP)
        held = [await run.front.send(name, "hold") for name in ("b0", "b1") for _ in range(20)]
        await run.ask("b1", "meet", count=20)
        stand.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(10):
            outcome = None
            while outcome is None or outcome.code != DRAINING:
                outcome = await run.ask("b1", "echo")
        began = trio.current_time()
        stand.process.send_signal(signal.SIGTERM)
        with trio.fail_after(20):
            stand.status = await stand.process.wait()
        took = trio.current_time() - began
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert len(held) == 40
    figure("promise 18", f"second SIGTERM{' with a backend that is ' + fault if fault else ''}: over in {took:.2f} s")
    assert took <= 2 * min(BUSY, 2)
