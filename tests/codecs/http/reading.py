"""Requests written by hand, and what comes of reading them in pieces of any size."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory, ParserStage, Received, RequestParser

LUMP = 1 << 20

Seen: TypeAlias = tuple[str, bytes, list[tuple[bytes, bytes]], bytes]
"""Method, target, headers and body of a request."""


@attrs.frozen
class Outcome:
    """What a byte stream was read as: its requests, the status that ended it, and what an upgrade left over."""

    requests: list[Seen]
    status: int | None = None
    rest: bytes | None = None

    @property
    def bodies(self) -> list[bytes]:
        return [body for *_, body in self.requests]


def everybody(head: Head) -> None:
    """Admits all heads."""


def parser(
    on_head: Callable[[Head], None] = everybody,
    *,
    max_body: int = 4096,
    max_header: int = 32 * 1024,
    max_headers: int = 100,
    memory: HeadMemory | None = None,
) -> RequestParser:
    return RequestParser(on_head, max_body=max_body, max_header=max_header, max_headers=max_headers, memory=memory)


def seen(received: Received) -> Seen:
    head = received.head
    return head.method, head.target, list(head.headers), received.body


def read(pieces: Iterable[bytes], by: RequestParser | None = None) -> Outcome:
    """Read a connection's bytes as they come. What follows an upgrade is not HTTP's any more."""
    by = parser() if by is None else by
    found: list[Seen] = []
    rest: bytes | None = None
    try:
        for piece in pieces:
            if rest is not None:
                rest += piece
                continue
            for received in by.feed(piece):
                found.append(seen(received))
                rest = received.rest
    except HttpRefusal as refusal:
        return Outcome(found, refusal.status)
    return Outcome(found, rest=rest)


def cut(data: bytes, step: int) -> Iterable[bytes]:
    return (data[at : at + step] for at in range(0, len(data), step))


def get(*lines: bytes, target: bytes = b"/mcp") -> bytes:
    return b"".join((b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n", *(line + b"\r\n" for line in lines), b"\r\n"))


def post(body: bytes = b"{}", *lines: bytes) -> bytes:
    head = (b"POST /mcp HTTP/1.1", b"Host: a", b"Content-Length: %d" % len(body), *lines)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (body, trailers)


GOOD = (
    get(),
    get(b"Accept: text/event-stream", b"Last-Event-ID: 3-14", target=b"/mcp?a=b"),
    post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b"Content-Type: application/json"),
    post(b"", b"Origin: http://localhost:8000"),
    post(b"{}\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"Expect: 100-continue"),
    chunked(b"{", b"}", b" " * 40),
    chunked(b'{"a":1}', trailers=b"Checksum: x\r\n"),
    post(b"{}", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQ"),
    get(b"Connection: Upgrade", b"Upgrade: h2c"),
    post(b"{}", b"Connection: close"),
    get(b"Connection: keep-alive, Upgrade", b"Upgrade: WebSocket", b"Sec-WebSocket-Key: x") + b"\x81\x05hello",
    b"\r\n" + get() + b"\r\n" + post() + get(),
    b"DELETE /mcp HTTP/1.1\r\nHost: [::1]:80\r\nMcp-Session-Id: abc\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    get() * 3 + chunked(b"ab", b"c") + post(b"x" * 200) + get(),
)
"""Requests, alone and in a row, that may stand on the wire."""


def states(by: RequestParser, data: bytes) -> list[ParserStage]:
    """The stages after each byte."""
    found = []
    for piece in cut(data, 1):
        list(by.feed(piece))
        found.append(by.stage)
    return found
