"""What a call costs in this folder's code, in microseconds: `python -m tests.server.figures`."""

import sys
import timeit
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from callboard.server.content.content import to_result
from callboard.server.content.errors import BadArguments
from callboard.server.content.forms import read_form
from tests.server.kinds import Place, Point, Unit, signature

ROUNDS: Final = 20_000


def scalars(city: str, days: Annotated[int, Meta(ge=1, le=14)] = 3, metric: bool = True) -> str:
    return city


def objects(place: Place, points: list[Point], unit: Unit = Unit.METRIC) -> Place:
    return place


def cost(work: Callable[[], Any]) -> float:
    """The best of five: what the code costs, not what else ran."""
    return min(timeit.repeat(work, number=ROUNDS, repeat=5)) / ROUNDS * 1e6


def main() -> None:
    plain, rich = signature(scalars), signature(objects)
    three = msgspec.Raw(b'{"city":"Delft","days":3,"metric":true}')
    nested = msgspec.json.encode({"place": {"city": "Delft"}, "points": [{"x": 1}, {"x": 2}], "unit": "metric"})
    wrong = b'{"city":1,"days":0,"metrics":true}'

    def refused() -> None:
        try:
            plain.read(wrong)
        except BadArguments:
            return
        raise AssertionError

    place = Place("Delft")
    rows: list[tuple[str, Callable[[], Any]]] = [
        ("read three scalars", lambda: plain.read(three)),
        ("read an object, a list of two and an enum", lambda: rich.read(nested)),
        ("refuse with three problems", refused),
        ("return text", lambda: to_result("sunny", plain)),
        ("return an object, checked, with its text", lambda: to_result(place, rich)),
        ("read a form of two fields", lambda: read_form(Place, {"city": "Delft"})),
    ]
    for name, work in rows:
        sys.stdout.write(f"{name:<45} {cost(work):6.2f}\n")
    registration = timeit.timeit(lambda: signature(objects), number=200) / 200 * 1e6
    sys.stdout.write(f"{'register a handler':<45} {registration:6.0f}\n")


if __name__ == "__main__":
    main()
