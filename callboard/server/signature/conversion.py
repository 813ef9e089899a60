"""Conversion of JSON values to what msgspec leaves to us: paths, pydantic's types, and unions of models.

Which member of a union a value is, is settled by the value alone, and always in the same way:

1. If all members have a required member of one name with fixed and different values (`kind: Literal["cat"]`), its value
   says. An author may name it: `Annotated[Cat | Dog, Field(discriminator="kind")]`.
2. Else, of the members whose schema allows the value, it is the one that knows most names in it; of several, the first.
3. If that one refuses it after all, by a check of its own, the next is tried. If none takes it, the first says why.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import attrs
import msgspec

from callboard.server.content.problems import Problem, RefusedValue, path_of, problems_of
from callboard.server.signature.pydantic_types import validate
from callboard.server.signature.schemas import (
    DEFS,
    Schema,
    Validator,
    compile_schema,
    schemas_of,
    with_defs,
)
from callboard.server.signature.translate import Choice, StandIn


def from_json(kind: Any, value: Any) -> Any:
    """Make a *kind* of JSON values that msgspec leaves to us. Raises `ValueError`."""
    if kind is object:
        return value
    if isinstance(kind, type):
        if issubclass(kind, Choice):
            return _chosen(kind, value)
        if issubclass(kind, StandIn):
            return kind.make(converted(value, kind.fields))
        if issubclass(kind, PurePath) and isinstance(value, str):
            return kind(value)
        if issubclass(kind, PurePath):
            raise RefusedValue(Problem("", f"cannot convert {type(value).__name__} to {kind.__name__}"))
    return _validated(kind, value)


def converted(value: Any, kind: Any) -> Any:
    """Make a translated *kind* of JSON values. Raises msgspec's error."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=from_json)


def _validated(kind: Any, value: Any) -> Any:
    """A value of pydantic's, or what it found wrong: without its links and its copy of the input."""
    try:
        return validate(kind, value)
    except ValueError as reason:
        found = reason.errors() if hasattr(reason, "errors") else []
        told = [Problem(path_of(one["loc"]), _words(one)) for one in found]
        raise RefusedValue(*(told or [Problem("", str(reason))])) from None


def _words(found: Mapping[str, Any]) -> str:
    """The text of a validator of the author's own, or of pydantic."""
    own = found.get("ctx", {}).get("error", "") if found["type"] in ("value_error", "assertion_error") else ""
    return str(own) or str(found["msg"])


@attrs.frozen(eq=False)
class _Form:
    """One member of a union."""

    kind: Any
    validator: Validator
    properties: Mapping[str, Any]
    """The schemas of its members; none if it is no object."""
    required: frozenset[str]

    def known(self, value: Any) -> int:
        """How many members of *value* it has."""
        return sum(name in self.properties for name in value) if isinstance(value, dict) else 0

    def fixed(self, name: str) -> frozenset[Any]:
        """The values that the member *name* may have, if it must be there with one of a few."""
        said = self.properties.get(name, {}) if name in self.required else {}
        values = [said["const"]] if "const" in said else said.get("enum", ())
        return frozenset(value for value in values if isinstance(value, str | int))


@attrs.frozen(eq=False)
class _Forms:
    """The members of a union, and the name and values by which they are told apart, if they are."""

    members: Sequence[_Form]
    name: str | None
    by_value: Mapping[Any, _Form]

    def candidates(self, value: Any) -> Sequence[_Form]:
        """The members that *value* may be, the best first."""
        if self.name is not None and isinstance(value, dict):
            told = value.get(self.name)
            found = self.by_value.get(told) if isinstance(told, str | int) else None
            if found is not None:
                return (found,)
        fitting = [form for form in self.members if form.validator.is_valid(value)]
        return sorted(fitting, key=lambda form: -form.known(value))


def _chosen(choice: type[Choice], value: Any) -> Any:
    if choice.forms is None:
        choice.forms = _forms(choice)
    first: RefusedValue | None = None
    for form in choice.forms.candidates(value):
        try:
            return converted(value, form.kind)
        except msgspec.ValidationError as reason:
            first = first or RefusedValue(*problems_of(reason))
    raise first or RefusedValue(Problem("", "matches none of the types"))


def _forms(choice: type[Choice]) -> _Forms:
    members = [_form(kind) for kind in choice.members]
    objects = [form for form in members if form.properties]
    names = [choice.discriminator] if choice.discriminator else list(objects[0].properties if len(objects) > 1 else ())
    for name in names:
        values = [form.fixed(name) for form in objects]
        if all(values) and sum(map(len, values)) == len(frozenset().union(*values)):
            by_value = {value: form for form, fixed in zip(objects, values, strict=True) for value in fixed}
            return _Forms(members, name, by_value)
    return _Forms(members, None, {})


def _form(kind: Any) -> _Form:
    [schema], defs = schemas_of([kind])
    root: Schema = schema
    while "$ref" in root:
        root = defs[root["$ref"].removeprefix(DEFS)]
    return _Form(
        kind,
        compile_schema(with_defs(schema, defs)),
        root.get("properties", {}),
        frozenset(root.get("required", ())),
    )
