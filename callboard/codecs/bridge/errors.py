"""Errors on their way back to a client: BRIDGING.md, section 12, as a table."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import Revision
from callboard.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    BackendRefused,
)

_Change: TypeAlias = Callable[[ErrorResponse, str | None], BackendRefused]


def front_error(
    front: Revision, back: Revision, method: str, error: ErrorResponse, uri: str | None = None
) -> BackendRefused:
    """The error as the client gets it. *uri*: the resource that was asked for, if one was."""
    change: _Change = _unchanged
    if back.dialect.reserves_error_codes:
        if not front.dialect.reserves_error_codes and (cause := _cause(error)) is not None:
            return cause  # a broker there speaks for a server of an older revision, as the client does
        is_renamed = front.dialect.has_not_found_code and method == "resources/read"
        change = _to_legacy if is_renamed else _of_the_leg
    elif front.dialect.reserves_error_codes:
        change = _to_modern
    return change(error, uri)


def _unchanged(error: ErrorResponse, _: str | None) -> BackendRefused:
    return BackendRefused(error.code, error.message, None if error.data is UNSET else error.data)


def _of_the_leg(error: ErrorResponse, uri: str | None) -> BackendRefused:
    """Hide codes that only concern the connection between broker and backend."""
    return _with_cause(error) if error.code in _OUR_BUSINESS else _unchanged(error, uri)


def _to_legacy(error: ErrorResponse, uri: str | None) -> BackendRefused:
    if error.code == INVALID_PARAMS and uri is not None and _names(error.data, uri):
        return BackendRefused(RESOURCE_NOT_FOUND, error.message, error.data)
    return _of_the_leg(error, uri)


def _to_modern(error: ErrorResponse, uri: str | None) -> BackendRefused:
    if error.code == RESOURCE_NOT_FOUND:
        return BackendRefused(INVALID_PARAMS, error.message, None if error.data is UNSET else error.data)
    return _with_cause(error) if error.code in _RESERVED else _unchanged(error, uri)


def _with_cause(error: ErrorResponse) -> BackendRefused:
    cause: dict[str, object] = {"code": error.code, "message": error.message}
    if error.data is not UNSET:
        cause["data"] = error.data
    return BackendRefused(INTERNAL_ERROR, error.message, {"cause": cause})


def _cause(error: ErrorResponse) -> BackendRefused | None:
    """The error that `_with_cause` was made of, for a code that only the modern revision reserves."""
    if error.code != INTERNAL_ERROR or not isinstance(error.data, Raw):
        return None
    try:
        said = _read_cause(error.data).cause
    except msgspec.MsgspecError:
        return None
    if said.code not in _RESERVED or said.code in _OUR_BUSINESS:
        return None
    return BackendRefused(said.code, said.message, None if said.data is UNSET else said.data)


class _Cause(msgspec.Struct):
    code: int
    message: str
    data: Raw | msgspec.UnsetType = UNSET


class _Caused(msgspec.Struct):
    cause: _Cause


_read_cause: Final = msgspec.json.Decoder(_Caused).decode


def _names(data: object, uri: str) -> bool:
    if not isinstance(data, Raw):
        return False
    try:
        said = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    return isinstance(said, dict) and said.get("uri") == uri


_OUR_BUSINESS: Final = frozenset((HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION))
_RESERVED: Final = range(-32099, -31999)
"""Codes that the modern revision reserves: the meaning of one from a legacy server is unknown."""
