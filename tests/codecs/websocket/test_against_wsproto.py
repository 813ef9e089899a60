"""Frames are read as wsproto reads them, whatever comes and however it is cut."""

import os
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from callboard.codecs.websocket.client import mask
from callboard.codecs.websocket.frames import (
    Close,
    Code,
    MessageReader,
    Ping,
    Pong,
    Received,
    Text,
    Violation,
    write_text,
)
from callboard.codecs.websocket.masking import PIECE, masked

LIMIT = 300


def by_wsproto(pieces: Sequence[bytes], *, is_client: bool) -> Iterator[Received]:
    """What wsproto makes of a stream, in our words. Raises `Violation`."""
    protocol, begun = FrameProtocol(client=is_client, extensions=[]), b""
    for piece in pieces:
        protocol.receive_bytes(piece)
        try:
            for frame in protocol.received_frames():
                payload = frame.payload
                if isinstance(payload, tuple):
                    yield Close(*payload)
                    return
                if isinstance(payload, str):
                    begun += payload.encode()
                    if len(begun) > LIMIT:
                        raise Violation(Close(Code.TOO_BIG))
                    if frame.message_finished:
                        yield Text(begun)
                        begun = b""
                elif frame.opcode is Opcode.BINARY:
                    raise Violation(Close(Code.NOT_TEXT))
                else:
                    yield Ping(bytes(payload)) if frame.opcode is Opcode.PING else Pong(bytes(payload))
        except ParseFailed as failure:
            is_text = failure.code is CloseReason.INVALID_FRAME_PAYLOAD_DATA
            raise Violation(Close(Code.NOT_UTF8 if is_text else Code.PROTOCOL_ERROR)) from None


def by_us(pieces: Sequence[bytes], *, is_client: bool) -> Iterator[Received]:
    reader = MessageReader(LIMIT, is_client)
    for piece in pieces:
        yield from reader.feed(piece)


@st.composite
def frames(draw: st.DrawFn, *, is_masked: bool) -> bytes:
    """A frame, most often a good one."""
    payload = draw(st.one_of(st.binary(max_size=130), st.text(max_size=400).map(str.encode)))
    first = draw(st.sampled_from((0x81, 0x81, 0x81, 0x8A, 0x89, 0x01, 0x80, 0x88, 0x82, 0xC1, 0x09, 0x83)))
    size = len(payload)
    form = draw(st.sampled_from((0, 0, 0, 0, 126, 127))) or (size if size <= 125 else 126)
    if draw(st.integers(0, 20)) == 0:
        is_masked = not is_masked
    bit, width = (0x80 if is_masked else 0), {126: 2, 127: 8}.get(form, 0)
    head = bytes((first, bit | min(form, 127))) + size.to_bytes(8, "big")[8 - width :]
    if not is_masked:
        return head + payload
    key = draw(st.binary(min_size=4, max_size=4))
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def outcome(found: Iterator[Received]) -> list[Received | int]:
    """What is read, and the code of the violation that ended it."""
    read: list[Received | int] = []
    try:
        read.extend(found)
    except Violation as violation:
        read.append(violation.close.code)
    return read


@given(st.data(), st.booleans())
def test_frames_are_read_as_wsproto_reads_them(data: st.DataObject, is_client: bool) -> None:
    sent = data.draw(st.lists(frames(is_masked=not is_client), max_size=6))
    pieces = list(sent)
    if data.draw(st.booleans()):
        stream = b"".join(sent)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert outcome(by_us(pieces, is_client=is_client)) == outcome(by_wsproto(pieces, is_client=is_client))


@given(st.data(), st.booleans(), st.binary(max_size=60))
def test_any_bytes_are_read_as_wsproto_reads_them(data: st.DataObject, is_client: bool, stream: bytes) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    pieces = [stream[:cut], stream[cut:]]
    # wsproto waits for the mask before it says that a frame must not have one, and for the first byte of a payload.
    ours, theirs = (outcome(by(pieces, is_client=is_client)) for by in (by_us, by_wsproto))
    assert ours[: len(theirs)] == theirs
    assert all(isinstance(one, int) for one in ours[len(theirs) :])


@pytest.mark.parametrize(
    ("size", "step"),
    [
        (size, step)
        for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000)
        for step in (7, 4096, 8192, 65_536, 2_000_000)
        if step > 7 or size < 70_000  # 140,000 pieces tell no more than 10,000
    ],
)
@pytest.mark.parametrize("is_client", [False, True])
def test_messages_of_all_sizes_come_whole_wherever_they_are_cut(size: int, step: int, is_client: bool) -> None:
    texts = [os.urandom(size).hex()[:size].encode(), b"next"]
    reader, found = MessageReader(1_000_000, is_client), list[Received]()
    stream = b"".join(write_text(text) if is_client else mask(write_text(text), b"\x01\x00\xfe\x7f") for text in texts)
    for at in range(0, len(stream), step):
        found += reader.feed(stream[at : at + step])
        assert reader.held <= max(size, len(b"next"))
    assert found == [Text(text) for text in texts]
    assert (reader.held, reader.is_amid) == (0, False)


@given(st.binary(min_size=4, max_size=4), st.integers(0, 9), st.sampled_from([0, 1, PIECE - 4, PIECE, 3 * PIECE - 5]))
def test_a_mask_is_on_every_byte_and_comes_off_again(key: bytes, odd: int, size: int) -> None:
    payload = bytes(number % 251 for number in range(size + odd))
    hidden = masked(payload, key)
    assert hidden == bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    assert masked(hidden, key) == payload
