"""Newline framing: what a peer that writes lines would observe."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.lines import MAX_FRAME, Line, LineDecoder, encode_line, flatten
from callboard.errors import FrameTooLarge
from tests.codecs.chunking import byte_by_byte, chunked

SMALL = 16


def decode(*chunks: bytes, limit: int = SMALL) -> list[bytes | str]:
    """All frames of the chunks, a refused one as its message."""
    decoder = LineDecoder(limit)
    found: list[Line] = [line for chunk in chunks for line in decoder.feed(chunk)]
    found += decoder.finish()
    return [str(line) if isinstance(line, FrameTooLarge) else line for line in found]


REFUSED = f"frame exceeds {SMALL}"


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\r\n \t\n\n", []),
        (b"a\n\nb\n", [b"a", b"b"]),
        ("\u2028 \x85 \x0b\n".encode(), ["\u2028 \x85 \x0b".encode()]),
        (b"\x0b\x0c\n", [b"\x0b\x0c"]),
        (b"\xff\x00\n", [b"\xff\x00"]),
        (b"x" * SMALL + b"\n", [b"x" * SMALL]),
        (b"x" * SMALL + b"\r\n", [b"x" * SMALL]),
        (b"x" * (SMALL + 1) + b"\n", [REFUSED]),
        (b"x" * SMALL + b"\rx\n", [REFUSED]),
        (b"x" * SMALL + b"\r\r\n", [REFUSED]),
        (b"a\n" + b"x" * 99 + b"\nb\n", [b"a", REFUSED, b"b"]),
        (b"x" * 99 + b"\n" + b"y" * 99 + b"\nb\n", [REFUSED, REFUSED, b"b"]),
        (b" " * 99 + b"\n", [REFUSED]),
    ],
)
def test_a_stream_is_cut_at_its_newlines_only(stream: bytes, frames: list[bytes | str]) -> None:
    assert decode(stream) == frames
    assert decode(*byte_by_byte(stream)) == frames


@pytest.mark.parametrize(
    ("stream", "frames"),
    [(b"a\nb", [b"a", b"b"]), (b"a\r", [b"a"]), (b"x" * 99, [REFUSED]), (b" ", [])],
)
def test_a_last_line_without_its_newline_is_still_a_frame(stream: bytes, frames: list[bytes | str]) -> None:
    assert decode(stream) == frames


def test_nothing_is_left_after_the_end() -> None:
    decoder = LineDecoder(SMALL)
    decoder.feed(b"half")
    assert decoder.finish() == [b"half"]
    assert decoder.finish() == []
    decoder.feed(b"x" * 99)
    assert decoder.finish() == []
    assert decoder.feed(b"next\n") == [b"next"]


def test_a_frame_too_large_is_told_before_it_ends() -> None:
    [error] = LineDecoder(SMALL).feed(b"x" * (SMALL + 2))
    assert isinstance(error, FrameTooLarge)
    assert error.limit == SMALL


def test_an_endless_line_holds_no_more_than_the_limit() -> None:
    decoder = LineDecoder(SMALL)
    told: list[Line] = []
    for _ in range(1000):
        told += decoder.feed(b"x" * 5)
        assert decoder.buffered <= SMALL + 1
    assert len(told) == 1
    assert decoder.buffered == 0


def test_the_default_limit_is_exact() -> None:
    frame = b"x" * MAX_FRAME
    assert LineDecoder().feed(frame + b"\n") == [frame]
    [error] = LineDecoder().feed(frame + b"x\n")
    assert isinstance(error, FrameTooLarge)


STREAMS = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b" ", b"{}", b"x" * SMALL, "\u2028".encode()]), max_size=40
).map(b"".join)


@given(st.data(), STREAMS)
def test_frames_survive_any_chunking(data: st.DataObject, stream: bytes) -> None:
    assert decode(*data.draw(chunked(stream))) == decode(stream)
    assert decode(*byte_by_byte(stream)) == decode(stream)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(JSON), st.booleans())
def test_what_is_encoded_is_decoded(values: list[object], escape: bool) -> None:
    frames = [json.dumps(value, ensure_ascii=escape).encode() for value in values]
    decoder = LineDecoder()
    assert decoder.feed(b"".join(map(encode_line, frames))) == frames
    assert decoder.finish() == []


@pytest.mark.requirement("M071", "L035")
def test_a_frame_with_a_newline_inside_is_never_sent() -> None:
    with pytest.raises(ValueError, match="newline"):
        encode_line(b'{"a":\n1}')


@given(JSON)
def test_pretty_printed_json_can_be_sent_on_one_line(value: object) -> None:
    pretty = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\r\n").encode()
    flat = flatten(pretty)
    assert json.loads(flat) == value
    assert encode_line(flat) == flat + b"\n"


def test_a_frame_that_drips_in_costs_linear_time() -> None:
    """A quadratic decoder would copy 2 TiB here; this one takes about a second."""
    decoder = LineDecoder()
    for _ in range(MAX_FRAME):
        decoder.feed(b"x")
    [frame] = decoder.feed(b"\n")
    assert len(frame) == MAX_FRAME if isinstance(frame, bytes) else False


@pytest.mark.finding("security-23")
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n", b"\t \r\n"])
def test_blank_lines_of_every_kind_cost_next_to_nothing(blank: bytes) -> None:
    """A server that wrote nothing but CR and LF took the whole loop, 20 ms at a time."""
    decoder = LineDecoder()
    flood = blank * (65_536 // len(blank))
    assert decoder.feed(b'{"a":') == []
    began = time.thread_time()
    found = decoder.feed(b"1}" + flood + b'{"b":2}\n' + flood + b"  {}\n")
    took = time.thread_time() - began
    assert [bytes(one).strip() for one in found if isinstance(one, bytes)] == [b'{"a":1}', b'{"b":2}', b"{}"]
    assert took < 0.01
