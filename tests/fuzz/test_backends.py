"""Odd servers behind a broker: nothing of ours crashes, clients hear only valid messages, the neighbour never notices.

`CALLBOARD_FUZZ` says how many frames for each codec, and here how many rounds: one for 500. `CALLBOARD_FUZZ_SEED`
repeats a run, with `CALLBOARD_FUZZ_BATCH` only one broker of it. Time is virtual: a second that an answer takes is
a second for which it waited: a busy machine changes nothing.
"""

import gc
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from time import thread_time
from typing import Any, Final

import attrs
import msgspec
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from callboard.actors.broker.policy import BackendSettings, Restarts
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.session_tree import open_session
from callboard.broker import Broker
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import Revision
from callboard.server import Server
from callboard.supervisor import Backoff, Intensity
from callboard.supervisor.ended import failure_text, where
from callboard.transports.memory import MemoryConnection, memory_pair
from tests.broker.front import backend
from tests.fuzz.odd import Oddity, play
from tests.fuzz.strict import Complaints, Customer, complaint_of
from tests.fuzz.visits import CAPABILITIES, visit

SEED: Final = int(os.environ.get("CALLBOARD_FUZZ_SEED", "2026"))
ROUNDS: Final = 10
"""Rounds for each broker."""
COUNT: Final = int(os.environ.get("CALLBOARD_FUZZ", "10000"))
BATCHES: Final = max(1, COUNT // 5000)
ONLY: Final = os.environ.get("CALLBOARD_FUZZ_BATCH")

AT_ONCE: Final = 1.0
"""Seconds of virtual time in which the neighbour is answered: nothing that it needs waits for anybody."""
STALL: Final = 0.25
"""Seconds of processor time that one step of one task may take. The promise is 0.05, on a machine of its own."""

HANDSHAKE: Final = ("server/discover", "initialize")
"""What is said before a revision is agreed on."""

_NAMES: Final = count(1)


@attrs.define(eq=False)
class Behind:
    """The odd server of this round, at whatever connections the broker opens to it."""

    oddity: Oddity
    complaints: Complaints
    lines: list[MemoryConnection] = attrs.field(factory=list)

    @property
    def ways(self) -> TransportRoutes:
        return TransportRoutes(None, (TransportRoute("stdio", self._open),))

    def become(self, oddity: Oddity) -> None:
        """Be another server from now on: all connections end."""
        self.oddity = oddity
        for line in self.lines:
            line.close()
        self.lines.clear()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Link]:
        there, here = memory_pair()
        self.lines.append(here)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, here)
                try:
                    yield DuplexLink(there)
                finally:
                    there.close()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None  # the nursery is ours: what went wrong comes out by its own name
        finally:
            here.close()

    async def _serve(self, line: MemoryConnection) -> None:
        oddity = self.oddity

        async def receive() -> bytes:
            frame = await line.receive()
            message = msgspec.json.decode(frame)
            is_judged = not oddity.strays and message.get("method", "initialize") not in HANDSHAKE
            if is_judged and (found := complaint_of(oddity.revision, message, None)):
                self.complaints.add(f"to the backend: {found}", message)
            return frame

        await play(oddity, receive, line.send, line.close)
        line.close()


def neighbour() -> Server:
    server = Server("neighbour")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("neighbour://note")
    async def note() -> str:
        return "noted"

    return server


class Steps(trio.abc.Instrument):
    """Notes how much processor time the longest step of a task took, our tests' own tasks apart."""

    def __init__(self) -> None:
        self.longest = (0.0, "")
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = thread_time() - self._began
        if took > self.longest[0] and not task.name.startswith("tests."):
            self.longest = (took, task.name)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: in a process with all the tests loaded that alone is a stall."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@asynccontextmanager
async def entered(host: Host, complaints: Complaints, draw: random.Random, **said: Any) -> AsyncIterator[Customer]:
    """A client of any revision in front of the broker."""
    near, far = memory_pair()
    session = await open_session(host, far, f"s-{next(_NAMES)}", draw.choice(("", "alice", "bob")))
    customer = Customer(near, draw.choice(tuple(Revision)), complaints, draw, **said)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(customer.read)
        yield customer
        near.close()
        nursery.cancel_scope.cancel()
    with trio.move_on_after(60) as scope:
        await session.address.stop()
    if scope.cancelled_caught:
        complaints.add("a session did not end")


async def need(host: Host, complaints: Complaints, draw: random.Random, stop: trio.Event) -> None:
    """The client of the neighbour: it calls, lists and reads, and is answered at once."""
    async with entered(host, complaints, draw) as customer:
        await customer.initialize()
        for number in count():
            asked = await customer.begin("tools/call", name="good__echo", arguments={"text": str(number)})
            answer = await customer.finish(asked, "tools/call of the neighbour", AT_ONCE)
            if answer.get("result", {}).get("content") != [{"type": "text", "text": str(number)}]:
                complaints.add("the neighbour was not served: tools/call", answer)
            asked = await customer.begin("tools/list")
            answer = await customer.finish(asked, "tools/list of the neighbour", AT_ONCE)
            if "result" not in answer:
                complaints.add("the neighbour was not served: tools/list", answer)
            asked = await customer.begin("resources/read", uri="neighbour://note")
            answer = await customer.finish(asked, "resources/read of the neighbour", AT_ONCE)
            if answer.get("result", {}).get("contents", [{}])[0].get("text") != "noted":
                complaints.add("the neighbour was not served: resources/read", answer)
            if stop.is_set():
                return
            await trio.sleep(0.2 + number)


def settings(draw: random.Random) -> BackendSettings:
    return BackendSettings(
        timeout=5.0,
        cap=20.0,
        idle_time=10.0,
        max_connections=draw.choice((1, 3, 16)),
        share=draw.choice(("all", "principal", "session")),
        restarts=Restarts(intensity=Intensity(1000), backoff=Backoff(first=0.01, most=2.0), cool_down=5.0),
        pin=draw.random() < 0.3,
        trusted=draw.random() < 0.3,
    )


async def run_round(host: Host, complaints: Complaints, draw: random.Random) -> None:
    """Two clients at once have a look at everything, and the neighbour is needed all the while."""
    over = trio.Event()

    async def come(draw: random.Random) -> None:
        said: dict[str, Any] = {"capabilities": draw.choice(CAPABILITIES), "log_level": draw.choice((None, "debug"))}
        async with entered(host, complaints, draw, sloppiness=draw.choice((0.0, 0.3)), **said) as customer:
            await visit(customer, draw)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(need, host, complaints, random.Random(draw.random()), over)
        async with trio.open_nursery() as visitors:
            for _ in range(2):
                visitors.start_soon(come, random.Random(draw.random()))
        over.set()


def settled(broker: Broker, host: Host, complaints: Complaints) -> None:
    """Nothing is left of a round once its clients have gone and its backend is another."""
    held = {
        "requests in flight": host.in_flight.total,
        "sessions": host.root.supervisor_of("sessions").child_count,
        "requests of the neighbour": broker.backends["good"].in_flight.total,
    }
    for what, number in held.items():
        if number:
            complaints.add(f"left over: {what}", number)
    if not broker.backends["good"].is_up:
        complaints.add("the neighbour is not up")
    if "odd" not in broker.backends:
        complaints.add("the odd backend's actor is gone")


async def run_batch(batch: int, complaints: Complaints, steps: Steps, logs: list[Any]) -> None:
    """One broker for some rounds, the odd backend another one in each."""
    draw = random.Random(f"{SEED} {batch}")
    trio._core._run._r.seed(draw.random())  # else tasks are run in an order that no seed repeats
    random.seed(draw.random())  # pauses before restarts have jitter
    behind = Behind(Oddity(f"{SEED} {batch} 0"), complaints)
    specs = [backend(neighbour(), "good", BackendSettings()), backend(behind.ways, "odd", settings(draw))]
    broker = Broker(specs)
    async with broker.host(parking=Parking("broker")) as host:
        for number in range(ROUNDS):
            complaints.round = f"CALLBOARD_FUZZ_SEED={SEED} CALLBOARD_FUZZ_BATCH={batch} round {number}"
            behind.become(Oddity(f"{SEED} {batch} {number}"))
            if draw.random() < 0.2:
                specs = [specs[0], backend(behind.ways, "odd", settings(draw))]
                await broker.reload(specs)
            await trio.sleep(draw.choice((0.0, 1.0)))
            steps.longest = (0.0, "")
            await run_round(host, complaints, draw)
            if steps.longest[0] > STALL:
                complaints.add(f"the loop stood still in {steps.longest[1]}", f"{steps.longest[0]:.3f} s")
            await trio.sleep(40.0)  # what was parked or waited for is over
            settled(broker, host, complaints)
            complaints.heed(logs)
    complaints.heed(logs)


async def at_once(run: Any, *args: Any, **_: Any) -> Any:
    """In place of a thread: virtual time does not wait for those."""
    await trio.lowlevel.checkpoint()
    return run(*args)


async def test_odd_backends_harm_nobody(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    complaints, steps = Complaints(), Steps()
    trio.lowlevel.add_instrument(steps)
    with capture_logs() as logs, uncollected():
        for batch in range(BATCHES) if ONLY is None else [int(ONLY)]:
            try:
                await run_batch(batch, complaints, steps, logs)
            except Exception as error:
                complaints.add(f"the broker broke: {failure_text(error)} at {where(error)}")
            gc.collect()
    trio.lowlevel.remove_instrument(steps)
    assert complaints.messages > 50
    assert not complaints.first, f"\n{complaints.report()}"
