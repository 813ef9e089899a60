"""Header values: plain where that is safe, else in Base64, and nothing invisible ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.mcp_headers.header_values import MAX_SAFE_INTEGER, MAX_VALUE, decode_value, encode_value
from callboard.errors import HeaderMismatch, InvalidParams

VECTORS = [
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("\tindented", "=?base64?CWluZGVudGVk?="),
    ("us-west1", "us-west1"),
    ("two words", "two words"),
    ("", ""),
    ("=?base64?half", "=?base64?half"),
    ("half?=", "half?="),
    ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
    ("a\0b", "=?base64?YQBi?="),
    ("\x7f", "=?base64?fw==?="),
    ("a\tb", "=?base64?YQli?="),
    ("~!\"#$%&'()*+,-./:;<>@[]^_`{|}", "~!\"#$%&'()*+,-./:;<>@[]^_`{|}"),
]


@pytest.mark.requirement("M137")
@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_a_string_is_written_and_read_as_the_specification_shows(value: str, text: str) -> None:
    assert encode_value(value) == text.encode()
    assert decode_value(text.encode()) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, b"0"),
        (-1, b"-1"),
        (MAX_SAFE_INTEGER, b"9007199254740991"),
        (-MAX_SAFE_INTEGER, b"-9007199254740991"),
        (True, b"true"),
        (False, b"false"),
    ],
)
def test_numbers_and_booleans_are_written_as_json_writes_them(value: int | bool, text: bytes) -> None:
    assert encode_value(value) == text


@pytest.mark.requirement("M145")
@pytest.mark.parametrize(
    "text",
    [
        b"=?base64?eA=?=",
        b"=?base64?eA?=",
        b"=?base64?eB==?=",
        b"=?base64?eA== ?=",
        b"=?base64?e A==?=",
        b"=?base64?_-==?=",
        b"=?base64?/w==?=",
        b"=?base64?7aCA?=",
        b"=?base64?====?=",
        b"caf\xc3\xa9",
        b"a\tb",
        b"a\x00b",
        b"a\x7fb",
        b"a\r\nX: y",
    ],
)
def test_a_value_that_no_client_may_write_is_refused(text: bytes) -> None:
    with pytest.raises(HeaderMismatch):
        decode_value(text)


def test_markers_that_overlap_are_literal_text() -> None:
    assert decode_value(b"=?base64?=") == "=?base64?="
    assert decode_value(b"=?base64??=") == ""
    assert decode_value(encode_value("=?base64?=")) == "=?base64?="


def test_white_space_around_a_value_is_not_part_of_it() -> None:
    assert decode_value(b" \ta b\t ") == "a b"


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_and_nothing_invisible_is_written(value: str) -> None:
    text = encode_value(value)
    assert decode_value(text) == value
    assert all(0x20 <= byte <= 0x7E for byte in text)
    assert text == text.strip()


@given(st.binary() | st.text().map(lambda text: f"=?base64?{text}?=".encode("utf-8", "surrogatepass")))
def test_only_a_mismatch_comes_out_of_a_hostile_value(value: bytes) -> None:
    try:
        text = decode_value(value)
    except HeaderMismatch:
        return
    assert decode_value(encode_value(text)) == text


def test_a_value_too_long_for_a_header_line_is_refused_by_its_writer() -> None:
    assert len(encode_value("x" * MAX_VALUE)) == MAX_VALUE
    with pytest.raises(InvalidParams):
        encode_value("x" * (MAX_VALUE + 1))
    with pytest.raises(InvalidParams):
        encode_value("\ud800")
    with pytest.raises(InvalidParams):
        encode_value(MAX_SAFE_INTEGER + 1)
