"""Readers: the cattrs hooks that turn decoded JSON into models, strictly and with the path of what is wrong.

Nothing is coerced. A hook raises `Misfit`, and every container on the way out adds its step to the path.

The writers use the same hooks to see whether a value of ours fits an older revision. So beside what a decoder gives,
any mapping is an object and a tuple is an array.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, TypeAlias, Union, get_args, get_origin

import attrs
from cattrs import Converter

from callboard.codecs.revisions.model import UNSET, Model, UnsetType, members, required_members, rule_of
from callboard.codecs.revisions.revision import Revision

Reader: TypeAlias = Callable[[Any, Any], Any]

MAX_SHOWN: Final = 128
"""Longest piece of a peer's value that is quoted back in an error message, in characters."""

MAX_EXACT: Final = 2**53
"""Up to here a float is the integer that was written; beyond it may be a neighbour."""


class Misfit(Exception):
    """A value does not fit its place. Never leaves the package: `convert.read` answers with `InvalidParams`."""

    def __init__(self, expected: str, value: object = UNSET) -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.steps: list[str | int] = []

    def at(self, start: str) -> str:
        """One line: where, what was expected, and what stood there."""
        where = start + "".join(map(_step, reversed(self.steps)))
        found = "" if self.value is UNSET else f", not {_show(self.value)}"
        return f"{where}: {self.expected}{found}"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() and len(step) <= MAX_SHOWN else f"[{_show(step)}]"


def _show(value: object) -> str:
    """A short name for any JSON value; never walks into it, so depth and size cost nothing."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return repr(value[:MAX_SHOWN]) + ("..." if len(value) > MAX_SHOWN else "")
        case int() if abs(value) > 2**63:
            return "a huge integer"
        case None:
            return "null"
        case bool():
            return str(value).lower()
    return repr(value)[:MAX_SHOWN]


def exactly(kind: type, name: str) -> Reader:
    """Accept one JSON type. `type() is` and not isinstance: true is not an integer."""

    def read(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise Misfit(f"expected {name}", value)

    return read


def read_number(value: Any, _: Any) -> Any:
    """Any JSON number, kept as it was written: 1 stays 1 and 1.0 stays 1.0."""
    if type(value) is float or type(value) is int:
        return value
    raise Misfit("expected a number", value)


def read_anything(value: Any, _: Any) -> Any:
    return value


def read_integer(value: Any, _: Any) -> Any:
    """An integer; also one that was written as 1.0 or 1e3, which are integers to JSON Schema. True is none."""
    if type(value) is int:
        return value
    if type(value) is float and abs(value) <= MAX_EXACT and value.is_integer():
        return int(value)
    raise Misfit("expected an integer", value)


SCALARS: Final[Mapping[type, Reader]] = {
    str: exactly(str, "a string"),
    int: read_integer,
    bool: exactly(bool, "a boolean"),
    float: read_number,
    types.NoneType: exactly(types.NoneType, "null"),
}


def literal_reader(form: Any, _: Converter) -> Reader:
    allowed = frozenset(get_args(form))
    expected = "expected " + one_of(allowed)

    def read(value: Any, _: Any) -> Any:
        if type(value) is str and value in allowed:
            return value
        raise Misfit(expected, value)

    return read


def one_of(names: frozenset[str]) -> str:
    quoted = [repr(name) for name in sorted(names)]
    return quoted[0] if len(quoted) == 1 else "one of " + ", ".join(quoted)


def sequence_reader(form: Any, converter: Converter) -> Reader:
    (inner,) = get_args(form)
    hook = converter.get_structure_hook(inner)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list and not isinstance(value, list | tuple):
            raise Misfit("expected an array", value)
        items: list[Any] = []
        try:
            for item in value:
                items.append(hook(item, inner))  # noqa: PERF401 - the count of those that passed is the path
        except Misfit as misfit:
            misfit.steps.append(len(items))
            raise
        return items

    return read


def mapping_reader(form: Any, converter: Converter) -> Reader:
    inner = get_args(form)[1]
    hook = None if inner is Any else converter.get_structure_hook(inner)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Misfit("expected an object", value)
        if hook is None:
            return value
        items = {}
        for key, item in value.items():
            try:
                items[key] = hook(item, inner)
            except Misfit as misfit:
                misfit.steps.append(key)
                raise
        return items

    return read


@attrs.frozen
class SettingsMark:
    """Mark of a map from names to settings, which are objects."""


def read_settings(value: Any, _: Any) -> Any:
    """Settings by name. A null is what a nil map of Go becomes, and is read as empty; any other setting that is no
    object is left out, for it is no reason to refuse a handshake."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise Misfit("expected an object", value)
    return {
        name: {} if setting is None else setting
        for name, setting in value.items()
        if type(setting) is dict or setting is None or isinstance(setting, Mapping)
    }


def annotated_reader(form: Any, converter: Converter) -> Reader:
    """A base type and checks that each raise `Misfit` or return; the value itself is kept."""
    base, *checks = get_args(form)
    hook = converter.get_structure_hook(base)
    bound = [check.bind(converter) for check in checks]

    def read(value: Any, _: Any) -> Any:
        result = hook(value, base)
        for check in bound:
            check(value)
        return result

    return read


def model_reader(revision: Revision, model: type[Model], converter: Converter) -> Reader:
    """Walk the members that are there: what the revision knows is typed, everything else goes to `extra`.

    Many peers write null for a member that they do not have, as no revision allows: it is read as absent.
    """
    if revision not in model.known:
        return _refuser(f"{model.__name__} does not exist in {revision}")
    fields = members(model, revision)
    hooks = [converter.get_structure_hook(wire_type(field, revision)) for field in fields.values()]
    plan = {wire: (field.name, hook) for (wire, field), hook in zip(fields.items(), hooks, strict=True)}
    blank = {field.name: UNSET for field in fields.values() if rule_of(field).stays_absent}
    required = required_members(model, revision)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Misfit("expected an object", value)
        if not required <= value.keys():
            refuse_missing(required, value)
        typed: dict[str, Any] = {**blank}
        extra: dict[str, Any] = {}
        for key, item in value.items():
            if (found := plan.get(key)) is None:
                extra[key] = item
                continue
            try:
                typed[found[0]] = found[1](item, None)
            except Misfit as misfit:
                if item is None and key not in required:
                    continue
                misfit.steps.append(key)
                raise
        return model(extra=extra, **typed)

    return read


def _refuser(reason: str) -> Reader:
    def read(_value: Any, _: Any) -> Any:
        raise Misfit(reason)

    return read


def refuse_missing(required: frozenset[str], value: Mapping[str, Any]) -> NoReturn:
    misfit = Misfit("is required")
    misfit.steps.append(min(required - value.keys()))
    raise misfit


def wire_type(field: "attrs.Attribute[Any]", revision: Revision) -> Any:
    """The type of a field on the wire of *revision*, without the mark for absence."""
    return without_unset(rule_of(field).types.get(revision, field.type))


def without_unset(form: Any) -> Any:
    if not is_union(form):
        return form
    return Union[tuple(arg for arg in get_args(form) if arg is not UnsetType)]  # noqa: UP007 - built at run time


def is_union(form: Any) -> bool:
    return get_origin(form) in (Union, types.UnionType)


def is_model(form: Any) -> bool:
    return isinstance(form, type) and issubclass(form, Model)


def is_literal(form: Any) -> bool:
    return get_origin(form) is Literal


def is_sequence(form: Any) -> bool:
    return get_origin(form) is Sequence


def is_mapping(form: Any) -> bool:
    return get_origin(form) is Mapping


def is_annotated(form: Any) -> bool:
    return get_origin(form) is Annotated


def is_settings(form: Any) -> bool:
    return is_annotated(form) and SettingsMark() in form.__metadata__


def is_any(form: Any) -> bool:
    return form is Any
