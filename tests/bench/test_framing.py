"""Messages are cut out of bytes as the careful reader would, wherever the bytes are cut; nothing gets lost beside."""

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bench.framing import MAX_CUT, Cutter, FrameCutter, LineCutter
from callboard.codecs.websocket.frames import (
    Close,
    MessageReader,
    Text,
    write_close,
    write_ping,
    write_pong,
    write_text,
)
from callboard.errors import BadAnswer

texts = st.text(max_size=200).map(str.encode) | st.integers(120, 70_000).map(lambda size: b"x" * size)


def fragmented(text: bytes, parts: int) -> bytes:
    """One message in several frames, with a ping in between."""
    cuts = [text[len(text) * n // parts : len(text) * (n + 1) // parts] for n in range(parts)]
    frames = [bytearray(write_text(cut)) for cut in cuts]
    for number, frame in enumerate(frames):
        frame[0] = (0x80 if number == parts - 1 else 0) | (0x01 if number == 0 else 0x00)
    return bytes(frames[0]) + b"".join(write_ping(b"?") + bytes(frame) for frame in frames[1:])


frames = (
    texts.map(write_text)
    | st.binary(max_size=20).map(write_ping)
    | st.binary(max_size=20).map(write_pong)
    | st.builds(fragmented, st.text("abc", min_size=4, max_size=300).map(str.encode), st.integers(2, 4))
)


def fed(cutter: Cutter, data: bytes, sizes: Sequence[int]) -> list[tuple[bytes | None, bytes]]:
    found, at = [], 0
    for size in [*sizes, len(data)]:
        found += list(cutter.feed(data[at : at + size])) if data[at : at + size] else []
        at += size
    return found


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 5000), max_size=30))
def test_messages_of_a_websocket_survive_any_chunking(sent: list[bytes], sizes: list[int]) -> None:
    data = b"".join(sent)
    found = fed(FrameCutter(), data, sizes)
    careful = [one.frame for one in MessageReader(1_000_000, is_client=True).feed(data) if isinstance(one, Text)]
    assert [message for message, _ in found if message is not None] == careful
    handed_on = b"".join(raw for _, raw in found)
    assert len(handed_on) == len(data)
    assert [one.frame for one in MessageReader(1_000_000, is_client=True).feed(handed_on) if isinstance(one, Text)] == (
        careful
    ), "whoever gets the rest reads the same"


@given(st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line)), st.lists(st.integers(1, 30)))
def test_lines_survive_any_chunking(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert fed(LineCutter(), data, sizes) == [(line, line + b"\n") for line in lines]


@pytest.mark.parametrize(
    "odd",
    [write_close(Close(1000)), b"\x82\x03abc", b"\x81\x85abcdhello", b"\x80\x01x"],
    ids=["close", "binary", "masked", "continues nothing"],
)
def test_what_is_no_message_is_left_to_others_as_it_came(odd: bytes) -> None:
    assert list(FrameCutter().feed(odd)) == [(None, odd)]


def test_a_long_message_is_put_together_once() -> None:
    cutter, message = FrameCutter(), b"x" * 1_000_000
    data = write_text(message)
    found = [cut for start in range(0, len(data), 1000) for cut in cutter.feed(data[start : start + 1000])]
    assert found == [(message, data)]


PIECE = b"x" * 1_000_000


@pytest.mark.parametrize(
    ("cutter", "pieces"),
    [
        (LineCutter(), [PIECE] * 20),
        (FrameCutter(), [b"\x81\x7f" + (2 * MAX_CUT).to_bytes(8)]),
        (FrameCutter(), [b"\x01" + write_text(PIECE)[1:], *[b"\x00" + write_text(PIECE)[1:]] * 20]),
    ],
    ids=["a line", "a frame", "many frames"],
)
def test_a_message_without_an_end_is_given_up(cutter: Cutter, pieces: list[bytes]) -> None:
    coming = iter(pieces)
    with pytest.raises(BadAnswer, match="larger than"):
        list(chain.from_iterable(map(cutter.feed, coming)))
    assert sum(map(len, pieces)) - sum(map(len, coming)) <= MAX_CUT + len(PIECE) + 100
