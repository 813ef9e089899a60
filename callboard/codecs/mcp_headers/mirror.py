"""Header mirroring (2026-07-28 over HTTP): what the body says, said again for proxies that route by headers.

A client writes the headers with `mirror`; a server compares them with the body in `check_mirror`. A proxy that acts
on a header that the body contradicts has been smuggled past, so anything but equality is refused. Values never
stand in the message of an error: they are the peer's arguments.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from callboard.codecs.json_schema import Path
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.mcp_headers.header_values import (
    OUTER_SPACE,
    agrees,
    decode_value,
    encode_value,
    is_plain,
    primitive,
)
from callboard.codecs.members import Members, read_members
from callboard.errors import HeaderMismatch, InvalidParams, InvalidRequest, ParseError

MIRRORED_NAME: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of `params` that `Mcp-Name` repeats, by method. Other methods have no such header."""

_MAY_LACK: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods whose `Mcp-Name` may be absent: clients of the official Python SDK do not send it with methods of extensions.
One that is there must agree with the body."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
Received: TypeAlias = Mapping[bytes, bytes]

_VERSION: Final = b"mcp-protocol-version"
_METHOD: Final = b"mcp-method"
_NAME: Final = b"mcp-name"
_PARAM: Final = b"mcp-param-"
_FIXED: Final = frozenset((_VERSION, _METHOD, _NAME))
_read_name = msgspec.json.Decoder[str | None](str | None).decode
_read_any = msgspec.json.Decoder().decode


def mirror(
    version: str, method: str, params: Members | UnsetType = UNSET, header_map: HeaderMap = NO_HEADERS
) -> list[tuple[bytes, bytes]]:
    """Return the headers that a client must send with a request.

    Raises InvalidParams if the name or an argument cannot be mirrored, InvalidRequest if version or method cannot.
    """
    headers = [(b"MCP-Protocol-Version", _literal(version)), (b"Mcp-Method", _literal(method))]
    name, arguments = _mirrored(method, params, header_map)
    if name is not None:
        headers.append((b"Mcp-Name", encode_value(name)))
    for key, value in header_map.values(arguments):
        if value is not None:
            headers.append((header_map.names[key], encode_value(primitive(value))))
    return headers


def check_mirror(
    headers: Headers,
    *,
    version: str,
    method: str,
    params: Members | UnsetType = UNSET,
    header_map: HeaderMap = NO_HEADERS,
) -> None:
    """Compare all mirrored headers of a request with its body. Raises HeaderMismatch unless they agree."""
    received = read_mirror(headers, header_map)
    name, arguments = _mirrored(method, params, header_map)
    check_version(received, version)
    check_method(received, method, name)
    check_params(received, arguments, header_map)


def read_mirror(headers: Headers, header_map: HeaderMap = NO_HEADERS) -> Received:
    """Pick out the mirrored headers, each once, under the exact name.

    Some gateways read `_` in a name as `-`, so a look-alike could show them another value: it is refused.
    """
    received: dict[bytes, bytes] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        folded = name.replace(b"_", b"-")
        if folded not in _FIXED and not folded.startswith(_PARAM):
            continue
        exact = name in _FIXED or (name.startswith(_PARAM) and not header_map.has_lookalike(name))
        if not exact:
            raise HeaderMismatch("Header mismatch: a mirrored header has an underscore instead of a hyphen")
        if name in received:
            raise HeaderMismatch(f"Header mismatch: duplicate header {_shown(name)}")
        received[name] = value
    return received


def check_version(received: Received, version: str | None) -> None:
    """`MCP-Protocol-Version` must be there and, where the body's version is known, equal to it."""
    _check_literal(received, _VERSION, version)


def check_method(received: Received, method: str, name: str | None) -> None:
    """`Mcp-Method` must equal the method, and `Mcp-Name` the *name* that the method mirrors, if any."""
    _check_literal(received, _METHOD, method)
    if name is None or (method in _MAY_LACK and _NAME not in received):
        return
    if decode_value(_required(received, _NAME)) != name:
        raise HeaderMismatch(f"Header mismatch: {_shown(_NAME)} differs from the body")


def check_params(received: Received, arguments: Any, header_map: HeaderMap) -> None:
    """Every mirrored argument that is not null must stand in its header. Other headers are none of ours."""
    for key, value in header_map.values(arguments):
        if value is not None and not agrees(decode_value(_required(received, key)), value):
            raise HeaderMismatch(f"Header mismatch: {_shown(key)} differs from the body")


def mirrored_arguments(params: Members | UnsetType, header_map: HeaderMap) -> Any:
    """Read of the arguments what headers repeat. Raises `ParseError`."""
    if not header_map.paths or params is UNSET or "arguments" not in params:
        return None
    try:
        return _read_along(header_map.paths.values(), params["arguments"])
    except (ParseError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ParseError("arguments are invalid JSON, or have a number out of range") from None


def _mirrored(method: str, params: Members | UnsetType, header_map: HeaderMap) -> tuple[str | None, Any]:
    """Read from the params what headers repeat: the name, and the arguments if any is mirrored."""
    if isinstance(params, UnsetType):
        return None, None
    key = MIRRORED_NAME.get(method)
    try:
        name = _read_name(params[key]) if key is not None and key in params else None
    except msgspec.ValidationError:
        raise InvalidParams(f"{key} must be a string") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError(f"{key} is not JSON") from None
    return name, mirrored_arguments(params, header_map)


def _read_along(paths: Iterable[Path], value: msgspec.Raw) -> Any:
    """Read of an argument only where *paths* lead. No key may stand twice there: which one would a header mirror?"""
    below: dict[str, list[Path]] = {}
    for path in paths:
        if path:
            below.setdefault(path[0], []).append(path[1:])
    if not below or not bytes(value).startswith(b"{"):
        return _read_any(value)
    members = read_members(value)
    return {name: _read_along(rest, members[name]) for name, rest in below.items() if name in members}


def _literal(text: str) -> bytes:
    """Write a value that has no encoding. Raises InvalidRequest for what a header cannot hold."""
    if not text or not is_plain(text):
        raise InvalidRequest("method or version is not a valid header value")
    return text.encode()


def _check_literal(received: Received, key: bytes, expected: str | None) -> None:
    value = _required(received, key).strip(OUTER_SPACE)
    if expected is not None and value != expected.encode("utf-8", "surrogatepass"):
        raise HeaderMismatch(f"Header mismatch: {_shown(key)} differs from the body")


def _required(received: Received, key: bytes) -> bytes:
    try:
        return received[key]
    except KeyError:
        raise HeaderMismatch(f"Header mismatch: {_shown(key)} is missing") from None


def _shown(name: bytes) -> str:
    return name[:64].decode("ascii", "replace").title()
