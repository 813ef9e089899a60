"""Routing of a message: the few members of its params that decide its target and terms.

Reads `name`, `uri`, `requestState` and the reserved keys of `_meta`. Arguments, inputs and all else that is there stay
the bytes they are.
"""

import re
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET

from callboard.codecs.envelope import Notification, Request, RequestId
from callboard.codecs.members import Members, read_members
from callboard.codecs.revisions.meta import PROGRESS_TOKEN, PROTOCOL_VERSION
from callboard.codecs.uri_template.match import MAX_URI
from callboard.errors import InvalidParams, InvalidRequest, PeerError

MAX_REMEMBERED: Final = 2048
"""Longest `_meta` that is remembered, in bytes: a client says the same with every request."""

# A token that stands last. What it stands in ends there, so it is `_meta` itself and nothing deeper; and no string can
# hold this: its quotes would be escaped.
_LAST_TOKEN: Final = re.compile(rb',"%b":(0|[1-9][0-9]{0,14})\}\Z' % PROGRESS_TOKEN.encode())
_LONGEST_TOKEN: Final = 40

_NOTHING: Final[Members] = MappingProxyType({})
_STRING: Final = msgspec.json.Decoder(str)
_TOKEN: Final = msgspec.json.Decoder[int | str](int | str)
_T = TypeVar("_T")


class Route(msgspec.Struct, frozen=True, gc=False):  # there is one for each message: attrs takes four times as long
    """What of a message its router needs. `None` is absent; `meta` holds every member of `_meta`, raw, but for a
    progress token that stands last."""

    name: str | None = None
    uri: str | None = None
    request_state: str | None = None
    progress_token: RequestId | None = None
    protocol_version: str | None = None
    meta: Members = _NOTHING
    said: bytes = b""
    """`_meta` as it stands in the message, but for such a token: what a client says with every request alike."""


def read_route(message: Request | Notification) -> Route:
    """Read where *message* goes.

    Raises `InvalidParams` for a member of the wrong type, `InvalidRequest` for a repeated key in `_meta`.
    """
    if message.params is UNSET:
        return Route()
    try:
        return _route(message.params)
    except PeerError as error:
        error.request_id = message.id if isinstance(message, Request) else None
        raise


def _route(params: Members) -> Route:
    said = bytes(params.get("_meta", b""))
    last = _LAST_TOKEN.search(said, max(0, len(said) - _LONGEST_TOKEN)) if said else None
    rest = said if last is None else said[: last.start()] + b"}"
    meta, token, version = (_remembered if len(rest) <= MAX_REMEMBERED else _read_meta)(rest)
    if last is not None:
        if PROGRESS_TOKEN in meta:
            raise InvalidRequest("duplicate key in an object")
        token, said = int(last[1]), rest
    uri = _member(params, "uri", _STRING) if "uri" in params else None
    if uri is not None and len(uri) > MAX_URI:
        raise InvalidParams(f'"uri": expected at most {MAX_URI} characters')
    return Route(
        _member(params, "name", _STRING),
        uri,
        _member(params, "requestState", _STRING) if "requestState" in params else None,
        token,
        version,
        meta,
        said,
    )


def _read_meta(said: bytes) -> tuple[Members, RequestId | None, str | None]:
    if not said:
        return _NOTHING, None, None
    if not said.startswith(b"{"):
        raise InvalidParams('"_meta" must be an object')
    meta = read_members(said)
    return meta, _member(meta, PROGRESS_TOKEN, _TOKEN), _member(meta, PROTOCOL_VERSION, _STRING)


_remembered: Final = lru_cache(maxsize=256)(_read_meta)


def _member(members: Members, key: str, reader: msgspec.json.Decoder[_T]) -> _T | None:
    raw = members.get(key)
    if raw is None:
        return None
    try:
        return reader.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidParams(f'"{key}": {error}') from None


def text_member(members: Members, key: str) -> str | None:
    """A member that is a text. Raises `InvalidParams` for one that is not."""
    return _member(members, key, _STRING)
