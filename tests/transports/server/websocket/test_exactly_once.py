"""Whatever the network does, and wherever it does it: every message arrives once, in order, in both directions."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import attrs
import msgspec
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard import Context, Server
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.codecs.websocket.client import RESUMABLE_FROM_HERE
from callboard.transports.limits import Settings
from callboard.transports.server.websocket.resumable import RESUMED, SESSION_KEY
from tests.transports.server.websocket.stage import OPENING, Gone, House, Refused, Socket, back, house, request
from tests.transports.server.websocket.wires import MemoryWire

Json = dict[str, Any]

CALLS: Final = 12
WINDOW: Final = 4
QUICK: Final = Settings(ping_every=0.05, grace=5)
"""Pings often enough that what they acknowledge is let go in the middle of things."""

PATIENCE: Final = 60.0
"""Seconds of virtual time in which all must be done."""


@attrs.frozen
class Fault:
    """How one connection fails: after so many bytes in either direction, and whether the server hears of it."""

    up: int
    down: int
    is_heard: bool = True


def counting(executed: list[int]) -> Server:
    """A server whose tool says three things before it answers, and keeps a list of when it was called."""
    server = Server("counting", version="1")

    @server.tool
    async def tick(number: int, *, ctx: Context) -> int:
        executed.append(number)
        for step in range(3):
            await ctx.log("info", [number, step])
            await trio.sleep(0.01 * (number % 3))
        return number

    return server


@attrs.define(eq=False)
class Counter:
    """A client that counts: what it has heard, and what it has said and might have to say again."""

    here: House
    faults: Iterator[Fault]
    mistake: int
    session: str = attrs.field(default="", init=False)
    heard: list[Json] = attrs.field(factory=list, init=False)
    said: list[bytes] = attrs.field(factory=list, init=False)
    called: int = attrs.field(default=0, init=False)
    resumed: int = attrs.field(default=0, init=False)
    meta: ClassVar[Json] = {}

    async def run(self) -> None:
        while self.answers < CALLS:
            try:
                await self._go_on(await self._connect())
            except (Gone, trio.BrokenResourceError, trio.ClosedResourceError):
                continue

    @property
    def answers(self) -> int:
        return sum("result" in message for message in self.heard) - 1

    async def _connect(self) -> Socket:
        socket, _ = self.here.connect()
        fault = next(self.faults, None)
        if fault is not None:
            wire = socket.wire
            assert isinstance(wire, MemoryWire)
            wire.outgoing.left, wire.incoming.left = fault.up, fault.down
        try:
            await self._open(socket)
        except BaseException:
            if fault is None or fault.is_heard:
                socket.close()
            raise
        return socket

    async def _open(self, socket: Socket) -> None:
        if not self.session:
            await socket.open(request(OPENING))
            return
        await socket.open(request({**OPENING, **back(self.session, len(self.heard) + self.mistake)}))
        told = await socket.hear()
        assert told["method"] == RESUMED
        self.resumed += 1
        arrived = told["params"]["received"]
        assert arrived <= len(self.said)
        for frame in self.said[arrived:]:
            await socket.send(frame)

    async def _go_on(self, socket: Socket) -> None:
        if not self.session:
            params = {"protocolVersion": R4.value, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            self.said = [msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})]
            await socket.send(self.said[0])
            agreed = await socket.hear()
            self.heard = [agreed]
            self.session = agreed["result"]["_meta"][SESSION_KEY]["id"]
            await self._say(socket, {"method": "notifications/initialized"})
        await self._call(socket)

    async def _call(self, socket: Socket) -> None:
        while self.answers < CALLS:
            while self.called < CALLS and self.called - self.answers < WINDOW:
                self.called += 1
                params = {"name": "tick", "arguments": {"number": self.called}, **self.meta}
                await self._say(socket, {"id": self.called, "method": "tools/call", "params": params})
            self.heard.append(await socket.hear())

    async def _say(self, socket: Socket, message: Json) -> None:
        self.said.append(msgspec.json.encode({"jsonrpc": "2.0", **message}))
        await socket.send(self.said[-1])


@attrs.define(eq=False)
class ModernCounter(Counter):
    """The same in 2026-07-28: there is no `initialize`, and all that is said on the connection counts."""

    meta: ClassVar[Json] = {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": LATEST.value,
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/logLevel": "info",
        }
    }

    @property
    def answers(self) -> int:
        return sum("result" in message for message in self.heard)

    async def _open(self, socket: Socket) -> None:
        if self.session:
            await super()._open(socket)
            return
        await socket.open(request({**OPENING, "Mcp-Resumable": "1"}))
        told = await socket.hear()
        assert told["method"] == RESUMABLE_FROM_HERE
        assert socket.headers["mcp-session-id"] == told["params"]["id"]
        self.session = told["params"]["id"]

    async def _go_on(self, socket: Socket) -> None:
        await self._call(socket)


def check(heard: Sequence[Json], executed: Sequence[int]) -> None:
    """Each call ran once; its three words and its answer came once, in this order."""
    assert sorted(executed) == list(range(1, CALLS + 1))
    of: dict[int, list[int]] = {number: [] for number in executed}
    for message in heard:
        if message.get("id") == 0:
            continue
        if "method" in message:
            number, step = message["params"]["data"]
            of[number].append(step)
        else:
            assert message["result"]["structuredContent"] == {"result": message["id"]}
            of[message["id"]].append(3)
    assert all(steps == [0, 1, 2, 3] for steps in of.values())


async def scenario(kind: type[Counter], faults: Sequence[Fault], mistake: int = 0) -> Counter:
    executed: list[int] = []
    async with house(counting(executed), QUICK) as here:
        client = kind(here, iter(faults), mistake)
        with trio.fail_after(PATIENCE):
            await client.run()
        check(client.heard, executed)
        return client


KINDS: Final = (Counter, ModernCounter)
amounts = st.one_of(st.integers(0, 400), st.integers(400, 6000))
faults = st.lists(st.builds(Fault, amounts, amounts, st.booleans()), max_size=12)


@given(faults)
@settings(max_examples=80)
@example([Fault(5000, 1500)])
@example([Fault(5000, 1500, is_heard=False)] * 3)
@example([Fault(5000, 1000), Fault(300, 5000), Fault(5000, 400)])
def test_every_message_arrives_once_wherever_the_socket_is_cut(faults: list[Fault]) -> None:
    for kind in KINDS:
        trio.run(scenario, kind, faults, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_heard", [True, False])
def test_the_cuts_are_where_they_hurt(is_heard: bool, kind: type[Counter]) -> None:
    """Else the test above would prove nothing."""
    faults = [Fault(10_000, down, is_heard) for down in range(900, 2000, 100)]
    client = trio.run(scenario, kind, faults, clock=MockClock(autojump_threshold=0))
    assert client.resumed >= 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mistake", [-1, 1])
def test_a_client_that_miscounts_hears_something_twice_or_never_or_is_refused(
    mistake: int, kind: type[Counter]
) -> None:
    """So the check is one: it fails where the count does."""
    with pytest.raises((AssertionError, Refused, trio.TooSlowError)):
        trio.run(scenario, kind, [Fault(10_000, 1500)], mistake, clock=MockClock(autojump_threshold=0))
