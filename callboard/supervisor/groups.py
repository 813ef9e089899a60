"""Exception groups, and nurseries that keep theirs to themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar, overload

import trio

E = TypeVar("E", bound=BaseException)


@asynccontextmanager
async def own_nursery(*, takes_first: bool = False) -> AsyncIterator[trio.Nursery]:
    """A nursery that is an implementation detail: a single failure comes out by its own name and not in a group.

    Several come out in their group, unless the caller *takes_first*. A group that holds more than failures, such as a
    cancellation, comes out whole.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1 and not (takes_first and isinstance(group, ExceptionGroup)):
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


def sole(error: Exception) -> Exception:
    """The one exception in a group of one: a handler with a nursery raises groups, and means what is inside."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def leaves(error: BaseException) -> list[BaseException]:
    """*error*, or all that is in it if it is a group."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for part in error.exceptions for leaf in leaves(part)]


@overload
def first_leaf(error: BaseExceptionGroup[E]) -> E: ...
@overload
def first_leaf(error: BaseException) -> BaseException: ...
def first_leaf(error: BaseException) -> BaseException:
    """*error*, or the first that is in it if it is a group: several may fail at once, mostly for the same reason."""
    return leaves(error)[0]
