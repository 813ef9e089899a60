"""A client that holds everything it hears to the official schema of its revision.

On a machine without the protocol reference it is a client like any other.
"""

from functools import cache, partial
from typing import Any

import attrs
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from callboard.codecs.revisions import MODERN, Revision
from callboard.testing import Peer
from callboard.testing import connect as connect_any
from callboard.testing.peer import Json
from tests.shared import PROTOCOL, load


@attrs.define(eq=False)
class Stickler(Peer):
    """Fails the test that lets it hear a message which its revision does not have."""

    _asked: dict[Any, str] = attrs.field(factory=dict, init=False)

    async def say(self, message: Json) -> None:
        if "id" in message and "method" in message:
            self._asked[message["id"]] = message["method"]
        await super().say(message)

    async def hear(self) -> Json:
        message = await super().hear()
        if PROTOCOL.is_dir():
            for name, value in judged(self.revision, message, self._asked):
                validator(self.revision, name).validate(value)
        return message


connect = partial(connect_any, peer=Stickler)


@cache
def official(revision: Revision) -> dict[str, Any]:
    """The published schema, but for one fault: it allows of all numbers only integers as values (REVISIONS.md, 24)."""
    schema: dict[str, Any] = load("schemas", revision.value, "schema.json")
    return schema if revision not in MODERN else schema | {"$defs": schema["$defs"] | {"JSONValue": {}}}


def definitions(revision: Revision) -> dict[str, Any]:
    found: dict[str, Any] = official(revision).get("definitions") or official(revision)["$defs"]
    return found


def judged(revision: Revision, message: Json, asked: dict[Any, str]) -> list[tuple[str, Any]]:
    """The definitions that *message* must fit, each with the part of it that must."""
    known = definitions(revision)
    if "error" in message:
        envelope = "JSONRPCErrorResponse" if "JSONRPCErrorResponse" in known else "JSONRPCError"
        special = [(name, message) for name in known if code_of(known[name]) == message["error"]["code"]]
        return [(envelope, message), *special]
    if "result" in message:
        envelope = "JSONRPCResultResponse" if "JSONRPCResultResponse" in known else "JSONRPCResponse"
        return [(envelope, message), (result_of(revision, asked[message["id"]], message), message["result"])]
    kind = "Request" if "id" in message else "Notification"
    assert kind == "Notification" or revision not in MODERN, "a modern server asks only in results"
    return [(f"JSONRPC{kind}", message), (definition_of(revision, message["method"], kind), message)]


def definition_of(revision: Revision, method: str, kind: str) -> str:
    """The request or notification that says *method*. Fails if the revision has none."""
    known = definitions(revision)
    found = [name for name in known if name.endswith(kind) and _constant(known[name], "method") == method]
    assert found, f"{revision} has no {kind.lower()} {method}"
    return found[0]


def result_of(revision: Revision, method: str, message: Json) -> str:
    if message["result"].get("resultType") == "input_required":
        return "InputRequiredResult"
    name = definition_of(revision, method, "Request").removesuffix("Request") + "Result"
    return name if name in definitions(revision) else "EmptyResult"


def code_of(definition: Any) -> int | None:
    """The code that a definition of an error is for."""
    parts = definition.get("properties", {}).get("error", {}).get("allOf", ())
    return next((_constant(part, "code") for part in parts if _constant(part, "code") is not None), None)


def _constant(definition: Any, member: str) -> Any:
    return definition.get("properties", {}).get(member, {}).get("const")


@cache
def validator(revision: Revision, name: str) -> Validator:
    """The published schema with one of its definitions at the root."""
    place = "definitions" if "definitions" in official(revision) else "$defs"
    schema = official(revision) | {"allOf": [{"$ref": f"#/{place}/{name}"}]}
    return validator_for(schema)(schema)
