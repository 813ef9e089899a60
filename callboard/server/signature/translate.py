"""Annotations as msgspec takes them.

msgspec refuses a union in which two members have one JSON type, such as two models, and every class with such a field.
Here a stand-in takes the place of such a union or class: msgspec leaves it to the hooks of `schemas` and `conversion`.
Whatever msgspec takes stays as it is, and costs nothing.
"""

import dataclasses
import datetime
import functools
import operator
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
import msgspec
from msgspec import Meta

from callboard.server.signature.markers import discriminator_of, metas
from callboard.server.signature.pydantic_types import is_foreign, is_marked

_INSTANT: Final = Meta(extra_json_schema={"format": "date-time"})


class _Anything(type):
    """A class of which msgspec takes all that a hook makes for an instance."""

    def __instancecheck__(cls, _: object) -> bool:
        return True


class Choice(metaclass=_Anything):
    """Base of the stand-ins of unions."""

    members: ClassVar[tuple[Any, ...]]
    """The types to choose from, translated, in the author's order."""
    discriminator: ClassVar[str | None]
    """The member that tells them apart, if the author says so."""
    forms: ClassVar[Any] = None
    """What `conversion` works out for the first value."""


class StandIn(metaclass=_Anything):
    """Base of the stand-ins of classes that have such a union in a field."""

    kind: ClassVar[type]
    """The author's class."""
    fields: ClassVar[type]
    """A class that msgspec takes, with the same fields."""
    make: ClassVar[Callable[[Any], Any]]
    """Makes an instance of the author's class of one of the other."""


class Foreign(metaclass=_Anything):
    """Base of the stand-ins of what pydantic alone understands: its classes, and types beside its markers."""

    behind: ClassVar[Any]
    """The author's type."""
    beneath: ClassVar[Any] = None
    """The type without its markers, translated; None for a class."""


def understood(annotation: Any) -> Any:
    """Return *annotation* with the markers of others as `Meta`, moments in time marked as such, and stand-ins for what
    msgspec refuses."""
    return _Translation().of(annotation)


def hints_of(kind: Any) -> Mapping[str, Any]:
    """The annotations of a class's fields; none if they cannot be read."""
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}  # msgspec says what is wrong with it


def is_model(kind: Any) -> bool:
    """Whether *kind* is a class of fields that has its fields by annotations, and is no `Struct`."""
    if not isinstance(kind, type):
        return False
    return dataclasses.is_dataclass(kind) or attrs.has(kind) or is_typeddict(kind) or hasattr(kind, "_field_defaults")


@attrs.define
class _Translation:
    """One annotation, and the stand-ins that are being made: a class may hold itself."""

    _made: dict[type, Any] = attrs.field(factory=dict)

    def of(self, annotation: Any, discriminator: str | None = None) -> Any:
        if annotation is object:
            return Any
        if annotation is datetime.datetime:  # msgspec says only "string"
            return Annotated[annotation, _INSTANT]
        if is_foreign(annotation):
            return _Anything(annotation.__name__, (Foreign,), {"behind": annotation})
        if is_model(annotation):
            return self._model(annotation)
        arguments = get_args(annotation)
        if not arguments or get_origin(annotation) is Literal:
            return annotation
        if get_origin(annotation) is Annotated:
            return self._annotated(annotation)
        inner = tuple(self.of(argument) for argument in arguments)
        if get_origin(annotation) in (Union, types.UnionType):
            return self._union(annotation, inner, discriminator)
        return annotation if inner == arguments else get_origin(annotation)[inner]

    def _annotated(self, annotation: Any) -> Any:
        base, beside = annotation.__origin__, metas(annotation)
        is_naive = any(meta.tz is False for meta in beside)
        inner = base if is_naive else self.of(base, discriminator_of(annotation))
        if is_marked(annotation):
            inner = _Anything(str(base), (Foreign,), {"behind": annotation, "beneath": inner})
            beside = tuple(Meta(description=meta.description) for meta in beside if meta.description)
        return Annotated[(inner, *beside)] if beside else inner

    def _union(self, annotation: Any, inner: tuple[Any, ...], discriminator: str | None) -> Any:
        if Any in inner:
            return Any
        whole = annotation if inner == get_args(annotation) else functools.reduce(operator.or_, inner)
        if _is_taken(whole):
            return whole
        members = tuple(one for one in inner if one is not type(None))
        name = " | ".join(getattr(one, "__name__", str(one)) for one in members)
        choice = _Anything(name, (Choice,), {"members": members, "discriminator": discriminator})
        return choice | None if type(None) in inner else choice

    def _model(self, kind: type) -> Any:
        if kind in self._made:
            return self._made[kind]
        if _is_taken(kind) or not (hints := hints_of(kind)):
            return kind
        if is_typeddict(kind):
            return self._typed_dict(kind, hints)
        stand_in = self._made[kind] = _Anything(kind.__name__, (StandIn,), {"kind": kind})
        fields = {name: self.of(hint) for name, hint in hints.items()}
        _fill_in(stand_in, kind, fields)
        return stand_in

    def _typed_dict(self, kind: Any, hints: Mapping[str, Any]) -> Any:
        """One with the same members, translated: what it holds are dictionaries all the same."""
        self._made[kind] = kind  # msgspec says that one cannot hold itself and such a union, both
        plain = {name: self.of(_without_presence(hint)) for name, hint in hints.items()}
        needed = kind.__required_keys__
        fields: Any = {name: (Required if name in needed else NotRequired)[hint] for name, hint in plain.items()}
        made: Any = TypedDict(kind.__name__, fields)  # type: ignore[misc]  # its members are known now only
        made.__doc__ = kind.__doc__
        self._made[kind] = made
        return made


def _is_taken(annotation: Any) -> bool:
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True


def _without_presence(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _fill_in(stand_in: Any, kind: Any, hints: Mapping[str, Any]) -> None:
    """Give a stand-in its fields, with their defaults, and the way back to the author's class."""
    fields: list[Any] = []
    keywords: dict[str, str] = {}
    for name, keyword, default in _constructor(kind):
        keywords[name] = keyword
        fields.append((name, hints[name], *default))
    is_tuple = issubclass(kind, tuple)
    name, doc = kind.__name__, kind.__doc__ or ""
    is_generated = dataclasses.is_dataclass(kind) and doc.startswith(f"{name}(")
    struct = msgspec.defstruct(
        kind.__name__,
        fields,
        array_like=is_tuple,
        kw_only=not is_tuple,
        namespace={"__doc__": "" if is_generated else doc},
    )

    def make(read: Any) -> Any:
        return kind(**{keyword: getattr(read, name) for name, keyword in keywords.items()})

    stand_in.fields, stand_in.make = struct, staticmethod(make)


def _constructor(kind: Any) -> list[tuple[str, str, tuple[Any, ...]]]:
    """Each field that the constructor of *kind* takes: its name, its keyword, and its default if it has one."""
    if dataclasses.is_dataclass(kind):
        return [(one.name, one.name, _data_default(one)) for one in dataclasses.fields(kind) if one.init]
    if attrs.has(kind):
        return [(one.name, one.alias or one.name, _attrs_default(one)) for one in attrs.fields(kind) if one.init]
    defaults = kind._field_defaults
    return [(name, name, (defaults[name],) if name in defaults else ()) for name in kind._fields]


def _data_default(field: "dataclasses.Field[Any]") -> tuple[Any, ...]:
    if field.default_factory is not dataclasses.MISSING:
        return (msgspec.field(default_factory=field.default_factory),)
    return () if field.default is dataclasses.MISSING else (_fixed(field.default),)


def _attrs_default(field: "attrs.Attribute[Any]") -> tuple[Any, ...]:
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class, to the type checker a function
        factory: Any = field.default
        if factory.takes_self:
            raise TypeError(f"the default of {field.name} is made of the instance, which msgspec does not support")
        return (msgspec.field(default_factory=factory.factory),)
    return () if field.default is attrs.NOTHING else (_fixed(field.default),)


def _fixed(default: Any) -> Any:
    """The very object; msgspec would copy it, or refuse it."""
    if default is None or isinstance(default, str | int | float | bool):
        return default
    return msgspec.field(default_factory=lambda: default)
