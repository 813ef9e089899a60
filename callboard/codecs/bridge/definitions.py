"""Definitions of tools, prompts and resources for a client: with the label of their backend, in its revision."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from msgspec import Raw

from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.canonical import canonical
from callboard.codecs.members import Members, raw, read_members, write_members
from callboard.codecs.revisions import Dialect, Revision
from callboard.errors import PeerError

MAX_DESCRIPTION: Final = 8192
"""Longest description that is passed on, in characters. What is longer is cut, and flagged."""

STALE: Final = "dev.callboard/stale"
"""The key of `_meta` that marks what a backend said before it was lost."""

FLAGS: Final = "dev.callboard/flags"
"""The key of `_meta` that says what is odd about a definition."""

_FIRST: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
"""The order of a digest begins with these: digests of tools that have no other member are those of earlier versions."""
_OURS: Final = frozenset({BACKEND, STALE, FLAGS})


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of list: the method that asks for it, the member it stands in, and what its entries are known by."""

    name: str
    method: str
    member: str
    key: str
    capability: str


TOOLS: Final = Kind(name="tool", method="tools/list", member="tools", key="name", capability="tools")
PROMPTS: Final = Kind(name="prompt", method="prompts/list", member="prompts", key="name", capability="prompts")
RESOURCES: Final = Kind(name="resource", method="resources/list", member="resources", key="uri", capability="resources")
TEMPLATES: Final = Kind(
    name="template",
    method="resources/templates/list",
    member="resourceTemplates",
    key="uriTemplate",
    capability="resources",
)
KINDS: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)


def front_definition(
    definition: Members, kind: Kind, shown: str, backend: str, *, is_stale: bool, flags: Sequence[str] = ()
) -> dict[str, Raw]:
    """The definition as clients see it: with its public name and the label of its backend."""
    said: dict[str, Any] = _meta(definition)
    said[BACKEND] = backend
    if is_stale:
        said[STALE] = True
    if flags:
        said[FLAGS] = list(flags)
    return {**definition, kind.key: raw(shown), "_meta": raw(said)}


def _meta(members: Mapping[str, Raw]) -> dict[str, Any]:
    try:
        return {**read_members(members["_meta"])} if "_meta" in members else {}
    except PeerError:
        return {}


def for_revision(revision: Revision, kind: Kind, definition: Mapping[str, Raw]) -> bytes:
    """The definition as *revision* has it, written out: without what a client of it would stumble over."""
    if kind is not TOOLS:
        return write_members(definition)
    members = dict(definition)
    if "outputSchema" in members and not _has_output(revision.dialect, members["outputSchema"]):
        del members["outputSchema"]
    if revision.dialect.has_extensions:  # tasks are one, of which a tool says nothing
        members.pop("execution", None)
    return write_members(members)


def _has_output(dialect: Dialect, schema: Raw) -> bool:
    """Whether a tool may have this output schema."""
    return dialect.has_structured_content and (dialect.structures_any_json or _is_rooted(schema))


def _is_rooted(schema: Raw) -> bool:
    try:
        return bytes(read_members(schema)["type"]) == b'"object"'
    except (PeerError, KeyError):
        return False


def digest_of(definition: Members) -> str:
    """What a tool is pinned by: all that its backend says of it. Key order and spelling do not count, nor does what a
    broker behind this one notes in `_meta`.

    Raises `ParseError` for a definition that two parsers could read differently.
    """
    digest = hashlib.sha256()
    others = sorted(definition.keys() - set(_FIRST))
    for member in (*_FIRST, *others):
        if member in definition:
            name = member.encode("utf-8", "surrogatepass")
            written = canonical(unmarked(definition[member]) if member == "_meta" else definition[member])
            digest.update(b"%d:%b%d:" % (len(name), name, len(written)))
            digest.update(written)
    return digest.hexdigest()


def unmarked(meta: Raw) -> Raw:
    """`_meta` without our own notes, which come and go while the tool stays what it is."""
    try:
        members = read_members(meta)
    except PeerError:
        return meta
    if members.keys().isdisjoint(_OURS):
        return meta
    return raw({key: value for key, value in members.items() if key not in _OURS})
