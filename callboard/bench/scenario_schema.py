"""`callboard bench schema`: the JSON Schema of scenario files, for editors that complete and check TOML.

It says what a file looks like. Whether a value is saved before it is used, and a topic subscribed before it is waited
for, is told when the file is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from callboard.bench.saved import NAME
from callboard.bench.scenario import FILE_KEYS, SCRIPT_KEYS, STEP_KEYS
from callboard.bench.steps import ACTIONS, LISTED, LISTS

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_TIME: Final[Schema] = {
    "description": "500ms, 10s, 2m, or a number of seconds",
    "anyOf": [
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?(ms|s|m)?\s*$"},
        {"type": "number", "minimum": 0},
    ],
}
_WEIGHT: Final[Schema] = {"type": "number", "exclusiveMinimum": 0}
_SAVED: Final[Schema] = {
    "type": "object",
    "propertyNames": {"pattern": f"^{NAME.pattern}$"},
    "additionalProperties": _TEXT,
}


def _one_of(names: Sequence[str]) -> Schema:
    return {"enum": list(names)}


def _some(each: Schema) -> Schema:
    """One, or a list."""
    return {"anyOf": [each, {"type": "array", "items": each, "minItems": 1}]}


_KINDS: Final[Mapping[str, tuple[str, Schema]]] = {
    "call": ("call a tool", _TEXT),
    "task": ("call a tool as a task, and follow it to its outcome", _TEXT),
    "read": ("read a resource", _TEXT),
    "list": ("list what the server has", _one_of(LISTED)),
    "prompt": ("get a prompt", _TEXT),
    "think": (
        "pause: a time, or two between which its length is",
        {"anyOf": [_TIME, {"type": "array", "items": _TIME, "minItems": 2, "maxItems": 2}]},
    ),
    "subscribe": ("subscribe to updates of a resource, until the end of the session", _some(_TEXT)),
    "listen": ("subscribe to changes of a list, until the end of the session", _some(_one_of(LISTS))),
    "await": ("wait for a notification", _TEXT),
    "repeat": ("repeat steps", {"type": "integer", "minimum": 1}),
}

_OTHERS: Final[Mapping[str, Schema]] = {
    "args": {"type": "object"},
    "label": _TEXT,
    "cancel_after": _TIME,
    "answer": {"$ref": "#/$defs/answer"},
    "save": {"anyOf": [{"type": "string", "pattern": f"^{NAME.pattern}$"}, _SAVED]},
    "within": _TIME,
    "steps": {"$ref": "#/$defs/steps"},
}
_SPECIAL: Final[Mapping[tuple[str, str], Schema]] = {
    ("list", "save"): _SAVED,
    ("prompt", "args"): {"type": "object", "additionalProperties": {"type": "string"}},
}
"""Keys that are more narrow in one kind of step."""


def _step(kind: str) -> Schema:
    about, value = _KINDS[kind]
    keys = {key: _SPECIAL.get((kind, key), _OTHERS[key]) for key in STEP_KEYS[kind]}
    required = [kind, "steps"] if kind == "repeat" else [kind]
    return _table({kind: {"description": about, **value}, **keys}, required)


def _table(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _answer() -> Schema:
    given = {
        "action": _one_of(ACTIONS),
        "content": {"type": "object"},
        "after": _TIME,
        "match": _TEXT,
        "weight": _WEIGHT,
    }
    one = {**_table(given), "anyOf": [{"required": ["action"]}, {"required": ["content"]}]}
    either: Schema = {"anyOf": [_one_of(ACTIONS), one]}
    roots = {"type": "array", "items": {"type": "string", "pattern": "^file://"}}
    elicitation = {"anyOf": [*either["anyOf"], {"type": "array", "items": either}]}
    return _table({"elicitation": elicitation, "sampling": _TEXT, "roots": roots})


def schema() -> Schema:
    """The whole."""
    session = {"anyOf": [_one_of(("lasts", "each")), {"type": "integer", "minimum": 1}]}
    known: dict[str, Schema] = {
        "name": _TEXT,
        "weight": _WEIGHT,
        "session": session,
        "answer": {"$ref": "#/$defs/answer"},
        "steps": {"$ref": "#/$defs/steps"},
        "script": {"type": "array", "items": {"$ref": "#/$defs/script"}, "minItems": 1},
    }
    alone = [{"required": ["steps"]}, {"required": ["script"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A load scenario of callboard bench",
        **_table({key: known[key] for key in FILE_KEYS}),
        "oneOf": alone,
        "$defs": {
            "answer": _answer(),
            "steps": {"type": "array", "items": {"anyOf": [_step(kind) for kind in STEP_KEYS]}, "minItems": 1},
            "script": _table({key: known[key] for key in SCRIPT_KEYS}, ["steps"]),
        },
    }
