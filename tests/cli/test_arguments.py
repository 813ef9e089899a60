"""`key=value` and `key:=json`, and what a tool's schema makes of them."""

from typing import Any

import pytest

from callboard.cli.arguments import BadArgument, read_arguments, read_headers, read_texts
from callboard.codecs.revisions import Tool


def tool(defs: dict[str, Any] | None = None, /, **properties: Any) -> Tool:
    return Tool(name="x", input_schema={"type": "object", "properties": properties, "$defs": defs or {}})


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("a=1", "1"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=x:=y", "x:=y"),
        ("a:=1", 1),
        ("a:=[1, {}]", [1, {}]),
        ('a:="1"', "1"),
        ("a:=null", None),
        ("a=true", "true"),
    ],
)
def test_what_follows_is_text_or_json(typed: str, value: Any) -> None:
    assert read_arguments([typed]) == {"a": value}


@pytest.mark.parametrize(
    ("kind", "typed", "value"),
    [
        ("integer", "3", 3),
        ("integer", "3.5", "3.5"),
        ("integer", "three", "three"),
        ("integer", "true", "true"),
        ("number", "3.5", 3.5),
        ("boolean", "true", True),
        ("boolean", "1", "1"),
        ("array", "[1]", [1]),
        ("array", "1", "1"),
        ("object", '{"b": 1}', {"b": 1}),
        ("string", "3", "3"),
        (["string", "integer"], "3", "3"),
        (["integer", "null"], "3", 3),
        (["integer", "null"], "null", None),
        ("strange", "3", "3"),
        (7, "3", "3"),
    ],
)
def test_a_schema_that_wants_something_else_than_text_gets_it_if_it_can(kind: Any, typed: str, value: Any) -> None:
    assert read_arguments([f"a={typed}"], tool(a={"type": kind})) == {"a": value}


OR_NOTHING = {"anyOf": [{"type": "array"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        (OR_NOTHING, "[1]", [1]),
        (OR_NOTHING, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),
        ({"oneOf": [{"$ref": "#/$defs/count"}, {"type": "null"}]}, "3", 3),
        ({"allOf": [{"$ref": "#/$defs/count"}]}, "3", 3),
        ({"$ref": "#/$defs/a~1b%20c"}, "true", True),
        ({"enum": [1, 2, None]}, "2", 2),
        ({"enum": ["1", 2]}, "2", "2"),
        ({"const": False}, "false", False),
        ({"$ref": "#/$defs/itself"}, "3", "3"),
        ({"$ref": "#/$defs/nowhere/at/all"}, "3", "3"),
        ({"$ref": "https://example.com/schema"}, "3", "3"),
        ({"anyOf": 7, "enum": 7, "$ref": 7}, "3", "3"),
    ],
)
def test_what_a_schema_wants_is_found_behind_choices_and_references(schema: Any, typed: str, value: Any) -> None:
    defs = {
        "count": {"type": "integer"},
        "a/b c": {"type": "boolean"},
        "itself": {"anyOf": [{"$ref": "#/$defs/itself"}]},
    }
    assert read_arguments([f"a={typed}"], tool(defs, a=schema)) == {"a": value}


def test_a_long_row_of_references_is_followed_to_its_end() -> None:
    defs: dict[str, Any] = {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(5000)}
    defs["5000"] = {"type": "integer"}
    assert read_arguments(["a=3"], tool(defs, a={"$ref": "#/$defs/0"})) == {"a": 3}


def test_a_schema_that_says_nothing_changes_nothing() -> None:
    assert read_arguments(["a=1", "b=2"], tool(a=True, b={"$ref": "#/x"})) == {"a": "1", "b": "2"}
    assert read_arguments(["a=1"], Tool(name="x", input_schema={"type": "object"})) == {"a": "1"}


@pytest.mark.parametrize("typed", [["a"], ["=1"], [":=1"], ["a:={"], ["a=1", "a=2"], ["a=1", "a:=1"], ["--flag"]])
def test_what_is_no_argument_is_said_so(typed: list[str]) -> None:
    with pytest.raises(BadArgument):
        read_arguments(typed)


def test_a_prompt_takes_text_alone() -> None:
    assert read_texts(["a=1", "b=[2]"]) == {"a": "1", "b": "[2]"}
    for typed in (["a:=1"], ["a=1", "a=1"], ["a"]):
        with pytest.raises(BadArgument):
            read_texts(typed)


def test_headers_are_names_and_values() -> None:
    assert read_headers(["X-Key: a: b ", "Y:"]) == {"X-Key": "a: b", "Y": ""}


@pytest.mark.parametrize("typed", ["secret-token", ": secret-token", ""])
def test_a_header_that_is_none_is_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(BadArgument) as refused:
        read_headers([typed])
    assert "secret-token" not in str(refused.value)
