"""Write `reference/types.md` from a table of types, which `tests/server/signature/test_types_page.py` runs.

python docs/tool_types.py > docs/reference/types.md
"""

import ast
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
from msgspec import Meta
from pydantic import AfterValidator, Field, HttpUrl, Json, SecretStr

from callboard.server import Audio, Doc, Image
from callboard.server.context import Context
from callboard.server.signature.signature import Signature

T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass
class Cat:
    name: str
    lives: int = 9


@dataclasses.dataclass
class Dog:
    name: str
    tricks: list[str]


@attrs.define
class Train:
    line: str


@attrs.define
class Bus:
    line: str
    seats: int


class Point(TypedDict):
    x: float
    y: float


class Circle(TypedDict):
    x: float
    y: float
    radius: float


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    number: str


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]
    coins: int = Field(ge=0)


class Song(msgspec.Struct):
    title: str


class Span(NamedTuple):
    begin: int
    end: int


@dataclasses.dataclass
class Owner:
    name: str
    pet: Cat | Dog | None = None


@pydantic.dataclasses.dataclass
class Seat:
    row: int = Field(1, ge=1)


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Batch(Generic[T]):
    items: list[T]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


Payment = Annotated[Card | Cash, Field(discriminator="kind")]


@attrs.frozen
class Row:
    """One type: as an author writes it, a value in JSON, and what the handler gets of it."""

    written: str
    kind: Any
    given: Any
    got: Any
    back: Any = ...
    """The value in JSON when the handler returns it; as it was given, unless said."""
    note: str = ""


@attrs.frozen
class Default:
    """A parameter with a default that says more than a value, and what the handler gets when nothing is given."""

    written: str
    kind: Any
    default: Any
    got: Any


_DAY = datetime.datetime(2026, 7, 28, 9, 30, tzinfo=datetime.UTC)
_ID = "12345678-1234-5678-1234-567812345678"

TABLE: dict[str, list[Row]] = {
    "Plain values": [
        Row("str", str, "a", "a", note="a result of type `str` is text, and no data"),
        Row("int", int, 3, 3),
        Row("float", float, 0.5, 0.5),
        Row("bool", bool, True, True),
        Row("int | None", int | None, None, None),
        Row("int | str", int | str, "a", "a"),
        Row("Any", Any, [1, "a"], [1, "a"], note="any JSON; as a result, whatever the value is"),
        Row("object", object, {"a": 1}, {"a": 1}, note="the same as `Any`, for type checkers in strict mode"),
        Row("dict[str, object]", dict[str, object], {"a": [1]}, {"a": [1]}),
        Row("bytes", bytes, "aGk=", b"hi", note="Base64 in JSON; a result needs a MIME type: `Blob`, `Image`, `Audio`"),
    ],
    "Choices": [
        Row('Literal["s", "m", "l"]', Literal["s", "m", "l"], "m", "m", note="in the author's order"),
        Row("Size", Size, "l", Size.LARGE, note="an `Enum` of texts or of whole numbers, in the author's order"),
    ],
    "Descriptions and bounds": [
        Row('Annotated[int, "how many"]', Annotated[int, "how many"], 3, 3),
        Row('Annotated[int, Doc("how many")]', Annotated[int, Doc("how many")], 3, 3),
        Row("Annotated[int, Field(ge=0)]", Annotated[int, Field(ge=0)], 3, 3, note="or of `annotated_types`"),
        Row("Annotated[str, Meta(max_length=5)]", Annotated[str, Meta(max_length=5)], "a", "a", note="of msgspec"),
    ],
    "Containers": [
        Row("list[int]", list[int], [1, 2], [1, 2]),
        Row("set[int]", set[int], [1, 2], {1, 2}),
        Row("tuple[int, str]", tuple[int, str], [1, "a"], (1, "a")),
        Row("dict[str, int]", dict[str, int], {"a": 1}, {"a": 1}),
    ],
    "Text with a form": [
        Row("datetime", datetime.datetime, "2026-07-28T09:30:00Z", _DAY),
        Row("date", datetime.date, "2026-07-28", datetime.date(2026, 7, 28)),
        Row("UUID", uuid.UUID, _ID, uuid.UUID(_ID)),
        Row("Decimal", decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        Row("Path", pathlib.PurePosixPath, "/a", pathlib.PurePosixPath("/a")),
    ],
    "Models": [
        Row("Cat (dataclass)", Cat, {"name": "Tom"}, Cat("Tom"), back={"name": "Tom", "lives": 9}),
        Row("Train (attrs)", Train, {"line": "S1"}, Train("S1")),
        Row("Point (TypedDict)", Point, {"x": 0, "y": 1}, {"x": 0, "y": 1}),
        Row("Card (pydantic)", Card, {"kind": "card", "number": "1"}, Card(kind="card", number="1")),
        Row("Song (Struct)", Song, {"title": "Hey"}, Song("Hey"), note="of msgspec"),
        Row("Span (NamedTuple)", Span, [1, 2], Span(1, 2), note="an array"),
        Row("Page[int] (generic, pydantic)", Page[int], {"items": [1]}, Page[int](items=[1])),
        Row("Batch[int] (generic dataclass)", Batch[int], {"items": [1]}, Batch([1]), note="or attrs"),
    ],
    "Types of pydantic": [
        Row("Seat (pydantic dataclass)", Seat, {}, Seat(row=1), back={"row": 1}),
        Row("HttpUrl", HttpUrl, "https://example.org/", HttpUrl("https://example.org/")),
        Row("SecretStr", SecretStr, "hush", SecretStr("hush"), back="**********", note="a result does not tell it"),
        Row("IPv4Address", ipaddress.IPv4Address, "10.0.0.1", ipaddress.IPv4Address("10.0.0.1"),
            note="and others of the standard library that pydantic knows"),
        Row("Json[list[int]]", Json[list[int]], "[1]", [1], back=[1]),
        Row("Annotated[int, AfterValidator(even)]", Annotated[int, AfterValidator(even)], 2, 2,
            note="the client is told what a validator says"),
    ],
    "Unions of models": [
        Row("Cat | Dog", Cat | Dog, {"name": "Rex", "tricks": ["sit"]}, Dog("Rex", ["sit"])),
        Row("Train | Bus", Train | Bus, {"line": "7", "seats": 40}, Bus("7", 40)),
        Row("Point | Circle", Point | Circle, {"x": 0, "y": 0, "radius": 1}, {"x": 0, "y": 0, "radius": 1}),
        Row("Card | Cash", Card | Cash, {"kind": "cash", "coins": 3}, Cash(kind="cash", coins=3)),
        Row('Payment: Annotated[Card | Cash, Field(discriminator="kind")]', Payment, {"kind": "cash", "coins": 3},
            Cash(kind="cash", coins=3)),
        Row("str | Card", str | Card, "free", "free"),
        Row("Cat | Train | Card", Cat | Train | Card, {"line": "S1"}, Train("S1"), note="of several libraries"),
        Row("list[Cat | Dog]", list[Cat | Dog], [{"name": "Tom"}], [Cat("Tom")], back=[{"name": "Tom", "lives": 9}]),
        Row("Cat | Dog | None", Cat | Dog | None, None, None),
        Row("Owner, with a field pet: Cat | Dog | None", Owner, {"name": "Ann", "pet": {"name": "Rex", "tricks": []}},
            Owner("Ann", Dog("Rex", []))),
    ],
}  # fmt: skip

DEFAULTS = [
    Default("x: int = 5", int, 5, 5),
    Default("x: int = Field(5, ge=0)", int, Field(5, ge=0), 5),
    Default('x: int = Field(5, description="how many")', int, Field(5, description="how many"), 5),
    Default("x: list[str] = Field(default_factory=list)", list[str], Field(default_factory=list), []),
    Default("x: Cat = Cat('Tom')", Cat, Cat("Tom"), Cat("Tom")),
]

BLOCKS: list[tuple[str, Any, Any, list[str]]] = [
    ("str", str, "a", ["text"]),
    ("None", None, None, []),
    ("Image", Image, Image(b"\x89PNG\r\n\x1a\n"), ["image"]),
    ("list[Image | str]", list[Image | str], [Image(b"\x89PNG\r\n\x1a\n"), "a"], ["image", "text"]),
    ("list[Any]", list[Any], ["a", Audio(b"ID3", "audio/mpeg")], ["text", "audio"]),
    ("list[object]", list[object], [Image(b"\x89PNG\r\n\x1a\n")], ["image"]),
]
"""Return types of content, a value, and the types of the blocks that it becomes."""

HEAD = """# Types that a tool may take and return

A parameter or a result may have each type of these tables, and lists, dictionaries and classes of them. The schema is
worked out once, when the tool is registered; a type that has none is refused there, with what to do. Arguments are held
to the schema, and what does not fit is told to the client with its place and the allowed values. Prompts, resource
templates and the methods of extensions take the same types.

This page is made by `docs/tool_types.py`; a test calls a tool for each row. These are the classes in it:
"""

UNIONS = """
A value belongs to one member of a union, found by the value alone and always in the same way:

1. If each model has a required field of one name with a fixed value of its own, such as `kind: Literal["cash"]`, that
   value decides. `Field(discriminator="kind")` names the field, and publishes it.
2. Else it is the member whose schema allows the value and which knows most of its names; of several, the first.
3. If that member refuses it by a check of its own, the next one is tried.

So `{"name": "Tom"}` is a `Cat` and no `Dog`, which needs `tricks`. A union is worth a discriminator if its models have
the same fields. Where msgspec itself takes a union (`str | Cat`, tagged `Struct`s), msgspec reads it, and that is fast.
Refused: a `Struct` with a field that is such a union of untagged `Struct`s; give these a `tag`.
"""

RESULTS = """
## Results

An object is sent as structured content and as its JSON in a text. Any other data is structured content
`{"result": ...}`. Text and content promise no data, so they have no output schema:

| return type | blocks of the result |
|---|---|"""

FOREIGN = """
These need pydantic. It is an option: a server that names none of its types runs without it. Refused,
also inside of models: `ImportString`, with which a client could import any module, and `re.Pattern` as a parameter.
`NaiveDatetime` has no `format`, as a `date-time` has an offset.
"""

DEFAULTS_HEAD = """
## Defaults

| parameter | without the argument, the handler gets |
|---|---|"""

DEFAULTS_END = """
A default of another type than its parameter, such as `x: int = "a"`, is a `TypeError` when the tool is registered.
`None` is allowed for any type."""


def described(kind: Any) -> dict[str, Any]:
    """The published schema of a parameter of this type."""

    def tool(x: Any) -> None: ...

    tool.__annotations__ = {"x": kind}
    found = Signature.of(tool, context_type=Context).input_schema
    schema: dict[str, Any] = found["properties"]["x"]
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return found["$defs"][name] if name else schema


def page() -> str:
    return "\n".join([HEAD, f"```python\n{_classes()}\n```\n", *_tables(), *_defaults(), *_results()]) + "\n"


def _classes() -> str:
    """The classes of this file, up to the table, as they are written here."""
    text = pathlib.Path(__file__).read_text()
    body = ast.parse(text).body
    first = next(node for node in body if isinstance(node, ast.ClassDef))
    end = next(node for node in body if isinstance(node, ast.Assign) and node.lineno > first.lineno)
    return "\n".join(text.splitlines()[first.lineno - 1 : end.lineno])


def _tables() -> Iterator[str]:
    for title, rows in TABLE.items():
        yield f"## {title}\n"
        yield "| type | in JSON | the handler gets | schema | |\n|---|---|---|---|---|"
        for row in rows:
            cells = (row.written, json.dumps(row.given), repr(row.got), json.dumps(described(row.kind)))
            yield f"| {' | '.join(_code(cell) for cell in cells)} | {row.note} |"
        yield {"Unions of models": UNIONS, "Types of pydantic": FOREIGN}.get(title, "")


def _defaults() -> Iterator[str]:
    yield DEFAULTS_HEAD.strip()
    for row in DEFAULTS:
        yield f"| {_code(row.written)} | {_code(repr(row.got))} |"
    yield DEFAULTS_END


def _results() -> Iterator[str]:
    yield RESULTS
    for written, _, _, kinds in BLOCKS:
        yield f"| {_code(written)} | {', '.join(kinds) or 'none'} |"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    sys.stdout.write(page())
