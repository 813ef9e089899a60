"""What an actor costs, as ratios to bare Trio in the same run.

    python -m benchmarks.actors [--quick] [--json FILE]

Ours and the bare form take turns. Memory is what Python allocated (tracemalloc), whatever the allocator keeps.
"""

import argparse
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs
import trio
import trio.testing

from benchmarks.measure import Figure, Timer, add_json, alternate, as_json, verdict, write_json
from callboard.supervisor import Actor, Ask, ChildSpec, Restart, Supervisor, SupervisorSpec, open_tree

LIFE = "spawn + ask + stop"
STORM = "cancel storm"
ADOPT = "adopt, against a bare scope"


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
        await address.send(Note())
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


CONTESTS: Mapping[str, tuple[Body, Body]] = {
    LIFE: (bare_life, actor_life),
    "tell, awaited": (bare_sends, actor_tells),
    ADOPT: (bare_scopes, adoptions),
    STORM: (bare_storm, actor_storm),
}


def in_trio(body: Body) -> Timer:
    """Time an async body, in a tree and a nursery of its own."""

    async def timed(budget: float) -> float:
        async with open_tree(SupervisorSpec("bench")) as root, trio.open_nursery() as nursery:
            started = time.perf_counter()
            await body(root, nursery, 20)  # warms up, too
            count = max(20, int(budget / (time.perf_counter() - started) * 20))
            started = time.perf_counter()
            await body(root, nursery, count)
            return (time.perf_counter() - started) / count

    return lambda budget: trio.run(timed, budget)


async def bare_idle(_: Supervisor, nursery: trio.Nursery, count: int) -> None:
    async def body(_: trio.MemorySendChannel[Note], inbox: trio.MemoryReceiveChannel[Note]) -> None:
        with trio.CancelScope():
            async for _note in inbox:
                pass

    for _n in range(count):
        nursery.start_soon(body, *trio.open_memory_channel[Note](64))


async def idle_actors(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    for n in range(count):
        supervisor.spawn(Teller(), name=f"t{n}")


async def idle_sessions(supervisor: Supervisor, _: trio.Nursery, count: int) -> None:
    main = ChildSpec("main", Teller, restart=Restart.TEMPORARY, significant=True)
    for n in range(count):
        await supervisor.add(SupervisorSpec(f"s{n}", children=(main,), restart=Restart.TEMPORARY))


async def memory(body: Body, count: int) -> float:
    """KiB that one of *count* idle ones takes."""
    tracemalloc.start()
    try:
        async with trio.open_nursery() as nursery, open_tree(SupervisorSpec("bench")) as root:
            before, _ = tracemalloc.get_traced_memory()
            await body(root, nursery, count)
            await trio.testing.wait_all_tasks_blocked()
            used = tracemalloc.get_traced_memory()[0] - before
            nursery.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    return used / count / 1024


def measure(*, quick: bool) -> tuple[dict[str, list[Figure]], dict[str, float]]:
    rounds, budget, idle = (5, 0.05, 1000) if quick else (9, 0.3, 10_000)
    times = {
        name: alternate({"bare": in_trio(bare), "ours": in_trio(ours)}, rounds=rounds, budget=budget)
        for name, (bare, ours) in CONTESTS.items()
    }
    bodies = {"bare task and channel": bare_idle, "actor": idle_actors, "session": idle_sessions}
    return times, {name: trio.run(memory, body, idle) for name, body in bodies.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five short rounds instead of nine")
    add_json(parser)
    options = parser.parse_args()
    times, idle = measure(quick=options.quick)
    for name, figures in times.items():
        print(f"{name}: median, times as long as bare (lowest to highest)")
        for figure in figures:
            print(figure.row())
    print("idle, KiB each: " + ", ".join(f"{name} {size:.1f}" for name, size in idle.items()))
    print(verdict(f"{LIFE}, actor / bare", times[LIFE][1].ratio, 2, at_most=True))
    print(verdict(f"{ADOPT}, us", times[ADOPT][1].seconds * 1e6, 25, at_most=True))
    print(verdict(f"{STORM}, seconds for 10,000", times[STORM][1].seconds * 10_000, 2, at_most=True))
    print(verdict("an idle actor, KiB", idle["actor"], 8, at_most=True))
    print(verdict("an idle session of a supervisor and one child, KiB", idle["session"], 40, at_most=True))
    write_json(options.json, {"times": {name: as_json(figures) for name, figures in times.items()}, "idle_kib": idle})


if __name__ == "__main__":
    main()
