"""The official schemas, their known faults mended, and how each definition is read and written here.

REVISIONS.md, section 24, lists the faults: values that the generated schema refuses though the specification allows
them, and unions that accept nearly everything. Keywords with an `x-` are ours, for what a schema fails to say.
"""

import copy
from functools import cache
from typing import Any, Final

from callboard.codecs.revisions.convert import read_form, write, write_form
from callboard.codecs.revisions.error_codes import ERROR_NAMES, read_error, read_error_as
from callboard.codecs.revisions.messages import read_params, read_result, write_params, write_result
from callboard.codecs.revisions.model import UNSET, Model
from callboard.codecs.revisions.names import model_named
from callboard.codecs.revisions.revision import MODERN, R3, Revision
from tests.shared import PROTOCOL, load

NOT_TYPED: Final = {
    "Annotated": "base interface of 2024-11-05: each object that has annotations is typed itself",
    "ClientNotification": "a union: covered by its branches, and compared with the table of methods",
    "ClientRequest": "a union: covered by its branches, and compared with the table of methods",
    "ClientResult": "a union without a tag: the method of the request chooses",
    "Icons": "base interface: each object that has icons is typed itself",
    "JSONRPCBatchRequest": "an envelope",
    "JSONRPCBatchResponse": "an envelope",
    "JSONRPCMessage": "an envelope",
    "JSONRPCNotification": "an envelope",
    "JSONRPCRequest": "an envelope",
    "JSONRPCResponse": "an envelope",
    "JSONRPCResultResponse": "an envelope",
    "Notification": "base interface: method and free params",
    "PaginatedRequest": "base interface of the list requests",
    "Request": "base interface: method and free params",
    "ServerNotification": "a union: covered by its branches, and compared with the table of methods",
    "ServerRequest": "a union: covered by its branches, and compared with the table of methods",
    "ServerResult": "a union without a tag: the method of the request chooses",
    "TaskAugmentedRequestParams": "base interface of the requests that may become tasks",
}
"""Definitions without a model of their own, and why."""

ERROR_ENVELOPES: Final = frozenset({"JSONRPCError", "JSONRPCErrorResponse"})
FORGIVEN: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Members that the schema requires and a reader must do without (REVISIONS.md, sections 4 and 20)."""


@cache
def definitions(revision: Revision) -> dict[str, Any]:
    """All definitions of one revision, mended; nothing on a machine without the reference."""
    if not PROTOCOL.is_dir():
        return {}
    schema = load("schemas", revision.value, "schema.json")
    return mended(revision, schema.get("definitions") or schema["$defs"])


def mended(revision: Revision, found: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(found)
    for side in ("ClientCapabilities", "ServerCapabilities"):
        for name in found[side]["properties"].keys() & {"experimental", "extensions"}:
            found[side]["properties"][name]["x-any-settings"] = True
    if revision >= R3:
        values = found["ElicitResult"]["properties"]["content"]["additionalProperties"]
        for branch in values.get("anyOf", [values]):
            if "integer" in branch.get("type", ()):
                branch["type"] = ["number" if kind == "integer" else kind for kind in branch["type"]]
        # The schema takes any string as a plain one, even one whose choices are malformed.
        found["StringSchema"]["x-never"] = ["enum", "oneOf"] if revision > R3 else ["enum"]
    if revision > R3:
        found["UntitledSingleSelectEnumSchema"]["x-never"] = ["enumNames"]
    if revision in MODERN:
        found["JSONValue"] = {}
        for name, definition in found.items():
            if name.endswith("Result") and "resultType" in definition.get("properties", {}):
                said = "input_required" if name == "InputRequiredResult" else "complete"
                definition["properties"]["resultType"] = {"const": said}
            definition.get("properties", {}).get("ttlMs", {}).pop("minimum", None)  # negative means stale at once
        found["InputRequiredResult"]["x-one-of-these"] = ["inputRequests", "requestState"]
    return found


@cache
def forgiving(revision: Revision) -> dict[str, Any]:
    """All definitions, without the demand for what a reader must do without."""
    found = copy.deepcopy(definitions(revision))
    for definition in found.values():
        definition["required"] = [name for name in definition.get("required", ()) if name not in FORGIVEN]
    return found


def every_definition() -> list[tuple[Revision, str]]:
    return [(revision, name) for revision in Revision for name in definitions(revision)]


def typed_definitions() -> list[tuple[Revision, str]]:
    return [(revision, name) for revision, name in every_definition() if name not in NOT_TYPED]


def method_in(revision: Revision, name: str) -> str | None:
    """The method that a request or notification definition stands for, or the one that a response answers."""
    definition = definitions(revision).get(name.replace("ResultResponse", "Request"), {})
    method: str | None = definition.get("properties", {}).get("method", {}).get("const")
    return method


def is_own_model(revision: Revision, name: str) -> bool:
    """Whether a definition is a class of ours, as the bare input requests of the modern revision are."""
    try:
        model = model_named(name)
    except KeyError:
        return False
    return not (isinstance(model, type) and issubclass(model, Model)) or revision in model.known


def schema_of_params(revision: Revision, name: str) -> dict[str, Any] | None:
    """The params of a request or notification, if they are written out in its definition and have no name."""
    if method_in(revision, name) is None or name.endswith("ResultResponse"):
        return None
    params: dict[str, Any] = forgiving(revision)[name]["properties"].get("params", {"$ref": ""})
    return None if "$ref" in params else params


def rewritten(revision: Revision, name: str, value: Any) -> Any:
    """*value* read as the definition *name* and written again. Raises what the readers raise."""
    if name in ERROR_NAMES or name in ERROR_ENVELOPES:
        return _rewritten_error(revision, name, value)
    if is_own_model(revision, name):
        form = model_named(name)
        return write_form(revision, form, read_form(revision, form, value))
    method = method_in(revision, name) or value.get("method")  # a definition may be gone and its method said still
    assert method is not None, f"{name} of {revision} has no model and no method"
    if name.endswith("ResultResponse"):
        return value | {"result": _rewritten_result(revision, method, value["result"])}
    params = write_params(revision, method, read_params(revision, method, value.get("params", UNSET)))
    return value | {"params": params} if params or "params" in value else value


def _rewritten_result(revision: Revision, method: str, value: Any) -> Any:
    return write_result(revision, method, read_result(revision, method, value))


def _rewritten_error(revision: Revision, name: str, value: Any) -> Any:
    body = value.get("error", value)
    error = read_error_as(revision, name, body) if name in ERROR_NAMES else read_error(revision, body)
    body = write(revision, error)
    return value | {"error": body} if "error" in value else body
