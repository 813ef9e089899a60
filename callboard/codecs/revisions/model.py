"""Protocol models: one attrs class per object, with its differences between revisions beside each field.

A model holds the union of the members of all revisions. A member that is absent is `UNSET`, never `None`: null is a
value on the wire. Members that a revision does not know wait in `extra`, untouched, and are written back.

Models are frozen: one result may be on its way to many subscribers, and must not change under way. The price
is about half a microsecond per object. Arrays are read as lists, so that a model equals what a user would write.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import attrs
from msgspec import UNSET, UnsetType

from callboard.codecs.revisions.revision import ALL, NONE, Revision, Revisions, span

__all__ = [
    "UNSET",
    "JSONObject",
    "JSONValue",
    "Member",
    "Model",
    "UnsetType",
    "member",
    "members",
    "model",
    "only",
    "required_members",
    "rule_of",
    "since",
    "stated_since",
    "until",
    "varying",
]

if TYPE_CHECKING:
    from attrs import frozen as model  # type checkers know attrs by this name, and so see every field

    JSONValue: TypeAlias = bool | int | float | str | Sequence["JSONValue"] | Mapping[str, "JSONValue"] | None
    JSONObject: TypeAlias = Mapping[str, JSONValue]
else:  # cattrs reads annotations at run time, where a recursive alias has no value; any JSON is let through as it is
    JSONValue = Any
    JSONObject = Mapping[str, Any]

    def model(*, kw_only: bool) -> Callable[[type], type]:
        """Make a frozen attrs class. `Model` compares and prints for all: attrs would compile both for each class."""
        return attrs.frozen(kw_only=kw_only, eq=False, repr=False)


@model(kw_only=True)
class Model:
    """Base of every protocol object.

    `known` says in which revisions the object exists at all; `marks` names the members that tell it from others of
    the same union when no tag does (a dot reaches into a member).
    """

    known: ClassVar[Revisions] = ALL
    marks: ClassVar[tuple[str, ...]] = ()

    extra: JSONObject = attrs.field(factory=dict)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in attrs.fields(type(self)))

    def __repr__(self) -> str:
        """Only what is set: most members of most objects are not."""
        values = ((field.name, getattr(self, field.name)) for field in attrs.fields(type(self)))
        shown = (f"{name}={value!r}" for name, value in values if value is not UNSET and (value or name != "extra"))
        return f"{type(self).__name__}({', '.join(shown)})"


@attrs.frozen
class Member:
    """One member on the wire: where it exists, where it must be present, and its type where that differs."""

    wire: str
    known: Revisions = ALL
    required: Revisions = NONE
    types: Mapping[Revision, Any] = attrs.field(factory=dict)
    stays_absent: bool = False
    """Read as `UNSET` when absent, for any default of the field."""


_KEY: Final = "callboard"
_WIRE_NAMES: Final = {"meta": "_meta", "dialect": "$schema"}


def varying(
    *,
    known: Revisions = ALL,
    required: Revisions = ALL,
    wire: str = "",
    types: Mapping[Revision, Any] | None = None,
) -> dict[str, Member]:
    """Metadata for `attrs.field`: what differs by revision in a member that a Python caller must always give.

    *types* replaces the annotation in single revisions: a value that does not fit there is left out of a message, or
    refused where the member is required.
    """
    return {_KEY: Member(wire, known, required & known, types or {})}


def member(
    *,
    known: Revisions = ALL,
    required: Revisions = NONE,
    types: Mapping[Revision, Any] | None = None,
) -> Any:
    """An attrs field with what differs by revision; as `varying`, for a member that a Python caller may leave out."""
    return attrs.field(default=UNSET, metadata=varying(known=known, required=required, types=types))


def since(first: Revision, *, required: bool = False, wire: str = "") -> Any:
    """A member that exists from *first* on."""
    known = span(first)
    return attrs.field(default=UNSET, metadata=varying(known=known, required=known if required else NONE, wire=wire))


def stated_since(first: Revision, value: object, *, stays_absent: bool = False) -> Any:
    """A member that is written from *first* on, as *value* unless it is set.

    A peer that leaves it out is forgiven: absent is read as *value*, or as `UNSET` if it *stays_absent*.
    """
    return attrs.field(default=value, metadata={_KEY: Member("", span(first), stays_absent=stays_absent)})


def until(last: Revision) -> Any:
    """A member that exists up to *last*."""
    return member(known=span(last=last))


def only(*revisions: Revision, required: bool = False) -> Any:
    """A member that exists in these revisions alone."""
    return member(known=frozenset(revisions), required=ALL if required else NONE)


def members(model: type[Model], revision: Revision) -> dict[str, "attrs.Attribute[Any]"]:
    """The members *revision* gives to *model*, by their names on the wire."""
    if revision not in model.known:
        return {}
    fields = (field for field in attrs.fields(model) if field.name != "extra")
    return {rule_of(field).wire: field for field in fields if revision in rule_of(field).known}


def required_members(model: type[Model], revision: Revision) -> frozenset[str]:
    """Names of the members that *revision* demands of *model*."""
    found = members(model, revision)
    return frozenset(wire for wire, field in found.items() if revision in rule_of(field).required)


def rule_of(field: "attrs.Attribute[Any]") -> Member:
    """The rule beside a field; a plain field exists everywhere and is required unless its default is `UNSET`."""
    wire = _WIRE_NAMES.get(field.name) or _camel(field.name)
    rule: Member | None = field.metadata.get(_KEY)
    if rule is None:
        return Member(wire, required=NONE if field.default is UNSET else ALL)
    return rule if rule.wire else attrs.evolve(rule, wire=wire)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
