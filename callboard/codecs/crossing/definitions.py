"""Definitions of tools, prompts and resources on their way to a client: whose they are, and what an older one gets."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec
from msgspec import Raw

from callboard.codecs.canonical import canonical
from callboard.codecs.crossing.names import hides_text
from callboard.codecs.crossing.results import BACKEND
from callboard.codecs.members import Members, raw, read_members, write_members
from callboard.codecs.revisions import MODERN, Revision
from callboard.codecs.revisions.revision import R1, R2
from callboard.errors import PeerError

MAX_DESCRIPTION: Final = 8192
"""Longest description that is passed on, in characters. What is longer is cut, and flagged."""

STALE: Final = "callboard/stale"
"""The key of `_meta` that marks what a backend said before it was lost."""

FLAGS: Final = "callboard/flags"
"""The key of `_meta` that says what is odd about a definition."""

_PINNED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
_NO_OUTPUT: Final = frozenset({R1, R2})


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


def front_definition(definition: Members, kind: Kind, shown: str, backend: str, *, is_stale: bool) -> dict[str, Raw]:
    """The definition as clients see it: under its name there, with a label that says whose it is."""
    members = {**definition, kind.key: raw(shown)}
    flags: list[str] = []
    if "description" in members:
        members["description"] = _described(members["description"], flags)
    said: dict[str, Any] = _meta(members)
    said[BACKEND] = backend
    if is_stale:
        said[STALE] = True
    if flags:
        said[FLAGS] = flags
    return {**members, "_meta": raw(said)}


def _described(description: Raw, flags: list[str]) -> Raw:
    text = msgspec.json.decode(description)
    if not isinstance(text, str):
        return description
    if hides_text(text):
        flags.append("hidden text")
    if len(text) <= MAX_DESCRIPTION:
        return description
    flags.append("cut")
    return raw(text[:MAX_DESCRIPTION])


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
    if "outputSchema" in members and (
        revision in _NO_OUTPUT or (revision not in MODERN and not _is_rooted(members["outputSchema"]))
    ):
        del members["outputSchema"]
    if revision in MODERN:
        members.pop("execution", None)
    return write_members(members)


def _is_rooted(schema: Raw) -> bool:
    try:
        return bytes(read_members(schema)["type"]) == b'"object"'
    except (PeerError, KeyError):
        return False


def digest_of(definition: Members) -> str:
    """What a tool is pinned by: everything that a model or a person goes by. Key order and spelling do not count.

    Raises `ParseError` for a definition that two parsers could read differently.
    """
    digest = hashlib.sha256()
    for member in _PINNED:
        if member in definition:
            written = canonical(definition[member])
            digest.update(b"%d:%b%d:" % (len(member), member.encode(), len(written)))
            digest.update(written)
    return digest.hexdigest()
