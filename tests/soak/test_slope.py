"""Promise 24: mixed traffic, faults among it, leaves the broker's memory and descriptors where they were."""

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import trio

from benchmarks.nemesis_acts import Run
from benchmarks.nemesis_fronts import websocket
from tests.figures import LONG, figure
from tests.soak.clients import HELLO, ask, connect, frame_of, head_of, modern, session_at
from tests.soak.stage import scene

WARM_UP: Final = 20_000 if LONG else 50
"""Rounds after which a broker has all that it keeps: heads, dead letters, states, and what an allocator holds."""
WARM_UP_TIME: Final = 200.0
"""Seconds that they may take."""
MEASURED: Final = 240.0 if LONG else 2.0
EVERY: Final = 1.0 if LONG else 0.1
BLOCK: Final = 10
"""Samples that are one point of the line: an allocator gives back and takes in waves of some seconds, and what follows
such a wave is no new evidence."""
MIB: Final = 1 << 20
SLOPE: Final = 1.0
"""MiB an hour."""
NOISE: Final = 2.0
"""MiB by which the memory of a process goes up and down by itself: what an allocator keeps."""
KILL_EVERY: Final = 10.0


async def _plain(run: Run, url: str) -> None:
    await run.ask("b0", "echo", steps=3, pad=run.draw.choice((0, 5_000, 200_000)))
    await run.ask("b0", "read")


async def _fails(run: Run, url: str) -> None:
    text = "x" * run.draw.choice((10, 500_000))
    await ask(url, modern("tools/call", name="no_such", arguments={"text": text}))
    await ask(url, modern("resources/read", uri="nemesis://nowhere"))
    await ask(url, b"{")


async def _leaves(run: Run, url: str) -> None:
    """A call whose client goes away before it is answered."""
    frame = modern("tools/call", name="b0__hold", arguments={"key": "left"})
    async with await connect(url) as stream:
        await stream.send_all(head_of(url, frame) + frame)
        await trio.sleep(0.05)


async def _times_out(run: Run, url: str) -> None:
    await ask(url, modern("tools/call", name="b1__hold", arguments={"key": "late", "text": "x" * 100_000}))


async def _session(run: Run, url: str) -> None:
    session = await session_at(url)
    await ask(url, frame_of("resources/subscribe", uri="nemesis://b0"), session=session)
    await ask(url, frame_of("tools/call", name="b0__echo", arguments={"key": "legacy"}), session=session)
    await ask(url, b"", session=session, verb="DELETE")


async def _socket(run: Run, url: str) -> None:
    async with websocket(run.stand.ws) as line:
        await line.send_message(frame_of("initialize", "i", **HELLO).decode())
        await line.get_message()
        await line.send_message(frame_of("notifications/initialized", None).decode())
        await line.send_message(frame_of("tools/call", "c", name="b0__echo", arguments={"key": "ws"}).decode())
        await line.get_message()


async def _listens(run: Run, url: str) -> None:
    frame = modern("subscriptions/listen", "l", notifications={"resourceSubscriptions": ["nemesis://b0"]})
    async with await connect(url) as stream:
        await stream.send_all(head_of(url, frame) + frame)
        await stream.receive_some(4096)
        await run.ask("b0", "tell", count=20, different=20)


MIX: Final = (_plain, _fails, _leaves, _times_out, _session, _socket, _listens)


def slope_of(memory: list[tuple[float, float]]) -> tuple[float, float]:
    """MiB an hour through (seconds, MiB), and how much of that may be chance: two standard errors."""
    size = BLOCK if LONG else 1
    blocks = [memory[at : at + size] for at in range(0, len(memory) - size + 1, size)]
    points = [(statistics.fmean(at for at, _ in block), _mean(block)) for block in blocks]
    times, sizes = zip(*points, strict=True)
    slope, start = statistics.linear_regression(times, sizes)
    rest = [held - start - slope * at for at, held in points]
    spread = statistics.pvariance(times) * len(times)
    error = (sum(one * one for one in rest) / max(1, len(rest) - 2) / spread) ** 0.5
    return slope * 3600, 2 * error * 3600


@pytest.mark.finding("faults-C3", "faults-M1")
async def test_24_mixed_traffic_leaves_memory_where_it_was() -> None:
    done: dict[str, int] = {act.__name__: 0 for act in MIX}
    memory: list[tuple[float, float]] = []

    async def repeat(act: Callable[[Run, str], Awaitable[None]], run: Run) -> None:
        while True:
            await act(run, run.stand.http)
            done[act.__name__] += 1
            await trio.sleep(0.01)

    async def kill(run: Run) -> None:
        while True:
            await trio.sleep(KILL_EVERY)
            run.kill("b2")

    async with scene(("b0", "b1", "b2"), timeout=0.5) as here:
        run, stand = here.run, here.run.stand
        for name in stand.names:
            await run.wait_up(name)
        async with trio.open_nursery() as nursery:
            for act in MIX:
                nursery.start_soon(repeat, act, run)
            nursery.start_soon(kill, run)
            with trio.move_on_after(WARM_UP_TIME):
                while sum(done.values()) < WARM_UP:  # noqa: ASYNC110 -- no event is worth it
                    await trio.sleep(0.1)
            warmed = sum(done.values())
            begun, descriptors = time.monotonic(), stand.state()["descriptors"]
            with trio.move_on_after(MEASURED):
                while True:
                    memory.append((time.monotonic() - begun, stand.state()["memory"] / MIB))
                    await trio.sleep(EVERY)
            nursery.cancel_scope.cancel()
        after = await stand.wait_state({**stand.state(), "descriptors": descriptors}, 10)
    slope, chance = slope_of(memory)
    tenth = max(1, len(memory) // 10)
    grown = _mean(memory[-tenth:]) - _mean(memory[:tenth])
    figure(
        "promise 24",
        f"{sum(done.values()) - warmed} rounds of {len(MIX)} kinds in {MEASURED:.0f} s: {slope:+.1f} MiB/h "
        f"(+- {chance:.1f}), {grown:+.2f} MiB, after {warmed} rounds to warm up",
        f"< {SLOPE:g} MiB/h beyond chance, <= {NOISE:g} MiB",
    )
    assert all(done.values()), done
    assert after["descriptors"] <= descriptors + 2
    if LONG:
        assert slope - chance < SLOPE
        assert grown <= NOISE


def _mean(memory: list[tuple[float, Any]]) -> float:
    return statistics.fmean(size for _, size in memory)
