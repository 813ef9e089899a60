"""Frames for a peer, in its own revision. The one place where an exception becomes an error on the wire."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from callboard.actors.shares import Hold, Shares
from callboard.codecs.bridge.results import MAX_REMEMBERED, Forwarded
from callboard.codecs.envelope import RequestId
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.members import raw, read_members, write_members
from callboard.codecs.revisions import (
    ERROR_CODES,
    LATEST,
    METHODS,
    Model,
    Revision,
    meta,
    write,
    write_params,
    write_result,
)
from callboard.codecs.revisions.calls import STRUCTURED, Structured
from callboard.codecs.revisions.older import for_older
from callboard.errors import INTERNAL_ERROR, INVALID_PARAMS, BackendRefused, Overloaded, PeerError, RequestFailed
from callboard.supervisor import get_logger
from callboard.supervisor.ended import drop_frames, failure_text, where

log = get_logger("callboard.actors")

_encode = msgspec.json.Encoder().encode

LARGE: Final = 65_536
"""Bytes of an answer that count until it is written. Smaller ones fit into a socket, and wait in the kernel."""

MAX_MESSAGE: Final = 1024
"""Longest error message, in characters. It may quote the peer's own words, and is no place for a payload."""

MAX_ID: Final = 128
"""Longest request id in the log, in characters. It is the peer's own text."""


def result_frame(
    request_id: RequestId, revision: Revision, method: str, result: Model | Forwarded, server_info: Raw | None
) -> bytes:
    """Write the answer to a request, shaped for the peer's revision. Raises `TypeError` or `ValueError` if it has no
    shape there. *server_info* names the server, where a result says so: a backend's own words count for more."""
    if isinstance(result, Forwarded):
        body: dict[str, Any] = dict(result.members)
        if server_info is not None:
            said = bytes(body.get("_meta", b"{}"))
            body["_meta"] = (_remembered if len(said) <= MAX_REMEMBERED else _named)(said, bytes(server_info))
        return _encode({"jsonrpc": "2.0", "id": request_id, "result": body})
    body = write_result(revision, method, for_older(revision, result))
    if server_info is not None:
        body["_meta"] = {meta.SERVER_INFO: server_info, **body.get("_meta", {})}
    return write_members({"jsonrpc": "2.0", "id": request_id, "result": body})


def _named(said: bytes, server_info: bytes) -> Raw:
    return raw({meta.SERVER_INFO: Raw(server_info), **read_members(said)})


_remembered: Final = lru_cache(maxsize=256)(_named)  # most backends say the same with every result


Outcome: TypeAlias = Model | Forwarded | Structured | str
"""What a handler returns. The result of a tool may be nothing but a text."""


class About(Protocol):
    """A request, as far as the log names it."""

    @property
    def target(self) -> str:
        """The tool, prompt or resource; short."""


class _Text(Struct):
    text: str
    type: str = "text"


class _TextResult(Struct, rename={"data": "structuredContent", "result_type": "resultType", "meta": "_meta"}):
    content: list[_Text]
    data: dict[str, Any] | UnsetType = UNSET
    meta: dict[str, Raw] | UnsetType = UNSET
    result_type: str | UnsetType = UNSET


class _TextAnswer(Struct):
    id: RequestId
    result: _TextResult
    jsonrpc: str = "2.0"


def text_frame(
    request_id: RequestId,
    revision: Revision,
    told: Structured | str,
    server_info: Raw | None,
    about: About | None = None,
) -> tuple[bytes, Exception | None]:
    """As `answer_frame`, for a result of a call that is only text, or an object: most are, and this is five times as
    fast as the way through the models. A modern one says *server_info* and that it is complete."""
    if isinstance(told, str):
        result = _TextResult([_Text(told)])
    else:
        result = _TextResult([_Text(told.text)], told.data if revision in STRUCTURED else UNSET)
    if server_info is not None:
        result.meta, result.result_type = {meta.SERVER_INFO: server_info}, "complete"
    error: Exception
    try:
        frame = _encode(_TextAnswer(request_id, result))
    except ValueError as unfit:  # half a character
        error = unfit
    else:
        if len(frame) <= MAX_ANSWER:
            return frame, None
        error = _too_large(request_id, len(frame), about)
    return error_frame(request_id, LATEST, error, about), error


def answer_frame(
    request_id: RequestId,
    revision: Revision,
    method: str,
    result: Model | Forwarded,
    server_info: Raw | None,
    about: About | None = None,
) -> tuple[bytes, Exception | None]:
    """As `result_frame`, but one that the revision cannot say, or that is too large, is a fault of ours: the error that
    is answered instead, and what it is about."""
    error: Exception
    try:
        frame = result_frame(request_id, revision, method, result, server_info)
    except Exception as unfit:  # any fault of a handler or a backend: its client is answered all the same
        error = ValueError(str(unfit)) if isinstance(unfit, PeerError) else unfit  # not the client's fault
    else:
        if len(frame) <= MAX_ANSWER:
            return frame, None
        error = _too_large(request_id, len(frame), about)
    return error_frame(request_id, revision, error, about), error


def _too_large(request_id: RequestId, size: int, about: About | None) -> RequestFailed:
    """What its client is told of an answer; the author and the operator read it in the log."""
    log.warning("response_too_large", **_named_in_log(request_id, about), bytes=size, most=MAX_ANSWER)
    return RequestFailed(f"the response is larger than {MAX_ANSWER} bytes")


def request_frame(request_id: RequestId, revision: Revision, method: str, params: Model) -> bytes:
    """Write a request of ours to a legacy peer."""
    body = write_params(revision, method, params)
    return write_members({"jsonrpc": "2.0", "id": request_id, "method": method, "params": body})


def notification_frame(revision: Revision, method: str, params: Model) -> bytes:
    """Write a notification. Empty params are left out."""
    body = write_params(revision, method, params)
    return write_members({"jsonrpc": "2.0", "method": method, **({"params": body} if body else {})})


def custom_frame(method: str, params: Mapping[str, Any]) -> bytes:
    """Write a notification of an extension.

    Raises ValueError for a name that is of the specification or not ASCII (HTTP repeats it in a header), for params
    that are too large, and what cannot be JSON.
    """
    if not (method.isascii() and method.isprintable()):
        raise ValueError(f"a method has a name of printable ASCII, which {method[:MAX_ID]!r} is not")
    if method in METHODS:
        raise ValueError(f"the specification has the method {method!r}: it cannot be sent as a custom notification")
    frame = write_members({"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params else {})})
    if len(frame) > MAX_ANSWER:
        raise ValueError(f"notification {method[:MAX_ID]!r} is larger than {MAX_ANSWER} bytes")
    return frame


class _Progress(Struct, rename="camel"):
    progress_token: RequestId
    progress: float
    total: float | UnsetType = UNSET


class _ProgressNotification(Struct):
    params: _Progress
    method: str = "notifications/progress"
    jsonrpc: str = "2.0"


def progress_frame(token: RequestId, progress: float, total: float | None) -> bytes:
    """A progress notification without a message, which all revisions write alike: ten times as fast as by its model."""
    params = _Progress(token, progress, UNSET if total is None else total)
    return _encode(_ProgressNotification(params))


def _short(request_id: RequestId | None) -> RequestId | None:
    return request_id[:MAX_ID] if isinstance(request_id, str) else request_id


def _named_in_log(request_id: RequestId | None, about: About | None) -> dict[str, RequestId | None]:
    """The request as the log names it: with the tool or resource, if that is known."""
    named: dict[str, RequestId | None] = {"name": about.target} if about is not None and about.target else {}
    return named | {"request": _short(request_id)}


def error_frame(
    request_id: RequestId | None, revision: Revision, error: Exception, about: About | None = None
) -> bytes:
    """Write an error: ours as they are, anything else as an internal error without a word about it.

    No traceback, no path, no secret: what such an exception says was not written for the peer. It stands in the log.

    Every error that is answered passes through here, and leaves without its traceback. The callers keep the error until
    its answer is written; with the traceback it would hold their frames, and those hold the error: the whole request
    would then stay until the garbage collector runs.
    """
    code, message, data = INTERNAL_ERROR, "Internal error", None
    if isinstance(error, PeerError | RequestFailed):
        code, message, data = error.code, str(error)[:MAX_MESSAGE], error.data
    else:
        named = _named_in_log(request_id, about)
        log.error("request_failed", **named, failure=failure_text(error), where=where(error))
    drop_frames(error)
    if isinstance(error, BackendRefused):
        code = error.error_code
    row = ERROR_CODES.get(code)
    if row is not None and revision not in row.emitted and not isinstance(error, BackendRefused):
        code = INVALID_PARAMS  # what every revision calls what it has no code of its own for
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = write(revision, data) if isinstance(data, Model) else data
    return write_members({"jsonrpc": "2.0", **({} if request_id is None else {"id": request_id}), "error": body})


def error_type(error: Exception) -> str:
    """An error's code, as OpenTelemetry's conventions want it: as text."""
    if isinstance(error, BackendRefused):
        return str(error.error_code)
    return str(error.code if isinstance(error, PeerError | RequestFailed) else INTERNAL_ERROR)


def hold_unread(
    unread: Shares | None,
    account: str,
    request_id: RequestId,
    revision: Revision,
    frame: bytes,
    error: Exception | None,
) -> tuple[bytes, Exception | None, Hold | None]:
    """Count a large answer until it is written. If too much waits already, the client gets an error in its place."""
    if unread is None or len(frame) < LARGE:
        return frame, error, None
    try:
        return frame, error, Hold(unread, account, len(frame))
    except Overloaded as refused:
        return error_frame(request_id, revision, refused), refused, None
