"""Checks that a type carries in `Annotated`: bounds of the schemas that no Python type can say."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import attrs
from cattrs import Converter

from callboard.codecs.revisions._read import Misfit
from callboard.codecs.revisions.model import JSONObject
from callboard.codecs.uri_template.match import MAX_URI

Check: TypeAlias = Callable[[Any], None]

MAX_COMPLETIONS: Final = 100
"""Most values in one completion. The specification's limit."""


@attrs.frozen
class Between:
    """A number within bounds, both included."""

    low: float
    high: float

    def bind(self, _: Converter) -> Check:
        return self._check

    def _check(self, value: Any) -> None:
        if not self.low <= value <= self.high:
            raise Misfit(f"expected a number from {self.low:g} to {self.high:g}", value)


@attrs.frozen
class AtMost:
    """An array with no more than so many items."""

    count: int

    def bind(self, _: Converter) -> Check:
        return self._check

    def _check(self, value: Any) -> None:
        if len(value) > self.count:
            raise Misfit(f"expected at most {self.count} items")


@attrs.frozen
class Short:
    """A text of no more than so many characters."""

    length: int

    def bind(self, _: Converter) -> Check:
        return self._check

    def _check(self, value: Any) -> None:
        if len(value) > self.length:
            raise Misfit(f"expected at most {self.length} characters")


@attrs.frozen
class Shaped:
    """JSON that can be read as *form*, and is kept as the JSON it is."""

    form: Any

    def bind(self, converter: Converter) -> Check:
        hook = converter.get_structure_hook(self.form)

        def check(value: Any) -> None:
            hook(value, self.form)

        return check


Uri: TypeAlias = Annotated[str, Short(MAX_URI)]
"""A URI that a client names. It is kept as long as it is followed, so its length is bounded where it is read."""

Priority: TypeAlias = Annotated[float, Between(0, 1)]


def shaped(form: Any) -> Any:
    """A JSON object that is checked against *form* and kept as it is."""
    return Annotated[JSONObject, Shaped(form)]
