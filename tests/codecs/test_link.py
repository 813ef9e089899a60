"""Frames between workers: whatever is written is read, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.link import (
    ANSWER,
    CUT,
    JSON,
    LAST,
    MAX_PIECE,
    PART,
    REQUEST,
    WRITE,
    LinkDecoder,
    LinkFrame,
    read_link_answer,
    write_frame,
    write_frames,
    write_link_answer,
)

KINDS = st.sampled_from([REQUEST, JSON, ANSWER, WRITE, CUT])
MESSAGES = st.lists(st.tuples(st.integers(0, 3), KINDS, st.binary(max_size=300)), max_size=8)


@given(MESSAGES, st.lists(st.integers(1, 40), max_size=30))
def test_frames_are_read_as_they_were_written_wherever_they_are_cut(
    messages: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(frame for stream, kind, payload in messages for frame in write_frames(stream, kind, payload))
    decoder, found = LinkDecoder(), []
    for size in cuts:
        found += decoder.feed(data[:size])
        data = data[size:]
    found += decoder.feed(data)
    assert found == [LinkFrame(*message) for message in messages]


@pytest.mark.parametrize("size", [0, 1, MAX_PIECE - 1, MAX_PIECE, MAX_PIECE + 1, 3 * MAX_PIECE, 3 * MAX_PIECE + 7])
def test_a_long_payload_comes_in_pieces_and_others_may_come_between(size: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    frames = list(write_frames(7, JSON, payload))
    assert all(len(frame) <= MAX_PIECE + 9 for frame in frames)
    decoder = LinkDecoder()
    found = [one for frame in frames for one in decoder.feed(frame + write_frame(8, WRITE, b"between"))]
    assert [one for one in found if one.stream == 7] == [LinkFrame(7, JSON, payload)]
    assert len([one for one in found if one.stream == 8]) == len(frames)


def test_an_answer_is_read_as_it_was_written() -> None:
    answer = read_link_answer(write_link_answer(404, [(b"content-type", b"text/plain")], b"\xffno"))
    assert (answer.status, answer.headers, answer.body) == (404, [(b"content-type", b"text/plain")], b"\xffno")


def test_kinds_of_a_newer_release_are_ignored() -> None:
    newer = write_frame(1, LAST + 1, b"new") + write_frame(2, 255, b"x" * 100)
    decoder = LinkDecoder()
    assert decoder.feed(write_frame(1, JSON, b"{}") + newer + write_frame(1, CUT)) == [(1, JSON, b"{}"), (1, CUT, b"")]


@pytest.mark.parametrize("data", [b"\xff" * 9])
def test_what_no_worker_says_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a frame"):
        LinkDecoder().feed(data)


def test_parts_that_lead_to_nothing_are_kept_apart() -> None:
    decoder = LinkDecoder()
    assert decoder.feed(write_frame(1, PART, b"a") + write_frame(2, JSON, b"b")) == [LinkFrame(2, JSON, b"b")]
    assert decoder.feed(write_frame(1, JSON, b"c")) == [LinkFrame(1, JSON, b"ac")]
