"""Which arguments of a tool are mirrored into `Mcp-Param-*` headers: `x-mcp-header`, compiled once per tool.

A tool that breaks one of the annotation's rules must be left out of the list by an HTTP client, so each rule
has a sentence of its own that can be logged.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self, TypeAlias

import attrs

from callboard.errors import InvalidDefinition

MAX_MIRRORED: Final = 64
"""Most mirrored arguments of one tool. HTTP servers commonly refuse a request of more than 100 header lines."""

MAX_SCHEMA_DEPTH: Final = 32
"""Deepest nesting of subschemas that is looked through."""

MAX_SUBSCHEMAS: Final = 10_000
"""Most subschemas of one tool that are looked through."""

ANNOTATION: Final = "x-mcp-header"
PREFIX: Final = "Mcp-Param-"

Path: TypeAlias = tuple[str, ...]
_Step: TypeAlias = tuple[Any, Path | None, int]  # a schema, its path if only `properties` led here, its depth

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # tchar of RFC 9110
_TYPES: Final = ("string", "integer", "boolean")
_SCHEMA_KEYS: Final = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties"),
    *("unevaluatedProperties", "propertyNames", "contentSchema", "not", "if", "then", "else"),
)
_LIST_KEYS: Final = ("items", "prefixItems", "allOf", "anyOf", "oneOf")
_MAP_KEYS: Final = ("patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


@attrs.frozen
class HeaderMap:
    """The table of one tool: lower-case header name to the path of the argument that it mirrors."""

    paths: Mapping[bytes, Path] = attrs.field(factory=dict)
    names: Mapping[bytes, bytes] = attrs.field(factory=dict)
    """The same header names, spelled as the tool spells them."""
    _folded: frozenset[bytes] = attrs.field(
        init=False, default=attrs.Factory(lambda self: frozenset(map(_fold, self.paths)), takes_self=True)
    )

    @classmethod
    def compile(cls, input_schema: Mapping[str, Any]) -> Self:
        """Read the annotations of an `inputSchema`. Raises InvalidDefinition with the rule that one breaks."""
        paths: dict[bytes, Path] = {}
        names: dict[bytes, bytes] = {}
        for schema, path in _annotated(input_schema):
            name = _checked(schema, path)
            key = (PREFIX + name).lower().encode()
            if key in paths:
                raise InvalidDefinition(f"{ANNOTATION} {name!r} stands twice (names differ in more than case)")
            paths[key], names[key] = path or (), (PREFIX + name).encode()
        if len(paths) > MAX_MIRRORED:
            raise InvalidDefinition(f"more than {MAX_MIRRORED} arguments with {ANNOTATION}")
        return cls(paths, names)

    def values(self, arguments: Any) -> Iterator[tuple[bytes, Any]]:
        """Yield each header name with its argument; None where that is null or absent."""
        for key, path in self.paths.items():
            value = arguments
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            yield key, value

    def has_lookalike(self, key: bytes) -> bool:
        """Whether *key* is not in the table, but would be with `_` read as `-` or the other way."""
        return key not in self.paths and _fold(key) in self._folded


def _fold(key: bytes) -> bytes:
    return key.replace(b"_", b"-")


NO_HEADERS: Final = HeaderMap()
"""The table of a tool that mirrors nothing."""


def _annotated(schema: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Path | None]]:
    """Find every annotated subschema, wherever it hides; values (`default`, `enum`, ...) are not schemas."""
    stack: list[_Step] = [(schema, (), 0)]
    seen = 0
    while stack:
        here, path, depth = stack.pop()
        if not isinstance(here, dict):
            continue
        seen += 1
        if depth > MAX_SCHEMA_DEPTH or seen > MAX_SUBSCHEMAS:
            raise InvalidDefinition("the input schema is too deep or too large to be looked through")
        if ANNOTATION in here:
            yield here, path
        stack.extend(_below(here, path, depth + 1))


def _below(schema: Mapping[str, Any], path: Path | None, depth: int) -> Iterator[_Step]:
    for name, child in _items(schema.get("properties")):
        yield child, None if path is None else (*path, name), depth
    for key in _SCHEMA_KEYS:
        yield schema.get(key), None, depth
    for key in _LIST_KEYS:
        children = schema.get(key)
        yield from ((child, None, depth) for child in (children if isinstance(children, list) else ()))
    for key in _MAP_KEYS:
        yield from ((child, None, depth) for _, child in _items(schema.get(key)))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items() if isinstance(value, dict) else ())


def _checked(schema: Mapping[str, Any], path: Path | None) -> str:
    """Return the name of an annotation that keeps all the rules which it can keep or break alone."""
    name = schema[ANNOTATION]
    if not isinstance(name, str) or not name:
        raise InvalidDefinition(f"{ANNOTATION} must be a string that is not empty")
    if not _TOKEN.fullmatch(name):
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is not an HTTP token")
    if path is None:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is not reached by `properties` alone")
    if not path:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is on the whole schema, not on a property")
    if schema.get("type") not in _TYPES:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} needs type string, integer or boolean")
    return name
