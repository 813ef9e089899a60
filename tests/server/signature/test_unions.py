"""Unions that msgspec refuses: which member a value becomes, what is published, and what is said of a wrong value."""

import dataclasses
import enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from callboard.server.content.errors import BadArguments
from callboard.server.signature.schemas import compile_schema
from tests.server.kinds import signature, taking


@dataclasses.dataclass
class Cat:
    name: str
    lives: int = 9


@dataclasses.dataclass
class Dog:
    name: str
    good: bool


@attrs.define
class Tree:
    under: "list[Tree | Leaf]"
    _note: str = "n"


@attrs.define
class Leaf:
    colour: str


class Square(pydantic.BaseModel):
    kind: Literal["square"]
    side: int


class Round(pydantic.BaseModel):
    kind: Literal["round"]
    side: int

    @pydantic.field_validator("side")
    @classmethod
    def even(cls, side: int) -> int:
        if side % 2:
            raise ValueError("must be even")
        return side


class Stay(TypedDict):
    pet: Cat | Dog
    nights: NotRequired[int]


class Pair(NamedTuple):
    left: Cat | Dog
    right: int = 2


class First(msgspec.Struct):
    a: int


class Second(msgspec.Struct):
    a: int
    b: int


def read(kind: Any, value: Any) -> Any:
    return taking(kind).read({"x": value})["x"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Cat | Dog, {"name": "a"}, Cat("a")),
        (Dog | Cat, {"name": "a"}, Cat("a")),
        (Cat | Dog, {"name": "a", "good": True}, Dog("a", True)),
        (Dog | Cat, {"name": "a", "good": True, "lives": 3}, Dog("a", True)),
        (Cat | Dog, {"name": "a", "good": True, "lives": 3}, Cat("a", 3)),
        (Square | Round, {"kind": "round", "side": 2}, Round(kind="round", side=2)),
        (First | Second, {"a": 1, "b": 2}, Second(1, 2)),
        (Cat | dict[str, int], {"a": 1}, {"a": 1}),
        (str | Square, "x", "x"),
        (int | Square | list[Cat | Dog], [{"name": "a", "good": False}], [Dog("a", False)]),
        (list[Tree | Leaf], [{"under": [{"colour": "red"}]}], [Tree([Leaf("red")])]),
        (Stay, {"pet": {"name": "a", "good": True}}, {"pet": Dog("a", True)}),
        (Pair, [{"name": "a"}], Pair(Cat("a"))),
        (Cat | Dog, {"name": "a", "lives": 3.0}, Cat("a", 3)),
        (str | object, [1], [1]),
    ],
    ids=str,
)
def test_a_value_becomes_the_member_of_a_union_that_knows_most_of_it(kind: Any, value: Any, expected: Any) -> None:
    assert read(kind, value) == expected
    assert type(read(kind, value)) is type(expected)


def test_a_member_that_refuses_a_value_by_a_check_of_its_own_leaves_it_to_the_next() -> None:
    class Even(pydantic.BaseModel):
        side: int

        @pydantic.field_validator("side")
        @classmethod
        def even(cls, side: int) -> int:
            if side % 2:
                raise ValueError("must be even")
            return side

    assert read(Even | dict[str, int], {"side": 3}) == {"side": 3}
    assert read(Even | dict[str, int], {"side": 2}) == Even(side=2)


def test_a_class_that_holds_itself_in_a_union_is_one_definition() -> None:
    found = taking(Tree)
    assert found.input_schema["$defs"]["Tree"] == {
        "type": "object",
        "properties": {
            "under": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Leaf"}]}},
            "_note": {"type": "string", "default": "n"},
        },
        "required": ["under"],
    }
    leafy = {"under": [{"under": [], "_note": "m"}, {"colour": "red"}]}
    assert found.read({"x": leafy}) == {"x": Tree([Tree([], note="m"), Leaf("red")])}


def test_one_class_beside_a_union_with_it_is_one_definition() -> None:
    def tool(a: Cat, b: Cat | Dog, c: Square | None = None) -> None: ...

    assert list(signature(tool).input_schema["$defs"]) == ["Cat", "Dog", "Square"]


def test_two_classes_of_one_name_in_a_union_are_refused() -> None:
    def other() -> Any:
        return dataclasses.make_dataclass("Cat", [("paws", int), ("pet", Cat | Dog)])

    with pytest.raises(TypeError, match="two types have the name Cat"):
        taking(other() | Cat)


@pytest.mark.parametrize(
    ("kind", "value", "lines"),
    [
        (Cat | Dog, 3, ["x: expected object, got 3"]),
        (str | Square, 3, ["x: expected object or string, got 3"]),
        (Cat | Dog, {"good": True}, ["x: matches none of 2 schemas (x.name: is required; or x.name: is required)"]),
        (Square | Round, {"kind": "round", "side": "2"}, ['x.side: expected integer, got "2"']),
        (Square | Round, {"kind": "blue", "side": 2}, ['x.kind: must be one of "square", "round"; got "blue"']),
        (Square | Round, {"kind": "round", "side": 3}, ["x.side: must be even"]),
        (list[Cat | Dog], [{"name": "a"}, 3], ["x[1]: expected object, got 3"]),
        (Stay, {"pet": {"name": 1, "good": True}}, ["x.pet", "name: expected string, got 1"]),
    ],
    ids=str,
)
def test_a_value_that_no_member_takes_is_told_with_its_place(kind: Any, value: Any, lines: list[str]) -> None:
    with pytest.raises(BadArguments) as caught:
        read(kind, value)
    for line in lines:
        assert line in str(caught.value)


def test_the_same_value_becomes_the_same_member_each_time() -> None:
    kinds = [read(Cat | Dog, {"name": "a", "good": True, "lives": 1}) for _ in range(3)]
    assert kinds == [Cat("a", 1)] * 3


def test_a_discriminator_is_published() -> None:
    found = taking(Annotated[Square | Round, Field(discriminator="kind"), "a shape"])
    assert found.input_schema["properties"]["x"] == {
        "anyOf": [{"$ref": "#/$defs/Square"}, {"$ref": "#/$defs/Round"}],
        "discriminator": {"propertyName": "kind"},
        "description": "a shape",
    }


texts = st.sampled_from(["name", "lives", "good", "under", "colour", "kind", "side", "a", "b"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["round", "square", "z"]) | st.just(2.0),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([Cat | Dog, Tree | Leaf | None, Cat | Square | str, First | Second, list[Tree | Cat], Stay, Pair]),
    values,
)
def test_the_schema_of_a_union_allows_exactly_what_is_read(kind: Any, value: Any) -> None:
    found = taking(kind)
    allows = compile_schema(found.input_schema).is_valid({"x": value})
    try:
        found.read({"x": value})
    except BadArguments:
        assert not allows
    else:
        assert allows


class Size(enum.Enum):
    LARGE = "l"
    SMALL = "s"


@dataclasses.dataclass
class Order:
    size: Size
    speed: Literal["slow", "fast"]
    count: Annotated[int, Field(ge=1, description="how many")] = 1
    note: Annotated[str | None, "for the kitchen"] = None


def test_choices_keep_the_order_of_their_author_inside_of_classes() -> None:
    definitions = taking(list[Order]).input_schema["$defs"]
    assert definitions["Size"] == {"enum": ["l", "s"], "type": "string"}
    assert definitions["Order"]["properties"]["speed"] == {"enum": ["slow", "fast"], "type": "string"}


def test_markers_of_others_hold_for_the_fields_of_classes() -> None:
    found = taking(Order)
    fields = found.input_schema["$defs"]["Order"]["properties"]
    assert fields["count"] == {"type": "integer", "minimum": 1, "description": "how many", "default": 1}
    assert fields["note"]["description"] == "for the kitchen"
    with pytest.raises(BadArguments, match=r"x\.count: must be at least 1"):
        found.read({"x": {"size": "l", "speed": "slow", "count": 0}})


MADE: list[int] = Field(default_factory=list)
REQUIRED: int = Field(ge=1)


def test_a_default_that_is_made_is_made_for_each_call() -> None:
    def tool(x: list[int] = MADE, y: int = REQUIRED) -> None: ...

    found = signature(tool)
    first, second = found.read({"y": 1}), found.read({"y": 1})
    assert first == {"x": [], "y": 1}
    assert first["x"] is not second["x"]
    assert found.input_schema["required"] == ["y"]
