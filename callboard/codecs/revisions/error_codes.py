"""Error codes: which side may emit which, what it means, and the typed `data` that some carry."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import attrs

from callboard import errors
from callboard.codecs.revisions.capabilities import ClientCapabilities
from callboard.codecs.revisions.convert import read
from callboard.codecs.revisions.elicitation import URLElicitationRequiredData
from callboard.codecs.revisions.model import UNSET, JSONValue, Model, UnsetType, member, model
from callboard.codecs.revisions.revision import ALL, LEGACY, MODERN, R4, Revision, Revisions
from callboard.errors import InvalidParams


@model(kw_only=True)
class UnsupportedProtocolVersionData(Model):
    """The versions the server speaks, and the one it was asked for. A legacy server says it with invalid params."""

    supported: Sequence[str]
    requested: str


@model(kw_only=True)
class MissingRequiredClientCapabilityData(Model):
    """Capabilities that the client would have to declare."""

    known: ClassVar[Revisions] = MODERN

    required_capabilities: ClientCapabilities


@model(kw_only=True)
class Error(Model):
    """The `error` member of a response. `data` is typed where the code says how, and free JSON elsewhere."""

    code: int
    message: str
    data: JSONValue | Model | UnsetType = member(types=dict.fromkeys(ALL, JSONValue))


@attrs.frozen
class ErrorCode:
    """One code: the name of its type, the revisions that may emit it, and the model of its `data`."""

    code: int
    name: str
    emitted: Revisions
    data: type[Model] | None = None


_ROWS: Final = (
    ErrorCode(errors.PARSE_ERROR, "ParseError", ALL),
    ErrorCode(errors.INVALID_REQUEST, "InvalidRequestError", ALL),
    ErrorCode(errors.METHOD_NOT_FOUND, "MethodNotFoundError", ALL),
    ErrorCode(errors.INVALID_PARAMS, "InvalidParamsError", ALL),
    ErrorCode(errors.INTERNAL_ERROR, "InternalError", ALL),
    # A modern client should still take it from an older server; a modern server says invalid params.
    ErrorCode(errors.RESOURCE_NOT_FOUND, "ResourceNotFoundError", LEGACY),
    ErrorCode(-1, "UserRejectedError", LEGACY),
    ErrorCode(
        errors.URL_ELICITATION_REQUIRED,
        "URLElicitationRequiredError",
        frozenset({R4}),
        URLElicitationRequiredData,
    ),
    ErrorCode(errors.HEADER_MISMATCH, "HeaderMismatchError", MODERN),
    ErrorCode(
        errors.MISSING_CLIENT_CAPABILITY,
        "MissingRequiredClientCapabilityError",
        MODERN,
        MissingRequiredClientCapabilityData,
    ),
    ErrorCode(
        errors.UNSUPPORTED_PROTOCOL_VERSION,
        "UnsupportedProtocolVersionError",
        MODERN,
        UnsupportedProtocolVersionData,
    ),
)

ERROR_CODES: Final[Mapping[int, ErrorCode]] = {row.code: row for row in _ROWS}
ERROR_NAMES: Final[Mapping[str, ErrorCode]] = {row.name: row for row in _ROWS}


def read_error(revision: Revision, value: object) -> Error:
    """Any error a peer may send. `data` is typed if its code has a type and it fits; an error is never lost for it."""
    error = read(revision, Error, value, at="error")
    row = ERROR_CODES.get(error.code)
    if row is None or row.data is None or revision not in row.emitted:
        return error
    try:
        return attrs.evolve(error, data=read(revision, row.data, error.data, at="error.data"))
    except InvalidParams:
        return error


def read_error_as(revision: Revision, name: str, value: object) -> Error:
    """An error of one named type. Raises `InvalidParams` if its code or its `data` is not that type's in *revision*."""
    row = ERROR_NAMES[name]
    error = read(revision, Error, value, at="error")
    if revision not in row.emitted or error.code != row.code:
        raise InvalidParams(f"error.code: expected {row.code} for {name} of {revision}")
    if row.data is None:
        return error
    if error.data is UNSET:
        raise InvalidParams("error.data: is required")
    return attrs.evolve(error, data=read(revision, row.data, error.data, at="error.data"))
