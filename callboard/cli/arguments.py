"""`key=value` and `key:=json`: the arguments of a tool, as they are typed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from callboard.codecs.revisions import Tool

_JSON_TYPES: Final = frozenset({"integer", "number", "boolean", "array", "object", "null"})
_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


class BadArgument(ValueError):
    """Invalid command-line arguments. The message is one line."""


def read_arguments(typed: Sequence[str], tool: Tool | None = None) -> dict[str, Any]:
    """The arguments as JSON values. The text after `=` is a string, unless the tool's schema has another type.

    Raises `BadArgument`.
    """
    found: dict[str, Any] = {}
    wanted = _wanted(tool)
    for one in typed:
        key, is_json, value = _split(one)
        if key in found:
            raise BadArgument(f"duplicate argument {key!r}")
        found[key] = _decoded(one, value) if is_json else _fitting(value, wanted.get(key, frozenset()))
    return found


def read_texts(typed: Sequence[str]) -> dict[str, str]:
    """The same for a prompt: its arguments are strings. Raises `BadArgument`."""
    found: dict[str, str] = {}
    for one in typed:
        key, is_json, value = _split(one)
        if is_json:
            raise BadArgument(f"{one[:100]!r}: arguments of prompts are strings: write {key}=value")
        if key in found:
            raise BadArgument(f"duplicate argument {key!r}")
        found[key] = value
    return found


def read_headers(typed: Sequence[str]) -> dict[str, str]:
    """`Name: value`. Raises `BadArgument`, and does not repeat a value: it may be a secret."""
    found: dict[str, str] = {}
    for one in typed:
        name, colon, value = one.partition(":")
        if not colon or not name.strip():
            raise BadArgument("invalid header: expected 'Name: value'")
        found[name.strip()] = value.strip()
    return found


def _split(one: str) -> tuple[str, bool, str]:
    key, equals, value = one.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":") if is_json else key
    if not equals or not key:
        raise BadArgument(f"invalid argument {one[:100]!r}: expected key=value or key:=json")
    return key, is_json, value


def _decoded(one: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError as error:
        raise BadArgument(f"invalid JSON in {one[:100]!r}: {error}") from None


def _wanted(tool: Tool | None) -> Mapping[str, frozenset[str]]:
    """By argument, the types that the tool's schema allows, where it says so in plain words."""
    properties = None if tool is None else tool.input_schema.get("properties")
    if tool is None or not isinstance(properties, Mapping):
        return {}
    return {name: _kinds(schema, tool.input_schema) for name, schema in properties.items()}


def _kinds(schema: object, root: Mapping[str, Any]) -> frozenset[str]:
    """The types that *schema* names: by itself, in its choices, and wherever in *root* it leads to.

    What may be left out is most often written as such a choice, between something and null.
    """
    found, waiting, followed = set[str](), [schema], set[str]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        kinds, values, place = one.get("type"), one.get("enum"), one.get("$ref")
        found.update(kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str))
        allowed = [*(values if isinstance(values, list) else ()), *([one["const"]] if "const" in one else ())]
        found.update(_KINDS.get(type(value), "string") for value in allowed)
        for word in ("anyOf", "oneOf", "allOf"):
            waiting += one[word] if isinstance(one.get(word), list) else ()
        if isinstance(place, str) and place not in followed:
            followed.add(place)
            waiting.append(_at(place, root))
    return frozenset(found)


def _at(place: str, root: Mapping[str, Any]) -> object:
    """The target of a reference within the schema; None if it points elsewhere."""
    start, *steps = unquote(place).split("/")
    here: object = root if start == "#" else None
    for step in steps:
        here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, Mapping) else None
    return here


def _fitting(value: str, kinds: frozenset[str]) -> Any:
    """*value* as the tool wants it, if it can be that; else as it is: the server knows best what is wrong with it."""
    if "string" in kinds or not kinds & _JSON_TYPES:
        return value
    try:
        decoded = msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return value
    is_number = isinstance(decoded, int | float) and not isinstance(decoded, bool)
    fits = {
        "integer": isinstance(decoded, int) and is_number,
        "number": is_number,
        "boolean": isinstance(decoded, bool),
        "array": isinstance(decoded, list),
        "object": isinstance(decoded, dict),
        "null": decoded is None,
    }
    return decoded if any(fits.get(kind, False) for kind in kinds) else value
