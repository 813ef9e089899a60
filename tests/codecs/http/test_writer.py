"""Answers to bytes: nothing is ever written that ends a line before its time."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.http.writer import (
    CONTINUE,
    JSON,
    LAST_CHUNK,
    STREAM,
    write_answer,
    write_chunk,
    write_head,
    write_json,
)


class Client:
    """Reads an answer as any client does."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_whole = True


def read(data: bytes) -> tuple[int, Client]:
    client = Client()
    parser = httptools.HttpResponseParser(client)
    parser.feed_data(data)
    return parser.get_status_code(), client


VISIBLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).map(str.encode)


@given(VISIBLE, st.binary(max_size=100), st.sampled_from([200, 202, 400, 404, 429, 503]), st.booleans())
def test_what_is_written_is_what_a_client_reads(value: bytes, body: bytes, status: int, closes: bool) -> None:
    code, client = read(write_answer(status, [(b"x-value", value)], body, closes=closes))
    assert (code, client.body, client.is_whole) == (status, body, True)
    assert (b"x-value", value.lstrip(b" ")) in client.headers
    assert ((b"connection", b"close") in client.headers) is closes


@pytest.mark.parametrize("byte", [*range(0x20), *range(0x7F, 0x100)])
def test_a_value_that_could_end_its_line_is_never_written(byte: int) -> None:
    value = b"a" + bytes((byte,)) + b"b"
    if value == b"a\tb":
        assert b"a\tb" in write_head(200, [(b"x", value)], closes=False)
        return
    with pytest.raises(ValueError):
        write_head(200, [(b"x", value)], closes=False)
    with pytest.raises(ValueError):
        write_answer(200, [(b"x", value)], b"", closes=True)


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x", b"\n", b"a\r", b"\r\n\r\n<html>", b"\0", "é".encode()])
def test_a_second_header_cannot_be_smuggled_into_the_first(value: bytes) -> None:
    with pytest.raises(ValueError, match="invalid value of header"):
        write_head(200, [*JSON, (b"mcp-session-id", value)], closes=False)


@given(st.lists(st.binary(min_size=1, max_size=50)))
def test_chunks_are_read_back_as_they_were(chunks: list[bytes]) -> None:
    head = write_head(200, (*STREAM, (b"transfer-encoding", b"chunked")), closes=False)
    code, client = read(head + b"".join(map(write_chunk, chunks)) + LAST_CHUNK)
    assert (code, client.body, client.is_whole) == (200, b"".join(chunks), True)


@given(st.binary(max_size=100))
def test_the_fastest_answer_says_the_same_as_the_slow_one(body: bytes) -> None:
    assert write_json(body) == write_answer(200, JSON, body, closes=False)


@pytest.mark.requirement("M104")
def test_a_stream_is_not_gathered_up_or_kept_on_its_way() -> None:
    assert (b"x-accel-buffering", b"no") in STREAM
    assert (b"cache-control", b"no-cache") in STREAM


@pytest.mark.parametrize(("headers", "closes"), [((), False), ((), True), (JSON, False)])
def test_no_content_has_no_length(headers: tuple[tuple[bytes, bytes], ...], closes: bool) -> None:
    code, client = read(write_answer(204, headers, b"", closes=closes))
    assert (code, client.is_whole) == (204, True)
    assert b"content-length" not in dict(client.headers)


def test_an_empty_answer_says_that_it_is_empty() -> None:
    assert (b"content-length", b"0") in read(write_answer(202, (), b"", closes=False))[1].headers


def test_a_continue_is_an_answer_of_its_own() -> None:
    assert read(CONTINUE)[0] == 100
