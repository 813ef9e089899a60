"""Deciding, once per template, how it is matched; or why it cannot be without guessing or backtracking."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from callboard.codecs.uri_template.expression import OPERATORS, Expression, Variable
from callboard.codecs.uri_template.match import Hole, MatchPlan, Query, Side
from callboard.errors import InvalidDefinition

MAX_VARIABLES: Final = 32
"""Most variables of a template that is matched: one search over the URI each."""


def compile_plan(parts: Sequence[str | Expression]) -> MatchPlan:
    """Decide how a template is matched. Raises InvalidDefinition with the reason why it cannot be."""
    at = next((index for index, part in enumerate(parts) if _is_query(part)), len(parts))
    literals, holes = _alternating(_tokens(parts[:at]))
    query = _query(parts[at:], literals)
    names = [*(hole.name for hole in holes), *(query.names if query else ())]
    if len(names) > MAX_VARIABLES:
        raise InvalidDefinition(f"more than {MAX_VARIABLES} variables cannot be matched")
    if len(set(names)) < len(names):
        raise InvalidDefinition("a variable that occurs twice cannot be matched")
    wide = [index for index, hole in enumerate(holes) if hole.wide]
    if len(wide) > 1:
        raise InvalidDefinition("more than one variable that may contain a slash cannot be matched")
    if not holes:
        return MatchPlan(Side(literals[0]), None, Side(""), query)
    mid = wide[0] if wide else 0
    left = Side(literals[0], tuple(zip(holes[:mid], literals[1:], strict=False)))
    mirrored = [text[::-1] for text in literals[:mid:-1]]
    right = Side(mirrored[0], tuple(zip(holes[:mid:-1], mirrored[1:], strict=True)))
    return MatchPlan(left, holes[mid], right, query)


def _is_query(part: str | Expression) -> bool:
    return isinstance(part, Expression) and part.operator in ("?", "&")


def _query(parts: Sequence[str | Expression], literals: Sequence[str]) -> Query | None:
    expressions = [part for part in parts if isinstance(part, Expression) and _is_query(part)]
    if len(expressions) < len(parts):
        raise InvalidDefinition("text after the variables of a query cannot be matched")
    if not expressions:
        return None
    names = tuple(_plain(variable).name for part in expressions for variable in part.variables)
    *before, last = literals
    follows = expressions[0].operator == "&"
    if any("?" in text for text in before) or ("?" in last) != follows:
        raise InvalidDefinition("{?...} must start the query, and {&...} must follow fixed query text")
    return Query(names, last.partition("?")[2] if follows else None)


def _tokens(parts: Iterable[str | Expression]) -> Iterator[str | Hole]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif part.operator == ";":
            raise InvalidDefinition("{;...} cannot be matched")
        else:
            yield from _expression_tokens(part)


def _expression_tokens(expression: Expression) -> Iterator[str | Hole]:
    rule = OPERATORS[expression.operator]
    for index, variable in enumerate(expression.variables):
        yield rule.separator if index else rule.first
        listed = variable.explode and expression.operator == "/"
        yield Hole((variable if listed else _plain(variable)).name, wide=listed or rule.reserved, listed=listed)


def _plain(variable: Variable) -> Variable:
    if variable.prefix is not None or variable.explode:
        raise InvalidDefinition("a prefix, or a list other than {/list*}, cannot be matched")
    return variable


def _alternating(tokens: Iterable[str | Hole]) -> tuple[list[str], list[Hole]]:
    """Sort tokens into the variables and the literals around them, one more of these than of those."""
    literals, holes = [""], list[Hole]()
    for token in tokens:
        if isinstance(token, str):
            literals[-1] += token
        elif holes and not literals[-1]:
            raise InvalidDefinition("adjacent variables cannot be matched")
        else:
            holes.append(token)
            literals.append("")
    return literals, holes
