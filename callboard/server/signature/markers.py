"""Markers for `Annotated[...]` of a parameter or a field.

All of these are `msgspec.Meta` in the end, so they work at any depth: on a parameter, on a field of a class, on the
items of a list. The markers of others are understood too, by their shape and without an import of theirs:
`typing_extensions.Doc`, the bounds of `annotated_types`, pydantic's `Field`.
"""

import datetime
import functools
import operator
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from msgspec import Meta

from callboard.codecs.mcp_headers.header_map import ANNOTATION

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_TITLES: Final = "callboard.titles"
_INSTANT: Final = Meta(extra_json_schema={"format": "date-time"})


def Doc(text: str) -> Meta:  # noqa: N802 - reads as a type where it is used
    """Description of a parameter for the model."""
    return Meta(description=text)


def Header(name: str) -> Meta:  # noqa: N802
    """Mirror the argument into the HTTP header `Mcp-Param-<name>`, so that a proxy can route by it."""
    return Meta(extra_json_schema={ANNOTATION: name})


def Titles(titles: Mapping[str, str]) -> Meta:  # noqa: N802
    """Titles of the values of a choice, for the user of a form."""
    return Meta(extra={_TITLES: dict(titles)})


Email: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "email"})]
Uri: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "uri"})]


def understood(annotation: Any) -> Any:
    """Return *annotation* with the markers of others as `Meta`, and with moments in time marked as such."""
    if annotation is datetime.datetime:  # msgspec says only "string"
        return Annotated[annotation, _INSTANT]
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) is Literal:
        return annotation
    if get_origin(annotation) is Annotated:
        return _annotated(annotation)
    inner = tuple(understood(argument) for argument in arguments)
    if inner == arguments:
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return functools.reduce(operator.or_, inner)
    return get_origin(annotation)[inner]


def metas(annotation: Any) -> tuple[Meta, ...]:
    """Every `Meta` that stands beside *annotation* itself."""
    marks = getattr(annotation, "__metadata__", ()) if get_origin(annotation) is Annotated else ()
    return tuple(meta for mark in marks for meta in _meta_of(mark))


def titles_of(annotation: Any) -> Mapping[str, str]:
    """The titles that a `Titles` anywhere in *annotation* gives."""
    for meta in metas(annotation):
        if meta.extra and _TITLES in meta.extra:
            titles: Mapping[str, str] = meta.extra[_TITLES]
            return titles
    return next((found for inner in get_args(annotation) if (found := titles_of(inner))), {})


def _annotated(annotation: Any) -> Any:
    base, beside = annotation.__origin__, metas(annotation)
    is_naive = any(meta.tz is False for meta in beside)
    inner = base if is_naive else understood(base)
    return Annotated[(inner, *beside)] if beside else inner


def _meta_of(mark: Any) -> Iterator[Meta]:
    """Read one marker, of any library."""
    if isinstance(mark, Meta):
        yield mark
        return
    texts = {
        "description": getattr(mark, "documentation", None) or getattr(mark, "description", None),
        "title": getattr(mark, "title", None),
    }
    facts: dict[str, Any] = {name: text for name, text in texts.items() if isinstance(text, str)}
    facts |= {name: bound for name in _BOUNDS if (bound := getattr(mark, name, None)) is not None}
    if facts and not isinstance(mark, type | str):
        yield Meta(**facts)
    within = getattr(mark, "metadata", None)  # pydantic's Field keeps its bounds here
    for inner in within if isinstance(within, list) else ():
        yield from _meta_of(inner)
