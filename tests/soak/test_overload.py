"""Promise 17: one request too many is refused at once, and those that were let in do not notice."""

import json

import pytest
import trio

from benchmarks.nemesis_acts import Run
from benchmarks.nemesis_fronts import ABOUT, Asked, post, read_response
from benchmarks.nemesis_history import share
from tests.figures import BUSY, LONG, figure
from tests.soak.stage import scene

OVERLOADED = -31003
ROOM = 40
SHARE = ROOM - ROOM // 4
"""What one client may have of it."""
TRIES = 1000 if LONG else 100


async def echoes(run: Run, count: int) -> list[float]:
    """Seconds that answers take, one after the other, sorted."""
    outcomes = [await run.ask("b1", "echo") for _ in range(count)]
    assert all(outcome is not None and outcome.is_result for outcome in outcomes)
    return sorted(outcome.seconds for outcome in outcomes if outcome is not None)


@pytest.mark.parametrize("front", ["ws", "http"])
async def test_17_overload_is_answered_at_once(front: str) -> None:
    async with scene(("b0", "b1"), front=front, max_in_flight=ROOM) as here:
        run = here.run
        before = await echoes(run, TRIES)
        held: list[Asked] = []
        taken: list[float] = []
        while len(taken) < TRIES:
            held = [one for one in held if not one.over.is_set()]
            held += [await run.front.send("b0", "hold") for _ in range(SHARE - len(held))]
            outcome = await run.ask("b0", "echo")  # it may come before the last of them
            assert outcome is not None
            taken += [outcome.seconds] if outcome.code == OVERLOADED else []
        after = await echoes(run, TRIES)  # who asks another backend does not notice
        assert not any(one.over.is_set() for one in held)
        run.kill("b0")
        await run.wait_up("b0")
        verdict = here.verdict()
        assert not verdict.faults
        assert verdict.outcomes["-31001"] == len(held)
    taken.sort()
    p99 = [share(one, 0.99) * 1000 for one in (taken, before, after)]
    figure(
        "promise 17", f"{front}: refused in p99 {p99[0]:.1f} ms; others' p99 {p99[1]:.1f} ms before, {p99[2]:.1f} ms"
    )
    assert share(taken, 0.5) <= 0.01 * BUSY
    assert share(taken, 0.99) <= 0.02 * BUSY


async def test_17_http_says_when_to_come_back() -> None:
    async with scene(max_in_flight=1) as here:
        run = here.run
        await run.front.send("b0", "hold")
        about = {"name": "b0__echo", "arguments": {"key": "late"}, "_meta": ABOUT}
        frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": about}
        request = post(run.stand.http, json.dumps(frame).encode(), "tools/call", "b0__echo")
        stream = await trio.open_tcp_stream("127.0.0.1", int(run.stand.http.split(":")[2].partition("/")[0]))
        async with stream:
            with trio.fail_after(10):
                while True:
                    await stream.send_all(request)
                    status, headers, body = await read_response(stream)
                    if status != 200:  # 200 until the first one has come in
                        break
        assert (status, json.loads(body)["error"]["code"]) == (503, OVERLOADED)
        assert int(headers[b"retry-after"]) >= 1
        run.kill("b0")
