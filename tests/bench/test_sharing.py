"""Many requests on the client's own connection: each gets its own answer, and the client all that is not one."""

import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import pytest
import trio

from callboard.bench.framing import MAX_CUT, LineCutter
from callboard.bench.hub import Hub
from callboard.bench.prepared import by_requests
from callboard.bench.requests import FIRST_ID, Template
from callboard.bench.sharing import MAX_HELD, SharedLane
from callboard.bench.work import Act, ToolFailed, Work
from callboard.client import Client
from callboard.client.routes import Target
from callboard.config.entry import Remote
from callboard.errors import CallboardError, ConnectionLost, ServerRefused
from callboard.transports.client.process import Command
from callboard.transports.wire import SocketWire
from tests.fork_server import forked
from tests.process import PATIENCE
from tests.served import served
from tests.shared import APPS

APP: Final = str(APPS / "steady.py")
ECHO: Final = Act(kind="call", name="echo", arguments={"text": "hi"})
SENT: Final = (
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call",'
    b'"params":{"arguments":{"progressToken":7},"_meta":{"progressToken":7}}}'
)


def test_a_message_is_repeated_with_another_id_and_token_and_the_same_arguments() -> None:
    template = Template.of(SENT)
    assert template is not None
    first, second = b"%d" % FIRST_ID, b"%d" % (FIRST_ID + 1)
    assert template.filled(FIRST_ID) == SENT.replace(b'"id":7', b'"id":' + first).replace(
        b'"_meta":{"progressToken":7', b'"_meta":{"progressToken":' + first
    )
    assert template.filled(FIRST_ID + 1) == template.filled(FIRST_ID).replace(first, second)


@pytest.mark.parametrize("after", [b"7", b'"7"', b"71"])
def test_what_only_looks_like_the_token_stays(after: bytes) -> None:
    sent = b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"progressToken":%b}}' % (after + b"1")
    template = Template.of(sent)
    assert template is not None
    assert template.filled(7) == sent


# A server that is written for it.


@attrs.define(eq=False)
class Scripted:
    """The other end of a line on which a lane asks, and what it leaves to the client."""

    lane: SharedLane
    there: trio.SocketStream
    _rest: bytes = attrs.field(default=b"", init=False)

    async def asked(self, count: int) -> list[int]:
        """The ids of the next requests."""
        while self._rest.count(b"\n") < count:
            self._rest += await self.there.receive_some()
        *lines, self._rest = self._rest.split(b"\n")
        return [int(found[1]) for line in lines if (found := re.search(rb'"id":(\d+)', line))]

    async def say(self, *messages: bytes) -> None:
        await self.there.send_all(b"".join(message + b"\n" for message in messages))


@asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    hub = Hub()
    with trio.fail_after(PATIENCE):
        async with hub.running():
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            here = await trio.open_tcp_stream("127.0.0.1", listeners[0].socket.getsockname()[1])
            async with listeners[0], await listeners[0].accept() as there:
                wire = SocketWire(_plain(here), 5)
                lane = SharedLane(hub, wire, wire, LineCutter(), lambda message: message + b"\n")
                template = Template.of(SENT)
                assert template is not None
                lane.templates = {ECHO: template}
                try:
                    yield Scripted(lane, there)
                finally:
                    lane.close()
                    wire.close()


def _plain(stream: trio.SocketStream) -> socket.socket:
    plain = socket.socket(fileno=stream.socket.detach())
    plain.setblocking(False)
    return plain


def fine(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % number


async def test_answers_find_who_asked_in_whatever_order_they_come() -> None:
    failures: dict[int, CallboardError | None] = {}
    async with scripted() as script:
        for number in range(4):
            script.lane.begin(ECHO, partial(failures.__setitem__, number))
        ids = await script.asked(4)
        assert len(set(ids)) == 4
        await script.say(
            fine(ids[2]),
            b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no"}}' % ids[0],
            b'{"jsonrpc":"2.0","id":%d,"result":{"isError":true}}' % ids[3],
            fine(ids[1]),
        )
        while len(failures) < 4:
            await trio.lowlevel.checkpoint()
    assert list(failures) == [2, 0, 3, 1]
    assert failures[1] is failures[2] is None
    assert isinstance(failures[0], ServerRefused)
    assert isinstance(failures[3], ToolFailed)


OTHERS: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/message"}',
    b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % FIRST_ID,
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":"x","result":{}}',
    b"[]",
    b"{",
)


async def test_all_that_is_no_answer_of_its_own_is_left_to_the_client() -> None:
    async with scripted() as script, trio.open_nursery() as nursery:
        nursery.start_soon(script.lane.do, ECHO)
        [number] = await script.asked(1)
        await script.say(*OTHERS[:3], fine(number), *OTHERS[3:], fine(number))
        heard = b""
        while heard.count(b"\n") < len(OTHERS) + 1:
            heard += await script.lane.inlet.take()
    assert heard.splitlines() == [*OTHERS, fine(number)], "and an answer that comes twice is nobody's"


async def test_who_waits_when_it_ends_is_told_and_so_are_those_who_come_later() -> None:
    told: list[CallboardError | None] = []
    async with scripted() as script:
        for _ in range(3):
            script.lane.begin(ECHO, told.append)
        await script.asked(3)
        await script.there.aclose()
        assert await script.lane.inlet.take() == b""
        script.lane.begin(ECHO, told.append)
        assert script.lane.is_lost
    assert [type(failure) for failure in told] == [ConnectionLost] * 4


async def test_what_a_server_does_not_take_waits_and_goes_out_in_order() -> None:
    settled: list[CallboardError | None] = []
    large = b"x" * 250_000
    async with scripted() as script:
        template = script.lane.templates[ECHO]
        script.lane.templates = {ECHO: Template((template.pieces[0], template.pieces[1] + large, template.pieces[2]))}
        for _ in range(20):
            script.lane.begin(ECHO, settled.append)
        ids = await script.asked(20)
        assert ids == sorted(ids)
        await script.say(*map(fine, ids))
        while len(settled) < 20:
            await trio.lowlevel.checkpoint()
    assert settled == [None] * 20


async def test_a_server_that_says_too_much_beside_is_let_go() -> None:
    async with scripted() as script, trio.open_nursery() as nursery:
        nursery.start_soon(_flood, script)
        while not script.lane.is_lost:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert "too much unread data" in script.lane.why


async def test_a_server_whose_message_has_no_end_is_let_go() -> None:
    settled: list[object] = []
    async with scripted() as script:
        script.lane.begin(ECHO, settled.append)
        await script.asked(1)
        script.lane.take(b"x" * (MAX_CUT + 1))
    assert [type(one) for one in settled] == [ConnectionLost]
    assert "larger than" in script.lane.why


async def _flood(script: Scripted) -> None:
    for _ in range(MAX_HELD // 1_000_000 + 2):
        await script.say(b"x" * 1_000_000)


# As a whole.


async def use(target: Target, revision: str, also: Callable[[Client], Awaitable[None]]) -> None:
    met: list[tuple[Client, bool]] = []
    hub, acts = Hub(), (ECHO, Act(kind="list"), Act(kind="read", name="steady://note"))
    open_lane = by_requests(target, {"revision": revision}, Work(acts), lambda *them: met.append(them), hub)
    with trio.fail_after(PATIENCE):
        async with hub.running(), open_lane() as lane:
            assert isinstance(lane, SharedLane)
            async with trio.open_nursery() as nursery:
                for act in acts * 10:
                    nursery.start_soon(lane.do, act)
                nursery.start_soon(also, met[0][0])
    assert [is_fast for _, is_fast in met] == [True]


async def call_too(client: Client) -> None:
    for number in range(10):
        assert "hi" in str((await client.call("echo", text=f"hi {number}")).content)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_client_goes_on_beside_it_over_websocket(revision: str) -> None:
    with served(f"{APP}:server", ws=True) as house:
        await use(Remote(url=house.ws), revision, call_too)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_client_goes_on_beside_it_over_pipes(revision: str) -> None:
    await use(Command.of([*forked(), "run", APP]), revision, call_too)
