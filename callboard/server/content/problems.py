"""Messages about invalid values, written so that a model can correct them: place, found value, allowed values."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from callboard.server.content.pruning import is_small, prune
from callboard.server.signature.schemas import Validator

MAX_PROBLEMS: Final = 5
"""Most problems that one error tells. A model mends a few at a time; a log line must end."""

MAX_SHOWN: Final = 80
"""Longest excerpt of a value in a message, in characters."""

MAX_ALLOWED: Final = 30
"""Most allowed values listed in a message."""

MAX_SEARCHED: Final = 10_000
"""Values in a large argument up to which its first problem is looked for behind the beginnings of lists and objects."""

MAX_GUESSED: Final = 100
"""Longest unknown name, in characters, for which one that was meant is looked for."""

_SENTENCES: Final = {
    "const": "must be {0}",
    "contains": "must contain a matching item",
    "exclusiveMaximum": "must be less than {0}",
    "exclusiveMinimum": "must be greater than {0}",
    "falseSchema": "is not allowed here",
    "format": "must be {0}",
    "maxItems": "must have at most {0} items",
    "maxLength": "must have at most {0} characters",
    "maxProperties": "must have at most {0} members",
    "maximum": "must be at most {0}",
    "minItems": "must have at least {0} items",
    "minLength": "must have at least {0} characters",
    "minProperties": "must have at least {0} members",
    "minimum": "must be at least {0}",
    "multipleOf": "must be a multiple of {0}",
    "not": "must not match the schema of `not`",
    "pattern": "must match the pattern {0}",
    "uniqueItems": "must not have duplicate items",
}
_JSON_TYPES: Final[Mapping[type, Sequence[str]]] = {
    dict: ["object"],
    list: ["array"],
    bool: ["boolean"],
    int: ["integer", "number"],
    float: ["number"],
}
_FORMATS: Final = {
    "date": "a date such as 2026-07-28",
    "date-time": "a date and time with its offset, such as 2026-07-28T09:30:00Z",
    "duration": "a duration such as PT1H30M",
    "email": "an e-mail address",
    "time": "a time such as 09:30:00Z",
    "uri": "a URI such as https://example.org/a",
    "uuid": "a UUID",
}


@attrs.frozen
class Problem:
    """One thing that is wrong, and where; an empty *path* is the whole value."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class RefusedValue(ValueError):
    """A value that a type refuses for reasons of its own, each with its place in the value."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def find_problems(validator: Validator, schema: Mapping[str, Any], value: Any) -> tuple[list[Problem], bool]:
    """Return what is wrong with *value*, up to the limit, and whether there is more."""
    pruned = prune(value, schema)
    found: dict[Problem, None] = {}
    for problem in _tell_all(filter(pruned.holds, validator.iter_errors(pruned.value)), schema):
        found[problem] = None
        if len(found) > MAX_PROBLEMS:
            break
    if not found and not pruned.is_whole:
        return [_tell_first(validator, schema, value)], True
    return list(found)[:MAX_PROBLEMS], len(found) > MAX_PROBLEMS


def _tell_all(errors: Iterable[Any], schema: Mapping[str, Any]) -> Iterator[Problem]:
    for error in errors:
        yield from _tell(error, schema)


def _tell_first(validator: Validator, schema: Mapping[str, Any], value: Any) -> Problem:
    """The first problem of a value, unless the value is too large to search."""
    if is_small(value, MAX_SEARCHED):
        try:
            validator.validate(value)
        except ValueError as error:  # what the validator raises is a ValueError
            return next(_tell(error, schema))
    return Problem("", "is invalid, and too large to say where")


def problems_of(error: msgspec.ValidationError) -> list[Problem]:
    """The problems of JSON that the schema allows, and msgspec or a type refused to convert."""
    text, _, at = str(error).rpartition(" - at `") if str(error).endswith("`") else (str(error), "", "")
    path = at.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    found = error.__cause__.problems if isinstance(error.__cause__, RefusedValue) else [Problem("", text)]
    return [Problem(_joined(path, one.path), _cut(one.text, 4 * MAX_SHOWN)) for one in found[:MAX_PROBLEMS]]


def _joined(path: str, inner: str) -> str:
    return f"{path}.{inner}" if path and inner and not inner.startswith("[") else path + inner


def shown(value: Any) -> str:
    """A value as JSON, cut short."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = f"a {type(value).__name__}"
    return _cut(text, MAX_SHOWN)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _tell(error: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    """Turn one finding of the validator into one or more problems."""
    steps, name, fact = list(error.instance_path), error.kind.name, error.kind.value
    path = path_of(steps)
    if name == "required":
        yield Problem(path_of([*steps, fact]), "is required")
    elif name in ("additionalProperties", "unevaluatedProperties"):
        known = _known(schema, error.schema_path)
        for member in fact:
            yield Problem(path_of([*steps, member]), _unknown(member, known))
    elif name in ("anyOf", "oneOf"):
        yield from _tell_choice(error, schema)
    elif name == "propertyNames":
        yield from (Problem(path, f"a member's name {inner.text}") for inner in _tell(fact, schema))
    elif name == "falseSchema" and list(error.schema_path)[-1:] == ["additionalProperties"]:
        yield Problem(path, "must be empty")  # the validator does not say which there were
    elif name == "type":
        yield Problem(path, f"expected {_either(fact)}, got {shown(error.instance)}{_quoted(fact, error.instance)}")
    elif name == "enum":
        yield Problem(path, _not_one_of(fact, error.instance))
    elif name in _SENTENCES:
        told = _FORMATS.get(fact, f"in the format {fact}") if name == "format" else shown(fact)
        yield Problem(path, f"{_SENTENCES[name].format(told)}, got {shown(error.instance)}")
    else:
        yield Problem(path, f"does not match `{name}`, got {shown(error.instance)}")


def _tell_choice(error: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    """None of several forms fits: name them all, unless the value was clearly meant to be one of them."""
    here = list(error.instance_path)
    branches: list[list[Any]] = error.kind.value
    meant = [branch for branch in branches if not any(_is_other_type(inner, here) for inner in branch)]
    types = [kind for branch in branches for inner in branch if inner.kind.name == "type" for kind in inner.kind.value]
    meant = [branch for branch in meant if not any(_is_other_choice(inner, here) for inner in branch)] or meant
    if not all(branches):
        yield Problem(path_of(here), f"matches several schemas where one is allowed, got {shown(error.instance)}")
    elif not meant:
        hint = _quoted(types, error.instance)
        yield Problem(path_of(here), f"expected {_either(types)}, got {shown(error.instance)}{hint}")
    elif all(len(branch) == 1 and branch[0].kind.name == "const" for branch in meant):
        values, first = [branch[0].kind.value for branch in meant], meant[0][0]
        is_one = len({tuple(branch[0].instance_path) for branch in meant}) == 1  # a member that tells forms apart
        at, found = (list(first.instance_path), first.instance) if is_one else (here, error.instance)
        yield Problem(path_of(at), _not_one_of(values, found))
    elif len(meant) == 1:
        for inner in meant[0]:
            yield from _tell(inner, schema)
    else:
        told = (next(_tell(branch[0], schema)) for branch in meant)
        forms = "; or ".join(_cut(str(problem), 2 * MAX_SHOWN) for problem in told)
        yield Problem(path_of(here), f"matches none of {len(meant)} schemas ({forms})")


def _is_other_type(error: Any, here: Sequence[str | int]) -> bool:
    return error.kind.name == "type" and list(error.instance_path) == here


def _is_other_choice(error: Any, here: Sequence[str | int]) -> bool:
    """Whether a member says that a value is meant to be another form: `kind` is "dog" where "cat" is expected."""
    return error.kind.name in ("const", "enum") and list(error.instance_path)[:-1] == here


def _quoted(kinds: Sequence[str], found: Any) -> str:
    """Models like to send an object as the text of its JSON; say so where it would have fitted."""
    try:
        meant = msgspec.json.decode(found) if isinstance(found, str) else None
    except (msgspec.DecodeError, RecursionError):
        return ""
    fits = not {*_JSON_TYPES.get(type(meant), ())}.isdisjoint(kinds)
    return "; send JSON instead of a string" if fits else ""


def _not_one_of(values: Sequence[Any], found: Any) -> str:
    allowed = ", ".join(shown(value) for value in values[:MAX_ALLOWED])
    more = f" and {len(values) - MAX_ALLOWED} more" if len(values) > MAX_ALLOWED else ""
    return f"must be one of {allowed}{more}; got {shown(found)}"


def _unknown(name: str, known: Sequence[str]) -> str:
    if not known:
        return "is unknown"
    close = difflib.get_close_matches(name, known[:MAX_GUESSED], n=1) if len(name) <= MAX_GUESSED else ()
    hint = f"did you mean {close[0]}? " if close else ""
    return f"is unknown; {hint}known: {', '.join(known[:MAX_ALLOWED])}"


def _known(schema: Mapping[str, Any], steps: Sequence[str | int]) -> list[str]:
    """The members that the schema beside a failed keyword names; none if the way there cannot be followed."""
    here: Any = schema
    for step in steps[:-1]:
        try:
            here = here[step]
        except (LookupError, TypeError):
            return []
    return list(here.get("properties", {}))


def _either(kinds: Sequence[str]) -> str:
    *most, last = sorted(set(kinds))
    return f"{', '.join(most)} or {last}" if most else last


def path_of(steps: Sequence[str | int]) -> str:
    """`rows[2].name`."""
    told = "".join(f"[{step}]" if isinstance(step, int) else f".{_cut(step, MAX_SHOWN)}" for step in steps)
    return told.removeprefix(".")
