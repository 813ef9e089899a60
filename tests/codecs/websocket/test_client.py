"""The client's side of a WebSocket, without a socket: what it asks for, what it believes, and what it writes."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.http.head import Head
from callboard.codecs.http.response_parser import AnswerHead, AnswerParser
from callboard.codecs.websocket.client import (
    RESUMED,
    SESSION_KEY,
    ResumeTicket,
    check_accepted,
    coming_back,
    is_first_word,
    mask,
    read_ticket,
    received_there,
    write_opening,
)
from callboard.codecs.websocket.frames import (
    MessageReader,
    Ping,
    Text,
    Violation,
    write_ping,
    write_text,
)
from callboard.codecs.websocket.handshake import read_handshake, write_accept
from callboard.errors import BadAnswer

KEY = b"0123456789abcdef"


def opened(*headers: tuple[bytes, bytes]) -> Head:
    """The opening, as a server reads it."""
    line, *lines = write_opening(b"/mcp?x=1", b"127.0.0.1:8000", KEY, headers).decode().rstrip().split("\r\n")
    assert line == "GET /mcp?x=1 HTTP/1.1"
    pairs = [(name.encode(), value.encode()) for name, _, value in (one.partition(": ") for one in lines)]
    return Head("GET", b"/mcp?x=1", pairs)


def answer(raw: bytes) -> tuple[AnswerHead, bytes]:
    head, rest = AnswerParser(may_switch=True).feed(raw)
    assert isinstance(head, AnswerHead)
    assert isinstance(rest, bytes)
    return head, rest


def test_what_a_client_asks_for_is_what_our_server_accepts() -> None:
    handshake = read_handshake(opened((b"authorization", b"Bearer t")))
    assert handshake.has_subprotocol
    assert handshake.token == "t"  # noqa: S105 - no secret
    assert base64.b64decode(handshake.key) == KEY
    head, rest = answer(write_accept(handshake) + write_text(b"{}"))
    check_accepted(head, KEY)
    assert rest == write_text(b"{}")


def test_a_client_that_comes_back_says_who_it_is_and_what_it_has() -> None:
    handshake = read_handshake(opened(*coming_back(ResumeTicket("s-1", 60), 17)))
    assert (handshake.session, handshake.received) == ("s-1", 17)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({b"upgrade": b"h2c"}, "another protocol than WebSocket"),
        ({b"sec-websocket-accept": b"eA=="}, "the response does not match the handshake"),
        ({b"sec-websocket-protocol": b"chat"}, "subprotocol that was not offered"),
        ({b"sec-websocket-extensions": b"permessage-deflate"}, "extensions that were not offered"),
    ],
)
def test_an_answer_to_something_else_is_not_believed(changed: dict[bytes, bytes], why: str) -> None:
    head, _ = answer(write_accept(read_handshake(opened())))
    check_accepted(head, KEY)
    with pytest.raises(BadAnswer, match=why):
        check_accepted(AnswerHead(101, [*changed.items(), *head.headers]), KEY)


@pytest.mark.parametrize("number", [None, b"", b"-1", b"1e3", b"1" * 16, b"x"])
def test_a_server_that_does_not_say_what_it_has_received_is_not_gone_on_with(number: bytes | None) -> None:
    headers = [] if number is None else [(b"mcp-received", number)]
    with pytest.raises(BadAnswer):
        received_there(AnswerHead(101, headers))
    assert received_there(AnswerHead(101, [(b"mcp-received", b"12")])) == 12


def test_a_switch_that_was_not_asked_for_is_no_answer_and_an_answer_may_come_in_pieces() -> None:
    raw = write_accept(read_handshake(opened())) + b"rest"
    with pytest.raises(BadAnswer, match="switched"):
        AnswerParser().feed(raw)
    parser = AnswerParser(may_switch=True)
    assert parser.feed(raw[:30]) == []
    head, rest = parser.feed(raw[30:])
    assert isinstance(head, AnswerHead)
    assert (head.status, rest) == (101, b"rest")


def greeting(told: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"_meta": {SESSION_KEY: told}}}).encode()


def test_the_result_of_the_handshake_says_how_to_come_back() -> None:
    ticket = read_ticket(greeting({"id": "s-1", "grace": 60}))
    assert ticket == ResumeTicket("s-1", 60.0)
    assert "s-1" not in repr(ticket)


@pytest.mark.parametrize(
    "frame",
    [
        b"{}",
        b"[]",
        b"no",
        b'{"result": 7}',
        b'{"result": {"_meta": {}}}',
        greeting(None),
        greeting({"id": "s-1"}),
        greeting({"id": 7, "grace": 60}),
        greeting({"id": "a b", "grace": 60}),
        greeting({"id": "s\r\nx: y", "grace": 60}),
        greeting({"id": "", "grace": 60}),
        greeting({"id": "x" * 257, "grace": 60}),
        greeting({"id": "s-1", "grace": 0}),
        greeting({"id": "s-1", "grace": "soon"}),
    ],
)
def test_whatever_else_it_says_there_is_no_coming_back(frame: bytes) -> None:
    assert read_ticket(frame) is None


def test_what_is_said_to_a_client_that_came_back_is_known() -> None:
    assert is_first_word(json.dumps({"jsonrpc": "2.0", "method": RESUMED, "params": {}}).encode())
    assert not is_first_word(json.dumps({"method": "x", "params": RESUMED}).encode())
    assert not is_first_word(RESUMED.encode())
    assert not is_first_word(b"{}")


@given(
    st.text(max_size=300).map(str.encode) | st.integers(0, 70_000).map(lambda size: b"x" * size),
    st.binary(min_size=4, max_size=4),
)
def test_what_a_client_masks_a_server_reads(message: bytes, key: bytes) -> None:
    assert list(MessageReader(1 << 20).feed(mask(write_text(message), key))) == [Text(message)]


def test_each_side_reads_the_frames_of_the_other_and_not_its_own() -> None:
    assert list(MessageReader(100, is_client=True).feed(write_ping(b"1"))) == [Ping(b"1")]
    assert list(MessageReader(100).feed(mask(write_ping(b"1"), b"abcd"))) == [Ping(b"1")]
    with pytest.raises(Violation):
        list(MessageReader(100, is_client=True).feed(mask(write_text(b"x"), b"abcd")))
    with pytest.raises(Violation):
        list(MessageReader(100).feed(write_text(b"x")))
