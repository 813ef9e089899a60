"""`key=value` and `key:=json`: the arguments of a tool, as they are typed, or as files have them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.cli.input_files import BadArgument, InputFiles, checked_utf8, is_file, shown_name
from callboard.cli.schema_words import at
from callboard.codecs.revisions import Tool

__all__ = ["BadArgument", "read_arguments", "read_headers", "read_texts"]

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


_BINARY_FORMATS: Final = frozenset({"byte", "binary", "base64"})


def read_arguments(typed: Sequence[str], tool: Tool | None = None, whole: str | None = None) -> dict[str, Any]:
    """The arguments as JSON values. The text after `=` is a string, unless the tool's schema has another type.

    *whole* is a JSON object, or names a file with one; single arguments go before its members. Raises `BadArgument`.
    """
    found: dict[str, Any] = {}
    files = InputFiles()
    for one in typed:
        key, is_json, value = _split(one)
        if key in found:
            raise BadArgument(f"duplicate argument {key!r}")
        if is_json:
            found[key] = _decoded(files.data(value, key, is_json=True) if is_file(value) else value, _place(one, value))
        elif is_file(value):
            text = files.text_or_base64(value, key, is_binary=_is_binary(tool, key))
            found[key] = _fitting(text, _kinds_of(tool, key))
        else:
            found[key] = _fitting(files.text(value, key), _kinds_of(tool, key))
    return found if whole is None else {**_object(whole, files), **found}


def _object(whole: str, files: InputFiles) -> dict[str, Any]:
    """The object of `--args`."""
    text = files.data(whole, "--args", is_json=True) if is_file(whole) else checked_utf8(whole, "--args")
    found = _decoded(text, shown_name(whole) if is_file(whole) else "--args")
    if not isinstance(found, dict):
        raise BadArgument("--args: expected a JSON object")
    return found


def _place(one: str, value: str) -> str:
    """The place of a JSON value, for a message: its file, or what was typed."""
    return shown_name(value) if is_file(value) else repr(one[:100])


def read_texts(typed: Sequence[str]) -> dict[str, str]:
    """The same for a prompt: its arguments are strings. Raises `BadArgument`."""
    found: dict[str, str] = {}
    files = InputFiles()
    for one in typed:
        key, is_json, value = _split(one)
        if is_json:
            raise BadArgument(f"{one[:100]!r}: arguments of prompts are strings: write {key}=value")
        if key in found:
            raise BadArgument(f"duplicate argument {key!r}")
        found[key] = files.text(value, key)
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
    key, equals, value = checked_utf8(one, "argument").partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":") if is_json else key
    if not equals or not key:
        raise BadArgument(f"invalid argument {one[:100]!r}: expected key=value or key:=json")
    return key, is_json, value


def _decoded(value: str | bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadArgument(f"invalid JSON in {where}: {error}") from None


def _schema_of(tool: Tool | None, key: str) -> object:
    properties = None if tool is None else tool.input_schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def _kinds_of(tool: Tool | None, key: str) -> frozenset[str]:
    """The types that the tool's schema allows for an argument, where it says so in plain words."""
    return frozenset() if tool is None else _kinds(_schema_of(tool, key), tool.input_schema)


def _is_binary(tool: Tool | None, key: str) -> bool:
    """Whether the tool wants bytes there, which JSON has as base64."""
    schema = _schema_of(tool, key)
    if not isinstance(schema, Mapping):
        return False
    return schema.get("contentEncoding") == "base64" or schema.get("format") in _BINARY_FORMATS


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
            waiting.append(at(place, root))
    return frozenset(found)


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
