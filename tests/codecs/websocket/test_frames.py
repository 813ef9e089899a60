"""Frames, without a socket: what a client's bytes mean, however they are cut, and what they may not be."""

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import CLIENT, Connection
from wsproto.events import CloseConnection, TextMessage
from wsproto.events import Ping as PingEvent
from wsproto.events import Pong as PongEvent

from callboard.codecs.websocket.frames import (
    Close,
    Code,
    MessageReader,
    Ping,
    Pong,
    Received,
    Text,
    Violation,
    write_close,
    write_ping,
    write_pong,
    write_text,
)
from tests.codecs.chunking import byte_by_byte, chunked
from tests.transports.server.websocket.stage import masked

LIMIT = 1000
TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0


def read(*frames: bytes, limit: int = LIMIT) -> list[Received]:
    """What comes of *frames*, in one piece; and byte by byte it is the same."""
    data = b"".join(frames)
    whole = list(MessageReader(limit).feed(data))
    reader = MessageReader(limit)
    assert [received for byte in byte_by_byte(data) for received in reader.feed(byte)] == whole
    return whole


def drip_into(reader: MessageReader, data: bytes) -> None:
    for byte in byte_by_byte(data):
        list(reader.feed(byte))
        assert reader.held <= reader.limit


def refused(*frames: bytes, limit: int = LIMIT) -> Close:
    with pytest.raises(Violation) as lump:
        list(MessageReader(limit).feed(b"".join(frames)))
    reader = MessageReader(limit)
    with pytest.raises(Violation) as drip:
        drip_into(reader, b"".join(frames))
    assert lump.value.close == drip.value.close
    return lump.value.close


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 999, 1000])
def test_a_message_in_one_frame(size: int) -> None:
    assert read(masked(TEXT, b"*" * size)) == [Text(b"*" * size)]


def test_a_message_in_pieces_is_one_message() -> None:
    assert read(masked(TEXT, b"a", fin=False), masked(MORE, b"b", fin=False), masked(MORE, b"c")) == [Text(b"abc")]


def test_pieces_may_be_empty() -> None:
    assert read(masked(TEXT, b"", fin=False), masked(MORE, b"", fin=False), masked(MORE, b"")) == [Text(b"")]
    assert read(masked(TEXT, b"", fin=False), masked(MORE, b"x", fin=False), masked(MORE, b"")) == [Text(b"x")]


def test_control_frames_may_stand_between_pieces() -> None:
    received = read(masked(TEXT, b"a", fin=False), masked(PING, b"p"), masked(PONG, b""), masked(MORE, b"b"))
    assert received == [Ping(b"p"), Pong(b""), Text(b"ab")]


def test_a_character_may_be_split_between_pieces() -> None:
    snowman = "☃".encode()
    assert read(masked(TEXT, snowman[:1], fin=False), masked(MORE, snowman[1:])) == [Text(snowman)]


def test_a_control_frame_may_be_as_long_as_125_bytes() -> None:
    assert read(masked(PING, b"x" * 125)) == [Ping(b"x" * 125)]


@pytest.mark.parametrize("payload", [b"\xff", b"\xce\xba\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe2\x98"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_what_is_not_utf8_is_1007_also_in_pieces(payload: bytes, pieces: int) -> None:
    frames = (
        [masked(TEXT, b"ok" + payload)]
        if pieces == 1
        else [masked(TEXT, b"ok" + payload[:1], fin=False), masked(MORE, payload[1:])]
    )
    assert refused(*frames).code == 1007


def test_bad_utf8_is_noticed_before_the_message_ends() -> None:
    assert refused(masked(TEXT, b"\xc0\xaf", fin=False)).code == 1007


@pytest.mark.parametrize("frame", [masked(BINARY, b"x"), masked(BINARY, b""), masked(BINARY, b"x", fin=False)])
def test_binary_is_1003(frame: bytes) -> None:
    assert refused(frame).code == 1003


@pytest.mark.parametrize(
    "frames",
    [pytest.param([masked(TEXT, b"x", rsv=rsv)], id=f"reserved bits {rsv}") for rsv in (1, 2, 3, 4, 5, 6, 7)]
    + [
        pytest.param([masked(opcode, b"")], id=f"reserved opcode {opcode}")
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    ]
    + [
        pytest.param([masked(PING, b"x", fin=False)], id="ping in pieces"),
        pytest.param([masked(CLOSE, b"", fin=False)], id="close in pieces"),
        pytest.param([masked(PING, b"x" * 126)], id="ping too long"),
        pytest.param([masked(CLOSE, b"\x03\xe8" + b"x" * 124)], id="close too long"),
        pytest.param([masked(MORE, b"x")], id="continues nothing"),
        pytest.param([masked(TEXT, b"a", fin=False), masked(TEXT, b"b")], id="begins in the middle"),
        pytest.param([masked(TEXT, b"a"), masked(MORE, b"b")], id="continues after the end"),
        pytest.param([b"\x81\x01x"], id="not masked"),
        pytest.param([b"\x81\xfe\x00\x05abcd" + b"x" * 5], id="16 bits of length for 5"),
        pytest.param([b"\x81\xff" + (5).to_bytes(8, "big") + b"abcd" + b"x" * 5], id="64 bits of length for 5"),
        pytest.param([b"\x81\xff" + (1 << 63).to_bytes(8, "big") + b"abcd"], id="negative length"),
        pytest.param([masked(CLOSE, b"x")], id="half a code"),
    ]
    + [
        pytest.param([masked(CLOSE, struct.pack("!H", code))], id=f"close {code}")
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
    ],
)
def test_what_breaks_the_framing_is_1002(frames: list[bytes]) -> None:
    assert refused(*frames).code == 1002


def test_a_reason_that_is_not_utf8_is_1007() -> None:
    assert refused(masked(CLOSE, b"\x03\xe8\xff")).code == 1007


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1011, 1013, 3000, 3999, 4000, 4999])
def test_a_last_word_is_read_and_nothing_after_it(code: int) -> None:
    reader = MessageReader(LIMIT)
    last = masked(CLOSE, struct.pack("!H", code) + "größer".encode())
    assert list(reader.feed(last + masked(TEXT, b"x"))) == [Close(code, "größer")]
    assert reader.is_closed
    assert list(reader.feed(masked(TEXT, b"x"))) == []


def test_a_last_word_may_be_empty() -> None:
    assert read(masked(CLOSE, b"")) == [Close(1005, "")]


@pytest.mark.parametrize("pieces", [1, 2, 100])
def test_one_byte_too_many_is_1009_and_no_more_than_the_limit_is_kept(pieces: int) -> None:
    reader, size = MessageReader(LIMIT), -(-(LIMIT + 1) // pieces)
    frames = [masked(MORE if number else TEXT, b"x" * size, fin=False) for number in range(pieces)]
    with pytest.raises(Violation) as refusal:
        drip_into(reader, b"".join(frames))
    assert refusal.value.close.code == 1009


def test_a_huge_frame_is_refused_when_the_limit_is_reached_and_not_when_it_has_come() -> None:
    reader = MessageReader(LIMIT)
    list(reader.feed(b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0"))
    assert list(reader.feed(b"x" * LIMIT)) == []
    with pytest.raises(Violation) as refusal:
        list(reader.feed(b"x"))
    assert refusal.value.close.code == 1009


@given(st.lists(st.tuples(st.text(max_size=300), st.integers(1, 4)), max_size=6), st.data())
def test_messages_survive_any_cutting(messages: list[tuple[str, int]], data: st.DataObject) -> None:
    stream = b""
    for text, pieces in messages:
        encoded = text.encode()
        size = max(1, -(-len(encoded) // pieces))
        cut = [encoded[start : start + size] for start in range(0, len(encoded), size)] or [b""]
        for index, piece in enumerate(cut):
            stream += masked(MORE if index else TEXT, piece, fin=index == len(cut) - 1)
    reader = MessageReader(2000)
    chunks = data.draw(chunked(stream))
    assert [got for chunk in chunks for got in reader.feed(chunk)] == [Text(text.encode()) for text, _ in messages]


# What is written, as another implementation reads it.


def understood(data: bytes) -> list[Any]:
    client = Connection(CLIENT)
    client.receive_data(data)
    return list(client.events())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_a_client_understands_what_is_written(size: int) -> None:
    (event,) = understood(write_text(b"*" * size))
    assert isinstance(event, TextMessage)
    assert (event.data, event.message_finished) == ("*" * size, True)


def test_a_client_understands_control_frames() -> None:
    assert understood(write_ping(b"17") + write_pong(b"x")) == [PingEvent(b"17"), PongEvent(b"x")]
    assert understood(write_close(Close(Code.GOING_AWAY, "bye"))) == [CloseConnection(1001, "bye")]
    assert understood(write_close(Close(Code.NO_CODE))) == [CloseConnection(1005, "")]


def test_a_reason_is_cut_to_what_fits_and_stays_text() -> None:
    (event,) = understood(write_close(Close(Code.POLICY, "ä" * 100)))
    assert event.reason == "ä" * 61


# Anything at all.

frames = st.builds(
    masked,
    st.integers(0, 15),
    st.one_of(st.binary(max_size=140), st.text(max_size=60).map(str.encode)),
    fin=st.booleans(),
    rsv=st.sampled_from([0, 0, 0, 0, 1, 4]),
    key=st.binary(min_size=4, max_size=4),
)


def outcome(chunks: Iterable[bytes]) -> list[Received | int]:
    """What is read, and the code of the violation that ended it, if one did."""
    reader, read = MessageReader(200), list[Received | int]()
    try:
        for chunk in chunks:
            for received in reader.feed(chunk):
                read.append(received)
                assert not (isinstance(received, Text) and len(received.frame) > 200)
    except Violation as violation:
        read.append(violation.close.code)
    return read


@given(st.one_of(st.binary(max_size=300), st.lists(frames, max_size=8).map(b"".join)), st.data())
@settings(max_examples=500)
def test_whatever_comes_is_read_or_refused_and_however_it_is_cut_it_is_the_same(
    stream: bytes, data: st.DataObject
) -> None:
    whole = outcome([stream])
    assert whole == outcome(data.draw(chunked(stream))) == outcome(byte_by_byte(stream))
    assert all(code in (1002, 1003, 1007, 1009) for code in whole if isinstance(code, int))
