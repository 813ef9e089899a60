"""Writers: the cattrs hooks that turn models back into JSON values of one revision.

What the revision does not know is left out. What it demands and is not set is a fault of ours, not of the peer, and
so a `ValueError`: an invalid message is never sent.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias, get_args

from cattrs import Converter

from callboard.codecs.revisions._read import (
    Misfit,
    is_annotated,
    is_mapping,
    is_model,
    is_sequence,
    is_union,
    wire_type,
    without_unset,
)
from callboard.codecs.revisions.model import UNSET, Model, members, required_members, rule_of
from callboard.codecs.revisions.revision import Revision

Writer: TypeAlias = Callable[[Any], Any]


def as_it_is(value: Any) -> Any:
    return value


def writer_of(form: Any, converter: Converter) -> Writer:
    """The writer of a type; free JSON, literals and scalars are written as they are."""
    if is_annotated(form):
        return writer_of(get_args(form)[0], converter)
    if is_model(form) or is_sequence(form) or is_mapping(form) or is_union(form):
        return converter.get_unstructure_hook(form, cache_result=True)
    return as_it_is


def sequence_writer(form: Any, converter: Converter) -> Writer:
    hook = writer_of(get_args(form)[0], converter)
    return list if hook is as_it_is else lambda value: [hook(item) for item in value]


def mapping_writer(form: Any, converter: Converter) -> Writer:
    hook = writer_of(get_args(form)[1], converter)
    return as_it_is if hook is as_it_is else lambda value: {key: hook(item) for key, item in value.items()}


def union_writer(form: Any, converter: Converter) -> Writer:
    """By the class of the value: every branch that is not a model or an array is written as it is."""
    models = {arg: writer_of(arg, converter) for arg in get_args(form) if is_model(arg)}
    arrays = [writer_of(arg, converter) for arg in get_args(form) if is_sequence(arg)]

    def write(value: Any) -> Any:
        if (hook := models.get(type(value))) is not None:
            return hook(value)
        if isinstance(value, Model):  # the annotation named a base class
            return writer_of(type(value), converter)(value)
        return arrays[0](value) if arrays and isinstance(value, list | tuple) else value

    return write


def model_writer(revision: Revision, model: type[Model], converter: Converter) -> Writer:
    """Extra members, and over them the typed ones.

    An extra member was unknown where it was read. If this revision knows its name it means something here that its
    author never said (a `task` of 2025-11-25, a `requestState`), and so it stays behind.
    """
    if revision not in model.known:
        return _refuser(revision, model)
    fields = members(model, revision)
    required = required_members(model, revision)
    hooks = [_member_writer(revision, field, converter) for field in fields.values()]
    plan = [(wire, wire in required, hook) for wire, hook in zip(fields, hooks, strict=True)]
    values = _getter([field.name for field in fields.values()])

    def write(instance: Any) -> dict[str, Any]:
        extra = instance.extra
        out = {key: value for key, value in extra.items() if key not in fields} if extra else {}
        for (wire, must, hook), value in zip(plan, values(instance)):  # noqa: B905  # as many as there are
            if value is not UNSET:
                written = value if hook is as_it_is else hook(value)
                if written is not UNSET:
                    out[wire] = written
                    continue
            if must:
                raise ValueError(f"{model.__name__} needs a fitting {wire} in {revision}")
        return out

    return write


def _member_writer(revision: Revision, field: Any, converter: Converter) -> Writer:
    """Set members that do not fit the narrower type of the revision to `UNSET`."""
    hook = writer_of(without_unset(field.type), converter)
    if revision not in rule_of(field).types:
        return hook
    form = wire_type(field, revision)
    fits = converter.get_structure_hook(form)
    free = is_mapping(form)

    def write(value: Any) -> Any:
        if free and isinstance(value, Model):  # typed in another revision, free JSON in this one
            return UNSET
        written = hook(value)
        try:
            fits(written, form)
        except Misfit:
            return UNSET
        return written

    return write


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All fields in one C call; attrgetter of a single name would not give a tuple."""
    match names:
        case []:
            return lambda _: ()
        case [name]:
            return lambda instance: (getattr(instance, name),)
    return attrgetter(*names)


def _refuser(revision: Revision, model: type[Model]) -> Writer:
    def write(_: Any) -> Any:
        raise ValueError(f"{model.__name__} does not exist in {revision}")

    return write
