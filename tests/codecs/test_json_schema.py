"""A stranger's schema is whole, shallow and small, or it is refused before anything compiles it."""

import time
from typing import Any

import pytest

from callboard.codecs.json_schema import MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, check_schema, subschemas
from callboard.errors import InvalidDefinition


def nested(keyword: str, levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: [schema] if keyword == "allOf" else schema}
    return schema


@pytest.mark.requirement("M053")
@pytest.mark.parametrize("keyword", ["allOf", "items", "not", "additionalProperties"])
def test_depth_has_an_end(keyword: str) -> None:
    check_schema(nested(keyword, MAX_SCHEMA_DEPTH))
    with pytest.raises(InvalidDefinition):
        check_schema(nested(keyword, MAX_SCHEMA_DEPTH + 1))


@pytest.mark.requirement("M053")
def test_width_has_an_end_and_is_reached_in_time() -> None:
    wide: dict[str, Any] = {"anyOf": [{}] * (MAX_SUBSCHEMAS - 1)}
    check_schema(wide)
    started = time.perf_counter()
    with pytest.raises(InvalidDefinition):
        check_schema({"anyOf": [wide] * 1000})
    assert time.perf_counter() - started < 1


@pytest.mark.requirement("M049", "M050", "M052")
@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/schema.json#/x",
        "file:///etc/passwd",
        "other.json",
        "//example.com/x",
        "",
    ],
)
@pytest.mark.parametrize("key", ["$ref", "$dynamicRef"])
def test_a_reference_that_leaves_the_schema_is_refused(key: str, target: str) -> None:
    with pytest.raises(InvalidDefinition, match="external references are not fetched"):
        check_schema({"properties": {"a": {"items": {key: target}}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$id": "https://example.com/tree", "items": {"$ref": "https://example.com/tree#/items"}},
        {"properties": {"meta": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
        {"default": {"$ref": "https://example.com/"}, "enum": [{"$ref": "x"}], "const": {"$ref": "y"}},
        {"properties": {"$ref": {"type": "string"}}},
    ],
)
def test_a_reference_within_the_schema_or_in_a_value_is_none_of_our_business(schema: dict[str, Any]) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/x", "x": {"$ref": "https://example.com/"}},
        {"$ref": "#/default", "default": {"items": {"$ref": "https://example.com/"}}},
        {"$ref": "#/enum/1/a~1b", "enum": [0, {"a/b": {"$ref": "https://example.com/"}}]},
        {"$ref": "#/enum/1/a%7E1b", "enum": [0, {"a/b": {"$ref": "https://example.com/"}}]},
        {"$ref": "#/x", "x": {"$ref": "#/y"}, "y": {"$ref": "https://example.com/"}},
        {"$defs": {"a": {"$id": "https://a/", "$ref": "#/x", "x": {"$ref": "https://example.com/"}}}},
        {"$id": "https://a/", "items": {"$ref": "https://a/#/x"}, "x": {"$ref": "https://example.com/"}},
        {"$ref": "#/x", "x": nested("allOf", MAX_SCHEMA_DEPTH + 1)},
        {"$ref": "#/x", "x": {"anyOf": [{}] * MAX_SUBSCHEMAS}},
        {"$ref": "https://json-schema.org/draft/../../anything"},
        {"$ref": "https://json-schema.org/draft/2099-01/schema"},
    ],
)
def test_a_pointer_makes_a_schema_of_what_it_leads_to(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        check_schema(schema)


@pytest.mark.parametrize("pointer", ["#/x/y", "#/enum/7", "#/enum/x", "#/enum/" + "9" * 5000, "#/type/0", "#/", "#a"])
def test_a_pointer_to_nothing_is_for_the_validator_to_find(pointer: str) -> None:
    check_schema({"$ref": pointer, "enum": [1], "type": "string", "x": 1})


def test_the_widest_schema_allowed_takes_no_longer_than_one_frame_may() -> None:
    wide = {"properties": {str(number): {"$ref": f"#/properties/{number}"} for number in range(MAX_SUBSCHEMAS - 1)}}
    fastest = 1.0
    for _ in range(5):  # the machine may be busy; the code may not
        started = time.thread_time()
        check_schema(wide)
        fastest = min(fastest, time.thread_time() - started)
    assert fastest < 0.1


def test_a_property_is_named_by_the_properties_that_lead_to_it() -> None:
    schema = {"properties": {"a": {"properties": {"b": {}}, "items": {"properties": {"c": {}}}}}}
    assert {inner.path for inner in subschemas(schema)} == {(), ("a",), ("a", "b"), None}
