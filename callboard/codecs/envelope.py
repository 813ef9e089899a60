"""JSON-RPC envelopes, and batches of them: kind, id and method, with the payload left as the bytes it came in.

A message is decoded once, on the way in, in one pass over its bytes. Params and result are opened one level deep,
because routing needs a name or a token from there; each member stays a `msgspec.Raw` until it is needed, and goes out
again untouched. A `Raw` is a view that keeps the whole frame alive: to keep one past its request, keep `raw.copy()`.
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from callboard.codecs import json_scan
from callboard.codecs.members import (
    Members,
    check_count,
    compact_size,
    end_of,
    next_member,
    read_members,
    write_members,
)
from callboard.codecs.revisions.nulls import NULL, without_nulls
from callboard.errors import FrameTooLarge, InvalidRequest, ParseError, PeerError

RequestId: TypeAlias = int | str
"""As the peer wrote it, however large. `1` and `"1"` are two ids; `true`, `1.0` and `null` are none."""

MAX_BATCH: Final = 256
"""Most members of one batch: four times what a peer may have in flight, so that notifications fit too."""

_OPENING: Final = re.compile(rb"[ \t\r\n]*+\[")  # the four bytes that JSON calls white space
_BATCH: Final = msgspec.json.Decoder(list[Raw])
_MAX_ECHO: Final = 128  # characters of a peer's own text in what we answer


class Request(msgspec.Struct, frozen=True, gc=False):  # one for each message: attrs takes four times as long
    """A peer asks, and waits for exactly one answer with the same id."""

    id: RequestId
    method: str
    params: Members | UnsetType = UNSET

    @property
    def members(self) -> Members:
        """The members of its params; none if it has no params."""
        return {} if isinstance(self.params, UnsetType) else self.params


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A peer tells; there is no answer."""

    method: str
    params: Members | UnsetType = UNSET

    @property
    def members(self) -> Members:
        """The members of its params; none if it has no params."""
        return {} if isinstance(self.params, UnsetType) else self.params


def size_of(message: Request | Notification) -> int:
    """Bytes of what a peer says unasked: its params, and an id that is text."""
    size = sum(map(len, message.members.values()))
    if isinstance(message, Request) and isinstance(message.id, str):
        size += len(message.id)
    return size


class ResultResponse(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request that worked."""

    id: RequestId
    result: Members


class ErrorResponse(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request that did not. Without an id: the request could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: Raw | UnsetType = UNSET


Envelope: TypeAlias = Request | Notification | ResultResponse | ErrorResponse


class _ErrorObject(msgspec.Struct, omit_defaults=True):
    code: int
    message: str
    data: Raw | UnsetType = UNSET


class _Wire(msgspec.Struct, omit_defaults=True):
    """Any envelope. What kind it is shows in which members are there."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Raw] | UnsetType = UNSET
    result: dict[str, Raw] | UnsetType = UNSET
    error: _ErrorObject | UnsetType = UNSET


class _WithNulls(msgspec.Struct):
    """As `_Wire`, of a peer that writes null for a member which it does not have."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType | None = UNSET
    params: dict[str, Raw] | UnsetType | None = UNSET
    result: dict[str, Raw] | UnsetType | None = UNSET
    error: _ErrorObject | UnsetType | None = UNSET


_read = msgspec.json.Decoder(_Wire).decode
_read_with_nulls = msgspec.json.Decoder(_WithNulls).decode
_read_id = msgspec.json.Decoder[int | str](int | str).decode
_SCALARS: Final = frozenset(("jsonrpc", "id", "method"))
_OBJECTS: Final = frozenset(("params", "result", "error"))
_ANSWERS: Final = frozenset(("result", "error"))
_SCALAR_KEYS: Final = frozenset((b'"jsonrpc"', b'"id"', b'"method"'))
_scalar: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|-?[0-9]++').match
_DEPTH: Final = json_scan.MAX_DEPTH - 1  # what the payload has left

# The smallest frame of each kind, less its id, method and payload.
_REQUEST: Final = len(b'{"jsonrpc":"2.0","id":,"method":"","params":}')
_NOTIFICATION: Final = len(b'{"jsonrpc":"2.0","method":"","params":}')
_RESULT: Final = len(b'{"jsonrpc":"2.0","id":,"result":}')


def decode(frame: bytes) -> Envelope:
    """Read one message, refusing everything that two careful parsers could read differently.

    A null that stands for an absent member is left out.

    Raises `ParseError` (not the JSON we allow) or `InvalidRequest` (JSON, but no JSON-RPC message), each with the id of
    the request where that could be read.
    """
    structure = None if len(frame) <= json_scan.LONG and frame.isascii() else json_scan.check_text(frame)
    wire = _parse(frame)
    try:
        envelope = _sort(wire)
        _check(wire, frame, structure)
    except PeerError as error:
        error.request_id = _answerable(wire.id)
        error.is_answer = wire.method is UNSET and not (wire.result is UNSET and wire.error is UNSET)
        raise
    if wire.method is not UNSET and wire.params is not UNSET and _may_have_nulls(frame):
        params = without_nulls(wire.method, wire.params)
        if params is not wire.params:
            wire.params = dict(params)
            return _sort(wire)
    return envelope


def _may_have_nulls(frame: bytes) -> bool:
    # From the end, where the params are: the fastest way to see that there is none. A longer frame is mostly one text,
    # and looking at its members is faster.
    return len(frame) > 4 * json_scan.SHORT or frame.rfind(NULL) >= 0


def encode(envelope: Envelope) -> bytes:
    """Write a message. What was raw is copied byte for byte."""
    match envelope:
        case Request(id=request_id, method=method, params=params):
            wire: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
            if params is not UNSET:
                wire["params"] = params
        case Notification(method=method, params=params):
            wire = {"jsonrpc": "2.0", "method": method}
            if params is not UNSET:
                wire["params"] = params
        case ResultResponse(id=request_id, result=result):
            wire = {"jsonrpc": "2.0", "id": request_id, "result": result}
        case ErrorResponse(id=request_id, code=code, message=message, data=data):
            wire = {"jsonrpc": "2.0"} if request_id is None else {"jsonrpc": "2.0", "id": request_id}
            wire["error"] = _ErrorObject(code, message, data)
    return write_members(wire)


def _parse(frame: bytes) -> _Wire:
    try:
        return _read(frame)
    except msgspec.ValidationError as error:
        wire = _with_nulls(frame)
        if wire is None:
            raise _misshapen(error, frame) from None
        return wire
    except RecursionError:
        raise ParseError(f"nested deeper than {json_scan.MAX_DEPTH} levels") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"not JSON: {error}") from None


def _with_nulls(frame: bytes) -> _Wire | None:
    """The message, if nothing is wrong with it but nulls for absent members. The id of a request is never null."""
    if frame.rfind(NULL) < 0:
        return None
    try:
        found = _read_with_nulls(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _Wire(
        found.jsonrpc,
        found.id,
        UNSET if found.method is None else found.method,
        UNSET if found.params is None else found.params,
        UNSET if found.result is None else found.result,
        UNSET if found.error is None else found.error,
    )


def _misshapen(error: msgspec.ValidationError, frame: bytes) -> PeerError:
    """The decoder stopped at the first member of a wrong type; what follows may not even be JSON."""
    try:
        msgspec.json.decode(frame, type=Raw)
    except (msgspec.DecodeError, RecursionError) as worse:
        return ParseError(f"not JSON: {worse}")
    refusal = InvalidRequest(f"not a JSON-RPC message: {str(error)[:_MAX_ECHO]}")
    with contextlib.suppress(KeyError, msgspec.ValidationError, PeerError):
        members = read_members(frame)
        refusal.is_answer = "method" not in members and not _ANSWERS.isdisjoint(members)
        # Its sender shall not wait for an answer that never comes.
        refusal.request_id = _answerable(_read_id(members["id"]))
    return refusal


def _answerable(request_id: object) -> RequestId | None:
    try:
        return _checked(request_id)
    except PeerError:
        return None


def _sort(wire: _Wire) -> Envelope:
    """Tell what kind of message this is."""
    if wire.method is not UNSET:
        if wire.result is not UNSET or wire.error is not UNSET:
            raise InvalidRequest("a message cannot be both a request and a response")
        if wire.id is UNSET:
            return Notification(wire.method, wire.params)
        return Request(_checked(wire.id), wire.method, wire.params)
    if wire.error is not UNSET:
        if wire.result is not UNSET:
            raise InvalidRequest("a response must have either a result or an error")
        # JSON-RPC writes null where the request could not be read; MCP leaves the member out.
        request_id = None if wire.id is UNSET or wire.id is None else _checked(wire.id)
        return ErrorResponse(request_id, wire.error.code, wire.error.message, wire.error.data)
    if wire.result is not UNSET and wire.id is not UNSET:
        return ResultResponse(_checked(wire.id), wire.result)
    raise InvalidRequest("not a request, notification or response")


def _checked(request_id: object) -> RequestId:
    if not isinstance(request_id, (int, str)):
        raise InvalidRequest('"id" must be a string or an integer')
    return request_id


def _check(wire: _Wire, frame: bytes, structure: bytes | None) -> None:
    payload = wire.result if wire.method is UNSET else wire.params
    if payload is not UNSET:
        check_count(payload)
        if _compact_size(wire, payload) == len(frame) or _is_all(wire, payload, frame):
            # It has no other members: only its payload can break a rule.
            if len(frame) <= json_scan.SHORT:
                if payload:
                    json_scan.check_short(frame)
            elif structure is not None:
                json_scan.check_structure(structure)
            else:
                json_scan.check_members(payload, _DEPTH)
            return
    _check_members(wire, frame, structure)


def _compact_size(wire: _Wire, payload: Members) -> int:
    """The fewest bytes that this message takes: in just so many, nothing stands twice and nothing else beside it."""
    size, request_id = compact_size(payload), wire.id
    if wire.method is not UNSET:
        size += len(wire.method)
        if request_id is UNSET:
            return _NOTIFICATION + size
    size += len(request_id) + 2 if isinstance(request_id, str) else len(str(request_id))
    return size + (_RESULT if wire.method is UNSET else _REQUEST)


def _is_all(wire: _Wire, payload: Members, frame: bytes) -> bool:
    """Whether *frame*, however it is spaced, holds the id, the method and the *payload* once, and nothing else."""
    name = b'"result"' if wire.method is UNSET else b'"params"'
    at, seen = frame.index(b"{") + 1, set[bytes]()
    while (match := next_member(frame, at)) and (key := match[1]):
        at = match.end()
        if key == name and frame.startswith(b"{", at):
            end = end_of(frame, at, payload)
        else:
            scalar = _scalar(frame, at) if key in _SCALAR_KEYS else None
            end = None if scalar is None else scalar.end()
        if end is None or key in seen:
            return False
        seen.add(key)
        at = end
    return match is not None and name in seen


def _check_members(wire: _Wire, frame: bytes, structure: bytes | None) -> None:
    """Check any other *frame*: what we have no use for is still what others may stumble over."""
    try:
        members = read_members(frame)
    except PeerError:
        wire.id = UNSET  # it may be what stands twice, and either could belong to another request
        raise
    for name in _OBJECTS & members.keys():
        if bytes(members[name]) != NULL:
            read_members(members[name])
    if not members.keys() - _SCALARS:
        return
    if structure is not None:
        json_scan.check_structure(structure)
    else:
        json_scan.check_value(frame)


# Batches, which only a session of 2025-03-26 may use. The members stay what they were, byte for byte: each is then read
# as a frame of its own. Whether a batch may stand here, and that it holds no `initialize`, is decided by the session.


def is_batch(frame: bytes) -> bool:
    """Tell from its first byte whether *frame* can only be a batch. Valid JSON or not is not looked at."""
    return _OPENING.match(frame) is not None


def split_batch(frame: bytes, *, limit: int = MAX_BATCH) -> list[bytes]:
    """Return the members of a batch, untouched and in order.

    Raises ParseError if *frame* is not a JSON array, InvalidRequest if it is empty, FrameTooLarge past the
    *limit*.
    """
    json_scan.check_frame(frame)  # also bounds the members, which must all be cut out before they can be counted
    try:
        members = _BATCH.decode(frame)
    except (msgspec.MsgspecError, RecursionError):
        raise ParseError("a batch must be a JSON array") from None
    if not members:
        raise InvalidRequest("a batch must not be empty")
    if len(members) > limit:
        raise FrameTooLarge("batch", limit=limit)
    return [bytes(member) for member in members]  # a copy each: a Raw would keep the whole frame alive


def join_batch(frames: Iterable[bytes]) -> bytes:
    """Return one array of *frames*, each a JSON text. Raises ValueError for none: that is not a message."""
    joined = b",".join(frames)
    if not joined:
        raise ValueError("an empty batch is not a message")
    return b"[" + joined + b"]"
