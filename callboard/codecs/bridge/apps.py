"""MCP Apps in messages: the `ui://` URIs of tools and results, and other URIs in their place."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from callboard.codecs.bridge.shapes import MAX_MENDED
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, raw, read_members
from callboard.errors import PeerError

SCHEME: Final = "ui://"
"""The scheme that hosts look for: a URI that is given another form keeps it."""

FLAT: Final = "ui/resourceUri"
"""The deprecated key of `_meta` beside `ui.resourceUri`."""

ShownUri: TypeAlias = Callable[[str], str]
"""The form in which clients know a `ui://` URI of one backend."""

SKILL: Final = "skill://"
"""The scheme of skills, which is shown in another form, too."""

_MARKS: Final = (b"ui://", b"ui:\\/\\/", SKILL.encode(), b"skill:\\/\\/")  # slashes as some writers have them
_rows = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_BLOCKS: Final = ("content", "contents", "messages")


def uris_of(said: object) -> tuple[str, ...]:
    """The `ui://` URIs that the `_meta` of a tool or result names."""
    if not isinstance(said, dict):
        return ()
    nested = said.get("ui")
    found = (nested.get("resourceUri") if isinstance(nested, dict) else None, said.get(FLAT))
    return tuple(dict.fromkeys(uri for uri in found if isinstance(uri, str) and uri.startswith(SCHEME)))


def with_uris(members: Members, shown: ShownUri) -> Members:
    """A tool, or anything else with a `_meta`, that names its URIs as clients know them."""
    said = members.get("_meta")
    if said is None or not _may_name(said):
        return members
    try:
        meta = read_members(said)
        nested: object = msgspec.json.decode(meta["ui"]) if "ui" in meta else None
        flat: object = msgspec.json.decode(meta[FLAT]) if FLAT in meta else None
    except (PeerError, msgspec.MsgspecError):
        return members
    after: dict[str, Any] = dict(meta)
    if isinstance(nested, dict) and _is_ui(nested.get("resourceUri")):
        after["ui"] = raw({**nested, "resourceUri": shown(nested["resourceUri"])})
    if isinstance(flat, str) and _is_ui(flat):
        after[FLAT] = raw(shown(flat))
    return {**members, "_meta": raw(after)}


def result_with_uris(result: Mapping[str, Raw], shown: ShownUri) -> Members:
    """A result whose links, embedded resources, contents and `_meta` name `ui://` URIs as clients know them. What does
    not name any stays the bytes that it is; so does what has too many values to be gone through."""
    after = dict(with_uris(result, shown))
    for member in _BLOCKS:
        said = after.get(member)
        if said is None or not _may_name(said):
            continue
        if member == "contents":  # which may be large, and have their URI at the top
            after[member] = _contents(said, shown)
            continue
        try:
            check_modelled({member: said}, most=MAX_MENDED)
        except PeerError:
            continue
        blocks = msgspec.json.decode(said)
        if isinstance(blocks, list):
            after[member] = raw([_block(block, shown) for block in blocks])
    return after


def _contents(said: Raw, shown: ShownUri) -> Raw:
    """Contents of resources: all but their URIs stays the bytes that it is."""
    try:
        rows = _rows(said)
        uris = [msgspec.json.decode(row["uri"], type=str) for row in rows]
    except (KeyError, msgspec.MsgspecError):
        return said
    return raw(
        [{**row, "uri": raw(shown(uri)) if _is_shown(uri) else row["uri"]} for row, uri in zip(rows, uris, strict=True)]
    )


def _block(block: Any, shown: ShownUri) -> Any:
    """A content block, the contents of a resource, or a message of a prompt."""
    if not isinstance(block, dict):
        return block
    after = dict(block)
    for inner in ("resource", "content"):
        if isinstance(after.get(inner), dict):
            after[inner] = _block(after[inner], shown)
    if _is_shown(after.get("uri")):
        after["uri"] = shown(after["uri"])
    return after


def _is_shown(uri: object) -> bool:
    """Whether a URI has one of the schemes that may be given another form."""
    return isinstance(uri, str) and uri.startswith((SCHEME, SKILL))


def _is_ui(uri: object) -> bool:
    return isinstance(uri, str) and uri.startswith(SCHEME)


def _may_name(said: Raw) -> bool:
    data = bytes(said)
    return any(mark in data for mark in _MARKS)
