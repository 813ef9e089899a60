"""One level of an object, its values untouched; a key that stands twice is refused in every spelling."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.codecs.members import raw, read_members, write_members
from callboard.errors import InvalidRequest, ParseError
from tests.codecs.strategies import objects, spell, spellings, values


@given(objects, spellings)
def test_members_are_the_objects_own_in_its_order(value: dict[str, Any], spelling: dict[str, Any]) -> None:
    members = read_members(spell(value, **spelling))
    assert list(members) == list(value)
    assert all(read_members(b'{"x":%b}' % bytes(members[key])) for key in members)


@given(objects)
def test_what_is_read_is_written_back_byte_for_byte(value: dict[str, Any]) -> None:
    frame = write_members(read_members(spell(value)))
    assert write_members(read_members(frame)) == frame


def test_new_values_may_stand_beside_raw_ones() -> None:
    members = read_members(b'{"a":[1, 2],"b":2}')
    assert write_members({**members, "b": raw(3), "c": "new"}) == b'{"a":[1, 2],"b":3,"c":"new"}'


space = st.sampled_from(["", " ", "\n", "\t \r\n"])


@given(objects.filter(bool), values, space, st.data())
@example({"id": 1}, 2, "", None).via("the smuggler's classic")
def test_a_repeated_key_is_refused_wherever_it_stands(
    value: dict[str, Any], again: Any, gap: str, data: st.DataObject | None
) -> None:
    keys = list(value)
    key = data.draw(st.sampled_from(keys)) if data else keys[0]
    escape = data.draw(st.booleans()) if data else False
    pairs = [*value.items()]
    pairs.insert(data.draw(st.integers(0, len(pairs))) if data else 1, (key, again))
    spelled = f"{gap},{gap}".join(
        f"{spell(k, ascii_only=escape).decode()}{gap}:{gap}{spell(v).decode()}" for k, v in pairs
    )
    with pytest.raises(InvalidRequest, match="duplicate key"):
        read_members(f"{gap}{{{gap}{spelled}{gap}}}{gap}".encode())


def test_an_escaped_key_is_the_same_key() -> None:
    with pytest.raises(InvalidRequest, match="duplicate key"):
        read_members(b'{"id":1,"\\u0069d":1}')


@pytest.mark.parametrize("first", [b"12", b"1.5", b"1e5", b"1"])
def test_a_number_that_begins_like_its_successor_is_still_the_same_key(first: bytes) -> None:
    with pytest.raises(InvalidRequest, match="duplicate key"):
        read_members(b'{"b":0,"a":%b,"a":1}' % first)


@pytest.mark.parametrize("data", [b"[]", b'"x"', b"1", b"null"])
def test_only_objects_have_members(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_members(data)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1', b'{"a":1}x', b"{'a':1}", b'{"\xff":1}', b"{" * 100_000])
def test_what_is_not_json_is_a_parse_error(data: bytes) -> None:
    with pytest.raises(ParseError):
        read_members(data)
