"""How much work a schema may be is told beforehand: ordinary ones are bearable, those that grow without end are not."""

import time
from itertools import pairwise
from typing import Any, Final

import pytest

from callboard.codecs.json_schema import MAX_SUBSCHEMAS
from callboard.codecs.schema_cost import MAX_WORK, SchemaCost
from callboard.errors import InvalidDefinition

Json = dict[str, Any]
LEVELS: Final = 40


def twice(where: str, by: str) -> Json:
    """Forty schemas, each of which leads to the next one in two ways: a million million ways in all."""
    names = [f"a{number}" for number in range(LEVELS + 1)]
    refs = {"pointer": "#/$defs/{}", "anchor": "#{}", "id": "https://example.org/{}"}
    defs: Json = {names[-1]: {"type": "object"}}
    for name, after in pairwise(names):
        leads = {"$ref": refs[by].format(after)}
        defs[name] = {where: [leads, leads]} if where != "not" else {"not": leads, "if": leads}
    for name, schema in defs.items():
        schema |= {"anchor": {"$anchor": name}, "id": {"$id": refs["id"].format(name)}}.get(by, {})
    return {"$ref": refs[by].format(names[0]), "$defs": defs}


def deep(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("where", ["allOf", "anyOf", "oneOf", "not"])
@pytest.mark.parametrize("by", ["pointer", "anchor", "id"])
def test_a_schema_that_leads_everywhere_in_too_many_ways_is_not_bearable_for_anything(where: str, by: str) -> None:
    assert not SchemaCost.of(twice(where, by)).is_bearable({})


NODE: Final = {"$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    "node",
    [
        {"allOf": [{"properties": {"a": NODE}}, {"properties": {"a": NODE}}]},
        {"properties": {"a": NODE}, "additionalProperties": NODE, "patternProperties": {"": NODE}},
        {"anyOf": [{"additionalProperties": NODE}, {"additionalProperties": NODE}]},
    ],
)
def test_one_that_grows_with_every_level_of_the_value_is_bearable_for_flat_ones(node: Json) -> None:
    work = SchemaCost.of({**NODE, "$defs": {"node": node}})
    assert work.is_bearable(deep(10))
    assert not work.is_bearable(deep(60))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"items": {"type": "integer"}}}},
        {**NODE, "$defs": {"node": {"properties": {"a": NODE, "b": {"type": "array", "items": NODE}}}}},
        {**NODE, "$defs": {"node": {"anyOf": [{"type": "null"}, {"properties": {"a": NODE, "b": NODE}}]}}},
        {**NODE, "$defs": {"node": {"allOf": [NODE]}}},
        {
            **NODE,
            "$defs": {"node": {"properties": {name: {"not": {}, "properties": {"a": NODE}} for name in "abcdef"}}},
        },
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": 7, "allOf": 7, "items": [{}, 7], "not": True, "$defs": {"a": {"$ref": "#/$defs/none"}}},
    ],
)
def test_ordinary_ones_are_bearable_for_every_value(schema: Json) -> None:
    work = SchemaCost.of(schema)
    assert work.is_bearable(deep(64))
    assert work.is_bearable({"b": [{"a": None}] * 50_000})


def test_many_values_and_many_schemas_together_are_too_much() -> None:
    work = SchemaCost.of({"additionalProperties": {"anyOf": [{"type": "string"}] * 1000}})
    assert work.is_bearable(dict.fromkeys(map(str, range(1000)), 1))
    assert not work.is_bearable(dict.fromkeys(map(str, range(MAX_WORK // 1000)), 1))


def test_looking_itself_is_bounded() -> None:
    chain = {f"a{n}": {"properties": {"a": {"$ref": f"#/$defs/a{n + 1}"}}, "not": NODE} for n in range(200)}
    wide = {"anyOf": [{"properties": {"a": NODE}} for _ in range(MAX_SUBSCHEMAS // 2)]}
    began = time.perf_counter()
    try:
        work = SchemaCost.of({"$ref": "#/$defs/a0", "$defs": {**chain, "node": wide}})
    except InvalidDefinition:
        work = None
    assert work is None or not work.is_bearable(deep(64))
    assert time.perf_counter() - began < 5  # a small part of that, mostly
