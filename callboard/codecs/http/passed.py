"""Headers of a client's request that go on to a backend: which may, and how much of them."""

import re
from collections.abc import Collection
from typing import Final

from callboard.codecs.http.head import Head, HeaderList

MAX_PASSED: Final = 16
"""Most headers that are passed on with a request."""

MAX_PASSED_BYTES: Final = 4096
"""Most bytes of them, names and values together. What is beyond is left out: no request is refused for it."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_VALUE: Final = re.compile(rb"[\x20-\x7e]*")
_OWN: Final = frozenset(
    (
        *("authorization", "dpop", "cookie", "host", "forwarded", "origin", "referer", "via", "x-real-ip"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
        *("accept", "accept-encoding", "last-event-id", "traceparent", "tracestate", "baggage"),
    )
)
_OWN_PREFIXES: Final = ("proxy-", "x-forwarded-", "content-", "mcp-", "sec-", "access-control-", "callboard-")


def refused_header(name: str) -> str:
    """Why the header *name*, in lower case, may not be passed on; empty if it may."""
    if _NAME.fullmatch(name) is None:
        return "is not a header name"
    if name in _OWN or name.startswith(_OWN_PREFIXES) or "authorization" in name or "cookie" in name:
        return "must not be passed on: it is a credential, or for one connection alone"
    return ""


def header_names(names: Collection[str]) -> tuple[bytes, ...]:
    """The names of headers that a server's own handlers read, as they are compared.

    Raises ValueError for what is no name, for a credential, and for too many.
    """
    found = tuple(sorted({name.lower() for name in names}))
    for name in found:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"invalid header name {name[:200]!r}")
        if "authorization" in name or "cookie" in name or name == "dpop":
            raise ValueError(f"the header {name} is a credential: use ctx.caller, which says what it grants")
    if len(found) > MAX_PASSED:
        raise ValueError(f"at most {MAX_PASSED} headers can be read")
    return tuple(name.encode() for name in found)


def passed_of(head: Head, names: Collection[bytes]) -> HeaderList:
    """The headers of *head* that have one of these *names*: each once, and not too much of them."""
    found: list[tuple[bytes, bytes]] = []
    room = MAX_PASSED_BYTES
    for name in names:
        value = head.get(name)
        if value is None or _VALUE.fullmatch(value) is None or len(name) + len(value) > room:
            continue
        room -= len(name) + len(value)
        found.append((name, value))
    return found
