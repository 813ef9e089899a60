"""Answers to bytes: the status line, the headers, the chunks. Values are ours; none comes from a peer unchecked."""

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
JSON: Final = ((b"content-type", b"application/json"),)
PLAIN: Final = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))
STREAM: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that gathers a stream up before it passes it on makes it no stream
)

_VALUE: Final = re.compile(rb"[\x20-\x7e\t]*")


def write_head(status: int, headers: Iterable[tuple[bytes, bytes]], *, closes: bool) -> bytes:
    """The head of an answer. Raises ValueError for a value that would not stay inside its line."""
    return _remembered(status, tuple(headers), closes)


def _head(status: int, headers: tuple[tuple[bytes, bytes], ...], closes: bool) -> bytes:
    lines = [_status_line(status)]
    for name, value in headers:
        if _VALUE.fullmatch(value) is None:
            raise ValueError(f"invalid value of header {name.decode()}")
        lines.append(b"%b: %b\r\n" % (name, value))
    if closes:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


_remembered: Final = lru_cache(maxsize=64)(_head)  # a stream begins the same way every time


def write_answer(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, closes: bool) -> bytes:
    """A whole answer."""
    if not headers and not closes and status == 204:
        return _status_line(status) + b"\r\n"
    length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
    return _head(status, (*headers, *length), closes) + body


def write_json(body: bytes) -> bytes:
    """The answer that there are most of: 200, JSON, and the connection goes on."""
    return b"%b%d\r\n\r\n%b" % (_PLAIN, len(body), body)


def write_chunk(data: bytes) -> bytes:
    """One chunk of a streamed answer; never the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())


_PLAIN: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
