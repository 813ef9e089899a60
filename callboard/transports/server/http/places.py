"""Paths of the endpoint: `/mcp`, the two of HTTP+SSE, and each of them with the name of a part behind it."""

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

PATH: Final = b"/mcp"
SSE_PATH: Final = b"/sse"
MESSAGES_PATH: Final = b"/messages"

METHODS: Final = {
    PATH: ("POST", "GET", "DELETE", "OPTIONS"),
    SSE_PATH: ("GET", "OPTIONS"),
    MESSAGES_PATH: ("POST", "OPTIONS"),
}
"""Methods of each path. The last two paths only if the operator enables HTTP+SSE."""

MAX_NAME: Final = 256
"""Longest name behind a path, in bytes as it is written: three for each character that a server's name may have."""


def place_of(path: bytes) -> tuple[bytes, str] | None:
    """What of the endpoint is at *path*, and of which part: `/mcp/github` is `/mcp` of `github`. A slash at the end
    makes no difference, as other servers have it. None if it is no path of the endpoint's."""
    return None if len(path) > MAX_NAME + len(MESSAGES_PATH) + 2 else _place_of(path)


@lru_cache(maxsize=1024)
def _place_of(path: bytes) -> tuple[bytes, str] | None:
    path = path.removesuffix(b"/")
    if path in METHODS:
        return path, ""
    place, _, name = path.rpartition(b"/")
    if place not in METHODS or not name:
        return None
    try:
        return place, unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        return None


def path_to(place: bytes, name: str) -> bytes:
    """The path of a part: the reverse of `place_of`."""
    return place + b"/" + quote(name, safe="").encode() if name else place
