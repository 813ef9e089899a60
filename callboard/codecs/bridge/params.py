"""Params on their way to a backend: what belongs to the front connection stays there."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw

from callboard.codecs.members import Members
from callboard.codecs.revisions import meta
from callboard.errors import InvalidParams

_OF_THE_LEG: Final = frozenset(
    (
        meta.PROGRESS_TOKEN,
        meta.PROTOCOL_VERSION,
        meta.CLIENT_CAPABILITIES,
        meta.CLIENT_INFO,
        meta.LOG_LEVEL,
        meta.SUBSCRIPTION_ID,
        meta.RELATED_TASK,
    )
)
_CONSUMED: Final = ("_meta", "inputResponses", "requestState", "task")
_READ: Final = frozenset((*_CONSUMED, "name", "arguments", "uri", "ref", "argument", "context"))
_LETTERS: Final = frozenset(map(str.casefold, _READ))


def back_params(params: Members, renamed: Mapping[str, Raw]) -> dict[str, Any]:
    """The params as the backend gets them, with *renamed* in place of what it calls otherwise, and without `_meta`.

    Raises `InvalidParams` for a member that some backends would take for one of those that were checked: JSON readers
    that go by the letters alone (Go's is one) take `Name` for `name`.
    """
    if not params.keys() <= _READ:
        for member in params.keys() - _READ:
            if member.casefold() in _LETTERS:
                raise InvalidParams(f"params: unknown member {member[:128]!r}")
    body: dict[str, Any] = {**params, **renamed}
    for member in _CONSUMED:
        body.pop(member, None)
    return body


def carried_meta(said: Members) -> dict[str, Raw]:
    """The part of a request's `_meta` that is forwarded."""
    if said.keys() <= _OF_THE_LEG:
        return {}
    return {key: value for key, value in said.items() if key not in _OF_THE_LEG}
