import datetime
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from msgspec import Meta

from callboard.codecs.revisions import LATEST, RequestedSchema, Revision, read, write
from callboard.errors import InvalidDefinition
from callboard.server.content.errors import BadForm
from callboard.server.content.forms import form_for, form_of, read_form
from callboard.server.signature.markers import Doc, Email, Titles, Uri


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"

    @property
    def label(self) -> str:
        return self.name.title()


def form(kind: Any) -> dict[str, Any]:
    """The form as it goes out."""
    written: dict[str, Any] = write(LATEST, form_of(kind))
    assert read(LATEST, RequestedSchema, written) == form_of(kind)
    return written


def asking(annotation: Any, **options: Any) -> Any:
    return attrs.make_class("Asked", {"x": attrs.field(type=annotation, **options)})


FIELDS: list[tuple[Any, dict[str, Any], Any, Any]] = [  # annotation, schema, answer, what it becomes
    (str, {"type": "string"}, "a", "a"),
    (Annotated[str, Meta(min_length=1, max_length=9)], {"type": "string", "minLength": 1, "maxLength": 9}, "a", "a"),
    (
        Annotated[str, Doc("Why"), Meta(title="Reason")],
        {"type": "string", "description": "Why", "title": "Reason"},
        "",
        "",
    ),
    (Email, {"type": "string", "format": "email"}, "a@example.org", "a@example.org"),
    (Uri, {"type": "string", "format": "uri"}, "https://example.org", "https://example.org"),
    (datetime.date, {"type": "string", "format": "date"}, "2026-07-28", datetime.date(2026, 7, 28)),
    (
        datetime.datetime,
        {"type": "string", "format": "date-time"},
        "2026-07-28T00:00:00Z",
        datetime.datetime(2026, 7, 28, tzinfo=datetime.UTC),
    ),
    (int, {"type": "integer"}, 3.0, 3),
    (Annotated[int, Meta(gt=0, lt=10)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
    (Annotated[float, Meta(ge=0.5, le=1)], {"type": "number", "minimum": 0.5, "maximum": 1}, 1, 1.0),
    (bool, {"type": "boolean"}, True, True),
    (Literal["z", "a"], {"type": "string", "enum": ["z", "a"]}, "a", "a"),
    (Literal["only"], {"type": "string", "enum": ["only"]}, "only", "only"),
    (Size, {"type": "string", "enum": ["s", "l"]}, "l", Size.LARGE),
    (
        Colour,
        {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
        "b",
        Colour.BLUE,
    ),
    (
        Annotated[Size, Titles({"s": "Small"})],
        {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "l"}]},
        "s",
        Size.SMALL,
    ),
    (list[Literal["b", "a"]], {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}}, ["a"], ["a"]),
    (
        Annotated[set[Size], Meta(min_length=1, max_length=2)],
        {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}, "minItems": 1, "maxItems": 2},
        ["s", "s"],
        {Size.SMALL},
    ),
    (
        list[Colour],
        {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}},
        ["r"],
        [Colour.RED],
    ),
    (
        list[Annotated[Literal["a"], Titles({"a": "A!"})]],
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A!"}]}},
        [],
        [],
    ),
]


@pytest.mark.parametrize(("annotation", "schema", "answer", "value"), FIELDS, ids=lambda part: str(part)[:40])
def test_a_field_is_asked_for_and_its_answer_read(
    annotation: Any, schema: dict[str, Any], answer: Any, value: Any
) -> None:
    kind = asking(annotation)
    assert form(kind) == {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    assert read_form(kind, {"x": answer}).x == value
    assert type(read_form(kind, {"x": answer}).x) is type(value)


@pytest.mark.parametrize(("annotation", "schema", "answer", "value"), FIELDS, ids=lambda part: str(part)[:40])
def test_any_field_may_be_left_open(annotation: Any, schema: dict[str, Any], answer: Any, value: Any) -> None:
    kind = asking(annotation | None)
    assert form(kind) == {"type": "object", "properties": {"x": schema}}
    assert read_form(kind, {}).x is None
    assert read_form(kind, None).x is None
    assert read_form(kind, {"x": answer}).x == value


@pytest.mark.parametrize(
    ("annotation", "default", "told"),
    [
        (str, "a", "a"),
        (int, 3, 3),
        (float, 0.5, 0.5),
        (bool, False, False),
        (Size, Size.LARGE, "l"),
        (Colour, Colour.RED, "r"),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_a_default_is_offered_and_taken(annotation: Any, default: Any, told: Any) -> None:
    kind = asking(annotation, default=default)
    assert form(kind)["properties"]["x"]["default"] == told
    assert "required" not in form(kind)
    assert read_form(kind, {}).x == default


@attrs.define
class AsAttrs:
    name: str
    size: Size = Size.SMALL
    note: str | None = None


@dataclass
class AsDataclass:
    name: str
    size: Size = Size.SMALL
    note: str | None = None


class AsStruct(msgspec.Struct):
    name: str
    size: Size = Size.SMALL
    note: str | None = None


class AsTuple(NamedTuple):
    name: str
    size: Size = Size.SMALL
    note: str | None = None


class AsPydantic(pydantic.BaseModel):
    name: str
    size: Size = Size.SMALL
    note: str | None = None


@pytest.mark.parametrize("kind", [AsAttrs, AsDataclass, AsStruct, AsTuple, AsPydantic])
def test_every_kind_of_class_asks_the_same(kind: Callable[..., Any]) -> None:
    assert form(kind) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
            "note": {"type": "string"},
        },
        "required": ["name"],
    }
    assert isinstance(kind, type)
    assert read_form(kind, {"name": "a", "size": "l"}) == kind(name="a", size=Size.LARGE, note=None)
    assert form_of(kind) is form_of(kind)


def test_a_typed_dict_keeps_what_was_not_answered_absent() -> None:
    class AsDict(TypedDict):
        name: str
        note: NotRequired[str]
        age: int | None

    assert form(AsDict)["required"] == ["name"]
    assert read_form(AsDict, {"name": "a"}) == {"name": "a", "age": None}


@attrs.define
class Nested:
    inner: AsAttrs


REFUSED: list[tuple[Any, str]] = [
    (AsAttrs, "Asked.x is of type object"),
    (dict[str, int], "Asked.x is of type object"),
    (list[str], "Asked.x is an enum of other values than strings"),
    (list[AsAttrs], "Asked.x is an enum of other values than strings"),
    (int | str, "Asked.x is a union of types"),
    (Literal[1, 2], "Asked.x is an enum of other values than strings"),
    (Any, "Asked.x is of type any"),
    (type(None), "Asked.x is of type null"),
    (uuid.UUID, "Asked.x is text in the format uuid"),
    (Annotated[float, Meta(gt=0)], "Asked.x is bound by exclusiveMinimum"),
    (Annotated[str, Meta(pattern="a")], "Asked.x is bound by pattern"),
    (bytes, "Asked.x is bound by contentEncoding"),
    (range, "Asked is not a valid form: range has no JSON Schema"),
]


@pytest.mark.parametrize(("annotation", "words"), REFUSED, ids=str)
def test_what_no_form_can_ask_is_refused_with_what_it_can(annotation: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        form_of(asking(annotation))
    assert str(caught.value).startswith(words)
    assert "allowed are str" in str(caught.value)


@pytest.mark.parametrize("kind", [int, str, list, tuple, Size, object])
def test_what_has_no_fields_is_no_form(kind: type) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} is not a valid form"):
        form_of(kind)


def test_a_wrong_answer_is_told_whole() -> None:
    @attrs.define
    class Trip:
        email: Email
        nights: Annotated[int, Meta(ge=1)]
        colour: Colour
        extras: list[Size]

    with pytest.raises(BadForm) as caught:
        read_form(Trip, {"email": "me", "nights": 0, "colour": "g", "extras": ["s", "m"]})
    first, *lines = str(caught.value).splitlines()
    assert first == "The answer does not match the form:"
    assert sorted(lines) == [
        '- colour: must be one of "r", "b"; got "g"',
        '- email: must be an e-mail address, got "me"',
        '- extras[1]: must be one of "s", "l"; got "m"',
        "- nights: must be at least 1, got 0",
    ]


def test_what_only_the_class_knows_is_told_too() -> None:
    kind = asking(int, validator=attrs.validators.in_([2, 4]))
    with pytest.raises(BadForm, match="must be in"):
        read_form(kind, {"x": 3})


def test_a_ready_schema_is_asked_as_it_is_and_answered_by_a_dict() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    assert form(schema) == schema
    assert read_form(schema, {"n": 2}) == {"n": 2}
    with pytest.raises(BadForm, match="- n: is required"):
        read_form(schema, {})


def test_a_ready_schema_that_is_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="the schema is not a valid form"):
        form_of({"type": "object", "properties": {"n": {"type": "object"}}})


def test_the_first_revision_with_forms_has_its_own_word_for_titles() -> None:
    kind = attrs.make_class(
        "Asked", {"x": attrs.field(type=Colour, default=Colour.RED), "y": attrs.field(type=int, default=1)}
    )
    older, newer = Revision("2025-06-18"), Revision("2025-11-25")
    assert form_for(newer, form_of(kind)) == form_of(kind)
    assert write(older, form_for(older, form_of(kind)))["properties"]["x"] == {
        "type": "string",
        "enum": ["r", "b"],
        "enumNames": ["Red", "Blue"],
    }
    with pytest.raises(InvalidDefinition, match="has a multiple choice in x, which 2025-06-18 does not support"):
        form_for(older, form_of(asking(list[Size])))
