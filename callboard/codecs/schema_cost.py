"""An upper bound of the work to validate a value with an untrusted schema, computed before validation.

A few lines of `allOf` and `$ref` lead to one schema in a million ways, and in as many again with each level of the
value. A validator goes them all, and cannot be stopped. So the ways are counted, which is little work.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self, TypeAlias
from urllib.parse import unquote

import attrs

from callboard.codecs.json_schema import MAX_SUBSCHEMAS, pointed_at, references, subschemas
from callboard.errors import InvalidDefinition

MAX_WORK: Final = 10_000_000
"""Most subschemas that one value is held to, each counted for every way that leads there: a tenth of a second."""

MAX_LOOKED_AT: Final = 5 * MAX_SUBSCHEMAS
"""Most subschemas that are looked at to find out, each counted for every level of the value: 50 milliseconds."""

MAX_LEVELS: Final = 64
"""Deepest value that is counted for. Nothing deeper is read."""

_HERE: Final = frozenset({"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_MAPS: Final = frozenset({"dependentSchemas", "dependencies", "patternProperties"})
_BELOW: Final = frozenset(
    {
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
        *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    }
)

Schema: TypeAlias = Mapping[str, Any]


@attrs.frozen
class SchemaCost:
    """How many subschemas a part of a value is held to, at each level of it. Deeper ones are as the last."""

    at: tuple[int, ...]

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Raises `InvalidDefinition` for the schema takes too long to validate."""
        return cls(tuple(_Looking(schema).levels()))

    def is_bearable(self, value: object) -> bool:
        """Whether *value* can be held to the schema in bounded time."""
        work, level, parts = 0, 0, [value]
        while parts:
            work += len(parts) * self.at[min(level, len(self.at) - 1)]
            if work > MAX_WORK:
                return False
            level, parts = level + 1, [inner for part in parts for inner in _inside(part)]
        return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _Looking:
    """One look through a schema."""

    def __init__(self, schema: Schema) -> None:
        self._known = {id(inner.schema): inner.schema for inner in subschemas(schema)}
        self._roots = [schema, *(one for one in self._known.values() if isinstance(one.get("$id"), str))]
        self._anchors: dict[str, list[Schema]] = {}
        for one in self._known.values():
            for name in _anchors_of(one):
                self._anchors.setdefault(name, []).append(one)
        self._leading: dict[int, list[int]] = {}
        self._members: dict[int, list[tuple[str | None, int]]] = {}
        self._start = id(schema)
        self._seen = 0

    def levels(self) -> Iterator[int]:
        """The work at one part of the value, for each level that it may be on: along the worst way down to it."""
        order = self._in_order()
        work: dict[int, int] = {}
        for key in order:
            work[key] = 1 + sum(work.get(other, 0) for other in self._here(key))
        yield work[self._start]
        for _ in range(MAX_LEVELS):
            before, work = work, self._below(order, work)
            yield work[self._start]
            if work[self._start] > MAX_WORK or work == before:
                return  # enough is known

    def _below(self, order: Iterable[int], work: Mapping[int, int]) -> dict[int, int]:
        """The work for each schema one level deeper, where *work* is what its children then have."""
        members: dict[int, Counter[str | None]] = {}
        for key in order:
            mine = members[key] = Counter[str | None]()
            for name, child in self._children_of(key):
                mine[name] += work[child]
            for other in self._here(key):
                found = members.get(other, Counter())
                self._count(len(found))
                mine.update(found)
        return {key: _worst(found) if found else 0 for key, found in members.items()}

    def _in_order(self) -> list[int]:
        """All schemas, each after those that it refers to. A reference back to itself is not counted again."""
        done: dict[int, None] = {}
        begun = set[int]()
        roots, stack = [self._start], list[tuple[int, bool]]()
        while roots or stack:
            key, is_left = stack.pop() if stack else (roots.pop(), False)
            if is_left:
                done[key] = None
                roots += [child for _, child in self._children_of(key)]
            elif key not in begun:
                begun.add(key)
                stack.append((key, True))
                stack += [(other, False) for other in self._here(key)]
        return list(done)

    def _children_of(self, key: int) -> list[tuple[str | None, int]]:
        """Schemas for the members of a value: by name, or for any."""
        self._count()
        found = self._members.get(key)
        if found is None:
            schema = self._known[key]
            properties = schema.get("properties")
            named = properties.items() if isinstance(properties, dict) else ()
            found = self._members[key] = [(name, self._key(one)) for name, one in named if isinstance(one, dict)]
            found += [(None, self._key(one)) for one in _children(schema, _BELOW)]
        return found

    def _here(self, key: int) -> list[int]:
        """Schemas that apply to the same value."""
        found = self._leading.get(key)
        if found is None:
            schema = self._known[key]
            found = self._leading[key] = [self._key(child) for child in _children(schema, _HERE)]
            for _, target in references(schema):
                found += {self._key(place) for place in self._places(unquote(target.partition("#")[2]))}
        return found

    def _places(self, fragment: str) -> list[Schema]:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment, [])
        places = (pointed_at(root, fragment) for root in self._roots)
        return [place for place in places if isinstance(place, dict)]

    def _key(self, schema: Schema) -> int:
        self._known.setdefault(id(schema), schema)
        return id(schema)

    def _count(self, more: int = 1) -> None:
        self._seen += more
        if self._seen > MAX_LOOKED_AT:
            raise InvalidDefinition("the schema takes too long to validate")


def _worst(members: Counter[str | None]) -> int:
    return members[None] + max((work for name, work in members.items() if name is not None), default=0)


def _anchors_of(schema: Schema) -> Iterator[str]:
    yield from (schema[key] for key in ("$anchor", "$dynamicAnchor") if isinstance(schema.get(key), str))
    if isinstance(name := schema.get("$id"), str) and name.startswith("#"):  # as draft-07 has it
        yield name[1:]


def _children(schema: Schema, keys: frozenset[str]) -> Iterator[Schema]:
    for key in keys & schema.keys():
        value = schema[key]
        if key in _MAPS and isinstance(value, dict):
            yield from (child for child in value.values() if isinstance(child, dict))
        elif key in _LISTS and isinstance(value, list):
            yield from (child for child in value if isinstance(child, dict))
        elif isinstance(value, dict) and key not in _MAPS:
            yield value
