"""What the official schemas accept, judged by a validator of their few keywords: jsonschema would take minutes.

It is as strict as the models where a schema is laxer than its words (`x-never`), and as lax where the text of the
specification forgives what the schema demands.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from callboard.codecs.revisions.revision import Revision
from tests.codecs.revisions.official import forgiving

Place: TypeAlias = tuple[str | int, ...]

KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
OTHERS: Final[tuple[Any, ...]] = (
    None,
    True,
    -3,
    1.5,
    "",
    "user",
    [],
    ["a"],
    {},
    {"a": 1},
    {"type": "text", "text": ""},
)
"""What a value is replaced by; no float without a fraction, because an id must not be one and another integer may."""


def accepts(revision: Revision, schema: Any, value: Any, *, nulls: bool = False) -> bool:
    """Whether a schema accepts a value; with *nulls* also null for a member that may be absent, and settings of an
    extension that are no object."""
    match schema:
        case bool():
            return schema
        case {"$ref": str(ref)}:
            return accepts(revision, forgiving(revision)[ref.rsplit("/", 1)[1]], value, nulls=nulls)
        case {"const": const}:
            return type(value) is type(const) and bool(value == const)
        case {"enum": list(values)}:
            return type(value) is str and value in values
    kinds = schema.get("type", ())
    fitting = [KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    if fitting and not any(type(value) in types for types in fitting):
        return False
    if not all(accepts(revision, part, value, nulls=nulls) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(accepts(revision, part, value, nulls=nulls) for part in schema["anyOf"]):
        return False
    return all(_parts_fit(revision, schema, value, nulls))


def _parts_fit(revision: Revision, schema: dict[str, Any], value: Any, nulls: bool) -> Iterator[bool]:
    if isinstance(value, dict):
        yield value.keys() >= set(schema.get("required", ()))
        yield value.keys().isdisjoint(schema.get("x-never", ()))
        others = {} if nulls and "x-any-settings" in schema else schema.get("additionalProperties", {})
        for name, item in value.items():
            if (
                nulls
                and item is None
                and name in schema.get("properties", {})
                and name not in schema.get("required", ())
            ):
                continue
            inner = schema.get("properties", {}).get(name, others)
            yield accepts(revision, inner, item, nulls=nulls)
    elif isinstance(value, list):
        yield len(value) <= schema.get("maxItems", len(value))
        for item in value:
            yield accepts(revision, schema.get("items", {}), item, nulls=nulls)
    elif type(value) in KINDS["number"]:
        yield schema.get("minimum", value) <= value <= schema.get("maximum", value)


def spoiled(value: Any, count: int) -> Iterator[Any]:
    """Copies of *value* with one thing gone or replaced, at any depth. The same value always gives the same ones."""
    places = list(_places(value, ()))
    chance = random.Random(len(places))
    for place in chance.choices(places, k=count):
        yield _spoiled_at(value, place, chance)


def _places(value: Any, here: Place) -> Iterator[Place]:
    yield here
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield from _places(item, (*here, step))


def _spoiled_at(value: Any, place: Place, chance: random.Random) -> Any:
    if not place:
        return chance.choice(OTHERS)
    step, *rest = place
    changed = value.copy()
    if rest or chance.random() < 2 / 3:
        changed[step] = _spoiled_at(value[step], tuple(rest), chance)
    else:
        del changed[step]
    return changed
