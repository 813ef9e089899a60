"""HTTP status codes for JSON-RPC errors."""

import math
from typing import Final

from callboard.codecs.http.refusal import HttpRefusal
from callboard.errors import (
    DRAINING,
    HEADER_MISMATCH,
    INSUFFICIENT_SCOPE,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    OVERLOADED,
    BackendRefused,
    Draining,
    FrameTooLarge,
    HeaderMismatch,
    InsufficientScope,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    PeerError,
    RequestFailed,
    UnsupportedVersion,
)

RETRY_AFTER: Final = ((b"retry-after", b"1"),)

_MODERN: Final[tuple[tuple[type[Exception], int], ...]] = (
    (HeaderMismatch, 400),
    (MissingCapability, 400),
    (UnsupportedVersion, 400),
    (MethodNotFound, 404),  # its body tells it from the 404 of an old server
    (InsufficientScope, 403),
    (Draining, 503),
)


_FORWARDED: Final = {HEADER_MISMATCH: 400, MISSING_CLIENT_CAPABILITY: 400, METHOD_NOT_FOUND: 404}


def status_of(error: Exception | None) -> int:
    """The status of an answer to a modern request: 200 also for an error for which nothing else is laid down."""
    if isinstance(error, Overloaded):
        return 503 if error.for_all else 429
    if isinstance(error, BackendRefused):
        return _FORWARDED.get(error.error_code, 200)
    return next((status for kind, status in _MODERN if isinstance(error, kind)), 200)


def status_of_legacy(error: Exception | None) -> int:
    """The status of an answer in a legacy session, where errors are answers: only what a proxy must know is said, and
    what the specification asks for."""
    return status_of(error) if isinstance(error, (Overloaded, Draining, InsufficientScope)) else 200


class NoRoom(HttpRefusal):
    """The request came when too much was going on."""

    code = OVERLOADED


class Leaving(HttpRefusal):
    """The request came when the server was shutting down."""

    code = DRAINING

    def __init__(self) -> None:
        super().__init__(503, "the server is shutting down", headers=RETRY_AFTER, closes=True)


def refusal_of(error: Overloaded) -> HttpRefusal:
    """The refusal of a request if there is no memory for its body. The rest of the body is not read."""
    return NoRoom(status_of(error), str(error), headers=RETRY_AFTER, closes=True)


def retry_after(error: Exception | None) -> tuple[tuple[bytes, bytes], ...]:
    """When to come again: as the limit says that was reached, else soon."""
    seconds = error.retry_after if isinstance(error, Overloaded) else None
    return RETRY_AFTER if seconds is None else ((b"retry-after", b"%d" % max(1, math.ceil(seconds))),)


def status_of_unread(error: PeerError | RequestFailed) -> int:
    """The status for a request that was refused before anything was begun."""
    if isinstance(error, FrameTooLarge):
        return 413
    known = status_of(error)
    return 400 if known == 200 else known


_REFUSED: Final = {
    401: "auth",
    403: "origin",
    421: "host",
    408: "slow",
    413: "size",
    414: "size",
    431: "header",
    404: "unknown",
    405: "unknown",
    429: "quota",
    503: "overload",
}


_REFUSED_BY_CODE: Final = {DRAINING: "draining", HEADER_MISMATCH: "header", INSUFFICIENT_SCOPE: "scope"}


def refused_as(error: PeerError | RequestFailed) -> str:
    """The reason for which something was refused, in one word: as it is counted."""
    status = error.status if isinstance(error, HttpRefusal) else status_of_unread(error)
    return _REFUSED_BY_CODE.get(error.code) or _REFUSED.get(status, "invalid")
