"""Requests that two readers could read differently: none of them is read at all."""

import pytest

from tests.codecs.chunking import byte_by_byte
from tests.codecs.http.reading import chunked, get, post, read

POST = b"POST /mcp HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

REFUSED: dict[str, tuple[bytes, int]] = {
    # Where the body ends.
    "CL and TE": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + END, 400),
    "TE and CL": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + END, 400),
    "CL and TE, upper case": (POST + b"CONTENT-LENGTH: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n" + END, 400),
    "two equal CL": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    "two CL": (POST + b"Content-Length: 2\r\nContent-Length: 0\r\n\r\n{}", 400),
    "CL list": (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    "CL plus": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
    "CL minus": (POST + b"Content-Length: -2\r\n\r\n{}", 400),
    "CL hex": (POST + b"Content-Length: 0x2\r\n\r\n{}", 400),
    "CL empty": (POST + b"Content-Length:\r\n\r\n{}", 400),
    "CL underscore": (POST + b"Content-Length: 1_0\r\n\r\n0123456789", 400),
    "CL two numbers": (POST + b"Content-Length: 2 3\r\n\r\n{}", 400),
    "CL past 64 bits": (POST + b"Content-Length: 18446744073709551618\r\n\r\n{}", 400),
    "CL in disguise": (POST + b"Content_Length: 2\r\n\r\n{}", 400),
    "TE in disguise": (POST + b"Transfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 400),
    "TE not chunked": (POST + b"Transfer-Encoding: identity\r\n\r\n{}", 501),
    "TE almost chunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n" + END, 501),
    "TE more than chunked": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + END, 501),
    "TE chunked first": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + END, 400),
    "TE chunked twice": (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + END, 400),
    "two TE": (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + END, 400),
    "two TE, one empty": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n" + END, 400),
    "TE vertical tab": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + END, 400),
    "TE folded": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + END, 400),
    "TE before 1.1": (b"POST /mcp HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + END, 400),
    # Where a header ends.
    "obs-fold": (get(b"X: a\r\n b"), 400),
    "obs-fold by tab": (get(b"X: a\r\n\tb"), 400),
    "fold before any": (b"GET /mcp HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "bare LF after the first line": (b"GET /mcp HTTP/1.1\nHost: a\r\n\r\n", 400),
    "bare LF after a header": (get(b"X: a\nY: b"), 400),
    "bare LF at the end": (b"GET /mcp HTTP/1.1\r\nHost: a\r\n\n", 400),
    "only LF": (b"GET /mcp HTTP/1.1\nHost: a\n\n", 400),
    "bare CR in a value": (get(b"X: a\rY: b"), 400),
    "bare CR at the end": (b"GET /mcp HTTP/1.1\r\nHost: a\r\n\rX", 400),
    "space before the colon": (get(b"X : a"), 400),
    "tab before the colon": (get(b"X\t: a"), 400),
    "space before CL's colon": (POST + b"Content-Length : 2\r\n\r\n{}", 400),
    "no colon": (get(b"nonsense"), 400),
    "no name": (get(b": a"), 400),
    "space in a name": (get(b"X Y: a"), 400),
    "NUL in a value": (get(b"X: a\0b"), 400),
    "NUL in a name": (get(b"X\0: a"), 400),
    "NUL in the target": (get(target=b"/mcp\0"), 400),
    "control character": (get(b"X: a\x01"), 400),
    "DEL": (get(b"X: a\x7f"), 400),
    "high byte in a name": (get(b"X\xff: a"), 400),
    "high byte in the target": (get(target=b"/mcp\xff"), 400),
    # Headers that may stand once.
    **{
        f"two {name.decode()}": (get(name + b": a", name + b": a"), 400)
        for name in (b"Host", b"Origin", b"Authorization", b"Content-Type", b"Mcp-Session-Id", b"Last-Event-ID")
    },
    "two Expect": (get(b"Expect: 100-continue", b"expect: 100-continue"), 400),
    # Chunks.
    "chunk size is no number": (CHUNKED + b"xx\r\n{}\r\n" + END, 400),
    "no chunk size": (CHUNKED + b"\r\n{}\r\n" + END, 400),
    "negative chunk size": (CHUNKED + b"-2\r\n{}\r\n" + END, 400),
    "chunk size 0x": (CHUNKED + b"0x2\r\n{}\r\n" + END, 400),
    "chunk size and space": (CHUNKED + b"2 \r\n{}\r\n" + END, 400),
    "chunk size past 64 bits": (CHUNKED + b"10000000000000002\r\n{}\r\n" + END, 400),
    "LF after a chunk size": (CHUNKED + b"2\n{}\r\n" + END, 400),
    "LF after an extension": (CHUNKED + b"2;a\n{}\r\n" + END, 400),
    "CR in an extension": (CHUNKED + b"2;a\rb\r\n{}\r\n" + END, 400),
    "LF after a chunk": (CHUNKED + b"2\r\n{}\n" + END, 400),
    "chunk longer than it says": (CHUNKED + b"2\r\n{}x\r\n" + END, 400),
    "chunk shorter than it says": (CHUNKED + b"4\r\n{}\r\n" + END, 400),
    "LF at the end of the chunks": (CHUNKED + b"2\r\n{}\r\n0\r\n\n", 400),
    "CL in a trailer": (chunked(b"{}", trailers=b"Content-Length: 7\r\n"), 400),
    "TE in a trailer": (chunked(b"{}", trailers=b"Transfer-Encoding: chunked\r\n"), 400),
    "space before a trailer's colon": (chunked(b"{}", trailers=b"X : a\r\n"), 400),
    # What is not HTTP/1.1 or 1.0.
    "HTTP/0.9": (b"GET /mcp\r\n\r\n", 505),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/2.0": (b"GET /mcp HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /mcp HTTP/1.2\r\nHost: a\r\n\r\n", 400),
    "HTTP/9.9": (b"GET /mcp HTTP/9.9\r\nHost: a\r\n\r\n", 400),
    "HTTP/01.1": (b"GET /mcp HTTP/01.1\r\nHost: a\r\n\r\n", 400),
    "HTTP/1.10": (b"GET /mcp HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    "http/1.1": (b"GET /mcp http/1.1\r\nHost: a\r\n\r\n", 400),
    "space after the version": (b"GET /mcp HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    "tabs between": (b"GET\t/mcp\tHTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + bytes(32), 501),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", 501),
    "an answer": (b"HTTP/1.1 200 OK\r\n\r\n", 501),
    "JSON": (b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', 501),
    "unknown method": (b"BREW /mcp HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "post": (b"post /mcp HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "a proxy's method": (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "space in front": (b" GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n", 501),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_in_two_ways_is_read_in_none(name: str) -> None:
    data, status = REFUSED[name]
    for pieces in ([data], byte_by_byte(data)):
        outcome = read(pieces)
        assert (outcome.requests, outcome.status) == ([], status)


@pytest.mark.parametrize("name", REFUSED)
def test_and_nothing_behind_it_is_taken_for_a_request(name: str) -> None:
    data, status = REFUSED[name]
    outcome = read([post(b"before") + data + post(b"smuggled")])
    assert (outcome.bodies, outcome.status) == ([b"before"], status)


@pytest.mark.parametrize(
    "request_",
    [
        post(b"{}", b"Content-Encoding: identity"),
        POST + b"content-length: 02\r\n\r\n{}",
        POST + b"Content-Length: 2 \t\r\n\r\n{}",
        CHUNKED + b"2;name=value;flag\r\n{}\r\n" + END,
        CHUNKED + b"0000000000002\r\n{}\r\n000\r\n\r\n",
        CHUNKED.replace(b"chunked", b"Chunked") + b"2\r\n{}\r\n" + END,
        post(b"{}", b"X: caf\xc3\xa9", b"Y: a\tb"),
        post(b"{}", b"Cookie: a", b"Cookie: b", b"Accept: x/y", b"Accept: z/w"),
    ],
)
def test_what_is_merely_unusual_is_read(request_: bytes) -> None:
    for pieces in ([request_], byte_by_byte(request_)):
        outcome = read(pieces)
        assert (outcome.bodies, outcome.status) == ([b"{}"], None)
