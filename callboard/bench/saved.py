"""Values that a step of a script saves, and `${name}` in later ones. JSON in, JSON out: no I/O."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from callboard.errors import CallboardError

MAX_SAVED: Final = 64 * 1024
"""Bytes of one value, as JSON. It is sent again: an id or a cursor is short, a whole document is not meant."""

MAX_DEPTH: Final = 20
"""Steps of a path into a result."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_REFERENCE: Final = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<name>[^}]*)\}")
"""`${name}`; and `$${`, which is written for `${` itself."""


class NotSaved(CallboardError):
    """A value is not where a step should find it, or a later step needs one that was not saved."""


def references(value: Any) -> Iterator[str | None]:
    """The names that *value* refers to, in strings at any depth; None for a `$${`."""
    if isinstance(value, str):
        yield from (found["name"] for found in _REFERENCE.finditer(value))
    elif isinstance(value, dict):
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """*value* with all that it refers to. A string that is one reference and nothing else becomes the value as it is,
    with its type; in a longer one it becomes text. Raises `NotSaved`."""
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole is not None and whole["name"] is not None:
            return _value(whole["name"], values)
        return _REFERENCE.sub(lambda found: _put(found, values), value)
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    return [filled(one, values) for one in value] if isinstance(value, list) else value


def filled_uri(uri: str, values: Mapping[str, Any]) -> str:
    """The same for a URI: what is put into it is percent-encoded, unless it is the whole of it. Raises `NotSaved`."""
    if _REFERENCE.fullmatch(uri) is not None:
        return text_of(filled(uri, values))
    return _REFERENCE.sub(
        lambda found: quote(_put(found, values), safe="/") if found["name"] is not None else "${", uri
    )


def text_of(value: Any) -> str:
    """A value in a text: strings as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def picked(result: Any, path: str) -> Any:
    """The value at *path*, as `structuredContent.items.0.id`, or what a result is mostly about if there is no path. A
    text that is JSON can be walked into. Raises `NotSaved`."""
    here = _main(result) if not path else result
    for step in path.split(".") if path else ():
        here = _step(here, step, path)
    if len(msgspec.json.encode(here)) > MAX_SAVED:
        raise NotSaved(f"the value to save is larger than {MAX_SAVED:,} bytes")
    return here


def _put(found: re.Match[str], values: Mapping[str, Any]) -> str:
    return "${" if found["name"] is None else text_of(_value(found["name"], values))


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise NotSaved(f"not sent: ${{{name}}} was not saved, because its step failed")
    return values[name]


def _step(here: Any, step: str, path: str) -> Any:
    if isinstance(here, str):
        try:
            here = json.loads(here)
        except (ValueError, RecursionError):
            raise NotSaved(f"the result has no {path}: {step!r} is asked of a text") from None
    if isinstance(here, dict) and step in here:
        return here[step]
    if isinstance(here, list) and step.isdecimal() and len(step) < MAX_DEPTH and int(step) < len(here):
        return here[int(step)]
    raise NotSaved(f"the result has no {path}")


def _main(result: Any) -> Any:
    """The structured content of a tool, or else the first text of a result."""
    given = result.get("structuredContent")
    if isinstance(given, dict):
        return given["result"] if given.keys() == {"result"} else given
    blocks = [*_list(result, "content"), *_list(result, "contents")]
    blocks += [one.get("content") for one in _list(result, "messages") if isinstance(one, dict)]
    for block in blocks:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return block["text"]
    raise NotSaved("the result has no structured content and no text to save: name a path")


def _list(result: Any, key: str) -> list[Any]:
    found = result.get(key)
    return found if isinstance(found, list) else []
