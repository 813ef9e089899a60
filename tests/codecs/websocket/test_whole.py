"""Frames that come whole are read by a shorter way: it must be the same, whatever comes and however it is cut."""

import os
from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.websocket.frames import Close, MessageReader, Received, Violation
from callboard.codecs.websocket.whole import Boundaries

LIMIT = 300


@attrs.define(eq=False)
class ByTheParser(MessageReader):
    """Everything by the parser of wsproto."""

    def _whole(self, data: bytes) -> Received | None:
        return None


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


def read(reader: MessageReader, pieces: Sequence[bytes]) -> list[Received | Close]:
    found: list[Received | Close] = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
            if reader.is_closed:
                break
    except Violation as violation:
        found.append(violation.close)
    return found


@given(st.data(), st.booleans())
def test_the_short_way_and_the_parser_read_the_same(data: st.DataObject, is_client: bool) -> None:
    sent = data.draw(st.lists(frames(is_masked=not is_client), max_size=6))
    pieces = list(sent)
    if data.draw(st.booleans()):
        stream = b"".join(sent)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(MessageReader(LIMIT, is_client), pieces) == read(ByTheParser(LIMIT, is_client), pieces)


@given(st.lists(st.tuples(st.integers(0, 70_000), st.booleans()), max_size=4), st.data())
def test_the_end_of_a_frame_is_known_however_it_is_cut(sizes: list[tuple[int, bool]], data: st.DataObject) -> None:
    ends, stream = {0}, b""
    for size, is_masked in sizes:
        form = size if size <= 125 else 126 if size <= 0xFFFF else 127
        length = size.to_bytes(8, "big")[8 - {126: 2, 127: 8}.get(form, 0) :]
        stream += bytes((0x81, form | (0x80 if is_masked else 0))) + length + os.urandom(4 * is_masked) + bytes(size)
        ends.add(len(stream))
    boundaries, start = Boundaries(), 0
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]:
        boundaries.feed(stream[start:end])
        start = end
        assert boundaries.is_between is (end in ends)
