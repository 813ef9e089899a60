"""Batches: cut apart and joined without touching a member."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.envelope import MAX_BATCH, is_batch, join_batch, split_batch
from callboard.errors import FrameTooLarge, InvalidRequest, ParseError, PeerError


@pytest.mark.parametrize("frame", [b"[", b"[]", b" \t\r\n[1]", b"[garbage", b"\n" * 1000 + b"["])
def test_an_array_is_a_batch_by_its_first_byte(frame: bytes) -> None:
    assert is_batch(frame)


@pytest.mark.parametrize("frame", [b"", b"  ", b"{}", b"{[]}", b' "["', b"\x0b[", b"\xef\xbb\xbf[1]", b"1[", b"\x00["])
def test_anything_else_is_not_a_batch(frame: bytes) -> None:
    assert not is_batch(frame)


def test_members_are_untouched() -> None:
    members = [b'{"b" : 1,\n "a":1.0e+00}', b'"\\u0041"', b"null", b"[ 1 ]", b"12345678901234567890123"]
    assert split_batch(b" [\t" + b" ,\r\n ".join(members) + b" ] ") == members


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"[]", InvalidRequest),
        (b" [ ] ", InvalidRequest),
        (b"", ParseError),
        (b"[1", ParseError),
        (b"[1] 2", ParseError),
        (b"[1,]", ParseError),
        (b"[,]", ParseError),
        (b'{"a":1}', ParseError),
        (b"[nan]", ParseError),
        (b'["\xff"]', ParseError),
        (b"[" * 100_000, ParseError),
        (b"[" * 5000 + b"]" * 5000, ParseError),
        (b"[" + b"1," * MAX_BATCH + b"1]", FrameTooLarge),
        (b"[" + b"1," * 2_000_000 + b"1]", FrameTooLarge),
    ],
)
def test_a_bad_batch_is_one_error(frame: bytes, error: type[PeerError]) -> None:
    with pytest.raises(error) as caught:
        split_batch(frame)
    assert type(caught.value) is error


def test_the_limit_is_exact() -> None:
    assert split_batch(join_batch([b"1"] * MAX_BATCH)) == [b"1"] * MAX_BATCH
    with pytest.raises(FrameTooLarge):
        split_batch(join_batch([b"1"] * (MAX_BATCH + 1)))


def test_an_empty_batch_is_never_sent() -> None:
    with pytest.raises(ValueError, match="empty"):
        join_batch([])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(VALUES, min_size=1))
def test_what_is_joined_is_split(values: list[object]) -> None:
    frames = [json.dumps(value).encode() for value in values]
    batch = join_batch(frames)
    assert is_batch(batch)
    assert split_batch(batch) == frames


@given(st.binary() | st.lists(st.sampled_from([b"[", b"]", b",", b"{", b'"', b"1", b"\\", b"\xff"])).map(b"".join))
def test_only_peer_errors_come_out(frame: bytes) -> None:
    is_batch(frame)
    with contextlib.suppress(PeerError):
        assert split_batch(frame)
