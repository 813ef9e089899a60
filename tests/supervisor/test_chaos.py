"""Any tree, anything done to it in any order: every question has one outcome, and nothing is left."""

import os
from contextlib import suppress
from typing import Any

import attrs
import structlog.testing
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.errors import ActorGone, AskTimedOut, NameTaken, StartFailed, SupervisorClosed, TooManyRestarts
from callboard.supervisor import (
    Address,
    ChildSpec,
    Intensity,
    Restart,
    Strategy,
    Supervisor,
    SupervisorSpec,
    live_trees,
    open_tree,
)
from tests.supervisor.players import (
    STEADY,
    Add,
    Crash,
    Get,
    Hang,
    History,
    Message,
    Player,
    Return,
    player,
)

EXAMPLES = int(os.environ.get("CALLBOARD_CHAOS", "400"))
"""More of them is the long form: `CALLBOARD_CHAOS=20000 pytest tests/supervisor/test_chaos.py`."""

CHILD = st.tuples(st.sampled_from(Restart), st.sampled_from([0.0, 0.3, 9.0]), st.booleans())
TREE = st.tuples(st.sampled_from(Strategy), st.lists(CHILD, max_size=4), st.integers(0, 9), st.sampled_from(Strategy))
STEP = st.tuples(
    st.sampled_from(["ask", "crash", "hang", "return", "kill", "stop", "spawn", "fell", "pass", "adopt", "add"]),
    st.integers(0, 7),
    st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0]),
)


@attrs.define
class Ledger:
    asked: int = 0
    outcomes: int = 0
    addresses: list[Address[Message]] = attrs.field(factory=list)


def build(history: History, shape: Any) -> SupervisorSpec:
    """An outer supervisor with one player and an inner one; the inner one's children are drawn."""
    strategy, children, restarts, outer = shape
    inner = SupervisorSpec(
        "inner",
        children=tuple(
            player(f"c{n}", history, restart=restart, linger=linger, shutdown=1.0, significant=significant)
            for n, (restart, linger, significant) in enumerate(children)
        ),
        strategy=strategy,
        intensity=Intensity(restarts, per=5),
        backoff=STEADY,
        drain=1.0,
        restart=Restart.TRANSIENT,
    )
    first: ChildSpec[Message] = player("first", history)
    return SupervisorSpec(
        "top", children=(first, inner), strategy=outer, intensity=Intensity(restarts, per=5), backoff=STEADY
    )


async def ask(ledger: Ledger, address: Address[Message], question: Get | Hang | Crash) -> None:
    ledger.asked += 1
    try:
        await address.ask(question, within=2.0)
    except (ActorGone, AskTimedOut):
        pass
    finally:
        ledger.outcomes += 1


async def adopt(supervisor: Supervisor, name: str) -> None:
    try:
        with supervisor.adopt(name, kind="Request"):
            await trio.sleep(3)
    except (NameTaken, SupervisorClosed):
        pass


async def add(supervisor: Supervisor, spec: ChildSpec[Message]) -> None:
    with suppress(NameTaken, SupervisorClosed, StartFailed):
        await supervisor.add(spec)


def everybody(root: Supervisor) -> list[Address[Any]]:
    found = []
    for supervisor in (root, root.supervisor_of("inner")):
        for child in supervisor.tree().children if supervisor.address.ended is None else ():
            try:
                found.append(supervisor.child(child.name))
            except LookupError:
                continue  # adopted
    return found


async def act(
    root: Supervisor, nursery: trio.Nursery, ledger: Ledger, history: History, step: str, who: int, n: int
) -> None:
    inner = root.supervisor_of("inner")
    living = everybody(root)
    ledger.addresses.extend(living)
    address = living[who % len(living)] if living else None
    match step:
        case "spawn":
            with suppress(SupervisorClosed):
                ledger.addresses.append(inner.spawn(Player(), name=f"s{n}"))
        case "adopt":
            nursery.start_soon(adopt, inner, f"r{n}")
        case "add":  # anew, if that one was stopped
            nursery.start_soon(add, inner, player(f"c{who % 4}", history, shutdown=1.0, linger=who * 0.1))
        case "fell":
            inner.address.kill()
        case _ if address is None:
            pass
        case "ask":
            nursery.start_soon(ask, ledger, address, Get())
        case "crash":
            nursery.start_soon(ask, ledger, address, Crash())
        case "hang":
            nursery.start_soon(ask, ledger, address, Hang())
        case "return":
            await address.send(Return())
            await address.send(Add(1))
        case "kill":
            address.kill()
        case "stop":
            address.begin_stop()


async def play(shape: Any, steps: list[tuple[str, int, float]]) -> None:
    ledger = Ledger()
    history = History()
    async with trio.open_nursery() as nursery:
        try:
            async with open_tree(build(history, shape)) as root:
                for n, (step, who, pause) in enumerate(steps):
                    await act(root, nursery, ledger, history, step, who, n)
                    await trio.sleep(pause)
        except TooManyRestarts:
            pass
    assert root.tree().children == ()
    assert ledger.asked == ledger.outcomes
    for address in ledger.addresses:
        assert address.ended is not None
        assert not address.node.asks
        assert address.node.actor is None
        assert address.node.mailbox is None
    starts = sum(event.split()[0].endswith("+") for event in history.events)
    ends = sum(event.split()[0].endswith("-") for event in history.events)
    assert starts == ends
    assert live_trees() == frozenset()


async def bounded(shape: Any, steps: list[tuple[str, int, float]]) -> None:
    with trio.fail_after(10_000):  # virtual seconds: what hangs is a failure, not a test that never ends
        await play(shape, steps)


@settings(max_examples=EXAMPLES)
@given(shape=TREE, steps=st.lists(STEP, max_size=25))
def test_whatever_happens_every_question_ends_and_nothing_is_left(
    shape: Any, steps: list[tuple[str, int, float]]
) -> None:
    with structlog.testing.capture_logs():
        trio.run(bounded, shape, steps, clock=trio.testing.MockClock(autojump_threshold=0))
