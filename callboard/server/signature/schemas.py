"""JSON Schema of Python types, and the validators that hold values to a schema.

msgspec knows attrs and data classes, `TypedDict`, `NamedTuple`, `Struct`, enums, `Literal`, unions, dates and so on.
Paths are taught here; and so are pydantic's models, by their shape: pydantic itself is never imported.
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias

import jsonschema_rs
import msgspec

from callboard.codecs.json_schema import check_schema
from callboard.errors import InvalidDefinition
from callboard.server.signature.markers import understood

Schema: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether a schema is for what comes in or for what goes out. Only pydantic's models tell the two apart."""

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
    found, own, hoisted = _components(types, mode, prefix="")
    if own.keys() & hoisted.keys():  # both sides define a name, such as that of an enum
        found, own, hoisted = _components(types, mode, prefix="pydantic.")
    defs = own | hoisted
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


def is_pydantic(kind: Any) -> bool:
    """Whether *kind* is one of pydantic's models."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def from_json(kind: Any, value: Any) -> Any:
    """Make a *kind* of JSON values that msgspec leaves to us. Raises `ValueError`."""
    if is_pydantic(kind):
        return _validated(kind, value)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"cannot convert {type(value).__name__} to {getattr(kind, '__name__', kind)}")


def to_json(value: Any) -> Any:
    """Make JSON values of what msgspec leaves to us. Raises `TypeError`."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__qualname__} cannot be serialized as JSON")


def _validated(kind: Any, value: Any) -> Any:
    """A pydantic model, or what it found wrong: without its links and its copy of the input."""
    try:
        return kind.model_validate(value)
    except ValueError as reason:
        found = reason.errors() if hasattr(reason, "errors") else []
        told = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"] for one in found)
        raise ValueError("; ".join(told) or str(reason)) from reason


def _components(
    types: Sequence[Any], mode: Mode, *, prefix: str
) -> tuple[list[Schema], dict[str, Schema], dict[str, Schema]]:
    """The schemas, msgspec's definitions, and those of pydantic's models."""
    hoisted: dict[str, Schema] = {}
    hook = functools.partial(_schema_of_other, mode, prefix, hoisted)
    found, own = msgspec.json.schema_components(types, schema_hook=hook, ref_template=DEFS + "{name}")
    return list(found), own, hoisted


def _schema_of_other(mode: Mode, prefix: str, hoisted: dict[str, Schema], kind: type) -> Schema:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    if is_pydantic(kind):
        return _hoist(kind, mode, prefix, hoisted)
    raise TypeError(f"{kind.__qualname__} has no JSON Schema")


def _hoist(kind: Any, mode: Mode, prefix: str, hoisted: dict[str, Schema]) -> Schema:
    """Put a pydantic model's own definitions beside all others, and refer to it."""
    template = DEFS + prefix + "{model}"
    schema = copy.deepcopy(kind.model_json_schema(ref_template=template, mode=mode))
    inner = schema.pop("$defs", {})
    if "$ref" not in schema:  # a model that refers to itself is among its definitions already
        inner[kind.__name__] = schema
    for name, found in inner.items():
        for key, member in found.get("properties", {}).items():
            if member.get("title", "").lower() == key.replace("_", " ").lower():
                del member["title"]
        if hoisted.setdefault(prefix + name, found) != found:
            raise TypeError(f"two types have the name {name}")
    return {"$ref": template.format(model=kind.__name__)}
