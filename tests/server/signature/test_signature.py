import dataclasses
import datetime
import decimal
import enum
import ipaddress
import re
import sys
import uuid
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pydantic
import pytest
from msgspec import Meta
from typing_extensions import Doc as OtherDoc

from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.server.content.errors import BadArguments
from callboard.server.signature.markers import Doc, Email, Header
from tests.server.kinds import (
    Branch,
    Context,
    Guest,
    Level,
    Opaque,
    Pair,
    Place,
    Point,
    Row,
    Stay,
    Unit,
    signature,
    taking,
)

T = TypeVar("T")
Schema = dict[str, Any]


class Typed(Context, Generic[T]):
    pass


PLACE: Schema = {
    "type": "object",
    "description": "Somewhere.",
    "properties": {
        "city": {"type": "string"},
        "country": {
            "type": "string",
            "description": "Two letters",
            "minLength": 2,
            "maxLength": 2,
            "default": "NL",
        },
    },
    "required": ["city"],
}

TYPES: list[tuple[Any, Schema, Any, Any]] = [  # annotation, schema, JSON, what the handler gets
    (str, {"type": "string"}, "a", "a"),
    (int, {"type": "integer"}, 3, 3),
    (int, {"type": "integer"}, 3.0, 3),
    (float, {"type": "number"}, 3, 3.0),
    (bool, {"type": "boolean"}, True, True),
    (None, {"type": "null"}, None, None),
    (Any, {}, {"a": [1]}, {"a": [1]}),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
    (Literal["b", "a"], {"enum": ["b", "a"], "type": "string"}, "b", "b"),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1, 2.0], [1, 2]),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], {"a"}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
    (datetime.date, {"type": "string", "format": "date"}, "2026-07-28", datetime.date(2026, 7, 28)),
    (
        datetime.datetime,
        {"type": "string", "format": "date-time"},
        "2026-07-28T00:00:00Z",
        datetime.datetime(2026, 7, 28, tzinfo=datetime.UTC),
    ),
    (
        Annotated[datetime.datetime, Meta(tz=False)],
        {"type": "string"},
        "2026-07-28T00:00:00",
        datetime.datetime(2026, 7, 28),
    ),
    (
        datetime.datetime | None,
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        None,
        None,
    ),
    (uuid.UUID, {"type": "string", "format": "uuid"}, str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    (decimal.Decimal, {"type": "string", "format": "decimal"}, "1.5", decimal.Decimal("1.5")),
    (bytes, {"type": "string", "contentEncoding": "base64"}, "aGk=", b"hi"),
    (Path, {"type": "string", "format": "path"}, "a/b", Path("a/b")),
    (Email, {"type": "string", "format": "email"}, "a@example.org", "a@example.org"),
    (Annotated[int, Meta(ge=1, lt=9)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, 8, 8),
    (Annotated[str, Meta(pattern="^a")], {"type": "string", "pattern": "^a"}, "ab", "ab"),
    (
        Annotated[int, pydantic.Field(description="d", ge=1)],
        {"type": "integer", "minimum": 1, "description": "d"},
        1,
        1,
    ),
    (Annotated[str, OtherDoc("d")], {"type": "string", "description": "d"}, "a", "a"),
    (
        list[Annotated[int, pydantic.Field(ge=1)]],
        {"type": "array", "items": {"type": "integer", "minimum": 1}},
        [1],
        [1],
    ),
]


@pytest.mark.parametrize(("annotation", "schema", "json", "value"), TYPES, ids=lambda part: str(part)[:40])
def test_a_type_has_a_schema_and_reads_what_the_schema_allows(
    annotation: Any, schema: Schema, json: Any, value: Any
) -> None:
    found = taking(annotation)
    assert found.input_schema == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert found.read(msgspec.json.encode({"x": json})) == {"x": value}
    assert type(found.read({"x": json})["x"]) is type(value)


CLASSES: list[tuple[Any, str, Schema, Any, Any]] = [
    (Place, "Place", PLACE, {"city": "Delft"}, Place("Delft")),
    (Unit, "Unit", {"enum": ["metric", "imperial"], "type": "string"}, "metric", Unit.METRIC),
    (Level, "Level", {"enum": [1, 2], "type": "integer"}, 2, Level.HIGH),
    (Point, "Point", {"type": "object"}, {"x": 1}, Point(1)),
    (Stay, "Stay", {"type": "object", "required": ["nights"]}, {"nights": 2}, {"nights": 2}),
    (Pair, "Pair", {"type": "array", "minItems": 1, "maxItems": 2}, [1, "b"], Pair(1, "b")),
    (Row, "Row", {"type": "object", "required": ["id"]}, {"id": 1}, Row(1)),
    (Branch, "Branch", {"type": "object"}, {"name": "a", "under": [{"name": "b"}]}, Branch("a", [Branch("b")])),
    (Guest, "Guest", {"type": "object", "description": "Somebody."}, {"first_name": "A"}, Guest(first_name="A")),
]


@pytest.mark.parametrize(("annotation", "name", "schema", "json", "value"), CLASSES, ids=lambda part: str(part)[:40])
def test_a_class_is_a_definition_without_noise(
    annotation: Any, name: str, schema: Schema, json: Any, value: Any
) -> None:
    found = taking(annotation)
    assert found.input_schema["properties"] == {"x": {"$ref": f"#/$defs/{name}"}}
    definition = found.input_schema["$defs"][name]
    assert {key: definition[key] for key in schema} == schema
    assert "title" not in msgspec.json.encode(found.input_schema).decode()
    assert found.read(msgspec.json.encode({"x": json})) == {"x": value}


def test_a_pydantic_model_may_stand_in_a_list_or_be_absent() -> None:
    assert taking(list[Guest]).read({"x": [{"first_name": "A"}]}) == {"x": [Guest(first_name="A")]}
    assert taking(Guest | None).read({"x": None}) == {"x": None}


def test_a_whole_signature_is_published_in_its_own_order() -> None:
    def forecast(city: str, days: Annotated[int, Meta(ge=1)] = 3, *, unit: Unit = Unit.METRIC, ctx: Context) -> str:
        """Weather for the coming days.

        Args:
            city: Where to look.
            days: How many.
        """
        return ""

    found = signature(forecast)
    assert (found.name, found.description) == ("forecast", "Weather for the coming days.")
    assert list(found.input_schema) == ["type", "properties", "required", "additionalProperties", "$defs"]
    assert found.input_schema["properties"] == {
        "city": {"description": "Where to look.", "type": "string"},
        "days": {"description": "How many.", "type": "integer", "minimum": 1, "default": 3},
        "unit": {"$ref": "#/$defs/Unit", "default": "metric"},
    }
    assert found.input_schema["required"] == ["city"]
    assert [(one.name, one.required, one.description) for one in found.parameters] == [
        ("city", True, "Where to look."),
        ("days", False, "How many."),
        ("unit", False, ""),
    ]
    assert found.context_parameter == "ctx"
    assert found.read({"city": "Delft"}) == {"city": "Delft", "days": 3, "unit": Unit.METRIC}


def test_no_arguments_are_read_from_nothing_at_all() -> None:
    def ping(loud: bool = False) -> None: ...

    found = signature(ping)
    assert "required" not in found.input_schema
    given: list[Any] = [None, msgspec.UNSET, {}, b"{}", msgspec.Raw(b"{}")]
    for nothing in given:
        assert found.read(nothing) == {"loud": False}


def test_a_marker_wins_over_the_docstring() -> None:
    def tool(x: Annotated[str, Doc("marked")]) -> None:
        """Do.

        :param x: written
        """

    assert signature(tool).parameters[0].description == "marked"


def test_a_header_marker_is_what_the_header_table_reads() -> None:
    def query(region: Annotated[str, Header("Region"), Doc("Where")], sql: str) -> None: ...

    found = signature(query)
    assert found.input_schema["properties"]["region"] == {
        "type": "string",
        "description": "Where",
        "x-mcp-header": "Region",
    }
    assert HeaderMap.compile(found.input_schema).paths == {b"mcp-param-region": ("region",)}


@pytest.mark.parametrize("annotation", [Context, Typed[int], Context | None, Annotated[Context, "c"], "Context"])
def test_the_context_is_injected_under_any_name_and_never_published(annotation: Any) -> None:
    def tool(x: int, whatever: Any = None) -> None: ...

    tool.__annotations__["whatever"] = annotation
    found = signature(tool, namespace={"Context": Context})
    assert found.context_parameter == "whatever"
    assert list(found.input_schema["properties"]) == ["x"]
    assert found.read({"x": 1}) == {"x": 1}


def test_hidden_parameters_are_left_to_the_caller() -> None:
    def tool(x: int, db: Opaque) -> None: ...

    assert signature(tool, hidden={"db"}).read({"x": 1}) == {"x": 1}


def test_further_arguments_are_taken_where_the_handler_takes_them() -> None:
    def any_kind(x: int, **rest: Any) -> None: ...

    def one_kind(x: int, **rest: datetime.date) -> None: ...

    assert signature(any_kind).input_schema["additionalProperties"] is True
    assert signature(any_kind).read({"x": 1, "y": [2]}) == {"x": 1, "y": [2]}
    assert signature(one_kind).input_schema["additionalProperties"] == {"type": "string", "format": "date"}
    assert signature(one_kind).read({"x": 1, "y": "2026-07-28"}) == {"x": 1, "y": datetime.date(2026, 7, 28)}


def test_a_default_that_the_schema_does_not_allow_is_used_and_not_published() -> None:
    marker = Opaque()

    def tool(a: int = None, b: str = marker, c: list[int] = [1]) -> None: ...  # type: ignore[assignment]  # noqa: B006, RUF013

    found = signature(tool)
    assert found.input_schema["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "string"},
        "c": {"type": "array", "items": {"type": "integer"}, "default": [1]},
    }
    assert found.read() == {"a": None, "b": marker, "c": [1]}


@pytest.mark.parametrize(
    ("kind", "default", "words"),
    [
        (int, "five", 'expected integer, got "five"'),
        (int | None, "five", 'expected integer or null, got "five"'),
        (list[str], "a", 'expected array, got "a"'),
    ],
)
def test_a_default_of_another_type_is_refused(kind: Any, default: Any, words: str) -> None:
    def tool(x: Any = default) -> None: ...

    tool.__annotations__["x"] = kind
    with pytest.raises(TypeError, match=f"the default of x is of another type: {words}"):
        signature(tool)


def test_a_default_beside_the_bounds_may_mean_that_nothing_was_given() -> None:
    def tool(x: Annotated[int, Meta(ge=1)] | None = 0) -> None: ...

    assert "default" not in signature(tool).input_schema["properties"]["x"]
    assert signature(tool).read() == {"x": 0}


# Prompts and URI templates, whose arguments are text.


def test_text_is_read_as_it_is_or_else_as_json() -> None:
    def prompt(city: str, days: int = 3, loud: bool = False, both: str | int = "", path: list[str] = []) -> None: ...  # noqa: B006

    found = signature(prompt)
    assert found.read_text({"city": "5", "days": "4", "loud": "true", "both": "7", "path": ["a"]}) == {
        "city": "5",
        "days": 4,
        "loud": True,
        "both": "7",
        "path": ["a"],
    }
    assert found.read_text({"city": "a"}) == {"city": "a", "days": 3, "loud": False, "both": "", "path": []}
    with pytest.raises(BadArguments, match="- city: is required"):
        found.read_text(None)
    with pytest.raises(BadArguments, match='- days: expected integer, got "many"'):
        found.read_text({"city": "a", "days": "many"})


def test_a_name_that_pydantic_and_others_define_differently_is_two_definitions() -> None:
    class Unit(enum.Enum):
        MILE = "mile"

    def tool(a: Guest, b: Any) -> None: ...

    tool.__annotations__["b"] = Unit
    assert list(signature(tool).input_schema["$defs"]) == ["Unit", "pydantic.Guest", "pydantic.Unit"]


def test_a_name_that_pydantic_and_others_define_alike_is_one_definition() -> None:
    def tool(a: Guest, b: Unit) -> None: ...

    found = signature(tool)
    assert list(found.input_schema["$defs"]) == ["Guest", "Unit"]  # they agree on it
    assert found.read({"a": {"first_name": "A", "unit": "imperial"}, "b": "metric"}) == {
        "a": Guest(first_name="A", unit=Unit.IMPERIAL),
        "b": Unit.METRIC,
    }


def test_two_pydantic_models_of_one_name_are_refused() -> None:
    def model(**fields: Any) -> Any:
        return pydantic.create_model("Same", **fields)

    def tool(a: Any, b: Any) -> None: ...

    tool.__annotations__.update(a=model(x=(int, 1)), b=model(y=(int, 1)))
    with pytest.raises(TypeError, match="two types have the name Same"):
        signature(tool)


def test_schemas_are_the_same_each_time() -> None:
    def tool(a: Place, b: Guest, c: Level, d: set[Unit]) -> Mapping[str, Point]: ...  # type: ignore[empty-body]

    first, second = signature(tool), signature(tool)
    assert msgspec.json.encode(first.input_schema) == msgspec.json.encode(second.input_schema)
    assert list(first.input_schema["$defs"]) == sorted(first.input_schema["$defs"])


def test_an_enum_of_texts_and_numbers_reads_both() -> None:
    class Mixed(enum.Enum):
        A = "a"
        B = 2

    with pytest.raises(TypeError, match="the parameter x"):
        taking(Mixed)  # msgspec takes enums of one kind only


def test_a_type_without_a_schema_is_refused_in_a_traceback_of_its_own() -> None:
    """Frames of msgspec and of callboard's own would say no more."""
    with pytest.raises(TypeError, match="a type without a JSON Schema") as told:
        taking(Opaque)
    assert told.value.__suppress_context__
    assert "\n" not in str(told.value)


def test_fields_of_a_pydantic_dataclass_and_markers_are_held_to_what_they_say() -> None:
    @pydantic.dataclasses.dataclass
    class Booking:
        seats: int = pydantic.Field(1, ge=1, description="how many")

    booked = taking(Booking)
    assert booked.input_schema["$defs"]["Booking"]["properties"]["seats"]["minimum"] == 1
    with pytest.raises(BadArguments, match=r"x\.seats: must be at least 1"):
        booked.read({"x": {"seats": 0}})
    with pytest.raises(BadArguments, match=r"x: UUID version 4 expected"):
        taking(pydantic.UUID4).read({"x": "12345678-1234-5678-1234-567812345678"})


class Loader(pydantic.BaseModel):
    what: pydantic.ImportString[Any]


class Crate(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Late(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(defer_build=True)
    loader: "Loader | None" = None


@pydantic.dataclasses.dataclass
class Loading:
    what: pydantic.ImportString[Any]


@dataclasses.dataclass
class Plain:
    what: pydantic.ImportString  # type: ignore[type-arg]


@pytest.mark.parametrize(
    "annotation",
    [
        pydantic.ImportString,
        Annotated[Any, pydantic.ImportString()],  # type: ignore[type-arg]
        pydantic.ImportString[int] | None,
        list[pydantic.ImportString],  # type: ignore[type-arg]
        Loader,
        Loader | Guest,
        Late,
        Crate[Loader],
        Crate[pydantic.ImportString],  # type: ignore[type-arg]
        pydantic.RootModel[pydantic.ImportString],  # type: ignore[type-arg]
        Loading,
        Plain,
        pydantic.Json[pydantic.ImportString],  # type: ignore[type-arg,misc]
        dict[str, Annotated[pydantic.ImportString[Any], pydantic.AfterValidator(str)]],
    ],
)
def test_no_client_may_choose_a_module_to_import(annotation: Any) -> None:
    with pytest.raises(TypeError, match="ImportString would let a client import any module") as told:
        taking(annotation)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (re.Pattern, "Pattern has no JSON Schema"),
        (list[re.Pattern[str]], "Pattern has no JSON Schema"),
        (
            Annotated[re.Pattern[str], pydantic.AfterValidator(str)],
            "re.Pattern would let a client choose the regular expression",
        ),
        (pydantic.create_model("Search", what=re.Pattern[bytes]), "re.Pattern would let a client"),
        (Fraction, "Fraction has no JSON Schema"),
        (complex, "complex has no JSON Schema"),
    ],
)
def test_patterns_and_numbers_that_json_has_not_are_refused(annotation: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        taking(annotation)


def test_a_pattern_of_the_author_is_no_pattern_of_the_client() -> None:
    code = Annotated[str, pydantic.StringConstraints(pattern="^a"), pydantic.AfterValidator(str.upper)]
    assert taking(code).read({"x": "ab"}) == {"x": "AB"}


class Diary(pydantic.BaseModel):
    begin: pydantic.NaiveDatetime
    told: pydantic.AwareDatetime


def test_a_time_without_an_offset_is_taken_where_that_is_wanted() -> None:
    noon = datetime.datetime(2026, 7, 28, 12)
    assert taking(pydantic.NaiveDatetime).read({"x": "2026-07-28T12:00:00"}) == {"x": noon}
    assert taking(list[pydantic.NaiveDatetime]).read({"x": ["2026-07-28T12:00:00"]}) == {"x": [noon]}
    diary = taking(Diary)
    found = diary.read({"x": {"begin": "2026-07-28T12:00:00", "told": "2026-07-28T12:00:00Z"}})
    assert found["x"].begin == noon
    with pytest.raises(BadArguments, match=r"x\.told: must be a date and time with its offset"):
        diary.read({"x": {"begin": "2026-07-28T12:00:00", "told": "2026-07-28T12:00:00"}})
    with pytest.raises(BadArguments, match="x: Input should not have timezone info"):
        taking(pydantic.NaiveDatetime).read({"x": "2026-07-28T12:00:00Z"})


def test_pydantic_is_not_needed_for_what_is_none_of_its_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert taking(dict[str, Path]).read({"x": {"a": "b"}}) == {"x": {"a": Path("b")}}
    with pytest.raises(TypeError, match=r"IPv6Network has no JSON Schema"):
        taking(ipaddress.IPv6Network)
