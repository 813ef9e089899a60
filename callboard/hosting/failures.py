"""What the peer is told when a handler fails: the message, and never a traceback, a path or somebody's values.

The author of a tool is rarely there when it fails; the model is, and an unexpected `ZeroDivisionError: division by
zero` lets it try something else. So the kind and the message of any exception are told, with two exceptions: where
the operating system spoke, its words go out without the names of files; and where the server broke its own promise,
only that is said. A server whose exceptions may hold secrets switches this off with `show_unexpected=False`: then
only what was raised for the peer to read goes out.
"""

from collections.abc import Iterator
from typing import Final

from callboard.codecs.revisions import CallToolResult, TextContent
from callboard.errors import CallboardError
from callboard.hosting.errors import BadResult

MAX_MESSAGE: Final = 2_000
"""Longest text about one failure, in characters. It is read by a model, which pays for each."""

MAX_FAILURES: Final = 5
"""Most failures told of one group."""

_UNSAID: Final = "Internal error: the tool failed"
_BROKEN_PROMISE: Final = "Internal error: the tool returned a result that it may not return"


def error_result(exception: BaseException, *, show_unexpected: bool = True) -> CallToolResult:
    """Return the result of a call that raised. The details belong into the server's log."""
    text = failure_text(exception, show_unexpected=show_unexpected)
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def failure_text(exception: BaseException, *, show_unexpected: bool = True) -> str:
    """Say in a few words what failed. A group is told by what is in it: a nursery is no news to a model."""
    told = dict.fromkeys(_told(one, show_unexpected) for one in _leaves(exception))
    lines = list(told)[:MAX_FAILURES] or [_UNSAID]
    text = "\n".join(lines)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _leaves(exception: BaseException) -> Iterator[BaseException]:
    if isinstance(exception, BaseExceptionGroup):
        for inner in exception.exceptions:
            yield from _leaves(inner)
    else:
        yield exception


def _told(exception: BaseException, show_unexpected: bool) -> str:
    kind = type(exception).__name__
    if isinstance(exception, BadResult):
        return _BROKEN_PROMISE
    if isinstance(exception, CallboardError):
        return str(exception) or kind
    if not show_unexpected:
        return _UNSAID
    if isinstance(exception, OSError) and exception.strerror:
        return f"{kind}: {exception.strerror}"
    if isinstance(exception, KeyError):
        return f"{kind}: {', '.join(map(repr, exception.args))}"
    message = str(exception).strip()
    return f"{kind}: {message}" if message else kind
