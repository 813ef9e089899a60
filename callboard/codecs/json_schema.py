"""JSON Schemas from strangers, looked through before a validator compiles them.

A tool's schema comes from whoever runs the server. It may be deep enough to blow a stack, wide enough to stall the
process, or point into our network; a validator that fetches what it refers to is somebody else's HTTP client.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from callboard.errors import InvalidDefinition

MAX_SCHEMA_DEPTH: Final = 32
"""Deepest nesting of subschemas. Validators recurse."""

MAX_SUBSCHEMAS: Final = 10_000
"""Most subschemas of one schema. A real tool has tens."""

Path: TypeAlias = tuple[str, ...]

_ONE: Final = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties"),
    *("unevaluatedProperties", "propertyNames", "contentSchema", "not", "if", "then", "else"),
)
_LISTS: Final = ("items", "prefixItems", "allOf", "anyOf", "oneOf")
_MAPS: Final = ("patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DIALECTS: Final = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")  # every validator has these


@attrs.frozen
class Subschema:
    """A schema inside a schema. *path* names the property it describes, if only `properties` led here."""

    schema: Mapping[str, Any]
    path: Path | None
    depth: int


def subschemas(schema: Mapping[str, Any]) -> Iterator[Subschema]:
    """Find every subschema, the whole one first; values (`default`, `enum`, ...) are not schemas.

    Raises `InvalidDefinition` past one of the limits.
    """
    stack: list[tuple[Any, Path | None, int]] = [(schema, (), 0)]
    seen = 0
    while stack:
        here, path, depth = stack.pop()
        if not isinstance(here, dict):
            continue
        seen += 1
        if depth > MAX_SCHEMA_DEPTH or seen > MAX_SUBSCHEMAS:
            raise InvalidDefinition("a schema too deep or too large to be looked through")
        yield Subschema(here, path, depth)
        stack.extend((child, step, depth + 1) for child, step in _below(here, path))


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is too deep, too large, or not whole in itself.

    Raises `InvalidDefinition`.
    """
    found = list(subschemas(schema))
    own = {inner.schema["$id"].rstrip("#") for inner in found if isinstance(inner.schema.get("$id"), str)}
    for inner in found:
        for key in _REFERENCES:
            target = inner.schema.get(key)
            if isinstance(target, str) and not _is_inside(target, own):
                raise InvalidDefinition(f"a {key} that leaves the schema: it is never fetched")


def _is_inside(target: str, own: set[str]) -> bool:
    return target.startswith(("#", *_DIALECTS)) or target.partition("#")[0] in own


def _below(schema: Mapping[str, Any], path: Path | None) -> Iterator[tuple[Any, Path | None]]:
    for name, child in _items(schema.get("properties")):
        yield child, None if path is None else (*path, name)
    for key in _ONE:
        yield schema.get(key), None
    for key in _LISTS:
        children = schema.get(key)
        yield from ((child, None) for child in (children if isinstance(children, list) else ()))
    for key in _MAPS:
        yield from ((child, None) for _, child in _items(schema.get(key)))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items() if isinstance(value, dict) else ())
