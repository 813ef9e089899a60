"""The lifespan of a server: an author's context manager around each run, whose value is `ctx.lifespan`."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from callboard.errors import CannotServe
from callboard.server.faults import log_traceback
from callboard.supervisor.ended import failure_text, where

if TYPE_CHECKING:
    from callboard.server.asyncio_guest import AsyncioGuest


class LifespanFailed(CannotServe):
    """The author's lifespan raised before the server could start, or is no lifespan."""


@asynccontextmanager
async def opened_lifespan(
    name: str, lifespan: Callable[[], Any] | None, guest: "AsyncioGuest | None"
) -> AsyncIterator[Any]:
    """Enter the lifespan of the server *name*, on asyncio if there is a *guest*. Raises `LifespanFailed`."""
    if lifespan is None:
        yield None
        return

    def make() -> AbstractAsyncContextManager[Any]:
        return _checked(lifespan(), name)

    is_open = False
    try:
        async with make() if guest is None else guest.open(make) as value:
            is_open = True
            yield value
    except LifespanFailed:
        raise
    except Exception as error:
        if is_open:
            raise  # it is the server that failed, or the end of the lifespan
        if isinstance(error, CannotServe):  # it is in words for its reader
            raise LifespanFailed(f"server {name!r} cannot start: {error}") from error
        log_traceback("lifespan_failed", error, server=name)
        raise LifespanFailed(f"the lifespan of {name!r} failed: {failure_text(error)} ({_place(error)})") from error


def _checked(made: Any, name: str) -> AbstractAsyncContextManager[Any]:
    """What a lifespan function returned. Raises `LifespanFailed` for what cannot be entered."""
    if hasattr(made, "__aenter__") and hasattr(made, "__aexit__"):
        return made  # type: ignore[no-any-return]  # as far as can be seen
    must = f"the lifespan of {name!r} must be an async context manager"
    if hasattr(made, "__enter__"):
        raise LifespanFailed(f"{must}: write `async def` and @asynccontextmanager in place of @contextmanager")
    if inspect.iscoroutine(made):
        made.close()
        raise LifespanFailed(f"{must}: it has no `yield`, or lacks @asynccontextmanager")
    if inspect.isasyncgen(made) or inspect.isgenerator(made):
        raise LifespanFailed(f"{must}: decorate the function with @asynccontextmanager")
    raise LifespanFailed(f"{must}, but its function returned {type(made).__name__}")


def _place(error: Exception) -> str:
    """The innermost frame: the first of those in the log."""
    return where(error).split(" < ")[0]
