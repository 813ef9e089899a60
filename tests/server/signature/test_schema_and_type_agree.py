"""Chance looks for a value on which a published schema and the type behind it disagree.

Claimed for text, numbers, truth values, null, choices, lists, maps, tuples, classes and unions of these: the schema
allows a value exactly when the type can be made of it. Not claimed where JSON Schema cannot say what a type knows
(Base64, the syntax of decimals), where it says more (a set forgives what comes twice, a duration may have fractions),
and for whole numbers beyond 64 bits.
"""

import builtins
import types
import typing
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from callboard.server.content.errors import BadArguments
from callboard.server.signature.schemas import compile_schema
from callboard.server.signature.signature import Signature
from tests.server.kinds import Branch, Context, Level, Pair, Place, Point, Row, Stay, Unit
from tests.server.results import to_result

SCALARS = [
    *(
        str,
        int,
        float,
        bool,
        None,
        Unit,
        Level,
        Literal["a", "b"],
        Literal[1, 2],
        Place,
        Point,
        Stay,
        Pair,
        Row,
        Branch,
    ),
    Annotated[int, Meta(ge=-1, lt=3)],
    Annotated[float, Meta(gt=0)],
    Annotated[str, Meta(min_length=1, max_length=2)],
    Annotated[str, Meta(pattern="^[ab]+$")],
    Annotated[list[int], Meta(min_length=1)],
]


def _optional(kind: Any) -> Any:
    return kind | None


kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: dict[str, kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: tuple[kind, int]),  # type: ignore[valid-type]
        inner.filter(lambda kind: kind is not None).map(_optional),
        st.sampled_from([int | str, str | bool | None, Place | None, list[int] | str, float | str, Unit | None]),
    ),
    max_leaves=4,
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5]) | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "b", "metric", "imperial", "NL", "abc"]) | st.text(max_size=3),
)
names = st.sampled_from(["city", "country", "x", "y", "nights", "id", "name", "under", "a"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)


def tool(kind: Any) -> Signature:
    def function(x: Any) -> Any: ...

    function.__annotations__ = {"x": kind, "return": kind}
    return Signature.of(function, context_type=Context)


def is_made_of(kind: Any, value: Any) -> bool:
    try:
        msgspec.convert(_whole(value), kind)
    except msgspec.ValidationError:
        return False
    return True


def _whole(value: Any) -> Any:
    """3.0 is an integer to JSON Schema, and 3 a number to msgspec."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(inner) for inner in value]
        case dict():
            return {key: _whole(inner) for key, inner in value.items()}
    return value


@given(kinds, values)
def test_the_schema_allows_exactly_what_the_type_can_be_made_of(kind: Any, value: Any) -> None:
    found = tool(kind)
    allows = compile_schema(found.input_schema).is_valid({"x": value})
    assert allows == is_made_of(kind, value)
    try:
        found.read(msgspec.json.encode({"x": value}))
    except BadArguments:
        assert not allows
    else:
        assert allows


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type. JSON has no word for what is no finite number."""
    if kind is Place:
        return st.builds(Place, city=st.text(), country=st.sampled_from(["NL", "DE"]))
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is int:
        return st.integers(-(2**63), 2**63 - 1)
    inner = [of(argument) for argument in get_args(kind)] if get_origin(kind) is not Literal else []
    match get_origin(kind):
        case builtins.list:
            return st.lists(*inner)
        case builtins.dict:
            return st.dictionaries(*inner)
        case builtins.tuple:
            return st.tuples(*inner)
        case types.UnionType | typing.Union:
            return st.one_of(inner)
    return st.none() if kind is None else st.from_type(kind)


unbound = kinds.filter(lambda kind: "Meta" not in str(kind))
kinds_and_values = unbound.flatmap(lambda kind: st.tuples(st.just(kind), of(kind)))


@given(kinds_and_values)
def test_what_a_type_can_be_comes_back_as_it_was(pair: tuple[Any, Any]) -> None:
    kind, value = pair
    assert tool(kind).read(msgspec.json.encode({"x": value})) == {"x": value}


@given(kinds_and_values)
def test_what_a_type_can_be_keeps_the_promise_of_the_output_schema(pair: tuple[Any, Any]) -> None:
    kind, value = pair
    found = tool(kind)
    result = to_result(value, found)
    if found.output is not None:
        assert isinstance(result.structured_content, dict)
        sent = result.structured_content["result"] if found.output.is_wrapped else result.structured_content
        assert msgspec.convert(sent, kind, strict=False) == value
