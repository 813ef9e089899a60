"""Frames that almost are: a good one, spoiled in a few places by a seeded hand."""

import random
from collections.abc import Callable, Sequence

from tests.fuzz.requests import HTTP_TOKENS

TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\xc3", b" "),
    *(b"null", b"true", b"NaN", b"1e400", b"-0", b"9" * 400, b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xed\xa0\x80"),
    *(b'"id":1,', b'"jsonrpc":"2.0",', b'"method":"ping",', b'"params":{},', b'"_meta":{},', b"[" * 70, b'{"a":' * 70),
    *(b"data: x", b"id: 1\n", b"retry: 5\n", b"event: e\n", b": c\n", b"=?base64?", b"?=", b"{+x}", b"%2", b"%ff"),
    *(b"_:x", b"^^xsd:integer", b"@prefix ", b" . ", b"$ref", b"x-mcp-header", "é世界\u2028".encode()),
    *HTTP_TOKENS,
)

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _flip(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    if frame:
        frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)


def _cut(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    start = draw.randrange(len(frame) + 1)
    del frame[start : start + draw.choice((1, 2, 8, 64))]


def _insert(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    at = draw.randrange(len(frame) + 1)
    frame[at:at] = draw.choice(TOKENS)


def _repeat(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    start = draw.randrange(len(frame) + 1)
    piece = frame[start : start + draw.choice((1, 8, 32))]
    frame[start:start] = piece * draw.choice((1, 2, 70))


def _splice(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    other = draw.choice(corpus)
    frame[draw.randrange(len(frame) + 1) :] = other[draw.randrange(len(other) + 1) :]


def _truncate(draw: random.Random, frame: bytearray, corpus: Sequence[bytes]) -> None:
    del frame[draw.randrange(len(frame) + 1) :]


MUTATIONS: tuple[Mutation, ...] = (_flip, _cut, _insert, _repeat, _splice, _truncate, _insert, _flip)


def mutated(draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A frame of *corpus* after one to four mutations."""
    frame = bytearray(draw.choice(corpus))
    for _ in range(draw.choice((1, 1, 2, 4))):
        draw.choice(MUTATIONS)(draw, frame, corpus)
    return bytes(frame)
