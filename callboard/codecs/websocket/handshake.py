"""The opening handshake: what an HTTP request that wants to be a WebSocket must say, and what it may.

A browser can set no headers on a WebSocket, only subprotocols. So all that a client may say in a header of ours it may
say in a subprotocol as well, which is never chosen: the only one that is chosen, and so written back, is `mcp`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from typing import Final

import attrs

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.writer import write_head

SUBPROTOCOL: Final = b"mcp"
VERSION: Final = b"13"
SESSION: Final = b"mcp-session-id"
RECEIVED: Final = b"mcp-received"
RESUMABLE: Final = b"mcp-resumable"
GRACE: Final = b"mcp-grace"

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_AUTH: Final = b"mcp.auth."
_IN_SUBPROTOCOL: Final = {SESSION: b"mcp.session.", RECEIVED: b"mcp.received."}
_RESUMABLE: Final = b"mcp.resumable"
_BEARER: Final = b"bearer "
_BASE64URL: Final = re.compile(rb"[A-Za-z0-9_-]+")
_NUMBER: Final = re.compile(rb"[0-9]{1,15}")


@attrs.frozen
class Handshake:
    """A request that may be accepted, as far as can be told from its head."""

    key: bytes
    has_subprotocol: bool = False
    token: str | None = attrs.field(default=None, repr=False)
    session: str | None = attrs.field(default=None, repr=False)
    """The session to go on with, if there was one."""
    received: int = 0
    """How many of its messages the client has."""
    is_resumable: bool = False
    """Whether the client wants to come back, in any era: then everything on the connection counts."""


def accept_token(key: bytes) -> bytes:
    """The answer to a `Sec-WebSocket-Key`. (To import a library for this line took 3 % of `import callboard`.)"""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def read_handshake(head: Head) -> Handshake:
    """Raises `HttpRefusal`: 426 for another version of WebSocket, 400 for anything else that is not as it must be."""
    if head.method != "GET" or head.version != "1.1":
        raise _malformed("the WebSocket handshake must be a GET of HTTP/1.1")
    if head.get(b"transfer-encoding") is not None or head.get(b"content-length") not in (None, b"0"):
        raise _malformed("the WebSocket handshake must have no body")
    _check_version(_only(head, b"sec-websocket-version"))
    offered = head.all(b"sec-websocket-protocol")
    if offered and SUBPROTOCOL not in offered:
        raise _malformed("unsupported subprotocol: expected mcp")
    session, received = (_said(head, offered, name) for name in (SESSION, RECEIVED))
    if (session is None) != (received is None):
        raise _malformed("Mcp-Session-Id and Mcp-Received must be used together")
    return Handshake(
        _read_key(_only(head, b"sec-websocket-key")),
        bool(offered),
        _read_token(head.get(b"authorization"), _in_subprotocols(offered, _AUTH)),
        None if session is None else session.decode("latin-1"),
        _read_number(received),
        _RESUMABLE in offered or _only(head, RESUMABLE) == b"1",
    )


def write_accept(handshake: Handshake, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """The answer that turns the connection into a WebSocket."""
    chosen = ((b"sec-websocket-protocol", SUBPROTOCOL),) if handshake.has_subprotocol else ()
    accept = (b"sec-websocket-accept", accept_token(handshake.key))
    opening = ((b"upgrade", b"websocket"), (b"connection", b"Upgrade"), accept)
    return write_head(101, (*opening, *chosen, *headers), closes=False)


def _malformed(reason: str) -> HttpRefusal:
    return HttpRefusal(400, reason, closes=True)


def _only(head: Head, name: bytes) -> bytes | None:
    """The value of a header that may stand once. Another reader could take the other."""
    values = [value for known, value in head.headers if known == name]
    if len(values) > 1:
        raise _malformed(f"duplicate header {name.decode()}")
    return values[0] if values else None


def _said(head: Head, offered: Iterable[bytes], name: bytes) -> bytes | None:
    """The value of a header, or of the subprotocol that browsers use instead."""
    header, subprotocol = _only(head, name), _in_subprotocols(offered, _IN_SUBPROTOCOL[name])
    if header is not None and subprotocol is not None and header != subprotocol:
        raise _malformed(f"duplicate parameter {name.decode()}")
    return subprotocol if header is None else header


def _in_subprotocols(offered: Iterable[bytes], prefix: bytes) -> bytes | None:
    values = {name.removeprefix(prefix) for name in offered if name.startswith(prefix)}
    if len(values) > 1:
        raise _malformed(f"duplicate subprotocol {prefix.decode()}")
    return values.pop() if values else None


def _check_version(version: bytes | None) -> None:
    if version is None:
        raise _malformed("missing Sec-WebSocket-Version")
    if version != VERSION:
        headers = ((b"sec-websocket-version", VERSION), (b"upgrade", b"websocket"))
        raise HttpRefusal(426, "unsupported WebSocket version: expected 13", headers=headers, closes=True)


def _read_key(key: bytes | None) -> bytes:
    try:
        if key is not None and len(base64.b64decode(key, validate=True)) == 16:
            return key
    except binascii.Error:
        pass
    raise _malformed("Sec-WebSocket-Key must be 16 bytes in base64")


def _read_number(received: bytes | None) -> int:
    if received is None:
        return 0
    if _NUMBER.fullmatch(received) is None:
        raise _malformed("Mcp-Received must be a number")
    return int(received)


def _read_token(header: bytes | None, subprotocol: bytes | None) -> str | None:
    given = header or b""
    spoken = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else b""
    offered = b"" if subprotocol is None else _decode(subprotocol)
    if spoken and offered and spoken != offered:
        raise _malformed("more than one bearer token")
    return (spoken or offered).decode("latin-1") or None


def _decode(token: bytes) -> bytes:
    """Base64url as JOSE writes it: without padding. Nothing of it is quoted back."""
    if _BASE64URL.fullmatch(token) is None or len(token) % 4 == 1:
        raise _malformed("mcp.auth. must be followed by a token in base64url")
    return base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4))
