"""A request that fails, times out or is refused leaves nothing to the garbage collector, at any door."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, Line, tool
from tests.broker.front import backend, brokered, peer
from tests.garbage import left_by
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Json, Place, request, serving
from tests.transports.server.websocket.stage import house

pytestmark = pytest.mark.finding("faults-C3")

TIMES: Final = 8
ERAS = pytest.mark.parametrize("revision", [R4, R5], ids=str)


@attrs.frozen
class Name:
    name: str


def company() -> Server:
    """Tools that fail in every way that a tool can."""
    server = Server("fails")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def raises() -> str:
        raise ValueError("no")

    @server.tool
    async def raises_with_context(*, ctx: Context) -> str:
        raise ValueError("no")

    @server.tool
    async def raises_in_nursery() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.checkpoint)
            raise ValueError("no")

    @server.tool
    async def half_a_character() -> str:
        return "\ud800"

    @server.tool
    async def long() -> str:
        await trio.sleep(math.inf)
        return ""

    @server.tool
    async def long_with_context(*, ctx: Context) -> str:
        await trio.sleep(math.inf)
        return ""

    @server.tool
    async def raises_when_cut() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep(math.inf)
            finally:
                raise ValueError("no")

    @server.tool
    def in_thread() -> str:
        raise ValueError("no")

    @server.tool
    async def ask(*, ctx: Context) -> str:
        return (await ctx.elicit("Who?", Name)).name

    @server.resource("broken://one")
    async def broken() -> str:
        raise ValueError("no")

    return server


def call(name: object, arguments: object = None, **more: Any) -> tuple[str, Json]:
    return "tools/call", {"name": name, "arguments": {} if arguments is None else arguments, **more}


FAILING: Final[dict[str, tuple[str, Json]]] = {
    "unknown tool": call("nope"),
    "wrong arguments": call("echo", {"text": 5}),
    "arguments that are no object": call("echo", 7),
    "name that is no text": call(7),
    "tool raises": call("raises"),
    "tool with context raises": call("raises_with_context"),
    "tool raises in a nursery": call("raises_in_nursery"),
    "result that cannot be written": call("half_a_character"),
    "timeout": call("long"),
    "timeout with context": call("long_with_context"),
    "timeout of a tool that raises then": call("raises_when_cut"),
    "forged state": call("ask", requestState="AAAA"),
    "unknown resource": ("resources/read", {"uri": "x://y"}),
    "resource raises": ("resources/read", {"uri": "broken://one"}),
    "unknown prompt": ("prompts/get", {"name": "nope"}),
    "unknown completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "nope"}, "argument": {"name": "a", "value": "b"}},
    ),
    "wrong cursor": ("tools/list", {"cursor": "nope"}),
    "unknown method": ("tools/nope", {}),
    "malformed subscription": ("subscriptions/listen", {"notifications": 5}),
}
EVERY = pytest.mark.parametrize("case", FAILING)
EVERY_IN_EACH_ERA = pytest.mark.parametrize(
    ("case", "revision"),
    [(case, era) for era in (R4, R5) for case in FAILING if era is R5 or case != "forged state"],  # legacy has none
)


async def refused(asking: Callable[[], Awaitable[Any]]) -> None:
    """Ask what is refused, or answered with an error of a tool, and keep nothing of it."""
    try:
        await asking()
    except Refusal as refusal:
        refusal.__traceback__ = None


async def left_on(client: Peer, case: str) -> Counter[str]:
    method, params = FAILING[case]
    return await left_by(lambda: refused(lambda: client.request(method, **params)), TIMES)


@EVERY_IN_EACH_ERA
async def test_failing_over_a_shared_connection(case: str, revision: Revision, autojump_clock: MockClock) -> None:
    async with company().host() as host, peer(host, revision) as client:
        host.cap = 5
        assert await left_on(client, case) == {}


@EVERY_IN_EACH_ERA
async def test_failing_over_a_websocket(case: str, revision: Revision, autojump_clock: MockClock) -> None:
    async with house(company()) as here:
        here.host.cap = 5
        assert await left_on(await here.peer(revision, kind=Peer), case) == {}


@EVERY_IN_EACH_ERA
async def test_failing_through_a_broker(case: str, revision: Revision, autojump_clock: MockClock) -> None:
    async with brokered(backend(company(), timeout=5.0)) as host, peer(host, revision) as client:
        assert await left_on(client, case) == {}


@asynccontextmanager
async def impatient(case: str) -> AsyncIterator[Place]:
    async with serving(company()) as place:
        if case.startswith("timeout"):
            place.host.cap = 0.002
        yield place


@EVERY
async def test_failing_over_http(case: str) -> None:
    method, params = FAILING[case]
    async with impatient(case) as place:

        async def once() -> None:
            client = await place.connect()
            await client.send(client.modern(method, **params))
            assert (await client.answer()).status in (200, 400, 404)
            await client.aclose()

        assert await left_by(once, TIMES) == {}


@pytest.mark.parametrize("case", [case for case in FAILING if case != "forged state"])
async def test_failing_in_a_session_over_http(case: str) -> None:
    method, params = FAILING[case]
    async with impatient(case) as place:
        session = await OpenSession.open(place, R4)

        async def once() -> None:
            client = await place.connect()
            await client.send(session.post(session.request(method, **params)))
            assert (await client.answer()).status in (200, 400)
            await client.aclose()

        assert await left_by(once, TIMES) == {}


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_failing_in_a_thread(is_legacy: bool) -> None:
    async with serving(company()) as place:
        if is_legacy:
            session = await OpenSession.open(place, R4)
            assert await left_by(lambda: session.call("in_thread"), TIMES) == {}
        else:
            client = await place.connect()
            assert await left_by(lambda: client.call("in_thread"), TIMES) == {}


UNREAD: Final[dict[str, tuple[bytes, dict[str, str | None]]]] = {
    "no JSON": (b"{", {}),
    "batch": (b"[]", {}),
    "no session": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {}),
    "unknown session": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {"mcp_session_id": "x"}),
    "other revision": (
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999"}}}',
        {"mcp_protocol_version": "1999"},
    ),
    "malformed handshake": (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', {}),
}


@pytest.mark.parametrize("case", UNREAD)
async def test_what_is_refused_unread(case: str) -> None:
    body, headers = UNREAD[case]
    async with serving(company()) as place:
        client = await place.connect()

        async def once() -> None:
            await client.send(client.post(body, **headers))
            assert (await client.answer()).status in (200, 400, 404)

        assert await left_by(once, TIMES) == {}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_has_no_body_and_no_session(method: str) -> None:
    async with serving(company()) as place:
        client = await place.connect()

        async def once() -> None:
            await client.send(request(method, "/mcp", host=client.host.decode(), accept="text/event-stream"))
            assert (await client.answer()).status == 400

        assert await left_by(once, TIMES) == {}


# Behind a broker.


async def answers_badly(back: Back, line: Line, asked: Json) -> None:
    await line.say(id=asked["id"], result=5)


async def refuses(back: Back, line: Line, asked: Json) -> None:
    await line.refuse(asked, -32000)


async def dies(back: Back, line: Line, asked: Json) -> None:
    line.hang_up()


async def is_silent(back: Back, line: Line, asked: Json) -> None:
    """The request times out."""


@ERAS
@pytest.mark.parametrize("era", [R4, R5], ids=lambda era: f"backend {era}")
@pytest.mark.parametrize("answer", [answers_badly, refuses, dies, is_silent])
async def test_a_backend_that_fails(
    answer: Callable[[Back, Line, Json], Awaitable[None]], era: Revision, revision: Revision, autojump_clock: MockClock
) -> None:
    back = Back(era, tools=[tool("book")])
    async with brokered(backend(back.ways, timeout=5.0)) as host, peer(host, revision) as client:

        async def once() -> None:
            asked = await client.begin("tools/call", name="book", arguments={})
            await answer(back, *await back.hear())
            await refused(lambda: client.finish(asked))
            await trio.sleep(100)  # for one that has died to be started anew
            for line in back.lines:
                line.heard.clear()
            back.lines[:-1] = []

        assert await left_by(once, TIMES) == {}


@ERAS
async def test_a_client_that_cancels_and_one_that_leaves(revision: Revision, autojump_clock: MockClock) -> None:
    async with brokered(backend(company(), timeout=500.0)) as host:

        async def once() -> None:
            async with peer(host, revision) as client:
                for name in ("long", "long_with_context"):
                    asked = await client.begin("tools/call", name=name, arguments={})
                await wait_all_tasks_blocked()
                await client.say({"method": "notifications/cancelled", "params": {"requestId": asked}})
                await wait_all_tasks_blocked()

        assert await left_by(once, TIMES) == {}
