"""A client over WebSocket: it goes on where the socket dropped, and says why where it cannot."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server
from callboard.client import Client, connect
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.errors import CannotConnect, ConnectionLost
from callboard.transports.client.pool import Origin
from callboard.transports.client.websocket import WebSocketLink, open_websocket
from callboard.transports.client.websocket_resumable import MAX_KEPT, MISSED, PING_EVERY, RETURNS
from callboard.transports.client.websocket_socket import Door
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.wire import Wire
from tests.transports.server.websocket.company import company
from tests.transports.server.websocket.stage import House, house
from tests.transports.server.websocket.wires import MemoryWire

HERE: Final = Origin("ws", "127.0.0.1", 8000)
TOKEN: Final = "the token of ada"  # noqa: S105 - no secret


@attrs.define(eq=False)
class Network:
    """Connections to a house, and what becomes of them: each is *prepared* before it is used."""

    here: House
    prepare: Callable[[MemoryWire], None] = lambda _: None
    wires: list[MemoryWire] = attrs.field(factory=list)
    links: list[WebSocketLink] = attrs.field(factory=list)
    is_down: bool = False

    async def dial(self, origin: Origin, tls: ssl.SSLContext | None) -> Wire:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise CannotConnect(f"{origin}: connection refused")
        socket, _ = self.here.connect()
        assert isinstance(socket.wire, MemoryWire)
        self.prepare(socket.wire)
        self.wires.append(socket.wire)
        return socket.wire

    @asynccontextmanager
    async def _open(self, headers: Sequence[tuple[bytes, bytes]]) -> AsyncIterator[WebSocketLink]:
        async with open_websocket(Door(HERE, b"/mcp", headers, None, self.dial)) as link:
            self.links.append(link)
            yield link

    def ways(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> TransportRoutes:
        return TransportRoutes(None, (TransportRoute("websocket", lambda: self._open(headers)),))

    @property
    def resumed(self) -> int:
        return self.links[-1].conversation.resumed

    async def drop(self) -> None:
        """Cut the latest connection, without a word."""
        self.wires[-1].close()
        await wait_all_tasks_blocked()


@asynccontextmanager
async def met(
    server: Server, revision: str | None = None, settings: Settings = DEFAULTS, **options: Any
) -> AsyncIterator[tuple[Client, Network]]:
    async with house(server, settings) as here:
        network = Network(here)
        async with connect(network.ways(), revision=revision, **options) as client:
            yield client, network


# Both eras.


@pytest.mark.parametrize("revision", [R1, R4, R5])
async def test_calls_go_both_ways_in_every_era(revision: str, autojump_clock: MockClock) -> None:
    server, seen = company()
    seen.go.set()
    async with met(server, revision, sampling=lambda params: "fine") as (client, _):
        assert client.revision == revision
        assert "hello ada" in str((await client.call("greet", name="ada")).content)
        assert "fine" in str((await client.call("ask")).content)


async def test_a_token_goes_with_the_handshake_and_without_it_nobody_comes_in(autojump_clock: MockClock) -> None:
    server, _ = company()

    async def authenticate(token: str) -> str | None:
        return "ada" if token == TOKEN else None

    async with house(server, authenticate=authenticate) as here:
        headers = [(b"authorization", b"Bearer " + TOKEN.encode())]
        async with connect(Network(here).ways(headers)) as client:
            assert (await client.call("greet")).content
        with pytest.raises(CannotConnect, match="HTTP 401"):
            async with connect(Network(here).ways()):
                pass


async def test_leaving_says_good_bye_and_ends_the_session_at_once(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        async with connect(Network(here).ways(), revision="2025-11-25") as client:
            await client.ping()
            assert len(here.sessions()) == 1
        before = trio.current_time()
        await here.wait_ended()
        assert trio.current_time() == before
        assert here.sessions() == []


# A socket drops.


@pytest.fixture(params=["modern", "legacy", "legacy, at a server that offers no more"])
def revision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The revision of a client that comes back."""
    if "offers no more" in request.param:
        monkeypatch.setattr("callboard.transports.client.websocket.ASKING", ())
    return R5 if request.param == "modern" else R4


async def test_a_modern_call_is_lost_with_its_socket_at_a_server_that_offers_no_resumption(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.transports.client.websocket.ASKING", ())
    server, seen = company()
    async with met(server) as (client, network), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionLost, match="connection closed by the server"):
                await client.call("wait", name="a")

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        await network.drop()
        with pytest.raises(ConnectionLost):
            await client.call("greet")
    assert seen.cancelled == ["a"]


async def test_a_subscription_goes_on_after_its_socket_has_dropped(revision: str, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with met(server, revision) as (client, network), client.listen(resources=["x://y"]) as changes:
        for is_away in (False, True):
            await network.drop()
            network.is_down = is_away
            server.notify_updated("x://y")
            network.is_down = False
            assert "x://y" in str(await anext(changes))
        assert network.resumed >= 1


async def test_a_call_in_flight_is_answered_on_the_next_socket_and_done_once(
    revision: str, autojump_clock: MockClock
) -> None:
    server, seen = company()
    async with met(server, revision) as (client, network), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await client.call("wait", name="a"))

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        await network.drop()
        seen.go.set()
        await wait_all_tasks_blocked()
        assert "a waited" in str(answers)
        assert seen.begun == ["a"]
        assert network.resumed == 1


async def test_a_call_that_is_made_while_there_is_no_socket_waits_for_the_next_one(
    revision: str, autojump_clock: MockClock
) -> None:
    server, _ = company()
    async with met(server, revision) as (client, network):
        network.is_down = True
        await network.drop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ping)
            await trio.sleep(1)
            network.is_down = False
        assert network.resumed == 1


async def test_what_the_server_asked_is_answered_on_the_next_socket(autojump_clock: MockClock) -> None:
    server, _ = company()
    asked, go = trio.Event(), trio.Event()

    async def sampling(_: object) -> str:
        asked.set()
        await go.wait()
        return "later"

    async with met(server, "2025-11-25", sampling=sampling) as (client, network), trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await client.call("ask"))

        nursery.start_soon(call)
        await asked.wait()
        await network.drop()
        go.set()
        await wait_all_tasks_blocked()
        assert "later" in str(answers)
        assert network.resumed == 1


async def test_a_server_that_stays_away_is_given_up_after_its_grace_and_every_call_hears_why(
    revision: str, autojump_clock: MockClock
) -> None:
    server, _ = company()
    async with met(server, revision, Settings(grace=7)) as (client, network), trio.open_nursery() as nursery:
        failures: list[tuple[float, str]] = []

        async def call(name: str) -> None:
            with pytest.raises(ConnectionLost) as lost:
                await client.call("wait", name=name)
            failures.append((trio.current_time(), str(lost.value)))

        for name in "abc":
            nursery.start_soon(call, name)
        await wait_all_tasks_blocked()
        network.is_down = True
        began = trio.current_time()
        await network.drop()
        with pytest.raises(ConnectionLost):
            async with client.listen(tools=True) as changes:
                await anext(changes)
    assert failures == [(began + 7, "connection lost")] * 3


async def test_a_session_that_the_server_no_longer_knows_is_lost(revision: str, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with met(server, revision) as (client, network):
        network.here.door._conversations.clear()
        await network.drop()
        with pytest.raises(ConnectionLost, match="cannot be resumed: HTTP 404"):
            await client.ping()


async def test_a_socket_that_drops_again_and_again_is_given_up(revision: str, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with met(server, revision) as (client, network), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionLost, match="connection closed by the server"):
                await client.call("wait", name="a")

        nursery.start_soon(call)
        for _ in range(RETURNS + 1):
            await wait_all_tasks_blocked()
            await network.drop()
        assert network.resumed == RETURNS


async def test_a_call_that_is_cancelled_while_it_is_written_does_not_spoil_the_count(
    revision: str, autojump_clock: MockClock
) -> None:
    server, _ = company()
    async with met(server, revision) as (client, network):
        network.wires[-1].outgoing.is_stalled = True
        with trio.move_on_after(2):
            await client.call("greet", name="x" * 1000)
        network.wires[-1].outgoing.flow()
        assert "hello ada" in str((await client.call("greet", name="ada")).content)
        assert network.resumed == 1


async def test_a_client_that_did_not_read_in_time_comes_back_and_misses_nothing(
    revision: str, autojump_clock: MockClock
) -> None:
    server, seen = company()
    seen.go.set()
    async with met(server, revision, Settings(write_time=3)) as (client, network):
        network.wires[-1].incoming.is_stalled = True
        async with trio.open_nursery() as nursery:

            async def call(name: str) -> None:
                assert "waited" in str((await client.call("wait", name=name)).content)

            nursery.start_soon(call, "a")
            nursery.start_soon(call, "b")
            await trio.sleep(4)
            network.wires[-1].incoming.flow()
        assert sorted(seen.begun) == ["a", "b"]
        assert network.resumed == 1


# Signs of life.


async def test_a_silent_server_is_found_out_and_left_for_a_new_socket(autojump_clock: MockClock) -> None:
    server, _ = company()
    quiet = Settings(ping_every=10_000)
    async with met(server, "2025-11-25", quiet) as (client, network):
        began = trio.current_time()
        network.wires[-1].incoming.is_lost = network.wires[-1].outgoing.is_lost = True
        await client.ping()
        assert network.resumed == 1
        assert trio.current_time() - began <= (MISSED + 1) * PING_EVERY


async def test_pings_go_out_and_tell_how_much_was_said(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with met(server, "2025-11-25", Settings(ping_every=10_000)) as (client, network):
        kept = network.links[-1].conversation.kept
        assert kept is not None
        for _ in range(5):
            await client.ping()
        assert len(kept) == kept.sent == 7
        await trio.sleep(PING_EVERY + 1)
        assert len(kept) == 0


async def test_what_is_kept_is_bounded_and_asked_about_before_it_is_too_much(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with met(server, "2025-11-25", Settings(ping_every=10_000)) as (client, network):
        kept = network.links[-1].conversation.kept
        assert kept is not None
        most = 0
        for _ in range(MAX_KEPT):
            await client.ping()
            most = max(most, len(kept))
        assert MAX_KEPT // 2 <= most <= MAX_KEPT // 2 + 8


# Wherever it is cut.


@attrs.frozen
class Fault:
    """How one connection fails: after so many bytes in either direction."""

    up: int
    down: int


CALLS: Final = 12
amounts = st.one_of(st.integers(250, 700), st.integers(600, 6000))
faults = st.lists(st.builds(Fault, amounts, amounts), max_size=RETURNS - 1)


async def scenario(revision: str, cuts: Sequence[Fault]) -> int:
    executed: list[int] = []
    heard: list[Any] = []
    server = Server("counting", version="1")

    @server.tool
    async def tick(number: int, *, ctx: Context) -> int:
        executed.append(number)
        for step in range(3):
            await ctx.log("info", [number, step])
            await trio.sleep(0.01 * (number % 3))
        return number

    def coming() -> Iterator[Fault]:
        yield from cuts

    left = coming()

    def prepare(wire: MemoryWire) -> None:
        fault = next(left, None)
        if fault is not None and len(network.wires) > 0:  # the first one stands, until the handshake is done
            wire.outgoing.left, wire.incoming.left = fault.up, fault.down

    async with house(server, Settings(ping_every=0.05, grace=30)) as here:
        network = Network(here, prepare)
        with trio.fail_after(600):
            async with connect(
                network.ways(), revision=revision, log_level="info", on_log=lambda said: heard.append(said.data)
            ) as client:
                await network.drop()
                async with trio.open_nursery() as nursery:

                    async def call(number: int) -> None:
                        result = await client.call("tick", number=number)
                        assert result.structured_content == {"result": number}
                        heard.append([number, 3])

                    for number in range(CALLS):
                        nursery.start_soon(call, number)
        assert sorted(executed) == list(range(CALLS))
        for number in range(CALLS):
            assert [step for who, step in heard if who == number] == [0, 1, 2, 3]
        return network.resumed


@given(faults)
@settings(max_examples=60)
@example([Fault(600, 6000), Fault(300, 5000), Fault(5000, 400)])
@example([Fault(6000, 320)] * (RETURNS - 1))
def test_every_message_arrives_once_wherever_the_socket_is_cut(cuts: list[Fault]) -> None:
    for revision in (R4, R5):
        trio.run(scenario, revision, cuts, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("revision", [R4, R5])
def test_the_cuts_are_where_they_hurt(revision: str) -> None:
    """Else the test above would prove nothing."""
    cuts = [Fault(10_000, down) for down in range(500, 1100, 100)]
    assert trio.run(scenario, revision, cuts, clock=MockClock(autojump_threshold=0)) >= 4
