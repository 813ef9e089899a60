"""JSON Schemas in few words: the arguments of a tool as people read them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import attrs

MOST_VALUES: Final = 20
"""Values of an enum that are listed; the rest is counted. `--json` has all."""

MOST_DEPTH: Final = 4
"""Levels of a schema that are told: a server's schema may lead into itself."""

_LIMITS: Final = (
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "matching {}"),
    ("format", "{}"),
    ("contentEncoding", "{}"),
)
_SCALARS: Final = (str, int, float)


@attrs.frozen
class Argument:
    """One argument of a tool or prompt."""

    name: str
    type: str
    is_required: bool
    default: str | None
    """As JSON; None if there is none."""
    about: str


def arguments_of(schema: Mapping[str, Any]) -> Iterator[Argument]:
    """The arguments that an input schema has. A schema of a server may hold anything: what is not understood is left
    out."""
    properties, required = schema.get("properties"), schema.get("required")
    names = required if isinstance(required, list) else []
    for name, one in properties.items() if isinstance(properties, Mapping) else ():
        found = resolved(one, schema)
        about = one.get("description", found.get("description")) if isinstance(one, Mapping) else ""
        has_default = isinstance(one, Mapping) and "default" in one
        yield Argument(
            name=str(name),
            type=words(one, schema),
            is_required=name in names,
            default=json.dumps(one["default"], ensure_ascii=False) if has_default else None,
            about=about if isinstance(about, str) else "",
        )
    others = schema.get("additionalProperties")
    if others is True or isinstance(others, Mapping):  # `**kwargs` of its function
        yield Argument("any other", words(others, schema), is_required=False, default=None, about="")


def words(schema: object, root: Mapping[str, Any], depth: int = MOST_DEPTH) -> str:
    """The type, values and limits that *schema* allows."""
    if schema is True or schema == {}:
        return "any"
    found = resolved(schema, root)
    if not found or depth == 0:
        return "..." if depth == 0 else "any"
    if isinstance(found.get("enum"), list):
        return _enum(found["enum"])
    if "const" in found:
        return json.dumps(found["const"], ensure_ascii=False)
    for choice in ("anyOf", "oneOf"):
        if isinstance(found.get(choice), list):
            options = [words(one, root, depth - 1) for one in found[choice][:MOST_VALUES]]
            return " | ".join(dict.fromkeys(options)) or "any"
    kinds = found.get("type")
    named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    told = " | ".join(_kind(str(kind), found, root, depth) for kind in named) or "any"
    limits = ", ".join(
        text.format(found[key]) for key, text in _LIMITS if isinstance(found.get(key), str | int | float)
    )
    return f"{told} ({limits})" if limits else told


def _kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if kind == "array":
        items = words(schema["items"], root, depth - 1) if "items" in schema else "any"
        return f"list of {items}"
    properties = schema.get("properties")
    if kind == "object" and isinstance(properties, Mapping) and properties:
        required = schema.get("required")
        members = [
            f"{name}{'' if isinstance(required, list) and name in required else '?'}: {words(one, root, depth - 1)}"
            for name, one in list(properties.items())[:MOST_VALUES]
        ]
        return "{" + ", ".join(members) + (", ..." if len(properties) > MOST_VALUES else "") + "}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {words(schema['additionalProperties'], root, depth - 1)}"
    return kind


def _enum(values: list[Any]) -> str:
    shown = [json.dumps(value, ensure_ascii=False) for value in values[:MOST_VALUES]]
    return " | ".join(shown) + (f" | ... ({len(values) - MOST_VALUES} more)" if len(values) > MOST_VALUES else "")


def resolved(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """*schema*, or where its reference leads to; empty if that is nowhere in *root*."""
    followed = set[str]()
    while isinstance(schema, Mapping) and isinstance(place := schema.get("$ref"), str):
        if place in followed:
            return {}
        followed.add(place)
        schema = at(place, root)
    return schema if isinstance(schema, Mapping) else {}


def at(place: str, root: Mapping[str, Any]) -> object:
    """The target of a reference within the schema; None if it points elsewhere."""
    start, *steps = unquote(place).split("/")
    here: object = root if start == "#" else None
    for step in steps:
        here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, Mapping) else None
    return here
