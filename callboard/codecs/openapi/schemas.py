"""Schemas of an OpenAPI document as JSON Schemas that stand alone: what they refer to is brought along.

What a model and a validator have no use for is left out, and what a stranger could make large has a limit.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from callboard.codecs.openapi.document import ApiDocument, UnusableOperation

MAX_NODES: Final = 4000
"""Most subschemas of one schema, all that it refers to included. A model reads them all."""

MAX_ALL_NODES: Final = 50_000
"""Most subschemas of all tools of a document, in one direction. Each takes some 100 us when the server starts: 256 KiB
of operations that all refer to one schema would take minutes."""

MAX_ALL_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of schemas of all tools of a document, in one direction. Each list has them all."""

MAX_DEPTH: Final = 24
"""Deepest nesting of subschemas, without following references."""

MAX_SCHEMA_BYTES: Final = 64 * 1024
"""Largest schema, in bytes of JSON. A larger one is left out, and anything goes: the API knows what it takes."""

MAX_CHOICES: Final = 200
"""Most values of an enumeration that are told. Of more the first ones are told as examples."""

MAX_TEXT: Final = 1000
"""Longest description inside of a schema, in characters."""

Direction: TypeAlias = Literal["in", "out"]
"""Whether a schema is of what is sent to the API, or of what it answers."""
Schema: TypeAlias = dict[str, Any]

_PLAIN: Final = frozenset(
    (
        *("type", "default", "enum", "const", "format", "pattern", "minLength", "maxLength", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "required"),
        *("minProperties", "maxProperties", "examples"),
    )
)
_ONE: Final = frozenset(("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"))
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS: Final = frozenset(("properties", "patternProperties"))
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class SchemaTooLarge(UnusableOperation):
    """A schema is larger than any model reads."""


@attrs.define
class SchemaBudget:
    """What is left for the schemas of all tools of a document, in one direction."""

    nodes: int = MAX_ALL_NODES
    size: int = MAX_ALL_BYTES


class StandaloneSchemas:
    """The schemas of one tool, in one direction, and the definitions that they share."""

    def __init__(self, document: ApiDocument, direction: Direction, budget: SchemaBudget | None = None) -> None:
        self.defs: dict[str, Schema] = {}
        self._budget = SchemaBudget() if budget is None else budget
        self._document = document
        self._direction = direction
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, str]] = deque()
        self._nodes = 0

    def of(self, said: object) -> Schema:
        """The schema. What it refers to is in `defs`. Raises `UnusableOperation`."""
        found: Schema = self._schema(said, 0)
        while self._waiting:
            name, reference = self._waiting.popleft()
            self.defs[name] = self._schema(self._document.follow({"$ref": reference}), 0)
        return found

    def whole(self, schema: Schema) -> Schema:
        """*schema* with the definitions. Raises `SchemaTooLarge`."""
        found = {**schema, "$defs": self.defs} if self.defs else schema
        size = len(msgspec.json.encode(found))
        if size > min(MAX_SCHEMA_BYTES, self._budget.size):
            raise SchemaTooLarge("the schema is too large")
        self._budget.size -= size
        return found

    def _schema(self, said: object, depth: int) -> Any:  # a schema may be a truth value, too
        self._nodes += 1
        self._budget.nodes -= 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH or self._budget.nodes < 0:
            raise SchemaTooLarge("the schema is too large")
        if isinstance(said, bool):
            return said
        if not isinstance(said, dict):
            return {}
        if isinstance(said.get("$ref"), str):
            return self._referred(said)
        found: Schema = {}
        for key, value in said.items():
            if key in _PLAIN:
                found[key] = value
            elif key in _ONE and isinstance(value, dict | bool):
                found[key] = self._schema(value, depth + 1)
            elif key in _LISTS and isinstance(value, list):
                found[key] = [self._schema(one, depth + 1) for one in value]
            elif key in _MAPS and isinstance(value, dict):
                found[key] = {str(name): self._schema(one, depth + 1) for name, one in value.items()}
            elif key in ("title", "description") and isinstance(value, str) and value:
                found[key] = value[:MAX_TEXT]
        self._turn(found, said)
        return found

    def _referred(self, said: Mapping[str, Any]) -> Schema:
        reference = str(said["$ref"])
        if reference not in self._names:
            self._document.follow({"$ref": reference})
            name = base = _UNFIT.sub("_", reference.rpartition("/")[2])[:64] or "schema"
            number = 2
            while name in self.defs:
                name, number = f"{base}_{number}", number + 1
            self._names[reference], self.defs[name] = name, {}
            self._waiting.append((name, reference))
        found: Schema = {"$ref": f"#/$defs/{self._names[reference]}"}
        if isinstance(said.get("description"), str):
            found["description"] = said["description"][:MAX_TEXT]
        return found

    def _turn(self, found: Schema, said: Mapping[str, Any]) -> None:
        """Make JSON Schema of what OpenAPI has of its own."""
        for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(found.get(bound), bool) and found.pop(bound) and limit in found:  # as 3.0 has it
                found[bound] = found.pop(limit)
        if isinstance(found.get("enum"), list) and len(found["enum"]) > MAX_CHOICES:
            choices = found.pop("enum")
            told = f"One of {len(choices)} values"
            found["description"] = f"{found.get('description', '')} {told}.".strip()
            found["examples"] = choices[:3]
        if said.get("nullable") is True:
            _allow_null(found)
        hidden = "readOnly" if self._direction == "in" else "writeOnly"
        properties = said.get("properties")
        for name, one in (properties if isinstance(properties, dict) else {}).items():
            if isinstance(one, dict) and one.get(hidden) is True:
                found["properties"].pop(str(name), None)
                if isinstance(found.get("required"), list):
                    found["required"] = [needed for needed in found["required"] if needed != name]
        if found.get("required") == [] or not _are_texts(found.get("required", [])):
            found.pop("required", None)


def _allow_null(found: Schema) -> None:
    kinds = found.get("type")
    if isinstance(kinds, str):
        found["type"] = [kinds, "null"]
        if isinstance(found.get("enum"), list) and None not in found["enum"]:
            found["enum"] = [*found["enum"], None]
    elif kinds is None and found.keys() & _LISTS:
        rest = {key: found.pop(key) for key in (*_LISTS,) if key in found}
        found["anyOf"] = [rest, {"type": "null"}]


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)
