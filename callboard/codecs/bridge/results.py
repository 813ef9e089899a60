"""Results on their way back to a client: BRIDGING.md, section 11, as a table of what is taken off and put on.

What need not be changed is not looked at: members stay the bytes they came in.
"""

from functools import lru_cache
from typing import Any, Final

import attrs
import msgspec
from msgspec import UNSET, Raw

from callboard.codecs.bridge.shapes import UnfitResult, fit
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, raw, read_members
from callboard.codecs.revisions import (
    CallToolResult,
    Model,
    Revision,
    TextContent,
    meta,
    read_result,
)
from callboard.errors import PeerError

BACKEND: Final = "dev.callboard/backend"
"""The key of `_meta` with the name of the backend."""

COMPLETE: Final = raw("complete")
_IS_COMPLETE, _IS_INPUT_REQUIRED = b'"complete"', b'"input_required"'
_ZERO, _PRIVATE, _PUBLIC = raw(0), raw("private"), raw("public")

CACHEABLE: Final = frozenset(
    (
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    )
)
"""Methods with caching hints in their modern results."""

MAX_TTL_MS: Final = 3_600_000
"""Longest time for which a client is told that it may keep an answer: an hour."""

MAX_REMEMBERED: Final = 2048
"""Longest `_meta` of a result that is remembered, in bytes."""

_MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
_BRACE: Final = ord("{")
_OLD_BLOCKS: Final = (b'"audio"', b'"resource_link"')


class Forwarded(msgspec.Struct, frozen=True, gc=False):
    """A result that goes on as it is: its members, raw."""

    members: Members


@attrs.frozen
class Crossing:
    """The two ends of a message, and whether the backend is trusted."""

    front: Revision
    back: Revision
    backend: str
    trusted: bool = False


@lru_cache(maxsize=1024)
def _labelled(backend: str) -> Raw:
    return raw({BACKEND: backend})


def asks(result: Members) -> bool:
    """Whether a modern result is a question. Raises `UnfitResult` for an unknown type."""
    kind = result.get("resultType")
    if kind is None or (said := bytes(kind)) == _IS_COMPLETE:
        return False
    if said == _IS_INPUT_REQUIRED:
        return True
    raise UnfitResult("unknown resultType")


def front_result(crossing: Crossing, method: str, result: Members, *, keeps: bool = True) -> Forwarded | Model:
    """The result as the client gets it; a model where the client's revision has no words for some of it.

    *keeps*: whether it may be kept at all; what came of a retry may not. Raises `UnfitResult`.
    """
    front = crossing.front.dialect
    # Without structured content there are no links either, and in the first revision no sound.
    if not front.has_structured_content and _is_beyond_plain(method, result):
        return _in_older_words(crossing, method, result)
    members: dict[str, Any] = dict(result)
    if front.typed_results:
        _put_on(members, crossing, method, keeps=keeps)
    elif crossing.back.dialect.typed_results:
        _take_off(members)
    if not front.structures_any_json and not _is_object(members.get("structuredContent")):
        return _in_older_words(crossing, method, result)
    fit(crossing.front, method, members)
    members["_meta"] = front_meta(crossing, members.get("_meta"))
    return Forwarded(members)


def _take_off(members: dict[str, Any]) -> None:
    for name in _MODERN_MEMBERS:
        members.pop(name, None)


def _put_on(members: dict[str, Any], crossing: Crossing, method: str, *, keeps: bool) -> None:
    members["resultType"] = COMPLETE
    if method not in CACHEABLE:
        return
    if not crossing.back.dialect.has_cache_hints or not keeps:
        members["ttlMs"], members["cacheScope"] = _ZERO, _PRIVATE
        return
    if not (crossing.trusted and bytes(members.get("cacheScope", _PRIVATE)) == bytes(_PUBLIC)):
        members["cacheScope"] = _PRIVATE  # also where it is written in a way that others might read as public
    members["ttlMs"] = _bounded(members.get("ttlMs", _ZERO))


def _bounded(ttl: Raw) -> Raw:
    """The caching hints of a backend, within limits."""
    try:
        found = msgspec.json.decode(ttl, type=int)
    except msgspec.MsgspecError:
        return _ZERO
    return ttl if 0 <= found <= MAX_TTL_MS else raw(0 if found < 0 else MAX_TTL_MS)


def front_meta(crossing: Crossing, said: Raw | None) -> Raw:
    """A backend's `_meta` as the client gets it: labelled, and an object in any case. The name of the server is not the
    backend's to say."""
    if said is None:
        return _labelled(crossing.backend)
    find = _remembered if len(said) <= MAX_REMEMBERED else _front_meta
    return find(crossing.backend, bytes(said), crossing.front.dialect.has_listen)


def _front_meta(backend: str, said: bytes, has_listen: bool) -> Raw:
    try:
        members = read_members(said)
    except PeerError:
        return _labelled(backend)  # not an object: nothing of it can be kept
    members.pop(meta.SERVER_INFO, None)
    if not has_listen:
        members.pop(meta.SUBSCRIPTION_ID, None)
    return raw({**members, BACKEND: backend})


_remembered: Final = lru_cache(maxsize=256)(_front_meta)  # most servers say the same with every result


def _is_beyond_plain(method: str, result: Members) -> bool:
    if method == "tools/call":
        return "structuredContent" in result or _names_new_block(result.get("content"))
    return method == "prompts/get" and _names_new_block(result.get("messages"))


def _names_new_block(said: Raw | None) -> bool:
    data = b"" if said is None else bytes(said)
    return any(name in data for name in _OLD_BLOCKS)


def _is_object(said: Raw | None) -> bool:
    return said is None or memoryview(said)[0] == _BRACE


def _in_older_words(crossing: Crossing, method: str, result: Members) -> Model:
    """As a model, which is written in the words that the older revision has."""
    result = {**result, "_meta": front_meta(crossing, result.get("_meta"))}
    try:
        check_modelled(result, but="structuredContent")
        read = read_result(crossing.back, method, {key: msgspec.json.decode(value) for key, value in result.items()})
    except PeerError as error:
        raise UnfitResult(str(error)) from None
    if not isinstance(read, CallToolResult) or read.structured_content is UNSET:
        return read
    # What cannot be said as structure is said as text, unless it is already.
    content = list(read.content)
    if not any(isinstance(block, TextContent) for block in content):
        content.append(TextContent(text=msgspec.json.encode(read.structured_content).decode()))
    kept = read.structured_content if isinstance(read.structured_content, dict) else UNSET
    return attrs.evolve(read, content=content, structured_content=kept)
