"""URI templates (RFC 6570, all four levels): expand variables into a URI, or find them in one.

`expand` is the RFC's. `match` has rules of its own, stated in `uri_match`, and not every template can be matched:
`unmatchable` says why, so that a server can refuse such a resource template when it is registered.
"""

import re
from typing import Final, Self

import attrs

from callboard.codecs.uri_template.expression import Expression, Value, encoded
from callboard.codecs.uri_template.match import Found, MatchPlan, normal
from callboard.codecs.uri_template.plan import compile_plan
from callboard.errors import InvalidDefinition

MAX_TEMPLATE: Final = 2 * 1024
"""Longest template, in characters. Real ones are one line."""

_PIECE: Final = re.compile(r"[^{}]+|\{[^{}]*\}|[{}]")
_NOT_IN_A_URI: Final = re.compile(r"[\x00-\x20\"<>\\^`|\x7f\ud800-\udfff]|%(?![0-9A-Fa-f]{2})")


@attrs.frozen
class UriTemplate:
    """A parsed template. Literal text is kept as it stands in a URI: what is not ASCII is percent-encoded."""

    text: str
    parts: tuple[str | Expression, ...] = attrs.field(repr=False)
    _plan: MatchPlan | str = attrs.field(repr=False, eq=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidDefinition if *text* is not a template."""
        if len(text) > MAX_TEMPLATE:
            raise InvalidDefinition(f"a URI template is longer than {MAX_TEMPLATE} characters")
        parts = tuple(_part(piece) for piece in _PIECE.findall(text))
        try:
            return cls(text, parts, compile_plan(parts))
        except InvalidDefinition as reason:
            return cls(text, parts, str(reason))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, in order, each once."""
        found = (part.variables for part in self.parts if isinstance(part, Expression))
        return tuple(dict.fromkeys(variable.name for variables in found for variable in variables))

    @property
    def unmatchable(self) -> str | None:
        """Why this template can be expanded but not matched; None if it can be."""
        return self._plan if isinstance(self._plan, str) else None

    def expand(self, /, **values: Value) -> str:
        """Return the URI. Raises ValueError for a list or mapping where a prefix is asked for."""
        return "".join(part if isinstance(part, str) else part.expand(values) for part in self.parts)

    def match(self, uri: str) -> Found | None:
        """Return the variables of *uri*, or None if it does not fit. Raises InvalidDefinition if unmatchable."""
        if isinstance(self._plan, str):
            raise InvalidDefinition(self._plan)
        text = normal(uri)
        return None if text is None else self._plan.match(text)

    def fits(self, uri: str) -> bool:
        """Whether *uri*, which is `normal` already, fits. False if the template cannot be matched."""
        return not isinstance(self._plan, str) and self._plan.match(uri) is not None

    @property
    def head(self) -> str:
        """The fixed text at the start of every matching URI. May be empty."""
        return "" if isinstance(self._plan, str) else self._plan.head


def _part(piece: str) -> str | Expression:
    if len(piece) == 1 and piece in "{}":
        raise InvalidDefinition("a URI template has an unmatched brace")
    if piece.startswith("{"):
        return Expression.parse(piece[1:-1])
    if _NOT_IN_A_URI.search(piece):
        raise InvalidDefinition("a URI template has a character that is invalid in URIs")
    return encoded(piece, reserved=True)
