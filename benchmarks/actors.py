"""What an actor costs, as ratios to bare Trio in the same run.

    python benchmarks/actors.py [--quick] [--json]

Ours and the bare form take turns, so that a busy machine slows both; a ratio is the median of the rounds, with the
smallest and the largest beside it. Microseconds are of this machine and this moment: the ratios are the result.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio
import trio.testing

from callboard.supervisor import Actor, Ask, Supervisor, SupervisorSpec, open_tree

ROUNDS = 9
OPERATIONS = 2000
IDLE = 10_000


@attrs.frozen
class Get(Ask[int]):
    """A question with a trivial answer."""


@attrs.frozen
class Note:
    """A message without one."""


@attrs.define(eq=False)
class Teller(Actor[Get | Note]):
    """The smallest actor that answers."""

    async def run(self) -> None:
        async for message in self.inbox:
            match message:
                case Get():
                    message.reply(1)
                case Note():
                    pass


Body: TypeAlias = Callable[[Supervisor, trio.Nursery, int], Awaitable[None]]


async def bare_life(_: Supervisor, nursery: trio.Nursery, count: int) -> None:
    """Spawn a task with a channel, have it answer once, close, see it end."""

    async def body(inbox: trio.MemoryReceiveChannel[trio.MemorySendChannel[int]], ended: trio.Event) -> None:
        async for reply in inbox:
            reply.send_nowait(1)
        ended.set()

    for _n in range(count):
        send, inbox = trio.open_memory_channel[trio.MemorySendChannel[int]](64)
        ended = trio.Event()
        nursery.start_soon(body, inbox, ended)
        reply_to, reply = trio.open_memory_channel[int](1)
        await send.send(reply_to)
        await reply.receive()
        send.close()
        await ended.wait()


async def actor_life(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    """The same with an actor, which has a cancel scope, a place in the tree and a deadline on top."""
    for n in range(count):
        address = supervisor.spawn(Teller(), name=f"t{n}")
        await address.ask(Get(), within=5.0)
        await address.stop()


async def bare_sends(_: Supervisor, nursery: trio.Nursery, count: int) -> None:
    send, inbox = trio.open_memory_channel[Note](64)

    async def body() -> None:
        async for _note in inbox:
            pass

    nursery.start_soon(body)
    async with send:
        for _n in range(count):
            await send.send(Note())


async def actor_tells(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    address = supervisor.spawn(Teller(), name="teller")
    for _n in range(count):
        await address.tell(Note())
    await address.stop()


async def bare_scopes(_: Supervisor, __: trio.Nursery, count: int) -> None:
    for _n in range(count):
        with trio.CancelScope():  # noqa: ASYNC100  # its cost alone is wanted
            pass


async def adoptions(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    for _n in range(count):
        with supervisor.adopt("r", kind="Request"):
            pass


async def bare_storm(_: Supervisor, nursery: trio.Nursery, count: int) -> None:
    scopes = [trio.CancelScope() for _n in range(count)]
    left = count
    all_ended = trio.Event()

    async def body(scope: trio.CancelScope) -> None:
        nonlocal left
        with scope:
            await trio.sleep_forever()
        left -= 1
        if not left:
            all_ended.set()

    for scope in scopes:
        nursery.start_soon(body, scope)
    await trio.testing.wait_all_tasks_blocked()
    for scope in scopes:
        scope.cancel()
    await all_ended.wait()


async def actor_storm(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    addresses = [supervisor.spawn(Teller(), name=f"s{n}") for n in range(count)]
    await trio.testing.wait_all_tasks_blocked()
    for address in addresses:
        address.kill()
    for address in addresses:
        await address.wait_ended()


@attrs.frozen
class Figure:
    """One comparison. *ratio* is ours to bare."""

    name: str
    bare: float
    ours: float
    ratio: float
    least: float
    most: float
    unit: str
    target: str = ""
    reached: bool | None = None


async def compare(name: str, bare: Body, ours: Body, *, count: int, rounds: int) -> Figure:
    times: dict[Body, list[float]] = {bare: [], ours: []}
    async with open_tree(SupervisorSpec("bench")) as root, trio.open_nursery() as nursery:
        for _ in range(rounds + 1):
            for body in (bare, ours):
                gc.collect()
                start = time.perf_counter()
                await body(root, nursery, count)
                times[body].append((time.perf_counter() - start) / count * 1e6)
    pairs = list(zip(times[bare][1:], times[ours][1:], strict=True))  # the first round warms up
    ratios = [o / b for b, o in pairs]
    return Figure(
        name,
        statistics.median(b for b, _ in pairs),
        statistics.median(o for _, o in pairs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        "us",
    )


async def idle_memory(count: int) -> Figure:
    """Bytes per idle task by tracemalloc: what Python allocated, whatever the allocator keeps."""

    async def body(inbox: trio.MemoryReceiveChannel[Note]) -> None:
        with trio.CancelScope():
            async for _ in inbox:
                pass

    async def bare() -> float:
        async with trio.open_nursery() as nursery:
            before = tracemalloc.get_traced_memory()[0]
            kept = []
            for _ in range(count):
                send, inbox = trio.open_memory_channel[Note](64)
                nursery.start_soon(body, inbox)
                kept.append(send)
            await trio.testing.wait_all_tasks_blocked()
            used = tracemalloc.get_traced_memory()[0] - before
            nursery.cancel_scope.cancel()
        return used / count

    async def ours() -> float:
        async with open_tree(SupervisorSpec("bench")) as root:
            before = tracemalloc.get_traced_memory()[0]
            kept = [root.spawn(Teller(), name=f"t{n}") for n in range(count)]
            await trio.testing.wait_all_tasks_blocked()
            used = tracemalloc.get_traced_memory()[0] - before
            for address in kept:
                address.kill()
        return used / count

    tracemalloc.start()
    try:
        of_bare, of_ours = await bare(), await ours()
    finally:
        tracemalloc.stop()
    ratio = of_ours / of_bare
    return Figure("an idle actor, memory (tracemalloc)", of_bare, of_ours, ratio, ratio, ratio, "B")


async def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (5, 300) if quick else (ROUNDS, OPERATIONS)
    life = await compare("spawn + ask + stop", bare_life, actor_life, count=count, rounds=rounds)
    tell = await compare("tell, awaited", bare_sends, actor_tells, count=count * 5, rounds=rounds)
    adopt = await compare("adopt, against a bare scope", bare_scopes, adoptions, count=count * 5, rounds=rounds)
    storm = await compare("cancel storm", bare_storm, actor_storm, count=count, rounds=rounds)
    memory = await idle_memory(IDLE // 10 if quick else IDLE)
    return [
        attrs.evolve(life, target="at most 2x a bare task", reached=life.ratio <= 2),
        tell,
        attrs.evolve(adopt, target="under 25 us", reached=adopt.ours < 25),
        attrs.evolve(storm, target="10,000 in 2 s", reached=storm.ours * 10_000 <= 2e6),
        attrs.evolve(memory, target="at most 8 KiB", reached=memory.ours <= 8192),
    ]


def main() -> None:
    figures = trio.run(lambda: measure(quick="--quick" in sys.argv))
    if "--json" in sys.argv:
        print(json.dumps([attrs.asdict(figure) for figure in figures], indent=2))
        return
    print(f"{'':38}{'bare':>10}{'actor':>10}  ratio (least to most)")
    for f in figures:
        verdict = "" if f.reached is None else f"{f.target}: {'reached' if f.reached else 'MISSED'}"
        print(
            f"{f.name:38}{f.bare:7.1f} {f.unit:2}{f.ours:7.1f} {f.unit:2}"
            f"  {f.ratio:.2f} ({f.least:.2f} to {f.most:.2f})  {verdict}"
        )


if __name__ == "__main__":
    main()
