"""A crash of a permanent child leaves the service working: what it held is held by the next incarnation."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server
from callboard.actors.server.exchange import Exchange
from callboard.codecs.http.access import Access
from callboard.codecs.revisions import CallToolResult
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.serve.mount import Mounted
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.supervisor import Address, ChildSpec, Restart, Supervisor, SupervisorSpec, live_trees, open_tree
from callboard.testing.peer import Refusal
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.slow_requests import SOON, SlowRequests
from callboard.transports.server.websocket.pings import Pings
from tests.actors.server.stage import said, stage, text
from tests.actors.server.test_parking import ONE_TEXT, form
from tests.transports.server.http.stage import META, VERSION
from tests.transports.server.websocket.stage import house

TTL: Final = 100.0
EVERY: Final = DEFAULTS.ping_every


async def crash(address: Address[Any]) -> None:
    """End an actor, and wait for its next incarnation."""
    address.kill("by a test")
    await restarted(address)


async def restarted(address: Address[Any]) -> None:
    await trio.sleep(1)  # the first back-off is shorter
    assert address.node.restarts == 1
    assert address.node.over is None


def child(root: Supervisor, name: str) -> Address[Any]:
    return next(address for address, _ in root.actors() if address.node.name == name)


async def who(exchange: Exchange) -> CallToolResult:
    (person,) = await exchange.ask([form()], at_once=True)
    return text(str(getattr(person, "content", None)))


class Poison:
    """An exchange, a socket or a stream that makes the actor crash which looks after it."""

    is_over = False
    is_silent = False
    outcome = None

    def cancel(self, *_: object) -> bool:
        raise ZeroDivisionError

    def beat(self, *_: object, **__: object) -> bool:
        raise ZeroDivisionError

    def try_write(self, _: bytes) -> bool:
        raise ZeroDivisionError


# Parked requests.


@pytest.mark.parametrize("is_poisoned", [False, True])
async def test_after_a_crash_of_parking_what_was_parked_goes_on_and_falls_due(
    is_poisoned: bool, autojump_clock: MockClock
) -> None:
    async with stage({"who": who}, ttl=TTL) as here:
        parking, actor = child(here.root, "parking"), here.host.parking
        if is_poisoned:
            poison: Any = Poison()
            actor._parked["poison"] = poison
            actor._due.put("poison", trio.current_time() + 1)
        peer = await here.peer(LATEST)
        call: dict[str, Any] = {"name": "who", "arguments": {}}
        before = await peer.request("tools/call", **call)
        late = await peer.request("tools/call", **call)
        if is_poisoned:
            await trio.sleep(1)
            del actor._parked["poison"]
            await restarted(parking)
        else:
            await crash(parking)
        assert said(await peer.request("tools/call", **call, **peer.answered(before))) == "{'name': 'Ada'}"
        assert said(await peer.call("who")) == "{'name': 'Ada'}"
        assert len(actor) == 1
        await trio.sleep(TTL)
        assert len(actor) == 0  # the one that was not retried in time
        with pytest.raises(Refusal, match=ONE_TEXT):
            await peer.request("tools/call", **call, **peer.answered(late))


# Pings.

quiet = Server("quiet", version="1")


@quiet.tool
async def wait(*, ctx: Context) -> str:
    await ctx.report(1)
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("is_poisoned", [False, True])
async def test_after_a_crash_of_the_pings_old_and_new_sockets_are_pinged(
    is_poisoned: bool, autojump_clock: MockClock
) -> None:
    async with house(quiet) as here, trio.open_nursery() as nursery:
        old, _vanished = await here.dial(), await here.dial()
        nursery.start_soon(old.wait_gone)
        pings_actor = child(here.host.root, "pings-1")
        pings = pings_actor.node.actor
        assert isinstance(pings, Pings)
        if is_poisoned:
            poison: Any = Poison()
            pings.add(poison)
            await trio.sleep(EVERY / 2)
            await restarted(pings_actor)
        else:
            await crash(pings_actor)
        new = await here.dial()
        nursery.start_soon(new.wait_gone)
        await trio.sleep(EVERY * 3 + 1)
        assert len(old.pings) == len(new.pings) == 3
        assert len(here.connections()) == 2  # the one that answers no pings is found
        client = await here.peer(R4)
        assert await client.request("ping") == {}
        nursery.cancel_scope.cancel()


# Comments, where the server is mounted in another one.


@attrs.define(eq=False)
class Front:
    """The server in front of a mounted one: brings requests, and takes what is sent."""

    app: Mounted
    sent: list[bytes] = attrs.field(factory=list, init=False)

    async def post(self, method: str, **params: Any) -> None:
        said = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": said}}
        headers = {"host": "h", "content-type": "application/json", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": VERSION, "mcp-method": method}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        messages = [{"type": "http.request", "body": json.dumps(message).encode()}]

        async def receive() -> Any:
            if not messages:
                await trio.sleep_forever()
            return messages.pop()

        async def send(message: Any) -> None:
            self.sent.append(message.get("body", b""))

        await self.app(scope, receive, send)

    async def listen(self) -> None:
        await self.post("subscriptions/listen", notifications={"toolsListChanged": True})

    @property
    def comments(self) -> int:
        return sum(data.startswith(b":") for data in self.sent)


@asynccontextmanager
async def mounted(server: Server, settings: Settings) -> AsyncIterator[Front]:
    app = Mounted(server, Access.on_any_port(hosts=["h"]), settings)
    told, stop = trio.Event(), trio.Event()
    waits: list[Callable[[], Any]] = [stop.wait, trio.lowlevel.checkpoint]

    async def receive() -> None:
        await waits.pop()()

    async def send(_: Any) -> None:
        told.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, {"type": "lifespan"}, receive, send)
        await told.wait()
        yield Front(app)
        stop.set()


@pytest.mark.parametrize("is_poisoned", [False, True])
async def test_after_a_crash_of_the_keep_alive_a_mounted_stream_gets_comments(
    is_poisoned: bool, autojump_clock: MockClock
) -> None:
    async with mounted(quiet, Settings(comment_every=10.0)) as front, trio.open_nursery() as nursery:
        nursery.start_soon(front.listen)
        await trio.sleep(1)
        (root,) = live_trees()
        keep_alive = child(root.supervisor_of("asgi"), "keep-alive")
        actor = keep_alive.node.actor
        assert isinstance(actor, KeepAlive)
        if is_poisoned:
            poison: Any = Poison()
            actor.add(poison)
            await trio.sleep(10)
            await restarted(keep_alive)
        else:
            await crash(keep_alive)
        before = front.comments
        await trio.sleep(30)
        assert front.comments == before + 3
        nursery.cancel_scope.cancel()


# Requests that take long.


@attrs.define(eq=False)
class Slow:
    """A connection that is reminded of the request which waits there."""

    reminded: list[int] = attrs.field(factory=list, init=False)

    def mind(self, number: int) -> None:
        self.reminded.append(number)


async def test_after_a_crash_slow_requests_are_minded_that_waited_before(autojump_clock: MockClock) -> None:
    slow_requests, connections = SlowRequests(), [Slow() for _ in range(3)]
    spec = SupervisorSpec(
        "top", children=(ChildSpec("slow-requests", lambda: slow_requests, shutdown=0, kept="connections"),)
    )
    async with open_tree(spec) as root:
        slow_requests.expect(connections[0], 1)
        await trio.sleep(SOON / 2)  # the first is being waited for, the second is not yet
        slow_requests.expect(connections[1], 2)
        await crash(child(root, "slow-requests"))
        slow_requests.expect(connections[2], 3)
        await trio.sleep(1)
    assert [connection.reminded for connection in connections] == [[1], [2], [3]]


# All of them.


async def test_a_permanent_child_is_a_fresh_object_or_says_what_it_keeps() -> None:
    enough = trio.Event()
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
            settings = Settings(drain_time=0.1)
            given: Any = {"http": 0, "admin": 0, "settings": settings}
            await serve(quiet, until=enough.wait, task_status=task_status, **given)

        await nursery.start(run)
        (root,) = live_trees()
        specs = list(declared(root))
        assert {"parking", "keep-alive", "write-batch", "slow-requests", "listener-1"} <= {spec.name for spec in specs}
        for spec in specs:
            if spec.restart is Restart.PERMANENT:
                assert (spec.actor() is spec.actor()) == bool(spec.kept), spec.name
        enough.set()


def declared(supervisor: Supervisor) -> list[ChildSpec[Any]]:
    """The specs of all children below *supervisor* that are no supervisors."""
    found = [spec for spec in supervisor._declared.specs.values() if spec.name not in supervisor._nested]
    for _, actor in supervisor.actors():
        if isinstance(actor, Supervisor):
            found += declared(actor)
    return [spec for spec in found if not isinstance(spec.actor(), Supervisor)]
