"""JSON Schema of Python types, and the validators that hold values to a schema.

msgspec knows attrs and data classes, `TypedDict`, `NamedTuple`, `Struct`, enums, `Literal`, unions, dates and so on.
Paths are taught here; so are unions of models; what else msgspec does not know may be pydantic's (`pydantic_types`).
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import attrs
import jsonschema_rs
import msgspec

from callboard.codecs.json_schema import check_schema
from callboard.errors import InvalidDefinition
from callboard.server.signature.declared import complete
from callboard.server.signature.pydantic_types import Mode, definition_name, dump, schema_of
from callboard.server.signature.translate import Choice, Foreign, StandIn, understood

Schema: TypeAlias = dict[str, Any]

DEFS: Final = "#/$defs/"
_DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Validator(Protocol):
    """A compiled schema, as far as it is used."""

    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Any: ...

    def validate(self, instance: Any) -> None: ...


def compile_schema(schema: Mapping[str, Any], *, is_strange: bool = False) -> Validator:
    """Compile a schema once, for good. Nothing it refers to is ever fetched.

    In one that *is_strange* a pattern may not look around or back: such a one can take hours, and nothing stops it.

    Raises `InvalidDefinition` for a dialect other than 2020-12 and draft-07, and for what is no schema.
    """
    check_schema(schema)
    named = schema.get("$schema", _DEFAULT_DIALECT)
    dialect = _DIALECTS.get(named.rstrip("#")) if isinstance(named, str) else None
    if dialect is None:
        raise InvalidDefinition(f"unknown JSON Schema dialect {named!r}; known: {', '.join(_DIALECTS)}")
    try:
        patterns = jsonschema_rs.RegexOptions() if is_strange else jsonschema_rs.FancyRegexOptions()
        return dialect(dict(schema), validate_formats=True, retriever=_refuse, pattern_options=patterns)
    except ValueError as reason:
        raise InvalidDefinition(f"not a JSON Schema: {reason}") from reason


def _refuse(uri: str) -> NoReturn:
    raise LookupError(f"external reference {uri} is not fetched")


def schemas_of(annotations: Sequence[Any], *, mode: Mode = "validation") -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schema of each type, and the `$defs` that they share, in order of their names.

    Raises `TypeError` for a type that has none.
    """
    types = [understood(annotation) for annotation in annotations]
    found, own, others = _components(types, mode, prefix="")
    if others.contradict(own):  # both sides define a name, such as that of an enum
        found, own, others = _components(types, mode, prefix="pydantic.")
        others.check_contradicts_not(own)
    defs = own | others.hoisted
    for schema in defs.values():
        schema.pop("title", None)  # the name of the class once more: noise to a model
    return found, dict(sorted(defs.items()))


def with_object_root(schema: Schema, defs: Mapping[str, Schema]) -> Schema | None:
    """Return one schema with an explicit `type: object` at its root, or None if it describes no object."""
    name = schema.get("$ref", "").removeprefix(DEFS)
    root = {**defs[name], **{key: value for key, value in schema.items() if key != "$ref"}} if name else schema
    return with_defs(root, defs) if root.get("type") == "object" else None


def with_defs(schema: Schema, defs: Mapping[str, Schema]) -> Schema:
    """Add those of *defs* that *schema* can reach."""
    reached: dict[str, Schema] = {}
    waiting: list[Any] = [schema]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            waiting.extend(here.values())
            name = here.get("$ref")
            if isinstance(name, str) and name.startswith(DEFS) and (key := name.removeprefix(DEFS)) not in reached:
                reached[key] = defs[key]
                waiting.append(defs[key])
        elif isinstance(here, list):
            waiting.extend(here)
    return {**schema, "$defs": dict(sorted(reached.items()))} if reached else dict(schema)


def to_json(value: Any) -> Any:
    """Make JSON values of what msgspec leaves to us. Raises `TypeError`."""
    return str(value) if isinstance(value, PurePath) else dump(value)


def _components(types: Sequence[Any], mode: Mode, *, prefix: str) -> tuple[list[Schema], dict[str, Schema], "_Others"]:
    """The schemas, msgspec's definitions, and those of what it leaves to us."""
    others = _Others(mode, prefix)
    found, own = others.components(types)
    return found, own, others


@attrs.define(eq=False)
class _Others:
    """The schemas of types that msgspec leaves to us, and the definitions that these bring along."""

    mode: Mode
    prefix: str
    hoisted: dict[str, Schema] = attrs.field(factory=dict)
    _standing: dict[str, type] = attrs.field(factory=dict)
    """Classes whose stand-ins are described, or are being described: one may hold itself."""

    def components(self, types: Sequence[Any]) -> tuple[list[Schema], dict[str, Schema]]:
        found, own = msgspec.json.schema_components(types, schema_hook=self._schema, ref_template=DEFS + "{name}")
        complete(types, found, own)
        return list(found), own

    def contradict(self, own: Mapping[str, Schema]) -> bool:
        return any(own[name] != self.hoisted[name] for name in own.keys() & self.hoisted.keys())

    def check_contradicts_not(self, own: Mapping[str, Schema]) -> None:
        for name in own.keys() & self.hoisted.keys():
            _check_same(name, own[name], self.hoisted[name])

    def _schema(self, kind: type) -> Schema:
        if kind is object:
            return {}
        if issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        if issubclass(kind, Choice):
            return self._union(kind)
        if issubclass(kind, StandIn):
            return self._stand_in(kind)
        if issubclass(kind, Foreign) and kind.beneath is not None and self.mode == "serialization":
            [found], own = self.components([kind.beneath])  # msgspec writes what goes out, and heeds no marker
            self._hoist(own)
            return found
        return self._pydantic(kind)

    def _union(self, choice: type[Choice]) -> Schema:
        found, own = self.components(choice.members)
        self._hoist(own)
        schema: Schema = {"anyOf": found}
        if choice.discriminator is not None:
            schema["discriminator"] = {"propertyName": choice.discriminator}
        return schema

    def _stand_in(self, kind: type[StandIn]) -> Schema:
        name, author = kind.__name__, kind.kind
        if self._standing.setdefault(name, author) is not author:
            raise TypeError(f"two types have the name {name}")
        if name not in self.hoisted:
            self.hoisted[name] = {}  # being described
            _, own = self.components([kind.fields])
            self.hoisted[name] = own.pop(name)
            self._hoist(own)
        return {"$ref": DEFS + name}

    def _pydantic(self, kind: Any) -> Schema:
        """Put a pydantic model's own definitions beside all others, and refer to it. Another type stands as it is."""
        name, template = definition_name(kind), DEFS + self.prefix + "{model}"
        schema = schema_of(kind, template, self.mode)
        inner = schema.pop("$defs", {})
        is_reference = "$ref" in schema  # a model that refers to itself is among its definitions already
        is_model = schema.get("type") == "object" and "properties" in schema
        if is_model:
            inner[name] = schema
        for found in inner.values():
            for key, member in found.get("properties", {}).items():
                if member.get("title", "").lower() == key.replace("_", " ").lower():
                    del member["title"]
        self._hoist({self.prefix + name: found for name, found in inner.items()})
        return {"$ref": template.format(model=name)} if is_model and not is_reference else schema

    def _hoist(self, definitions: Mapping[str, Schema]) -> None:
        for name, found in definitions.items():
            _check_same(name, self.hoisted.setdefault(name, found), found)


def _check_same(name: str, one: Schema, other: Schema) -> None:
    if one != other:
        raise TypeError(f"two types have the name {name.removeprefix('pydantic.')}")
