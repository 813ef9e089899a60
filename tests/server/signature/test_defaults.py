"""The default of a data class survives the way through a handler."""

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, TypedDict

import attrs
import msgspec
import pytest

from callboard.server.content.forms import read_form
from callboard.server.signature.defaults import fill_defaults, may_lack_defaults
from tests.server.kinds import Branch, Guest, Place, signature
from tests.server.results import to_result


@dataclass
class Item:
    name: str
    price: float = 0.0
    n: int = 3
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    name: str
    n: int = 3


@dataclass(slots=True)
class Slotted:
    inner: Item
    n: int = 3


@dataclass(kw_only=True)
class Child(Item):
    age: int = 7
    made: int = field(default=4, init=False)


@dataclass
class Tree:
    name: str = "leaf"
    under: "list[Tree]" = field(default_factory=list)


@attrs.define
class Box:
    item: Item


class Row(msgspec.Struct):
    item: Item


class Pair(NamedTuple):
    left: Item
    right: int = 0


class Entry(TypedDict):
    item: Item


ITEM = {"name": "a", "price": 0.0, "n": 3, "tags": []}


def roundtrip(kind: Any, given: Any) -> Any:
    def same(x: Any) -> Any:
        return x

    same.__annotations__.update({"x": kind, "return": kind})
    described = signature(same)
    result = to_result(same(**described.read({"x": given})), described)
    structured: Any = result.structured_content
    return structured["result"] if described.output is not None and described.output.is_wrapped else structured


@pytest.mark.finding("newcomer-A5")
@pytest.mark.parametrize(
    ("kind", "given", "back"),
    [
        (Item, {"name": "a"}, ITEM),
        (Item, {"name": "a", "n": 5}, {**ITEM, "n": 5}),
        (Frozen, {"name": "a"}, {"name": "a", "n": 3}),
        (Slotted, {"inner": {"name": "a"}}, {"inner": ITEM, "n": 3}),
        (Child, {"name": "a"}, {**ITEM, "age": 7, "made": 4}),
        (Tree, {"under": [{"under": [{}]}]}, None),
        (Box, {"item": {"name": "a"}}, {"item": ITEM}),
        (Row, {"item": {"name": "a"}}, {"item": ITEM}),
        (Entry, {"item": {"name": "a"}}, {"item": ITEM}),
        (Pair, [{"name": "a"}], [ITEM, 0]),
        (list[Item], [{"name": "a"}], [ITEM]),
        (dict[str, Item], {"k": {"name": "a"}}, {"k": ITEM}),
        (tuple[Item, ...], [{"name": "a"}], [ITEM]),
        (Optional[Item], {"name": "a"}, ITEM),  # noqa: UP045 - as some still write it
        (Item | None, None, None),
    ],
)
def test_a_default_survives_the_round_trip(kind: Any, given: Any, back: Any) -> None:
    if kind is Tree:
        leaf = {"name": "leaf", "under": []}
        back = {"name": "leaf", "under": [{"name": "leaf", "under": [leaf]}]}
    assert roundtrip(kind, given) == back


@pytest.mark.finding("newcomer-A5")
def test_defaults_are_there_by_every_way_in() -> None:
    def whole(given: Item) -> None: ...
    def others(**items: Item) -> None: ...

    asked = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert vars(signature(whole, input_schema=asked).read({"name": "a"})["given"]) == ITEM
    assert vars(signature(others).read({"one": {"name": "a"}})["one"]) == ITEM
    assert vars(read_form(Frozen, {"name": "a"})) == {"name": "a", "n": 3}


def test_other_handlers_pay_nothing() -> None:
    @dataclass
    class Bare:
        name: str

    assert not any(map(may_lack_defaults, (Bare, int, list[str], dict[str, Any], Place, Branch, Guest, Any)))
    assert all(map(may_lack_defaults, (Item, Tree, Box, list[Row], dict[str, Entry], Pair | None)))


def test_a_value_that_holds_itself_is_walked_once() -> None:
    tree = msgspec.convert({"under": [{}]}, Tree)
    tree.under.append(tree)
    fill_defaults(tree)
    assert [vars(one)["name"] for one in tree.under] == ["leaf", "leaf"]


def test_a_large_argument_is_walked_quickly() -> None:
    many = msgspec.convert([{"name": "a"}] * 30_000, list[Item])
    started = time.perf_counter()
    fill_defaults(many)
    assert time.perf_counter() - started < 1  # 30 ms on an idle machine
    assert dataclasses.asdict(many[-1]) == ITEM
