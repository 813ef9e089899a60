"""The expressions of a URI template (RFC 6570): what stands between braces, and how values become text there."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

import attrs

from callboard.errors import InvalidDefinition

Scalar: TypeAlias = str | int | float
Value: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, Scalar] | None
"""None, an empty sequence and an empty mapping are all undefined, as the RFC has it."""

_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_TRIPLET: Final = re.compile(r"(%[0-9A-Fa-f]{2})")
_VARIABLE: Final = re.compile(
    r"((?:\w|%[0-9A-F]{2})(?:\.?(?:\w|%[0-9A-F]{2}))*)(?::([1-9][0-9]{0,3})|(\*))?", re.ASCII | re.IGNORECASE
)


@attrs.frozen
class Operator:
    """One row of the table in RFC 6570, appendix A."""

    first: str
    separator: str
    named: bool = False
    if_empty: str = ""
    reserved: bool = False


OPERATORS: Final = {
    "": Operator("", ","),
    "+": Operator("", ",", reserved=True),
    "#": Operator("#", ",", reserved=True),
    ".": Operator(".", "."),
    "/": Operator("/", "/"),
    ";": Operator(";", ";", named=True),
    "?": Operator("?", "&", named=True, if_empty="="),
    "&": Operator("&", "&", named=True, if_empty="="),
}


@attrs.frozen
class Variable:
    """A variable with its modifier: at most *prefix* characters of it, or exploded into its members."""

    name: str
    prefix: int | None = None
    explode: bool = False


@attrs.frozen
class Expression:
    """An operator and its variables."""

    operator: str
    variables: tuple[Variable, ...]

    @classmethod
    def parse(cls, body: str) -> "Expression":
        """Read what stands between two braces. Raises InvalidDefinition."""
        operator = body[0] if body and body[0] in OPERATORS else ""
        return cls(operator, tuple(_variable(text) for text in body[len(operator) :].split(",")))

    def expand(self, values: Mapping[str, Value]) -> str:
        """Return the expansion; nothing at all if every variable is undefined."""
        rule = OPERATORS[self.operator]
        parts = [part for variable in self.variables for part in _expand(rule, variable, values.get(variable.name))]
        return rule.first + rule.separator.join(parts) if parts else ""


def encoded(text: str, *, reserved: bool) -> str:
    """Percent-encode all but unreserved characters; with *reserved*, leave those and triplets alone too."""
    if not reserved:
        return quote(text, safe="")
    pieces = _TRIPLET.split(text)  # every second one is a triplet
    return "".join(piece if index % 2 else quote(piece, safe=_RESERVED) for index, piece in enumerate(pieces))


def _variable(text: str) -> Variable:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        raise InvalidDefinition(f"invalid variable {text[:64]!r} in a URI template")
    return Variable(found[1], int(found[2]) if found[2] else None, explode=bool(found[3]))


def _expand(rule: Operator, variable: Variable, value: Value) -> Iterable[str]:
    """Return what one variable adds to its expression: nothing if undefined, several parts if exploded."""
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        text = _text(value)[: variable.prefix]
        return (_named(rule, variable.name, encoded(text, reserved=rule.reserved)),)
    if variable.prefix is not None:
        raise ValueError(f"{variable.name} is a list or a mapping, and has no prefix")
    if not value:
        return ()
    if isinstance(value, Mapping):
        return _expand_mapping(rule, variable, value)
    items = [encoded(_text(item), reserved=rule.reserved) for item in value]
    if variable.explode:
        return (_named(rule, variable.name, item) for item in items)
    return (_named(rule, variable.name, ",".join(items)),)


def _expand_mapping(rule: Operator, variable: Variable, value: Mapping[str, Scalar]) -> Iterable[str]:
    pairs = [
        (encoded(key, reserved=rule.reserved), encoded(_text(item), reserved=rule.reserved))
        for key, item in value.items()
    ]
    if not variable.explode:
        return (_named(rule, variable.name, ",".join(text for pair in pairs for text in pair)),)
    if rule.named:
        return (_named(rule, key, item) for key, item in pairs)
    return (f"{key}={item}" for key, item in pairs)


def _named(rule: Operator, name: str, text: str) -> str:
    if not rule.named:
        return text
    return f"{name}={text}" if text else name + rule.if_empty


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
