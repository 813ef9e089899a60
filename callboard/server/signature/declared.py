"""What msgspec leaves out of a schema, put back: the author's order of choices, their type, and foreign markers of
fields.

msgspec sorts the values of `Literal` and `Enum`; the order that the author chose means something to a model, and in a
form. Some models' services want a `type` beside `enum`. And beside the fields of a class msgspec reads its own `Meta`
only.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec

from callboard.server.signature.markers import metas
from callboard.server.signature.translate import Choice, StandIn, hints_of, is_model

_Values: TypeAlias = frozenset[tuple[type, Any]]

_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_BELOW: Final = ("properties", "$defs", "patternProperties")
_UNION: Final = {"anyOf"}
_VALUES: Final = ("default", "const", "enum", "examples")
_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "description": "description",
    "title": "title",
}
_LENGTHS: Final[Mapping[str, str]] = {"string": "Length", "array": "Items", "object": "Properties"}


def complete(types: Sequence[Any], found: Sequence[dict[str, Any]], defs: Mapping[str, dict[str, Any]]) -> None:
    """Complete the schemas of these *types*, and the definitions that they share."""
    orders: dict[_Values, list[Any]] = {}
    models: dict[str, list[Any]] = {}
    for kind in _reached(types):
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            _take_order(orders, [member.value for member in kind])
        elif get_origin(kind) is Literal:
            _take_order(orders, get_args(kind))
        else:
            models.setdefault(kind.__name__, []).append(kind)
    for schema in (*found, *defs.values()):
        _order(schema, orders)
    for name, kinds in models.items():
        if len(kinds) == 1 and name in defs:  # msgspec gives two of one name longer names
            _mark(kinds[0], defs[name].get("properties", {}))


def _reached(types: Sequence[Any]) -> Iterator[Any]:
    """Every enumeration and class of fields that these types lead to."""
    seen: set[Any] = set()
    waiting = list(types)
    while waiting:
        kind = waiting.pop(0)
        if get_origin(kind) is Annotated:
            waiting.append(kind.__origin__)
        elif get_origin(kind) is Literal:
            yield kind
        elif get_args(kind):
            waiting.extend(get_args(kind))
        elif isinstance(kind, type) and kind not in seen:
            seen.add(kind)
            if issubclass(kind, enum.Enum):
                yield kind
            elif is_model(kind) or issubclass(kind, msgspec.Struct):
                yield kind
                waiting.extend(hints_of(kind).values())


def _take_order(orders: dict[_Values, list[Any]], values: Sequence[Any]) -> None:
    orders.setdefault(frozenset((type(value), value) for value in values), list(values))


def _order(schema: Any, orders: Mapping[_Values, list[Any]]) -> None:
    if isinstance(schema, list):
        for inner in schema:
            _order(inner, orders)
    if not isinstance(schema, dict):
        return
    values = schema.get("enum")
    if isinstance(values, list):
        schema["enum"] = orders.get(frozenset((type(value), value) for value in values), values)
        kinds = {_TYPES.get(type(value)) for value in values}
        if len(kinds) == 1 and None not in kinds:
            schema.setdefault("type", kinds.pop())
    if isinstance(schema.get("anyOf"), list):  # of an optional union
        schema["anyOf"] = [
            one for form in schema["anyOf"] for one in (form["anyOf"] if form.keys() == _UNION else [form])
        ]
    for key, inner in schema.items():
        if key in _BELOW and isinstance(inner, dict):
            for member in inner.values():
                _order(member, orders)
        elif key not in _VALUES:
            _order(inner, orders)


def _mark(kind: Any, properties: Mapping[str, Any]) -> None:
    """Add what foreign markers say of the fields of a class. What msgspec found stays."""
    for name, hint in hints_of(kind).items():
        schema = properties.get(name)
        if schema is None or issubclass(kind, Choice | StandIn):
            continue
        for meta in metas(hint):
            for fact, keyword in _BOUNDS.items():
                if (said := getattr(meta, fact)) is not None:
                    schema.setdefault(keyword, said)
            for fact, prefix in (("min_length", "min"), ("max_length", "max")):
                if (said := getattr(meta, fact)) is not None and (of := _LENGTHS.get(schema.get("type", ""))):
                    schema.setdefault(prefix + of, said)
