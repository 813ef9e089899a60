"""Arguments of a tool that are mirrored into `Mcp-Param-*` headers: `x-mcp-header`, compiled once per tool.

A tool that breaks one of the annotation's rules must be left out of the list by an HTTP client, so each rule
has a sentence of its own that can be logged.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import attrs

from callboard.codecs.json_schema import Path, subschemas
from callboard.errors import InvalidDefinition

MAX_MIRRORED: Final = 64
"""Most mirrored arguments of one tool. HTTP servers commonly refuse a request of more than 100 header lines."""

ANNOTATION: Final = "x-mcp-header"
PREFIX: Final = "Mcp-Param-"

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # tchar of RFC 9110
_TYPES: Final = ("string", "integer", "boolean")


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
        for inner in subschemas(input_schema):
            if ANNOTATION not in inner.schema:
                continue
            name, path = _checked(inner.schema, inner.path)
            key = (PREFIX + name).lower().encode()
            if key in paths:
                raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is a duplicate (names are case-insensitive)")
            paths[key], names[key] = path, (PREFIX + name).encode()
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


def _checked(schema: Mapping[str, Any], path: Path | None) -> tuple[str, Path]:
    """Return name and path of an annotation that keeps all the rules which it can keep or break alone."""
    name = schema[ANNOTATION]
    if not isinstance(name, str) or not name:
        raise InvalidDefinition(f"{ANNOTATION} must be a non-empty string")
    if not _TOKEN.fullmatch(name):
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is not an HTTP token")
    if path is None:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is not reachable by `properties` alone")
    if not path:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} is on the whole schema, not on a property")
    if schema.get("type") not in _TYPES:
        raise InvalidDefinition(f"{ANNOTATION} {name[:64]!r} needs type string, integer or boolean")
    return name, path
