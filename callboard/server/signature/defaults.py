"""Defaults of data classes, put where they are seen.

When msgspec makes a data class of JSON, a field that was not given stays the attribute of the class that its default
is; and when msgspec writes one, it writes the attributes of the instance. So the default of a plain data class would be
lost on the way through a handler. Here every instance gets the defaults that its constructor would have given it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_origin

import attrs
import msgspec

from callboard.server.signature.translate import Choice, Foreign, StandIn, understood

_SCALARS: Final = frozenset((str, int, float, bool, bytes, type(None)))


def may_lack_defaults(annotation: Any) -> bool:
    """Whether a value of this type may hold an instance that lacks a default. Raises `TypeError` as msgspec does."""
    seen: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(understood(annotation))]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field) and id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, msgspec.inspect.DataclassType) and _defaults(one.cls):
                return True
            if isinstance(one, msgspec.inspect.CustomType) and issubclass(one.cls, Choice | StandIn | Foreign):
                return True  # it may, and such types are few
            waiting.extend(getattr(one, name) for name in one.__struct_fields__)
    return False


def fill_defaults(value: Any) -> None:
    """Give each instance of a plain data class in *value* the defaults that it lacks."""
    seen: set[int] = set()  # what a handler returns may hold itself
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind: type = type(one)
        if kind is list:
            inner = one
        elif kind is dict:
            inner = one.values()
        else:
            inner = _fields(kind)(one)
        waiting += [found for found in inner if type(found) not in _SCALARS]


@functools.lru_cache(maxsize=512)
def _fields(kind: type) -> Callable[[Any], Iterable[Any]]:
    """A function that returns the parts of an instance of *kind*, and sets its defaults on the way."""
    if issubclass(kind, list | tuple | set | frozenset):
        return iter
    if issubclass(kind, dict):
        return kind.values
    if dataclasses.is_dataclass(kind):
        defaults, names = _defaults(kind), [field.name for field in dataclasses.fields(kind)]
        return functools.partial(_fill, dict(defaults)) if defaults else functools.partial(_held, names)
    if attrs.has(kind):
        return functools.partial(_held, [field.name for field in attrs.fields(kind)])
    return functools.partial(_held, kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else ())


def _fill(defaults: Mapping[str, Any], one: Any) -> Iterable[Any]:
    held: dict[str, Any] = one.__dict__
    if not defaults.keys() <= held.keys():
        for name, default in defaults.items():
            held.setdefault(name, default)
    return held.values()


def _held(names: Iterable[str], one: Any) -> Iterable[Any]:
    return [getattr(one, name, None) for name in names]


@functools.lru_cache(maxsize=512)
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a data class that may stay with the class; none if its instances have slots instead of a dict."""
    origin: type = get_origin(kind) or kind  # of a generic one, such as `Page[int]`
    if not origin.__dictoffset__:
        return ()
    fields = dataclasses.fields(origin)
    return tuple((field.name, field.default) for field in fields if field.default is not dataclasses.MISSING)
