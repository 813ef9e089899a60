"""The lifespan of a server that cannot start: one line for its author."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio

from callboard import Server
from callboard.serve import serve
from callboard.server.lifespan import LifespanFailed
from callboard.testing import connect


@contextmanager
def plain(_: Server) -> Iterator[None]:
    yield


async def undecorated(_: Server) -> AsyncIterator[None]:
    yield


async def without_yield(_: Server) -> None: ...


@asynccontextmanager  # type: ignore[arg-type]  # which is the mistake
async def without_yield_but_decorated(_: Server) -> None: ...


def nothing(_: Server) -> None: ...


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize(
    ("lifespan", "words"),
    [
        (plain, "write `async def` and @asynccontextmanager in place of @contextmanager"),
        (undecorated, "decorate the function with @asynccontextmanager"),
        (without_yield, "it has no `yield`, or lacks @asynccontextmanager"),
        (without_yield_but_decorated, "it has no `yield`, or lacks @asynccontextmanager"),
        (nothing, "but its function returned NoneType"),
    ],
)
async def test_what_is_no_lifespan_is_told_with_what_to_write(lifespan: Any, words: str, loop: Any) -> None:
    with pytest.raises(LifespanFailed) as told:
        async with Server("shop", lifespan=lifespan, loop=loop).host():
            pass
    assert str(told.value).startswith("the lifespan of 'shop' must be an async context manager")
    assert words in str(told.value)


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
async def test_a_lifespan_that_fails_is_told_in_one_line_with_its_place(loop: Any) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        if server.info.name == "shop":
            raise ConnectionRefusedError("no database")
        yield

    with pytest.raises(LifespanFailed) as told:
        async with Server("shop", lifespan=lifespan, loop=loop).host():
            pass
    text = str(told.value)
    assert text.startswith("the lifespan of 'shop' failed: ConnectionRefusedError: no database (test_lifespan.py:")
    assert "\n" not in text


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
async def test_a_failure_of_the_server_is_not_laid_to_its_lifespan(loop: Any) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        yield

    with pytest.raises(LookupError, match="later"):
        async with Server("shop", lifespan=lifespan, loop=loop).host():
            raise LookupError("later")


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
async def test_a_lifespan_without_a_parameter_is_told_what_it_is_called_with(loop: Any) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    unfit: Any = lifespan
    with pytest.raises(LifespanFailed, match=r"it is called with the server, as in `async def lifespan\(server\)`"):
        async with Server("shop", lifespan=unfit, loop=loop).host():
            pass


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
async def test_a_lifespan_that_fails_when_the_server_stops_is_told_in_one_line(loop: Any) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        yield
        raise RuntimeError("cannot close")

    with pytest.raises(LifespanFailed, match=r"'shop' failed when the server stopped: RuntimeError: cannot close \("):
        async with connect(Server("shop", lifespan=lifespan, loop=loop)):
            pass


async def test_a_task_of_a_lifespan_that_fails_ends_the_server_in_one_line() -> None:
    async def poll() -> None:
        raise RuntimeError("poller died")

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            yield

    with pytest.raises(LifespanFailed, match=r"'shop' failed while the server ran: RuntimeError: poller died \("):
        await serve(Server("shop", lifespan=lifespan), http="127.0.0.1:0")


def test_a_server_that_cannot_run_exits_with_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port, lifespan, words in ((taken.getsockname()[1], None, "in use"), (0, nothing, "returned NoneType")):
            unfit: Any = lifespan
            with pytest.raises(SystemExit) as ended:
                Server("shop", lifespan=unfit).run(http=f"127.0.0.1:{port}")
            assert ended.value.code == 2
            [line] = capfd.readouterr().err.splitlines()
            assert line.startswith("callboard: ")
            assert words in line
