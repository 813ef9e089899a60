"""The HTTP request parser under fire: heads, chunks and offers that almost are."""

from tests.codecs.http.reading import GOOD, LUMP, cut, parser, read

SMALL = tuple(request for request in GOOD if len(request) < 300)

HTTP_TOKENS = (
    *(b"\r\n\r\n", b"\n\n", b"\r\n ", b": ", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/2.0\r\n", b"GET /mcp"),
    *(b"POST /mcp", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"chunked"),
    *(b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n"),
    *(b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b";ext", b"Host: a\r\n"),
)


def requests(data: bytes, step: int) -> object:
    """What a connection's bytes are read as, in pieces of *step* bytes. Only a `Refusal` may end it."""
    return read(cut(data, step), parser(max_body=64))


def lump(data: bytes) -> object:
    return requests(data, LUMP)


def byte_by_byte(data: bytes) -> object:
    return requests(data, 1)
