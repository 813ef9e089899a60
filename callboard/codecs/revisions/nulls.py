"""Null in place of an absent member of params.

Many clients write null for a member that they do not have, which no revision allows: most serializers write an optional
field so unless they are told otherwise. Such a member is taken for absent, and left out before anything else is done
with the message, so no backend gets it. Null stays where it is a value (in arguments, in the data of a log message, as
the `ttl` of a task), and in members that no revision knows.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, get_args

from msgspec import Raw

from callboard.codecs.members import Members, raw, read_members
from callboard.codecs.revisions import meta
from callboard.codecs.revisions._read import Misfit, wire_type
from callboard.codecs.revisions.convert import converter_for
from callboard.codecs.revisions.methods import METHODS
from callboard.codecs.revisions.model import members, required_members
from callboard.codecs.revisions.revision import ALL
from callboard.errors import PeerError

NULL: Final = b"null"

_OBJECTS: Final[Mapping[str, int]] = {"ref": 1, "context": 1, "task": 1, "inputResponses": 2}
"""Members of params with members of the protocol inside, by depth. They cross a broker unchanged."""


def without_nulls(method: str, params: Members) -> Members:
    """*params* without the nulls that stand for absent members: the same object if there are none."""
    if method not in METHODS:
        return params
    optional, changed = _optional(method), dict[str, Raw | None]()
    for key, value in params.items():
        if _is_null(value):
            if key in optional:
                changed[key] = None
        elif key == "_meta" or key in _OBJECTS:
            inner = _inner(value, 1, is_meta=True) if key == "_meta" else _inner(value, _OBJECTS[key])
            if inner is not value:
                changed[key] = inner
    if not changed:
        return params
    kept = {key: changed.get(key, value) for key, value in params.items()}
    return {key: value for key, value in kept.items() if value is not None}


def _inner(value: Raw, depth: int, *, is_meta: bool = False) -> Raw:
    if NULL not in bytes(value):
        return value
    try:
        found = read_members(value)
    except PeerError:  # no object, or one that is refused where it is read
        return value
    if depth > 1:
        return raw({key: _inner(one, depth - 1) for key, one in found.items()})
    kept = {key: one for key, one in found.items() if not (_is_null(one) and (not is_meta or _is_ours(key)))}
    return value if len(kept) == len(found) else raw(kept)


def _is_null(value: Raw) -> bool:
    return len(memoryview(value)) == len(NULL) and bytes(value) == NULL


def _is_ours(key: str) -> bool:
    return key == meta.PROGRESS_TOKEN or key.startswith(meta.PREFIX)


@cache
def _optional(method: str) -> frozenset[str]:
    """The members of a method's params that some revision lets be absent, and none lets be null."""
    params = METHODS[method].params
    optional, nullable = set[str](), set[str]()
    for model in get_args(params) or (params,):
        for revision in ALL & model.known:
            for wire, field in members(model, revision).items():
                if wire not in required_members(model, revision):
                    optional.add(wire)
                try:
                    converter_for(revision).get_structure_hook(wire_type(field, revision))(None, None)
                    nullable.add(wire)
                except Misfit:
                    pass
    return frozenset(optional - nullable)
