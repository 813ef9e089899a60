"""The log's side of a handler that fails: which one, for which request, what it raised and where."""

import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

import trio

from callboard.codecs.envelope import Request, RequestId
from callboard.server.content.errors import BadResult
from callboard.supervisor import get_logger
from callboard.supervisor.ended import failure_text, where
from callboard.supervisor.lines import MAX_TRACEBACK

log = get_logger("callboard.handlers")

DEBUG: Final = "CALLBOARD_DEBUG"
"""The environment variable that puts tracebacks into the log where standard error is no terminal."""

TRACEBACK_FRAMES: Final = 20
"""Innermost frames of a traceback that are logged: a recursion without an end has thousands."""

_TRIO: Final = Path(trio.__file__).parent
NOT_THE_AUTHOR_S: Final = (
    *(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], _TRIO, _TRIO.with_name("outcome"))),
    "<frozen importlib",
)
"""Where the frames of a traceback lie that an author cannot change."""

FOREIGN: Final = ("no running event loop", "no current event loop", "some other framework like asyncio")
"""Words of asyncio and of Trio for code of the former that is awaited in the latter."""

FOREIGN_TEXT: Final = 1000
"""Characters of an exception's text in which those words are looked for."""

NAME_TEXT: Final = 128
"""Longest name or request id in the log, in characters. Both are the client's words."""


def log_failure(error: Exception, request: Request, name: str, function: Any = None) -> None:
    """Log that the handler *name*, which is *function*, failed to serve *request*."""
    facts = {
        "method": request.method,
        "name": name[:NAME_TEXT],
        "request": _short(request.id),
        "failure": failure_text(error),
        "where": _place(function) if isinstance(error, BadResult) else where(error),
    }
    if (hint := _hint(error)) is not None:
        facts["hint"] = hint
    if shows_tracebacks() and not isinstance(error, BadResult):
        facts["exception"] = traceback_of(error)
    log.error("handler_failed", **facts)


def log_traceback(event: str, error: Exception, **facts: Any) -> None:
    """Log the traceback of what an author's code raised, where the author is likely to look; else nothing."""
    if shows_tracebacks():
        log.error(event, **facts, exception=traceback_of(error))


def exited(error: SystemExit | BaseExceptionGroup[BaseException]) -> RuntimeError:
    """The exception of a handler that called exit, perhaps in a nursery: it ends its own call only.

    Raises the cancellation or Ctrl-C in a group, if there is one: Trio must get it.
    """
    exit_: BaseException = error
    if isinstance(error, BaseExceptionGroup):
        exits, rest = error.split(SystemExit)
        if rest is not None and not isinstance(rest, Exception):
            try:
                # What else the handler raised when it was cut has no reader any more: in the task of a connection it
                # would end all that goes on there.
                raise rest.split(Exception)[1] or rest
            finally:
                del error, exits, rest, exit_  # this frame is in their traceback, and must not hold them in turn
        exit_ = exits or error
    while isinstance(exit_, BaseExceptionGroup):
        exit_ = exit_.exceptions[0]
    return RuntimeError("the handler called sys.exit()").with_traceback(exit_.__traceback__)


def shows_tracebacks() -> bool:
    """Whether the author is likely to look: at a terminal, or by `CALLBOARD_DEBUG=1`."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError, OSError):  # there is none, or it is closed
        return False


def traceback_of(error: BaseException) -> str:
    """A traceback as its author wants it: without the steps of callboard, Trio and the import system, if any other is
    left."""
    told = traceback.TracebackException.from_exception(error, limit=-TRACEBACK_FRAMES)
    waiting: list[traceback.TracebackException | None] = [told]
    while waiting:
        one = waiting.pop()
        if one is not None:
            own = [step for step in one.stack if not step.filename.startswith(NOT_THE_AUTHOR_S)]
            one.stack = traceback.StackSummary.from_list(own or one.stack)
            waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]
    text = "".join(told.format()).rstrip()
    half = MAX_TRACEBACK // 2  # the places stand first, the text of the exception last
    return text if len(text) <= MAX_TRACEBACK else f"{text[:half]}…{text[1 - half :]}"


def _hint(error: Exception) -> str | None:
    """What to do about a handler that is written for another event loop than it runs in."""
    if type(error) not in (RuntimeError, TypeError):  # an author's own may have no text
        return None
    text = str(error)[:FOREIGN_TEXT]
    if any(told in text for told in FOREIGN):
        return 'handlers run on Trio: for asyncio code use @server.tool(loop="asyncio") or Server(loop="asyncio")'
    if text == "must be called from async context":
        return 'this handler runs on asyncio, by loop="asyncio": use asyncio functions in place of Trio\'s'
    return None


def _place(function: Any) -> str:
    """The place of a function's definition. An invalid result has no line of its own."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"


def _short(request_id: RequestId) -> RequestId:
    return request_id[:NAME_TEXT] if isinstance(request_id, str) else request_id
