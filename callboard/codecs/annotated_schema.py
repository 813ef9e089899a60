"""The OGC's annotated schema of the protocol, and what a message has that does not fit it.

`annotated_schema.json` is the schema of the OGC's building block `mcp.mcp` (JSON Schema draft-07 for revision
2025-06-18, with an IRI for each property), without its descriptions, and with the one remote reference replaced by what
it leads to.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import attrs
import jsonschema_rs

MAX_TEXT: Final = 200
"""Characters of a problem's text: it quotes the value, which may be a whole document."""

_MEMBERS: Final = (
    ("method", "id", "JSONRPCRequest"),
    ("method", None, "JSONRPCNotification"),
    ("result", None, "JSONRPCResponse"),
    ("error", None, "JSONRPCError"),
)
"""Members by which a message is told from others, and the definition of its outermost object."""


@attrs.frozen
class SchemaProblem:
    """One thing that does not fit, and its place: `result.tools[0].name`."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


@lru_cache(maxsize=1)
def annotated_schema() -> dict[str, Any]:
    """The schema, as a new document may refer to it."""
    schema: dict[str, Any] = json.loads(files("callboard.codecs").joinpath("annotated_schema.json").read_text())
    return schema


def check_message(message: object, asked: str | None = None) -> list[SchemaProblem]:
    """What of *message* does not fit. *asked* is the method of the request that it answers, if that is known."""
    if not isinstance(message, dict):
        return [SchemaProblem("", "a message is an object")]
    for member, other, name in _MEMBERS:
        if member in message and (other is None or other in message):
            found = list(_problems(name, message, ""))
            break
    else:
        return [SchemaProblem("", "a message has one of `method`, `result` and `error`")]
    if name in ("JSONRPCRequest", "JSONRPCNotification"):
        known = _by_method().get(str(message["method"]))
        found += () if known is None else _problems(known, message, "")
    elif name == "JSONRPCResponse" and isinstance(message["result"], dict):
        found += _problems(_result_name(asked, message["result"]), message["result"], "result")
    return list(dict.fromkeys(found))  # the outermost definition says some of it, too


@lru_cache(maxsize=1)
def _by_method() -> Mapping[str, str]:
    """The definition of the request or notification of each method."""
    definitions = annotated_schema()["definitions"]
    methods = {name: one.get("properties", {}).get("method", {}).get("const") for name, one in definitions.items()}
    return {method: name for name, method in methods.items() if method is not None}


def _result_name(asked: str | None, result: Mapping[str, Any]) -> str:
    """The definition of a result: by its request, or, where that is unknown, by the members that it has."""
    definitions = annotated_schema()["definitions"]
    if result.get("resultType", "complete") != "complete" or (asked == "tools/call" and "task" in result):
        return "Result"  # of a newer revision: a question, or the handle of a task
    if asked is not None:
        name = _by_method().get(asked, "").removesuffix("Request") + "Result"
        return name if name in definitions else "Result"
    fitting = [
        (len(one["required"]), name)
        for name, one in definitions.items()
        if name.endswith("Result") and one.get("required") and result.keys() >= set(one["required"])
    ]
    return max(fitting)[1] if fitting else "Result"


@lru_cache(maxsize=128)  # more than there are definitions
def _validator(name: str) -> Any:
    schema = annotated_schema()
    part = {"$schema": schema["$schema"], "definitions": schema["definitions"], "$ref": f"#/definitions/{name}"}
    return jsonschema_rs.validator_for(part)


def _problems(name: str, value: object, place: str) -> Iterator[SchemaProblem]:
    for error in _validator(name).iter_errors(value):
        for inner in _innermost(error):
            yield SchemaProblem(_place(place, inner.instance_path), _text(inner))


def _innermost(error: Any) -> Iterable[Any]:
    """The errors of the one alternative that was meant: the one whose `type` is that of the value."""
    branches = getattr(error.kind, "context", None)
    if not branches:
        return (error,)
    meant = [branch for branch in branches if not any(_is_other_type(inner) for inner in branch)]
    return [inner for one in meant[0] for inner in _innermost(one)] if len(meant) == 1 else (error,)


def _is_other_type(error: Any) -> bool:
    return list(error.instance_path)[-1:] == ["type"] and error.kind.name == "const"


def _text(error: Any) -> str:
    branches = getattr(error.kind, "context", None)
    text = f"fits none of the {len(branches)} forms allowed here" if branches else str(error.message)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _place(start: str, path: Iterable[str | int]) -> str:
    place = start
    for step in path:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    return place
