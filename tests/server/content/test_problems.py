"""What a model reads when it got the arguments wrong."""

import datetime
from typing import Annotated, Any

import attrs
import pydantic
import pytest
from msgspec import Meta

from callboard.server.content.errors import BadArguments
from callboard.server.content.problems import find_problems, shown
from callboard.server.signature.schemas import compile_schema
from tests.server.kinds import Opaque, Place, Point, Unit, signature, taking

CLOSED = {"additionalProperties": False}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def booked(
    city: str,
    nights: Annotated[int, Meta(ge=1, le=14)] = 1,
    unit: Unit = Unit.METRIC,
    place: Place | None = None,
    tags: list[Annotated[str, Meta(min_length=2)]] = [],  # noqa: B006
    when: datetime.date | None = None,
    guests: dict[str, Point] = {},  # noqa: B006
) -> None: ...


WRONG: list[tuple[Any, list[str]]] = [
    ({}, ["- city: is required"]),
    ({"city": 3}, ["- city: expected string, got 3"]),
    ({"city": "D", "nights": 0}, ["- nights: must be at least 1, got 0"]),
    ({"city": "D", "nights": 1.5}, ["- nights: expected integer, got 1.5"]),
    ({"city": "D", "unit": "m"}, ['- unit: must be one of "metric", "imperial"; got "m"']),
    ({"city": "D", "place": 4}, ["- place: expected null or object, got 4"]),
    (
        {"city": "D", "place": {"city": "D", "country": "NLD"}},
        ['- place.country: must have at most 2 characters, got "NLD"'],
    ),
    ({"city": "D", "nights": "2"}, ['- nights: expected integer, got "2"; send JSON instead of a string']),
    (
        {"city": "D", "place": '{"city": "D"}'},
        ["- place: expected null or object, got", "; send JSON instead of a string"],
    ),
    ({"city": "D", "nights": "[" * 5_000}, ["- nights: expected integer, got"]),
    ({"city": "D", "tags": ["aa", "b"]}, ['- tags[1]: must have at least 2 characters, got "b"']),
    ({"city": "D", "when": "soon"}, ['- when: must be a date such as 2026-07-28, got "soon"']),
    ({"city": "D", "guests": {"a": {}}}, ["- guests.a.x: is required"]),
    (
        {"city": "D", "night": 2},
        ["- night: is unknown; did you mean nights? known: city, nights, unit, place"],
    ),
    (
        {"nights": 99, "zzz": 1},
        ["- city: is required", "- nights: must be at most 14, got 99", "- zzz: is unknown; known"],
    ),
    ([1], ["- expected object, got [1]"]),
    ({"city": "D", "place": {"country": "NL"}}, ["- place.city: is required"]),
    ("x" * 900, ["xxx…"]),
    (b"{", ["- not JSON (Input data was truncated)"]),
    (b"null", ["- expected object, got null"]),
    ({"city": Opaque()}, ["- not JSON ("]),
    (b"[" * 100_000, ["- not JSON ("]),
]


@pytest.mark.parametrize(("arguments", "lines"), WRONG, ids=lambda part: str(part)[:40])
def test_wrong_arguments_are_told_so_that_a_model_can_correct_itself(arguments: Any, lines: list[str]) -> None:
    with pytest.raises(BadArguments) as caught:
        signature(booked).read(arguments)
    told = str(caught.value)
    assert told.startswith("Invalid arguments for booked:\n- ")
    for line in lines:
        assert line in told
    assert len(told) < 1_000


def test_text_that_would_not_fit_without_its_quotes_either_gets_no_hint() -> None:
    with pytest.raises(BadArguments) as caught:
        signature(booked).read({"city": "D", "nights": "true"})
    assert "send JSON instead of a string" not in str(caught.value)


def test_no_more_than_five_problems_are_told() -> None:
    with pytest.raises(BadArguments) as caught:
        signature(booked).read({"city": "D", "tags": [0, 1, 2, 3, 4, 5, 6]})
    assert len(caught.value.problems) == 5
    assert str(caught.value).endswith("\n- and more")


def test_what_only_the_class_knows_is_told_with_its_place() -> None:
    @attrs.define
    class Even:
        n: int = attrs.field()

        @n.validator
        def _even(self, _: Any, value: int) -> None:
            if value % 2:
                raise ValueError(f"{value} is odd")

    with pytest.raises(BadArguments, match=r"- x\.0: 3 is odd|- x\[0\]: 3 is odd|- x\[\.\.\.\]: 3 is odd"):
        taking(list[Even]).read({"x": [{"n": 3}]})


def test_a_value_that_the_schema_allows_and_the_type_does_not_is_told_too() -> None:
    with pytest.raises(BadArguments, match="- x: Invalid base64 encoded string"):
        taking(bytes).read({"x": "%%%"})


def test_a_key_that_does_not_fit_is_told_with_the_map_it_is_in() -> None:
    with pytest.raises(BadArguments, match=r"- x: Expected `int`, got `str`$"):
        taking(dict[int, str]).read({"x": {"a": "b"}})


def test_what_a_pydantic_model_refuses_is_told_without_its_links() -> None:
    class Strict(pydantic.BaseModel):
        a: str

        @pydantic.field_validator("a")
        @classmethod
        def _never(cls, value: str) -> str:
            raise ValueError("never")

    with pytest.raises(BadArguments, match=r"- x\.a: never$"):
        taking(Strict).read({"x": {"a": "b"}})
    with pytest.raises(BadArguments, match=r"- x\[1\]\.a: never$"):
        taking(list[Strict | int]).read({"x": [1, {"a": "b"}]})


def test_json_in_a_text_that_is_broken_is_told_as_such() -> None:
    with pytest.raises(BadArguments, match=r"- x: Invalid JSON: "):
        taking(pydantic.Json[list[int]]).read({"x": "[1"})


FOUND: list[tuple[Any, Any, list[str]]] = [  # a schema, a value, what is told
    ({"const": 2}, 3, ["must be 2, got 3"]),
    ({"multipleOf": 5}, 7, ["must be a multiple of 5, got 7"]),
    ({"exclusiveMaximum": 5}, 5, ["must be less than 5, got 5"]),
    ({"exclusiveMinimum": 5}, 5, ["must be greater than 5, got 5"]),
    ({"pattern": "^a"}, "b", ['must match the pattern "^a", got "b"']),
    ({"format": "hostname"}, "-", ['must be in the format hostname, got "-"']),
    ({"uniqueItems": True}, [1, 1], ["must not have duplicate items, got [1,1]"]),
    ({"minProperties": 1}, {}, ["must have at least 1 members, got {}"]),
    ({"contains": {"type": "integer"}}, [], ["must contain a matching item, got []"]),
    ({"items": False}, [1], ["[0]: is not allowed here, got 1"]),
    ({"not": {"type": "null"}}, None, ["must not match the schema of `not`, got null"]),
    ({"additionalProperties": False}, {"a": 1}, ["must be empty"]),
    ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 1}, ["b: is unknown"]),
    ({"unevaluatedProperties": False}, {"b": 1}, ["b: is unknown"]),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, ['a member\'s name must have at most 1 characters, got "ab"']),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, ["b: is required"]),
    ({"type": ["string", "null"]}, 1, ["expected null or string, got 1"]),
    ({"enum": list(range(40))}, 99, [f"must be one of {', '.join(map(str, range(30)))} and 10 more; got 99"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 3, ["matches several schemas where one is allowed, got 3"]),
    ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "c", ['must be one of "a", "b"; got "c"']),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "c", ['expected integer or null, got "c"']),
    ({"anyOf": [{"minimum": 3}, {"type": "null"}]}, 1, ["must be at least 3, got 1"]),
    (
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        ["matches none of 2 schemas (a: is required; or b: is required)"],
    ),
    (
        {"items": [{"properties": {"ab": {}}, "additionalProperties": False}], "$schema": DRAFT_7},
        [{"abc": 1}],
        ["[0].abc: is unknown; did you mean ab? known: ab"],
    ),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"ab": {}}, "additionalProperties": False}}},
        {"zz": 1},
        ["zz: is unknown; known: ab"],
    ),
    (
        {
            "$ref": "https://example.org/a#/$defs/b",
            "$defs": {"a": {"$id": "https://example.org/a", "$defs": {"b": {**CLOSED, "properties": {"ab": {}}}}}},
        },
        {"zz": 1},
        ["zz: is unknown"],
    ),
    ({"contentEncoding": "base64", "$schema": DRAFT_7}, "%", ['does not match `contentEncoding`, got "%"']),
]


@pytest.mark.parametrize(("schema", "value", "told"), FOUND, ids=lambda part: str(part)[:40])
def test_every_keyword_has_its_words(schema: dict[str, Any], value: Any, told: list[str]) -> None:
    problems, more = find_problems(compile_schema(schema), schema, value)
    assert [str(problem) for problem in problems] == told
    assert not more


def test_values_that_have_no_json_are_shown_by_their_type() -> None:
    assert shown(Opaque()) == "a Opaque"
    assert shown("x" * 100) == '"' + "x" * 78 + "…"
