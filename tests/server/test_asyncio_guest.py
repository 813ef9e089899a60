"""Handlers for asyncio: they run in a loop of their own, with the context, and are cancelled with their calls."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
import trio.lowlevel
from structlog.testing import capture_logs

import callboard
from callboard import Context, Extension, Server
from callboard.codecs.revisions import JSONObject, LoggingMessageNotificationParams
from callboard.testing import connect


def text(result: Any) -> str:
    words: str = result.content[0].text
    return words


class Connection:
    """As those of asyncpg: bound to the loop that opened it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_rolled_back = False

    async def fetch(self, number: int) -> list[int]:
        assert asyncio.get_running_loop() is self.loop, "got Future attached to a different loop"
        await asyncio.sleep(0)
        return list(range(number))


class Pool:
    """As that of asyncpg: `await create()`, `async with pool.acquire()`, `await close()`."""

    def __init__(self) -> None:
        self.free: asyncio.Queue[Connection] = asyncio.Queue()
        self.is_closed = False
        self.free.put_nowait(Connection())

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        connection = await self.free.get()
        try:
            yield connection
        except BaseException:
            connection.is_rolled_back = True
            raise
        finally:
            self.free.put_nowait(connection)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


def served() -> tuple[Server, list[Pool]]:
    pools: list[Pool] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[Pool]:
        pool = Pool()
        pools.append(pool)
        yield pool
        await pool.close()

    return Server("db", lifespan=lifespan, loop="asyncio"), pools


async def test_a_pool_of_the_lifespan_serves_the_handlers_of_a_server_on_asyncio() -> None:
    server, pools = served()

    @server.tool
    async def rows(n: int, ctx: Context) -> list[int]:
        async with ctx.lifespan.acquire() as connection:
            found: list[int] = await connection.fetch(n)
            return found

    @server.resource("rows://{n}")
    async def read(n: int, ctx: Context) -> str:
        async with ctx.lifespan.acquire() as connection:
            return str(await connection.fetch(n))

    @server.tool
    def plain() -> str:
        return threading.current_thread().name

    @server.tool(loop="trio")
    async def on_trio() -> str:
        await trio.lowlevel.checkpoint()
        return "trio"

    async with callboard.connect(server) as client:
        assert (await client.call("rows", n=3)).structured_content == {"result": [0, 1, 2]}
        assert (await client.read("rows://2")).contents[0].text == "[0, 1]"  # type: ignore[union-attr]  # it is text
        assert "asyncio" not in text(await client.call("plain"))
        assert text(await client.call("on_trio")) == "trio"
        assert [pool.is_closed for pool in pools] == [False]
    assert [pool.is_closed for pool in pools] == [True]
    assert not any(thread.name == "db asyncio" for thread in threading.enumerate())


async def test_a_cancelled_call_cancels_the_handler_on_asyncio() -> None:
    server, pools = served()
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    @server.tool
    async def slow(ctx: Context) -> None:
        async with ctx.lifespan.acquire():
            token.run_sync_soon(begun.set)
            await asyncio.sleep(1000)

    async with callboard.connect(server) as client:
        async with client.call("slow") as call:
            await begun.wait()
            call.cancel()
        with trio.fail_after(5):
            while not (pools[0].free.qsize() and pools[0].free._queue[0].is_rolled_back):  # type: ignore[attr-defined]  # noqa: ASYNC110  # of another loop
                await trio.sleep(0.01)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_the_context_is_bridged_in_every_era(revision: str) -> None:
    server = Server("s")
    logs: list[LoggingMessageNotificationParams] = []
    told: list[JSONObject] = []
    listener = Extension("com.example/told")
    listener.notification("notifications/com.example/told")(told.append)

    @server.tool(loop="asyncio")
    async def greet(ctx: Context) -> str:
        await ctx.log("info", "hello")
        await ctx.report(1, total=2)
        await ctx.notify("notifications/com.example/told", name="Ada")
        answer = await ctx.sample("Who?", max_tokens=9)
        (again,) = await ctx.ask_all(ctx.sample("Again?", max_tokens=9))
        await asyncio.sleep(0)
        return f"{ctx.revision.value}: {answer.text} {again.text}"

    async with callboard.connect(
        server,
        revision=revision,
        sampling=lambda _: "Ada",
        log_level="debug",
        on_log=logs.append,
        extensions=[listener],
    ) as client:
        async with client.call("greet") as call:
            updates = [update async for update in call.progress]
        assert text(call.result) == f"{revision}: Ada Ada"
        assert [update.progress for update in updates] == [1]
        assert [log.data for log in logs] == ["hello"]
        assert told == [{"name": "Ada"}]


async def test_notifications_from_asyncio_reach_subscribers() -> None:
    server = Server("s")

    @server.resource("notes://one")
    async def one() -> str:
        return "1"

    @server.tool(loop="asyncio")
    async def change(ctx: Context) -> None:
        ctx.notify_updated("notes://one")

    async with callboard.connect(server) as client, client.listen(resources=["notes://one"]) as changes:
        await client.call("change")
        with trio.fail_after(5):
            assert (await anext(changes)).uri == "notes://one"  # type: ignore[union-attr]  # it is of a resource


async def test_code_for_either_library_sees_asyncio() -> None:
    server = Server("s")

    @server.tool(loop="asyncio")
    async def fetch(port: int) -> str:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:  # as httpx does it
            await stream.send(b"GET / HTTP/1.0\r\n\r\n")
            return (await stream.receive()).decode()

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        async with callboard.connect(server) as client:
            port = listener.socket.getsockname()[1]
            assert text(await client.call("fetch", port=port)).startswith("HTTP/1.0 200")
        nursery.cancel_scope.cancel()


async def test_a_handler_that_fails_or_exits_on_asyncio_ends_its_own_call_only() -> None:
    server = Server("s", show_errors=True)

    @server.tool(loop="asyncio")
    async def fails() -> None:
        raise LookupError("nothing")

    @server.tool(loop="asyncio")
    async def leaves() -> None:
        raise SystemExit(1)

    @server.tool(loop="asyncio")
    async def fine() -> str:
        return "fine"

    async with callboard.connect(server) as client:
        assert "LookupError: nothing" in text(await client.call("fails"))
        assert "sys.exit()" in text(await client.call("leaves"))
        assert text(await client.call("fine")) == "fine"


async def test_a_blocking_handler_on_asyncio_does_not_stop_trio() -> None:
    server = Server("s")
    release, begun = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    @server.tool(loop="asyncio")
    async def blocks() -> str:
        token.run_sync_soon(begun.set)
        release.wait(10)
        return "done"

    @server.tool
    async def quick() -> str:
        return "quick"

    async with callboard.connect(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call("blocks")._run)
        await begun.wait()
        assert text(await client.call("quick")) == "quick"
        release.set()


async def test_asyncio_code_in_a_handler_for_trio_says_what_to_do() -> None:
    server = Server("s")

    @server.tool
    async def nap() -> None:
        await asyncio.sleep(0)

    @server.tool
    async def current() -> None:
        asyncio.get_running_loop()

    @server.tool(loop="asyncio")
    async def astray() -> None:
        await trio.sleep(1)

    async with connect(server) as client:
        with capture_logs() as lines:
            for name in ("nap", "current", "astray"):
                assert (await client.call(name))["isError"]
    hints = [line["hint"] for line in lines if line["event"] == "handler_failed"]
    assert ['@server.tool(loop="asyncio")' in hint for hint in hints] == [True, True, False]
    assert "use asyncio functions" in hints[2]


def test_a_plain_function_needs_no_loop_and_a_wrong_loop_is_refused() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match="a plain one runs in a thread"):

        @server.tool(loop="asyncio")
        def plain() -> None: ...

    with pytest.raises(ValueError, match="invalid loop='curio'"):
        Server("s", loop="curio")  # type: ignore[arg-type]
