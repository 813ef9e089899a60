"""Running a request in the task that brought it, and noticing when it has to wait."""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def run_noticing(errand: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> Generator[Any, Any, T]:
    """Run *errand* here, to its end. If it has to wait, *on_wait* is called once, before it does.

    Most calls never wait. They need no watch on the connection, and so cost nothing.
    """
    try:
        trap = errand.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a coroutine returns
    on_wait()
    while True:
        try:
            told = yield trap
        except BaseException as error:  # it is for the coroutine, not for this function
            step: Callable[[Any], Any] = errand.throw
            told = error
        else:
            step = errand.send
        try:
            trap = step(told)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            told = None  # it may hold the exception whose traceback holds this frame
