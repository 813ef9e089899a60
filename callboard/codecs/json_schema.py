"""Checks of untrusted JSON Schemas, before a validator compiles them.

A tool's schema comes from the author of the server. It may be deep enough to blow a stack, wide enough to stall the
process, or point into our network; a validator that fetches what it refers to is an HTTP client for its author.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import attrs

from callboard.errors import InvalidDefinition

MAX_SCHEMA_DEPTH: Final = 32
"""Deepest nesting of subschemas. Validators recurse."""

MAX_SUBSCHEMAS: Final = 10_000
"""Most subschemas of one schema. A real tool has tens."""

Path: TypeAlias = tuple[str, ...]

_ONE: Final = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties"),
        *("unevaluatedProperties", "propertyNames", "contentSchema", "not", "if", "then", "else"),
    }
)
_LISTS: Final = frozenset({"items", "prefixItems", "allOf", "anyOf", "oneOf"})
_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
# The meta-schemas, which every validator carries.
_DIALECT: Final = re.compile(
    r"https?://json-schema\.org/(draft-0[3-7]/schema|draft/20(19-09|20-12)/(schema|meta/[a-z-]+))(#.*)?"
)


@attrs.frozen
class Subschema:
    """A schema inside a schema. *path* names the property it describes, if only `properties` led here."""

    schema: Mapping[str, Any]
    path: Path | None
    depth: int


def subschemas(schema: Mapping[str, Any]) -> Iterator[Subschema]:
    """Find every subschema, the whole one first; values (`default`, `enum`, ...) are not schemas.

    Raises `InvalidDefinition` past one of the limits, and for what is no schema at all.
    """
    if not isinstance(schema, Mapping):  # untrusted input may not match the annotation
        raise InvalidDefinition("the schema is not an object")
    stack: list[tuple[Any, Path | None, int]] = [(schema, (), 0)]
    seen = 0
    while stack:
        here, path, depth = stack.pop()
        seen += 1
        if depth > MAX_SCHEMA_DEPTH or seen > MAX_SUBSCHEMAS:
            raise InvalidDefinition("the schema is too deep or too large")
        yield Subschema(here, path, depth)
        stack.extend((child, step, depth + 1) for child, step in _below(here, path) if isinstance(child, dict))


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is too deep, too large, or not whole in itself.

    Raises `InvalidDefinition`.
    """
    schemas = [inner.schema for inner in subschemas(schema)]
    roots = [schema, *(inner for inner in schemas[1:] if isinstance(inner.get("$id"), str))]
    own = {str(root["$id"]).rstrip("#") for root in roots if "$id" in root}
    seen, followed = set(map(id, schemas)), set[str]()
    for here in schemas:  # grows as we go: what a pointer leads to is a schema too, were it in a `default`
        for key, target in references(here):
            if not _is_inside(target, own):
                raise InvalidDefinition(f"a {key} outside of the schema: external references are not fetched")
            pointer = target.partition("#")[2]
            places = () if pointer in followed else [pointed_at(root, pointer) for root in roots]
            followed.add(pointer)
            for place in places:
                if isinstance(place, dict) and id(place) not in seen:
                    new = [inner.schema for inner in subschemas(place)]
                    schemas += new
                    seen.update(map(id, new))
            if max(len(schemas), len(followed) * len(roots)) > MAX_SUBSCHEMAS:
                raise InvalidDefinition("the schema is too large")


def references(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((key, schema[key]) for key in _REFERENCES if isinstance(schema.get(key), str))


def pointed_at(root: Any, pointer: str) -> Any:
    """Return what a JSON pointer leads to (RFC 6901), None for nothing."""
    here = root
    for step in unquote(pointer).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(step)
        elif isinstance(here, list) and step.isdecimal() and len(step) < 9 and int(step) < len(here):
            here = here[int(step)]
        else:
            return None
    return here


def _is_inside(target: str, own: set[str]) -> bool:
    return target.startswith("#") or target.partition("#")[0] in own or _DIALECT.fullmatch(target) is not None


def _below(schema: Mapping[str, Any], path: Path | None) -> Iterator[tuple[Any, Path | None]]:
    """Find what stands where a schema may, and the path of the property that it then describes."""
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            yield from ((child, None if path is None else (*path, name)) for name, child in value.items())
        elif key in _MAPS and isinstance(value, dict):
            yield from ((child, None) for child in value.values())
        elif key in _LISTS and isinstance(value, list):
            yield from ((child, None) for child in value)
        elif key in _ONE:
            yield value, None
