"""The quick proofs are proofs: whatever they let through, a slow and plain reading lets through too."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from callboard.codecs.envelope import ResultResponse, decode
from callboard.codecs.json_scan import (
    LONG,
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_EXTREMES,
    MAX_SEPARATORS,
    check_frame,
    check_structure,
    check_text,
    check_value,
    outside_strings,
)
from callboard.errors import FrameTooLarge, ParseError
from tests.codecs.strategies import spell, spellings, values


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def refuses(value: bytes, limit: int) -> bool:
    try:
        check_value(Raw(value), limit)
    except ParseError:
        return True
    return False


brackets_in_text = st.text('[]{}",:\\e019 ', max_size=12)
bracketed: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9) | brackets_in_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(brackets_in_text, inner, max_size=4),
    max_leaves=40,
)


@given(bracketed, st.integers(1, 5), spellings)
def test_depth_is_judged_exactly_whatever_the_strings_hold(value: Any, limit: int, spelling: dict[str, Any]) -> None:
    assert refuses(spell(value, **spelling), limit) == (depth(value) > limit)


texts = st.sampled_from(
    [
        "x" * 3 * LONG,
        "a, b [c] {d} 1e400 " * 4000,
        'say "[{" \\ \\\\" 1e999 ' * 4000,
        "é" * LONG,
        "\\" * 9 + '"' * 2 * LONG,
    ]
)
"""Long texts, as most large frames have one: plain, with escapes in it, and not ASCII."""


@st.composite
def padded(draw: st.DrawFn) -> Any:
    """A small value that has a long text in it somewhere, at most two levels deep."""
    value, text = draw(bracketed), draw(texts)
    return draw(
        st.sampled_from([{"a": value, "b": text}, [text, value], {"c": [{"text": text}, value]}, {text: value}])
    )


@given(padded(), st.integers(1, 5), spellings)
def test_depth_is_judged_exactly_beside_a_long_text(value: Any, limit: int, spelling: dict[str, Any]) -> None:
    assert refuses(spell(value, **spelling), limit) == (depth(value) > limit)


@given(padded(), spellings)
def test_a_long_frame_leaves_outside_its_strings_what_a_short_one_does(value: Any, spelling: dict[str, Any]) -> None:
    frame = spell(value, **spelling)
    structure = check_text(frame)
    assert structure is None or structure == outside_strings(frame)


@pytest.mark.parametrize("text", ["x" * LONG, '\\" [' * LONG])
@pytest.mark.parametrize("number", [b"1e400", b"9" * (MAX_DIGITS + 1)])
@pytest.mark.parametrize("shape", [b'{"a":%b,"n":%b}', b'{"a": %b, "n": [%b]}', b'[{"a":%b},{"n":%b}]'])
def test_a_number_out_of_range_is_found_beside_a_long_text(text: str, number: bytes, shape: bytes) -> None:
    assert not refuses(shape % (spell(text), b"1e300"), MAX_DEPTH)
    assert refuses(shape % (spell(text), number), MAX_DEPTH)


@pytest.mark.parametrize("text", ["x" * LONG, '\\" [' * LONG])
@pytest.mark.parametrize("space", ["", " "])
def test_a_value_that_a_repeated_key_hides_is_judged_beside_a_long_text(text: str, space: str) -> None:
    for hidden in ("[" * 100 + "]" * 100, "1e400"):
        frame = f'{{"a":{hidden},{space}"b":{spell(text).decode()},"a":1}}'
        assert refuses(frame.encode(), MAX_DEPTH)


def test_commas_and_brackets_beside_a_long_text_are_counted() -> None:
    for text in ("x" * LONG, '\\"' * LONG, ",[" * MAX_SEPARATORS):
        numbers = list(range(MAX_SEPARATORS))
        arrays: list[Any] = [[[]] * 2] * (MAX_CONTAINERS // 3 - 1)
        check_text(spell({"a": text, "n": numbers}))
        with pytest.raises(FrameTooLarge):
            check_text(spell({"a": text, "n": [*numbers, 0, 0]}))
        check_value(spell({"a": text, "n": arrays}))
        with pytest.raises(FrameTooLarge):
            check_value(spell({"a": text, "n": [*arrays, [[]] * 3]}))


def test_what_is_left_of_a_frame_is_judged_like_the_frame() -> None:
    check_structure(b"{:[1,,null]}", 2)
    with pytest.raises(ParseError, match="nested"):
        check_structure(b"{:[1,,null]}", 1)
    with pytest.raises(ParseError, match="range"):
        check_structure(b"{:[1,,1e400]}", 2)


@pytest.mark.parametrize("shape", ["[%s]", '{"a":%s}', '["]}",%s,"[{"]', '{"\\"[":%s,"b":"}\\\\"}'])
def test_the_deepest_allowed_level_passes_and_the_next_does_not(shape: str) -> None:
    def nested(levels: int) -> bytes:
        text = "1"
        for _ in range(levels):
            text = shape % text
        return text.encode()

    assert not refuses(nested(MAX_DEPTH), MAX_DEPTH)
    assert refuses(nested(MAX_DEPTH + 1), MAX_DEPTH)
    assert refuses(nested(900), MAX_DEPTH)


def test_many_shallow_values_are_not_deep() -> None:
    assert not refuses(spell([[{"a": []}]] * 5000), 4)
    assert refuses(spell([[{"a": []}]] * 5000), 3)


@pytest.mark.parametrize("hidden", ["[" * 100 + "]" * 100, "1e400"])
@pytest.mark.parametrize("space", ["", " "])
def test_a_value_that_a_repeated_key_hides_is_judged_too(hidden: str, space: str) -> None:
    brackets = ",".join(["[]"] * 100)  # enough of them, and a backslash, to be looked at closely
    assert refuses(f'{{"a":{hidden},{space}"b":[{brackets}],"a":"\\\\"}}'.encode(), MAX_DEPTH)


def test_many_small_exponents_beside_one_that_is_not() -> None:
    small = ",".join(["1e5"] * (2 * MAX_EXTREMES))
    assert not refuses(f"[{small}]".encode(), MAX_DEPTH)
    assert refuses(f"[{small},1e400]".encode(), MAX_DEPTH)


mantissas = st.from_regex(r"-?(0|[1-9][0-9]{0,4}|[1-9][0-9]{190,320})(\.[0-9]{1,4})?", fullmatch=True)
exponents = st.just("") | st.from_regex(r"[eE][-+]?[0-9]{1,4}", fullmatch=True)


@given(st.lists(st.tuples(mantissas, exponents).map("".join), min_size=1, max_size=3), brackets_in_text)
def test_numbers_are_judged_exactly(texts: list[str], beside: str) -> None:
    frame = f"[{','.join(texts)},{json.dumps(beside)}]"
    out_of_range = any(math.isinf(float(text)) for text in texts if set(text) & set(".eE"))
    assert refuses(frame.encode(), MAX_DEPTH) == out_of_range


def test_an_integer_may_be_as_long_as_python_reads() -> None:
    assert not refuses(b"9" * MAX_DIGITS, MAX_DEPTH)
    assert refuses(b"9" * (MAX_DIGITS + 1), MAX_DEPTH)


def test_a_few_numbers_may_be_extreme_but_not_a_thousand() -> None:
    check_value(Raw(b"[%b]" % b",".join([b"1e300"] * MAX_EXTREMES)))
    for number in (b"1e300", b"9" * 200):
        with pytest.raises(FrameTooLarge):
            check_value(Raw(b"[%b]" % b",".join([number] * (MAX_EXTREMES + 1))))


@pytest.mark.parametrize("text", ["1e400", "9e999", "x 1e400", "e000", "1" * 5000, "NaN"])
def test_what_stands_in_a_string_is_only_text(text: str) -> None:
    check_value(Raw(spell({"a": text, text: [text]})))


@given(values, spellings)
def test_ordinary_values_pass(value: Any, spelling: dict[str, Any]) -> None:
    frame = spell(value, **spelling)
    check_frame(frame)
    check_value(Raw(frame))


@given(values)
def test_no_character_of_a_string_is_left_outside(value: Any) -> None:
    left = outside_strings(spell(value))
    assert set(left) <= set(b"[]{},:-+.0123456789eE" + b"truefalsenull")


def test_too_many_values_are_too_large_but_commas_in_text_are_not() -> None:
    check_frame(spell(list(range(MAX_SEPARATORS + 1))))
    check_frame(spell("," * (MAX_SEPARATORS + 1)))
    with pytest.raises(FrameTooLarge) as refused:
        check_frame(spell(list(range(MAX_SEPARATORS + 2))))
    assert refused.value.limit == MAX_SEPARATORS


def test_too_many_containers_are_too_large_but_brackets_in_text_are_not() -> None:
    rows: list[Any] = [{"": [[]]}] * (MAX_CONTAINERS // 3)
    check_frame(spell(rows))
    check_frame(spell("[{" * MAX_CONTAINERS))
    with pytest.raises(FrameTooLarge) as refused:
        check_frame(spell([*rows, []]))
    assert refused.value.limit == MAX_CONTAINERS


def test_more_strings_than_values_are_not_cut_out_one_by_one() -> None:
    with pytest.raises(FrameTooLarge, match="strings"):
        outside_strings(b'"' * 700_000)


@pytest.mark.requirement("M067", "L034")
@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", '{"a":1}'.encode("utf-16")]
)
def test_what_is_not_utf8_is_refused(bad: bytes) -> None:
    with pytest.raises(ParseError, match="UTF-8"):
        check_frame(bad)


@given(st.integers(65_530, 65_540), st.sampled_from(["é", "日", "😀"]))
def test_utf8_is_judged_in_pieces_as_it_is_in_one(before: int, character: str) -> None:
    good = b"x" * before + character.encode() * 3
    check_frame(good + b"x" * 70_000)
    for bad in (good[:-1] + b"x" * 70_000, good[:-1]):
        with pytest.raises(ParseError) as refused:
            check_frame(bad)
        with pytest.raises(UnicodeDecodeError) as told:
            bad.decode()
        assert str(refused.value).endswith(f"byte {told.value.start}")


LARGE_HEAD = b'{"jsonrpc":"2.0","id":1,"result":{"x":'


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        (b'"' + b"A" * (16 << 20) + b'"', True),
        (b'["\\"\\\\", "' + b"A" * (16 << 20) + b'"]', True),
        (b'"' + b"\\n" * (5 << 20) + b'"', False),
        (b'"' + "é".encode() * (5 << 20) + b'"', False),
        (b"[" + b"1," * (5 << 20) + b"1]", False),
        (b"[" * (5 << 20) + b"]" * (5 << 20), False),
        (b"[" + b'"",' * (4 << 20) + b'""]', False),
        (b" " * (10 << 20) + b"1", False),
        (b"1" * (10 << 20), False),
        (b'["\\\\",' + b"1" * (10 << 20) + b',"\\""]', False),
    ],
)
def test_a_large_frame_must_be_little_else_than_plain_texts(body: bytes, is_fine: bool) -> None:
    frame = LARGE_HEAD + body + b"}}"
    if is_fine:
        assert isinstance(decode(frame), ResultResponse)
    else:
        with pytest.raises(FrameTooLarge):
            decode(frame)


def test_a_large_frame_with_a_text_that_does_not_end_is_no_json() -> None:
    with pytest.raises(ParseError):
        decode(LARGE_HEAD + b'"' + b"A" * (10 << 20))
