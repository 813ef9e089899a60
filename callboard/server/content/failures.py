"""The text that a client gets when a handler fails: never a traceback, a path or a value that was not meant for it.

A handler speaks to the client by raising `ToolError`; its text goes out as it is, as do the errors that tell a client
what it did wrong. Any other exception is unexpected: its text may hold a password, so the client gets its type alone,
and the log gets the rest (`server.faults`). `Server(show_errors=True)` sends the text, too: useful where client and
author are the same person, or where the model shall try something else after `ZeroDivisionError: division by zero`.
"""

from collections.abc import Iterator
from typing import Final

from callboard.codecs.revisions import CallToolResult, TextContent
from callboard.errors import (
    Draining,
    InsufficientScope,
    Overloaded,
    PeerError,
    PeerRefused,
    RequestFailed,
    RequestTimedOut,
    UrlRequired,
)
from callboard.server.content.errors import BadResult, ToolError

MAX_MESSAGE: Final = 2_000
"""Longest text about one failure, in characters. It is read by a model, which pays for each."""

MAX_FAILURES: Final = 5
"""Most failures told of one group."""

_MEANT: Final = (
    ToolError,
    PeerError,
    PeerRefused,
    RequestTimedOut,
    UrlRequired,
    Overloaded,
    Draining,
    InsufficientScope,
)


def error_result(exception: BaseException, *, show_errors: bool = False) -> CallToolResult:
    """Return the result of a call that raised."""
    return CallToolResult(content=[TextContent(text=failure_text(exception, show_errors=show_errors))], is_error=True)


def failure_text(exception: BaseException, *, show_errors: bool = False) -> str:
    """Say in a few words what failed. Of a group, every exception in it is told: a nursery is no news to a model."""
    told = dict.fromkeys(_told(one, show_errors) for one in _leaves(exception))
    text = "\n".join(list(told)[:MAX_FAILURES])
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def is_unexpected(exception: BaseException) -> bool:
    """Whether an exception, or one in its group, was not raised to be read by the client: it belongs into the log."""
    return not all(_is_meant(one) for one in _leaves(exception))


def _leaves(exception: BaseException) -> Iterator[BaseException]:
    if isinstance(exception, BaseExceptionGroup):
        for inner in exception.exceptions:
            yield from _leaves(inner)
    else:
        yield exception


def _is_meant(exception: BaseException) -> bool:
    # The other kinds of RequestFailed come from a client that the handler uses, and quote another server.
    return isinstance(exception, _MEANT) or type(exception) is RequestFailed


def _told(exception: BaseException, show_errors: bool) -> str:
    kind = type(exception).__name__
    if _is_meant(exception):
        return _text(exception) or kind
    if isinstance(exception, BadResult):
        return f"Internal error: {exception if show_errors else exception.brief}"
    if not show_errors:
        return f"Internal error: {kind}"
    if isinstance(exception, OSError) and exception.strerror:
        return f"{kind}: {exception.strerror}"  # without the names of files
    if isinstance(exception, KeyError):
        return f"{kind}: {', '.join(map(repr, exception.args))}"
    message = _text(exception)
    return f"{kind}: {message}" if message else kind


def _text(exception: BaseException) -> str:
    try:
        return str(exception).strip()
    except Exception:  # the author's own `__str__` failed: the type alone has to do
        return ""
