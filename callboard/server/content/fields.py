"""One field of a form: from the JSON Schema of its type to the few forms that the protocol allows."""

import datetime
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, get_args, get_origin

from callboard.server.signature.markers import titles_of
from callboard.server.signature.schemas import DEFS, Schema

ALLOWED: Final = (
    "allowed are str (with lengths, Email, Uri), int, float, bool, date, datetime, Literal or Enum of strings, "
    "and a list or set of such choices; each may have a default or be `| None`"
)
_NULL: Final = {"type": "null"}
_ALWAYS: Final = ("type", "title", "description", "default")
_MEMBERS: Final[Mapping[str, Sequence[str]]] = {
    "string": ("minLength", "maxLength", "format", "enum"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems", "items"),
}
_FORMATS: Final = ("email", "uri", "date", "date-time")


def field_schema(where: str, schema: Schema, hint: Any, defs: Mapping[str, Schema]) -> tuple[Schema, bool]:
    """Return a field as a form has it, and whether it may be left open.

    Raises `TypeError` with *where* it stands, what is wrong, and what is allowed.
    """
    plain, is_optional = _without_null(where, _resolved(schema, defs), defs)
    if plain.get("default", ...) is None:
        del plain["default"]
    plain.pop("uniqueItems", None)  # the protocol has no word for it; a set forgives what comes twice
    if plain.get("type") == "string" and _is_instant(hint):
        plain.setdefault("format", "date-time")  # msgspec says only "string"
    if plain.get("type") == "integer":
        _include_bounds(plain)
    if plain.get("type") == "array":
        plain["items"] = _choice(where, _resolved(plain.get("items", {}), defs))
    elif "enum" in plain or "const" in plain:
        plain = _choice(where, plain)
    _check(where, plain)
    return _titled(plain, hint), is_optional


def _resolved(schema: Schema, defs: Mapping[str, Schema]) -> Schema:
    name = schema.get("$ref", "").removeprefix(DEFS)
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_resolved(defs[name], defs), **beside} if name else beside


def _without_null(where: str, schema: Schema, defs: Mapping[str, Schema]) -> tuple[Schema, bool]:
    if "anyOf" not in schema:
        return schema, False
    forms = [form for form in schema.pop("anyOf") if form != _NULL]
    if len(forms) != 1:
        _refuse(where, "is a union of types")
    return {**_resolved(forms[0], defs), **schema}, True


def _choice(where: str, schema: Schema) -> Schema:
    """One of several texts."""
    values = schema.pop("enum", None) or [schema.pop("const", None)]
    if not all(isinstance(value, str) for value in values):
        _refuse(where, "is an enum of other values than strings")
    return {"type": "string", "enum": values, **schema}


def _is_instant(hint: Any) -> bool:
    return hint is datetime.datetime or any(_is_instant(inner) for inner in get_args(hint))


def _include_bounds(schema: Schema) -> None:
    """Above 0 is from 1 on, for an integer; the protocol has no word for the first."""
    if "exclusiveMinimum" in schema:
        schema["minimum"] = schema.pop("exclusiveMinimum") + 1
    if "exclusiveMaximum" in schema:
        schema["maximum"] = schema.pop("exclusiveMaximum") - 1


def _check(where: str, schema: Schema) -> None:
    kind = str(schema.get("type", "any"))
    if kind not in _MEMBERS:
        _refuse(where, f"is of type {kind}")
    if unknown := [key for key in schema if key not in (*_ALWAYS, *_MEMBERS[kind])]:
        _refuse(where, f"is bound by {', '.join(unknown)}, which forms do not support")
    if schema.get("format", "email") not in _FORMATS:
        _refuse(where, f"is text in the format {schema['format']}")


def _refuse(where: str, why: str) -> NoReturn:
    raise TypeError(f"{where} {why}, and a form is flat and simple: {ALLOWED}")


def _titled(schema: Schema, hint: Any) -> Schema:
    """Put choices into the order of their declaration, with the titles that a marker or an `Enum` gives."""
    inner = schema.get("items", schema)
    if "enum" not in inner:
        return schema
    choices = dict(_choices(hint)) | dict(titles_of(hint))
    values = [value for value in choices if value in inner["enum"]] or inner["enum"]
    if not any(choices.values()):
        inner["enum"] = values
        return schema
    titled = [{"const": value, "title": choices[value] or value} for value in values]
    if inner is not schema:
        return {**schema, "items": {"anyOf": titled}}
    return {**{key: value for key, value in schema.items() if key != "enum"}, "oneOf": titled}


def _choices(hint: Any) -> Iterator[tuple[Any, str | None]]:
    """Every choice that a type offers, with its title if it has one: an `Enum` member's `label` or `title`."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        for member in hint:
            told = (getattr(member, name, None) for name in ("label", "title"))
            yield member.value, next((title for title in told if isinstance(title, str)), None)
    elif get_origin(hint) is Literal:
        yield from ((value, None) for value in get_args(hint))
    else:
        for inner in get_args(hint):
            yield from _choices(inner)
