"""Skills of many servers: URIs that say whose a skill is, in entries and in what is read.

`skill://SERVER/` and the rest of the URI at that server. The last segments stay, so the names of skills and the links
between their files hold; digests, sizes and front matter are not touched, nor is any file.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw

from callboard.codecs.bridge.apps import SKILL, ShownUri
from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, raw, read_members
from callboard.codecs.skills import BadSkill, read_entry
from callboard.errors import PeerError

SKILL_SCHEME: Final = SKILL

MAX_VALUES: Final = 20_000
"""Most values of a page of skills: twenty with 512 files each, and what else they say."""

_NONE: Final = Raw(b"{}")
_entries: Final = msgspec.json.Decoder(list[Raw]).decode
_rows: Final = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def skill_address(backend: str, uri: str) -> str:
    """How clients know a URI of *backend*. One of another scheme stays as it is."""
    if not uri.startswith(SKILL_SCHEME):
        return uri
    return f"{SKILL_SCHEME}{quote(backend, safe='')}/{uri.removeprefix(SKILL_SCHEME)}"


def skill_addresses(backend: str) -> ShownUri:
    """The same, for one backend."""
    return partial(skill_address, backend)


def read_skill_address(uri: str) -> tuple[str, str]:
    """The backend that such a URI names, if it is one, and the URI there."""
    named, _, rest = uri.removeprefix(SKILL_SCHEME).partition("/")
    return unquote(named), SKILL_SCHEME + rest


def shown_skills(
    result: Members, backend: str, shown: ShownUri | None, lets: Callable[[str], bool]
) -> tuple[list[Raw], list[BadSkill]]:
    """The entries of a page of *backend*, as clients know them, of those that *lets* lets through by their URI there;
    and why others are left out."""
    found = result.get("skills")
    if found is None:
        return [], []
    try:
        check_modelled({"skills": found}, most=MAX_VALUES)
        entries = _entries(found)
    except (PeerError, msgspec.MsgspecError) as error:
        return [], [_bad(error)]
    kept: dict[str, Raw] = {}
    bad = []
    for entry in entries:
        try:
            uri = check_skill(entry)
        except BadSkill as error:
            bad.append(error)
            continue
        if uri in kept:
            bad.append(BadSkill(f"{uri[:200]}: listed twice"))
        elif lets(uri):
            kept[uri] = shown_skill(entry, backend, uri, shown)
    return list(kept.values()), bad


def check_skill(entry: Raw) -> str:
    """The URI of an entry. Raises `BadSkill` if it breaks a rule, or is of a scheme by which no request for it could
    find its server."""
    try:
        check_modelled({"skill": entry}, most=MAX_VALUES)
        uri = read_entry(msgspec.json.decode(entry)).uri
        read_members(read_members(entry).get("_meta", _NONE))
    except (PeerError, msgspec.MsgspecError) as error:
        raise _bad(error) from None
    if not uri.startswith(SKILL_SCHEME):
        raise BadSkill(f"{uri[:200]}: expected a URI that begins with {SKILL_SCHEME}")
    return uri


def _bad(error: Exception) -> BadSkill:
    return BadSkill(f"invalid: {str(error)[:200]}")


def shown_skill(entry: Raw, backend: str, uri: str, shown: ShownUri | None) -> Raw:
    """One entry of *backend* that was checked, as clients know it."""
    members = read_members(entry)
    meta = read_members(members.get("_meta", _NONE))
    after: dict[str, Any] = {**members, "_meta": raw({**meta, BACKEND: backend})}
    if shown is not None:
        after["uri"] = raw(shown(uri))
        after["resources"] = _rows_with_uris(members["resources"], shown)
    return raw(after)


def directory_with_uris(result: Members, shown: ShownUri | None, lets: Callable[[str], bool]) -> Mapping[str, Raw]:
    """A page of a directory, with the URIs that clients know, of what is let through."""
    try:
        rows = [row for row in _rows(result["resources"]) if lets(_uri(row))]
    except (KeyError, msgspec.MsgspecError):
        return {**result, "resources": raw([])}
    return {**result, "resources": raw([_with_uri(row, shown) for row in rows])}


def _rows_with_uris(rows: Raw, shown: ShownUri) -> Raw:
    try:
        return raw([_with_uri(row, shown) for row in _rows(rows)])
    except msgspec.MsgspecError:  # they are dynamic
        return rows


def _with_uri(row: dict[str, Raw], shown: ShownUri | None) -> dict[str, Raw]:
    return row if shown is None else {**row, "uri": raw(shown(_uri(row)))}


def _uri(row: Mapping[str, Raw]) -> str:
    return msgspec.json.decode(row.get("uri", b'""'), type=str)
