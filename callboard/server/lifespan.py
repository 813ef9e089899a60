"""The lifespan of a server: an author's context manager around each run, whose value is `ctx.lifespan`."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.errors import CannotServe
from callboard.server.faults import log_traceback
from callboard.supervisor.ended import failure_text, where

if TYPE_CHECKING:
    from callboard.server.asyncio_guest import AsyncioGuest


class LifespanFailed(CannotServe):
    """The author's lifespan raised, or is no lifespan."""


class _Stage(Enum):
    """How far a lifespan has come."""

    OPENING = ""
    OPEN = " while the server ran"  # a task of its own failed, and has cancelled the server
    CLOSING = " when the server stopped"


@asynccontextmanager
async def opened_lifespan(
    name: str, lifespan: Callable[[Any], Any] | None, server: Any, guest: "AsyncioGuest | None"
) -> AsyncIterator[Any]:
    """Enter the lifespan of *server*, whose name is *name*, on asyncio if there is a *guest*. Raises
    `LifespanFailed`."""
    if lifespan is None:
        yield None
        return
    make, stage, is_servers = partial(_made, lifespan, server, name), _Stage.OPENING, False
    try:
        async with make() if guest is None else guest.open(make) as value:
            stage = _Stage.OPEN
            try:
                yield value
            except Exception:
                is_servers = True
                raise
            stage = _Stage.CLOSING
    except LifespanFailed:
        raise
    except Exception as error:
        if is_servers:
            raise
        if isinstance(error, CannotServe):  # it is in words for its reader
            raise LifespanFailed(f"server {name!r} cannot start: {error}") from error
        log_traceback("lifespan_failed", error, server=name)
        raise LifespanFailed(
            f"the lifespan of {name!r} failed{stage.value}: {failure_text(error)} ({_place(error)})"
        ) from error


def _made(lifespan: Callable[[Any], Any], server: Any, name: str) -> AbstractAsyncContextManager[Any]:
    """The context manager that a lifespan function returns. Raises `LifespanFailed` for what cannot be entered."""
    must = f"the lifespan of {name!r} must be an async context manager"
    if not _takes_server(lifespan):
        raise LifespanFailed(
            f"the lifespan of {name!r} takes no parameter, or several: it is called with the server, as in"
            " `async def lifespan(server)`"
        )
    made = lifespan(server)
    inner = getattr(made, "gen", made)  # of what @asynccontextmanager made
    if inspect.iscoroutine(inner):
        inner.close()
        raise LifespanFailed(f"{must}: it has no `yield`, or lacks @asynccontextmanager")
    if hasattr(made, "__aenter__") and hasattr(made, "__aexit__"):
        return made  # type: ignore[no-any-return]  # as far as can be seen
    if hasattr(made, "__enter__"):
        raise LifespanFailed(f"{must}: write `async def` and @asynccontextmanager in place of @contextmanager")
    if inspect.isasyncgen(made) or inspect.isgenerator(made):
        raise LifespanFailed(f"{must}: decorate the function with @asynccontextmanager")
    raise LifespanFailed(f"{must}, but its function returned {type(made).__name__}")


def _takes_server(lifespan: Callable[[Any], Any]) -> bool:
    try:
        inspect.signature(lifespan).bind(None)
    except TypeError:
        return False
    except ValueError:  # it has no readable signature
        return True
    return True


def _place(error: Exception) -> str:
    """The innermost frame: the first of those in the log."""
    return where(error).split(" < ")[0]
