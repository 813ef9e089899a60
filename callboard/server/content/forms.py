"""Elicitation forms: what a class asks of a user, and the instance that the answer makes.

A form is flat, so that any client can draw it. Each field is one of: text (with lengths, or as e-mail address, URI,
date, date and time), a number, a truth value, one choice of several texts, or several choices of several texts.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar, get_type_hints, overload

import attrs
import msgspec

from callboard.codecs.revisions import (
    LATEST,
    LegacyTitledEnumSchema,
    PrimitiveSchemaDefinition,
    RequestedSchema,
    Revision,
    TitledSingleSelectEnumSchema,
    read,
)
from callboard.errors import InvalidDefinition, PeerError
from callboard.server.content.errors import BadForm
from callboard.server.content.fields import ALLOWED, field_schema
from callboard.server.content.problems import Problem, find_problems, problems_of
from callboard.server.signature.conversion import from_json
from callboard.server.signature.defaults import fill_defaults
from callboard.server.signature.schemas import (
    Schema,
    Validator,
    compile_schema,
    schemas_of,
    with_object_root,
)

MAX_FORMS: Final = 512
"""Maximum number of cached forms. A server has a handful; classes that are made at run time must not pile up."""

T = TypeVar("T")


@attrs.frozen(eq=False)
class _Form:
    schema: Schema
    """The schema that the answer is validated with; `model` is the same for the wire."""
    model: RequestedSchema
    validator: Validator
    make: Callable[[dict[str, Any]], Any]


def form_of(kind: type | Mapping[str, Any]) -> RequestedSchema:
    """Return the form that asks for a *kind*: a flat class, or a ready schema.

    Raises `TypeError` with the field and what is allowed.
    """
    return _form(kind).model


def form_for(revision: Revision, form: RequestedSchema) -> RequestedSchema:
    """Say the same in the words of *revision*: the first that had forms keeps the titles of a choice beside it.

    Raises `InvalidDefinition` for a field that its users cannot be asked for.
    """
    said = {name: _said(revision, name, found) for name, found in form.properties.items()}
    return attrs.evolve(form, properties=said)


def _said(revision: Revision, name: str, found: PrimitiveSchemaDefinition) -> PrimitiveSchemaDefinition:
    if revision in found.known:
        return found
    if not isinstance(found, TitledSingleSelectEnumSchema):
        raise InvalidDefinition(f"the form has a multiple choice in {name}, which {revision.value} does not support")
    return LegacyTitledEnumSchema(
        enum=[choice.const for choice in found.one_of],
        enum_names=[choice.title for choice in found.one_of],
        title=found.title,
        description=found.description,
        default=found.default,
    )


@overload
def read_form(kind: type[T], content: Mapping[str, Any] | None) -> T: ...
@overload
def read_form(kind: Mapping[str, Any], content: Mapping[str, Any] | None) -> dict[str, Any]: ...
def read_form(kind: type[T] | Mapping[str, Any], content: Mapping[str, Any] | None) -> T | dict[str, Any]:
    """Return the instance of *kind* that the content of an accepted form makes; a dict for a ready schema.

    Raises `BadForm` with everything that is wrong, up to a limit.
    """
    form, values = _form(kind), dict(content or {})
    if not form.validator.is_valid(values):
        problems, more = find_problems(form.validator, form.schema, values)
        raise _bad(*problems, more=more)
    try:
        made: T | dict[str, Any] = form.make(values)
    except msgspec.ValidationError as error:
        raise _bad(*problems_of(error)) from error
    return made


def _bad(*problems: Problem, more: bool = False) -> BadForm:
    return BadForm("The answer does not match the form", problems, more=more)


def _form(kind: type | Mapping[str, Any]) -> _Form:
    return _finished("the schema", dict(kind), dict) if isinstance(kind, Mapping) else _form_of_class(kind)


@functools.lru_cache(maxsize=MAX_FORMS)
def _form_of_class(kind: type) -> _Form:
    shape = _as_struct(kind) if issubclass(kind, tuple) else kind
    try:
        [schema], defs = schemas_of([shape])
    except TypeError as reason:
        raise TypeError(f"{kind.__name__} is not a valid form: {str(reason).splitlines()[0]}; {ALLOWED}") from reason
    root = with_object_root(schema, defs)
    if root is None or "properties" not in root:
        raise TypeError(f"{kind.__name__} is not a valid form: it has no fields; {ALLOWED}")
    hints = get_type_hints(shape, include_extras=True)
    required = list(root.get("required", []))
    unanswered = []
    properties = {}
    for name, described in root["properties"].items():
        found, is_optional = field_schema(f"{kind.__name__}.{name}", described, hints.get(name), defs)
        properties[name] = found
        if is_optional and name in required:
            required.remove(name)
            unanswered.append(name)
    form: Schema = {"type": "object", "properties": properties}
    make = functools.partial(_make, kind, shape, unanswered)
    return _finished(kind.__name__, {**form, "required": required} if required else form, make)


def _finished(name: str, schema: Schema, make: Callable[[dict[str, Any]], Any]) -> _Form:
    """Hold a form to the protocol's own model of forms."""
    try:
        return _Form(schema, read(LATEST, RequestedSchema, schema, at="schema"), compile_schema(schema), make)
    except PeerError as reason:
        raise TypeError(f"{name} is not a valid form: {reason}; {ALLOWED}") from reason


def _make(kind: type, shape: type, unanswered: Collection[str], values: dict[str, Any]) -> Any:
    """A field that may be None, and has no other default, is None when it is not answered."""
    given = {name: int(value) if _is_whole(value) else value for name, value in values.items()}
    for name in unanswered:
        given.setdefault(name, None)
    made: Any = msgspec.convert(given, shape, str_keys=True, dec_hook=from_json)
    fill_defaults(made)
    return made if kind is shape else kind(**msgspec.structs.asdict(made))


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _as_struct(kind: Any) -> type:
    """A named tuple is an array to JSON, but a form to a user: take its fields by name."""
    if not hasattr(kind, "_fields"):
        raise TypeError(f"{kind.__name__} is not a valid form: a tuple has no field names; use a NamedTuple; {ALLOWED}")
    hints, defaults = get_type_hints(kind, include_extras=True), kind._field_defaults
    fields = [(name, hints[name], *([defaults[name]] if name in defaults else [])) for name in kind._fields]
    return msgspec.defstruct(kind.__name__, fields)
