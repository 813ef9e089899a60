"""The lifespan of a server that cannot start: one line for its author."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from callboard import Server
from callboard.server.lifespan import LifespanFailed


@contextmanager
def plain(_: Server) -> Iterator[None]:
    yield


async def undecorated(_: Server) -> AsyncIterator[None]:
    yield


async def without_yield(_: Server) -> None: ...


def nothing(_: Server) -> None: ...


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize(
    ("lifespan", "words"),
    [
        (plain, "write `async def` and @asynccontextmanager in place of @contextmanager"),
        (undecorated, "decorate the function with @asynccontextmanager"),
        (without_yield, "it has no `yield`, or lacks @asynccontextmanager"),
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
