"""Checks of a backend's result, so that every client can read it: by type, in one pass over its bytes.

A strict client throws a whole result away if one member has a wrong type, and its user sees an error of the broker.
The types are those of the official schemas, as far as those agree: what a revision adds is looked after elsewhere.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from callboard.codecs.json_scan import check_modelled, without_texts
from callboard.codecs.members import raw
from callboard.codecs.revisions import Revision
from callboard.errors import FrameTooLarge, PeerError

MAX_VALUES: Final = 100
"""Most values of one completion, as the protocol has it."""

MAX_MENDED: Final = 30_000
"""Most values of a member that is mended: each is looked at, in about a microsecond."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_OPEN: Final = frozenset({"_meta", "structuredContent"})
"""Members that may hold anything, null included."""


class UnfitResult(PeerError):
    """A backend's result is not one that its revision has."""


class _Annotations(Struct, rename="camel"):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class _Icon(Struct, rename="camel"):
    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["dark", "light"] | UnsetType = UNSET


class _Contents(Struct, rename="camel"):
    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: dict[str, Raw] | UnsetType = field(default=UNSET, name="_meta")

    def __post_init__(self) -> None:
        if self.text is UNSET and self.blob is UNSET:
            raise ValueError("contents with neither `text` nor `blob`")


class _Block(Struct, rename="camel", kw_only=True):
    annotations: _Annotations | UnsetType = UNSET
    meta: dict[str, Raw] | UnsetType = field(default=UNSET, name="_meta")


class _Text(_Block, tag_field="type", tag="text"):
    text: str


class _Image(_Block, tag_field="type", tag="image"):
    data: str
    mime_type: str


class _Audio(_Block, tag_field="type", tag="audio"):
    data: str
    mime_type: str


class _Embedded(_Block, tag_field="type", tag="resource"):
    resource: _Contents


class _Link(_Block, tag_field="type", tag="resource_link", kw_only=True):
    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: list[_Icon] | UnsetType = UNSET


class _OldMessage(Struct):
    role: Literal["user", "assistant"]
    content: _Text | _Image | _Embedded


class _Message(Struct):
    role: Literal["user", "assistant"]
    content: _Text | _Image | _Audio | _Embedded | _Link


class _Completion(Struct, rename="camel"):
    values: Annotated[list[str], Meta(max_length=MAX_VALUES)]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class _Member:
    """One member of a result: how it is read, and whether it must be there."""

    __slots__ = ("is_needed", "read", "read_old")

    def __init__(self, kind: Any, old: Any = None, *, is_needed: bool = True) -> None:
        self.read = msgspec.json.Decoder(kind).decode
        self.read_old = self.read if old is None else msgspec.json.Decoder(old).decode
        self.is_needed = is_needed


_SHAPES: Final[Mapping[str, Mapping[str, _Member]]] = {
    "tools/call": {
        "content": _Member(list[_Text | _Image | _Audio | _Embedded | _Link], list[_Text | _Image | _Embedded]),
        "isError": _Member(bool, is_needed=False),
    },
    "prompts/get": {
        "messages": _Member(list[_Message], list[_OldMessage]),
        "description": _Member(str, is_needed=False),
    },
    "resources/read": {"contents": _Member(list[_Contents])},
    "completion/complete": {"completion": _Member(_Completion)},
}


def fit(front: Revision, method: str, members: dict[str, Any]) -> None:
    """Hold a result to what a client of *front* can read. Members that are null in place of absent are dropped.

    Raises `UnfitResult`.
    """
    shape = _SHAPES.get(method)
    if shape is None:
        return
    for name, member in shape.items():
        said: Raw | None = members.get(name)
        read = member.read if front.dialect.has_resource_links else member.read_old
        if said is not None:
            try:
                read(without_texts(said))  # they were parsed with the message, and any text fits
                continue
            except _UNREADABLE as error:
                said = _without_nulls(method, name, said)
                if said is not None and not _fits(read, said):
                    raise UnfitResult(f"{method}: {name}: {error}") from None
        if said is not None:
            members[name] = said
        elif not member.is_needed:
            members.pop(name, None)
        elif method == "tools/call" and "structuredContent" in members:
            members[name] = raw([])  # some servers think that the structure says it all
        else:
            raise UnfitResult(f"{method}: {name} is missing")


def _fits(read: Any, said: Raw) -> bool:
    try:
        read(said)
    except _UNREADABLE:
        return False
    return True


def _without_nulls(method: str, name: str, said: Raw) -> Raw | None:
    """The value without members that are null; None if it is null itself. Raises `UnfitResult` if it has too many
    values to be gone through one by one."""
    try:
        check_modelled({name: said}, most=MAX_MENDED)
    except FrameTooLarge as error:
        raise UnfitResult(f"{method}: {name}: {error}") from None
    try:
        value = _dropped(msgspec.json.decode(said))
    except _UNREADABLE:
        return said
    return None if value is None else raw(value)


def _dropped(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: item if name in _OPEN and item is not None else _dropped(item)
            for name, item in value.items()
            if item is not None
        }
    return [_dropped(item) for item in value] if isinstance(value, list) else value
