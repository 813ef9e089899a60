"""JSON Schemas in few words, whatever a server sends."""

from typing import Any

import pytest

from callboard.cli.schema_words import MOST_VALUES, arguments_of, words


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "enum": ["m", "s", "l"]}, '"m" | "s" | "l"'),
        ({"const": 3}, "3"),
        ({"type": "array", "items": {"type": "integer"}}, "list of integer"),
        ({"type": "array"}, "list of any"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer | null"),
        ({"$ref": "#/$defs/P"}, "{x: integer, y?: integer}"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "integer (>= 1, <= 5)"),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"$ref": "#/$defs/loop"}, "any"),
        ({"$ref": "elsewhere"}, "any"),
        ({"$ref": "#/$defs/deep"}, "{next?: {next?: {next?: {next?: ...}}}}"),
        ({}, "any"),
        (True, "any"),
        (7, "any"),
        ({"type": 7, "enum": "x", "anyOf": 3, "properties": []}, "any"),
    ],
)
def test_a_schema_is_told_in_few_words(schema: Any, told: str) -> None:
    root = {
        "$defs": {
            "P": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x"],
            },
            "loop": {"$ref": "#/$defs/loop"},
            "deep": {"type": "object", "properties": {"next": {"$ref": "#/$defs/deep"}}},
        }
    }
    assert words(schema, root) == told


def test_long_lists_of_values_are_counted() -> None:
    told = words({"enum": list(range(100))}, {})
    assert told.count("|") == MOST_VALUES
    assert told.endswith(f"... ({100 - MOST_VALUES} more)")


def test_arguments_have_their_defaults_and_descriptions() -> None:
    schema = {
        "properties": {
            "a": {"type": "string", "description": "First.", "default": None},
            "b": {"$ref": "#/$defs/B"},
            "c": True,
        },
        "required": ["b"],
        "$defs": {"B": {"type": "integer", "description": "Second."}},
    }
    a, b, c = arguments_of(schema)
    assert (a.type, a.is_required, a.default, a.about) == ("string", False, "null", "First.")
    assert (b.type, b.is_required, b.default, b.about) == ("integer", True, None, "Second.")
    assert (c.type, c.default, c.about) == ("any", None, "")
    assert list(arguments_of({"properties": [], "required": 3})) == []


def test_a_tool_that_takes_any_name_says_of_what_type() -> None:
    """As one with `**kwargs: int` does."""
    some, others = arguments_of(
        {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer", "minimum": 1}}
    )
    assert (some.name, others.name, others.type, others.is_required) == ("a", "any other", "integer (>= 1)", False)
    [anything] = arguments_of({"additionalProperties": True})
    assert anything.type == "any"
    assert list(arguments_of({"additionalProperties": False})) == []
