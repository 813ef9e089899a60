"""Types that the tests of this folder describe, read and return: one of each kind that a server author may use."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
from msgspec import Meta

from callboard.server.signature.markers import Doc
from callboard.server.signature.signature import Signature


class Context:
    """Stands for the context that an engine injects."""


class Opaque:
    """Has no form in JSON."""


def signature(function: Callable[..., Any], **options: Any) -> Signature:
    """Describe a handler."""
    return Signature.of(function, context_type=Context, **options)


def taking(annotation: Any) -> Signature:
    """Describe a handler of one parameter, *x*."""

    def tool(x: Any) -> None: ...

    tool.__annotations__["x"] = annotation
    return signature(tool)


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.define
class Place:
    """Somewhere."""

    city: str
    country: Annotated[str, Doc("Two letters"), Meta(min_length=2, max_length=2)] = "NL"


@attrs.define
class Branch:
    name: str
    under: "list[Branch]" = attrs.field(factory=list)


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = dataclass_field(default_factory=list)


class Stay(TypedDict):
    nights: int
    breakfast: NotRequired[bool]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Row(msgspec.Struct):
    id: int
    name: str | None = None


class Guest(pydantic.BaseModel):
    """Somebody."""

    first_name: str
    age: int = pydantic.Field(default=30, ge=0)
    unit: Unit = Unit.METRIC
    friend: "Guest | None" = None
