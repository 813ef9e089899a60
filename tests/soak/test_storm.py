"""Promise 10: thousands of requests that end at once are over soon, and unrelated calls do not notice."""

import time
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from callboard.actors.broker.policy import MAX_IN_FLIGHT
from tests.figures import BUSY, LONG, figure
from tests.soak.clients import connect, head_of, modern
from tests.soak.probing import probing
from tests.soak.stage import scene

COUNTS: Final = {"closed": 10_000, "killed": MAX_IN_FLIGHT} if LONG else {"closed": 300, "killed": 300}
"""Requests in flight: of all backends together, and the most that one backend has unless its settings say otherwise."""
OVER: Final = 2.0
UNRELATED: Final = 0.05
ROOM: Final = "16384"
AT_ONCE: Final = 200
"""Connections that are being opened at the same time: fewer than a listener lets wait."""


async def hold(url: str, streams: list[trio.SocketStream], room: trio.CapacityLimiter) -> None:
    async with room:
        frame = modern("tools/call", name="b0__hold", arguments={"key": "k"})
        stream = await connect(url)
        streams.append(stream)
        await stream.send_all(head_of(url, frame) + frame)


def told(facts: list[dict[str, Any]]) -> list[float]:
    """When the backend was told of each request that was given up, sorted."""
    return sorted(fact["at"] for fact in facts if "cancelled" in fact)


@pytest.mark.finding("faults-M1")
@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_10_thousands_that_end_at_once_are_over_soon_and_others_do_not_notice(how: str, tmp_path: Path) -> None:
    count = COUNTS[how]
    options = ("--max-in-flight", ROOM, "--max-connections", ROOM)
    streams: list[trio.SocketStream] = []
    async with scene(("b0", "b1"), *options, max_in_flight=int(ROOM), timeout=600) as here:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        await run.wait_up("b1")
        room = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(hold, stand.http, streams, room)
        assert await run.wait(await run.front.send("b0", "meet", count=count), 60) is not None
        async with probing(tmp_path, stand.http, tool="b1__echo", pause=0.001) as probe:
            await probe.wait_samples(200 if LONG else 30)
            before, began = probe.p99(), time.monotonic()
            if how == "killed":
                run.kill("b0")
                for stream in streams:
                    with trio.fail_after(60):
                        assert b"-31001" in await stream.receive_some(4096)
            for stream in streams:
                stream.socket.close()
            ends = [time.monotonic()]
            with trio.move_on_after(10 * BUSY):
                while how == "closed" and len(ends := told(stand.facts("b0"))) < count:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            took = ends[-1] - began
            until = max(began + took, began + 0.5)
            await probe.wait_samples(20)
        p99, most, wrong = probe.p99(began, until), probe.seconds(began, until)[-1], probe.wrong()
    figure(
        "promise 10",
        f"{count} {how} at once: over in {took:.2f} s; unrelated p99 {p99 * 1000:.1f} ms, max {most * 1000:.0f} ms "
        f"({before * 1000:.1f} ms before)",
        f"<= {OVER:g} s, p99 <= {UNRELATED * 1000:.0f} ms",
    )
    assert not wrong
    assert len(ends) == (count if how == "closed" else 1)
    assert took <= OVER * BUSY
    assert p99 <= UNRELATED * BUSY
