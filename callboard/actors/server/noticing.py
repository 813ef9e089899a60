"""Running a coroutine in the task that brought it, and noticing when it has to wait."""

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from trio.lowlevel import current_task

S = TypeVar("S")
T = TypeVar("T")


@types.coroutine
def run_noticing(
    work: Coroutine[Any, Any, T], context: Context, on_wait: Callable[[S], None], subject: S
) -> Generator[Any, Any, T]:
    """Run *work* here, in a *context* of its own, to its end. If it has to wait, *on_wait* is called once with
    *subject*, before it does.

    Most calls never wait, and cost no more than this: no task, no scope, no timer.
    """
    try:
        trap = context.run(work.send, None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a coroutine returns
    task = current_task()
    outer, task.context = task.context, context  # what it has set stays set when it goes on
    on_wait(subject)
    try:
        while True:
            try:
                told = yield trap
            except BaseException as error:  # it is for the coroutine, not for this function
                step: Callable[[Any], Any] = work.throw
                told = error
            else:
                step = work.send
            try:
                trap = step(told)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                told = None  # it may hold the exception whose traceback holds this frame
    finally:
        task.context = outer
