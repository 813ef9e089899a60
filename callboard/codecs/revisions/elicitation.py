"""Elicitation: a server asks the client's user, by a form or at a URL.

A form is a flat object of primitive properties. Which kind a property is shows in its shape: `type` first, then the
marks of each class, the most specific first.

| `type` | marks | class |
|---|---|---|
| `string` | | `StringSchema` |
| `string` | `enum` | `UntitledSingleSelectEnumSchema` |
| `string` | `enum`, `enumNames` | `LegacyTitledEnumSchema` |
| `string` | `oneOf` | `TitledSingleSelectEnumSchema` |
| `array` | `items.enum` | `UntitledMultiSelectEnumSchema` |
| `array` | `items.anyOf` | `TitledMultiSelectEnumSchema` |
| `number`, `integer` | | `NumberSchema` |
| `boolean` | | `BooleanSchema` |
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions.base import NotificationParams, RequestMetaObject
from callboard.codecs.revisions.model import (
    UNSET,
    JSONObject,
    Model,
    UnsetType,
    member,
    model,
    only,
    since,
    until,
)
from callboard.codecs.revisions.revision import R3, R4, Revisions, span
from callboard.codecs.revisions.tasks import TaskMetadata

ElicitScalar: TypeAlias = str | float | bool
ElicitValue: TypeAlias = ElicitScalar | Sequence[str]


@model(kw_only=True)
class PropertySchema(Model):
    """Members that every property of a form may have."""

    known: ClassVar[Revisions] = span(R3)

    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


@model(kw_only=True)
class StringSchema(PropertySchema):
    type: Literal["string"] = "string"
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    format: Literal["date", "date-time", "email", "uri"] | UnsetType = UNSET
    default: str | UnsetType = since(R4)


@model(kw_only=True)
class NumberSchema(PropertySchema):
    type: Literal["integer", "number"]
    minimum: float | UnsetType = UNSET
    maximum: float | UnsetType = UNSET
    default: float | UnsetType = since(R4)


@model(kw_only=True)
class BooleanSchema(PropertySchema):
    type: Literal["boolean"] = "boolean"
    default: bool | UnsetType = UNSET


@model(kw_only=True)
class UntitledSingleSelectEnumSchema(PropertySchema):
    """One of several values that are their own names."""

    marks: ClassVar[tuple[str, ...]] = ("enum",)

    type: Literal["string"] = "string"
    enum: Sequence[str]
    default: str | UnsetType = since(R4)


@model(kw_only=True)
class LegacyTitledEnumSchema(UntitledSingleSelectEnumSchema):
    """One of several values, with their titles in a second array."""

    marks: ClassVar[tuple[str, ...]] = ("enum", "enumNames")

    enum_names: Sequence[str] | UnsetType = UNSET


@model(kw_only=True)
class TitledValue(Model):
    """A value and what the user sees for it."""

    const: str
    title: str


@model(kw_only=True)
class TitledSingleSelectEnumSchema(PropertySchema):
    known: ClassVar[Revisions] = span(R4)
    marks: ClassVar[tuple[str, ...]] = ("oneOf",)

    type: Literal["string"] = "string"
    one_of: Sequence[TitledValue]
    default: str | UnsetType = UNSET


@model(kw_only=True)
class UntitledItems(Model):
    type: Literal["string"] = "string"
    enum: Sequence[str]


@model(kw_only=True)
class TitledItems(Model):
    any_of: Sequence[TitledValue]


@model(kw_only=True)
class MultiSelectSchema(PropertySchema):
    """Any number of values out of several."""

    known: ClassVar[Revisions] = span(R4)

    type: Literal["array"] = "array"
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET
    default: Sequence[str] | UnsetType = UNSET


@model(kw_only=True)
class UntitledMultiSelectEnumSchema(MultiSelectSchema):
    marks: ClassVar[tuple[str, ...]] = ("items.enum",)

    items: UntitledItems


@model(kw_only=True)
class TitledMultiSelectEnumSchema(MultiSelectSchema):
    marks: ClassVar[tuple[str, ...]] = ("items.anyOf",)

    items: TitledItems


SingleSelectEnumSchema: TypeAlias = UntitledSingleSelectEnumSchema | TitledSingleSelectEnumSchema
MultiSelectEnumSchema: TypeAlias = UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema
EnumSchema: TypeAlias = SingleSelectEnumSchema | MultiSelectEnumSchema | LegacyTitledEnumSchema
PrimitiveSchemaDefinition: TypeAlias = StringSchema | NumberSchema | BooleanSchema | EnumSchema


@model(kw_only=True)
class RequestedSchema(Model):
    """The form: a flat object of primitive properties."""

    known: ClassVar[Revisions] = span(R3)

    type: Literal["object"] = "object"
    properties: Mapping[str, PrimitiveSchemaDefinition]
    required: Sequence[str] | UnsetType = UNSET
    dialect: str | UnsetType = since(R4)


@model(kw_only=True)
class ElicitRequestFormParams(Model):
    """Ask by a form. An absent `mode` means this."""

    known: ClassVar[Revisions] = span(R3)

    mode: Literal["form"] | UnsetType = since(R4)
    message: str
    requested_schema: RequestedSchema
    task: TaskMetadata | UnsetType = only(R4)
    meta: RequestMetaObject | UnsetType = until(R4)


@model(kw_only=True)
class ElicitRequestURLParams(Model):
    """Ask at a URL, where neither client nor model can look inside."""

    known: ClassVar[Revisions] = span(R4)

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | UnsetType = only(R4, required=True)
    task: TaskMetadata | UnsetType = only(R4)
    meta: RequestMetaObject | UnsetType = until(R4)


ElicitRequestParams: TypeAlias = ElicitRequestFormParams | ElicitRequestURLParams


@model(kw_only=True)
class ElicitResult(Model):
    """Action of the user. For a URL, `accept` is consent and not completion."""

    known: ClassVar[Revisions] = span(R3)
    marks: ClassVar[tuple[str, ...]] = ("action",)

    action: Literal["accept", "cancel", "decline"]
    content: Mapping[str, ElicitValue] | UnsetType = member(types={R3: Mapping[str, ElicitScalar]})
    meta: JSONObject | UnsetType = until(R4)


@model(kw_only=True)
class ElicitationCompleteNotificationParams(NotificationParams):
    """The user finished at the URL (2025-11-25)."""

    known: ClassVar[Revisions] = frozenset({R4})

    elicitation_id: str


@model(kw_only=True)
class URLElicitationRequiredData(Model):
    """`data` of the error that says: visit these first (2025-11-25)."""

    known: ClassVar[Revisions] = frozenset({R4})

    elicitations: Sequence[ElicitRequestURLParams]
