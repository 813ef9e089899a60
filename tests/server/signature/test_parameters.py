"""Schemas that the author of a handler wrote."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from callboard.server.content.errors import BadArguments
from tests.server.kinds import Context, Opaque, Row, signature

Schema = dict[str, Any]


GIVEN: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"when": {"type": "string", "description": "A day"}, "n": {"type": "integer"}},
    "required": ["when"],
    "dependencies": {"n": ["when"]},
}


# Whole in itself at first sight; but `$ref` is relative to the `$id` around it.
LOST: Schema = {
    "$id": "https://example.org/",
    "$defs": {"a": {"$id": "sub/b", "$defs": {"c": {"$ref": "sub/b"}}}},
    "$ref": "sub/b#/$defs/c",
}


def test_a_given_schema_is_published_as_it_stands_and_its_properties_come_by_keyword() -> None:
    def tool(when: datetime.date, n: int = 2) -> None: ...

    found = signature(tool, input_schema=GIVEN)
    assert found.input_schema == GIVEN
    assert found.read({"when": "2026-07-28"}) == {"when": datetime.date(2026, 7, 28), "n": 2}
    assert [(one.name, one.description, one.required) for one in found.parameters] == [
        ("when", "A day", True),
        ("n", "", False),
    ]
    with pytest.raises(BadArguments, match="- n: expected integer"):
        found.read({"when": "2026-07-28", "n": "x"})


def test_a_given_schema_may_hand_all_arguments_over_at_once() -> None:
    def as_dict(arguments: dict[str, Any], ctx: Context) -> None: ...
    def as_struct(row: Row) -> None: ...
    def untyped(arguments) -> None: ...  # type: ignore[no-untyped-def]
    def by_name(**rest: Any) -> None: ...

    given = {"when": "x", "n": 1}
    assert signature(as_dict, input_schema=GIVEN).read(given) == {"arguments": given}
    assert signature(untyped, input_schema=GIVEN).read(given) == {"arguments": given}
    assert signature(by_name, input_schema=GIVEN).read(given) == given
    schema = {"type": "object", "required": ["id"]}
    assert signature(as_struct, input_schema=schema).read({"id": 1}) == {"row": Row(1)}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "properties": {"x": {"$ref": "https://example.org/x"}}}, "are not fetched"),
        ({"type": "nonsense"}, "not a JSON Schema"),
        ({"$schema": "https://example.org/dialect"}, "dialect 'https://example.org/dialect'"),
        ({"$schema": 7}, "dialect 7"),
        (LOST, "https://example.org/sub/sub/b is not fetched"),
    ],
)
def test_a_given_schema_that_cannot_be_used_is_refused(schema: Schema, words: str) -> None:
    def tool(arguments: dict[str, Any]) -> None: ...

    with pytest.raises(TypeError, match=words):
        signature(tool, input_schema=schema)


def test_a_given_schema_does_not_make_a_type_of_what_is_none() -> None:
    def by_name(when: Opaque, n: int = 1) -> None: ...
    def at_once(arguments: Opaque) -> None: ...
    def odd(when: str, n: Path = Path()) -> None: ...

    for function, name in ((by_name, "when"), (at_once, "arguments")):
        with pytest.raises(TypeError, match=f"the parameter {name} has a type without a JSON Schema"):
            signature(function, input_schema=GIVEN)
    with pytest.raises(BadArguments, match="- n: cannot convert int to Path"):
        signature(odd, input_schema=GIVEN).read({"when": "", "n": 1})


def test_a_given_schema_must_fit_the_parameters() -> None:
    def few(when: str) -> None: ...
    def many(when: str, n: int) -> None: ...

    with pytest.raises(TypeError, match=r"input_schema has n; add parameters, or \*\*kwargs"):
        signature(few, input_schema=GIVEN)
    with pytest.raises(TypeError, match="input_schema does not require n; give a default"):
        signature(many, input_schema=GIVEN)
