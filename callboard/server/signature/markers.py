"""Markers for `Annotated[...]` of a parameter or a field.

All of these are `msgspec.Meta` in the end, so they work at any depth: on a parameter, on a field of a class, on the
items of a list. The markers of others are understood too, by their shape and without an import of theirs:
`typing_extensions.Doc`, the bounds of `annotated_types`, pydantic's `Field`; and a bare text is a description.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin

from msgspec import Meta

from callboard.codecs.mcp_headers.header_map import ANNOTATION

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_TITLES: Final = "callboard.titles"


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


def discriminator_of(annotation: Any) -> str | None:
    """The member that tells the forms of a union apart, if a marker names it: pydantic's `Field(discriminator=...)`."""
    marks = getattr(annotation, "__metadata__", ()) if get_origin(annotation) is Annotated else ()
    named = (getattr(mark, "discriminator", None) for mark in marks)
    return next((name for name in named if isinstance(name, str)), None)


def _meta_of(mark: Any) -> Iterator[Meta]:
    """Read one marker, of any library."""
    if isinstance(mark, Meta | str):  # a bare text describes what it stands beside
        yield mark if isinstance(mark, Meta) else Meta(description=mark)
        return
    texts = {
        "description": getattr(mark, "documentation", None) or getattr(mark, "description", None),
        "title": getattr(mark, "title", None),
    }
    facts: dict[str, Any] = {name: text for name, text in texts.items() if isinstance(text, str)}
    facts |= {name: bound for name in _BOUNDS if (bound := getattr(mark, name, None)) is not None}
    if facts and not isinstance(mark, type):
        yield Meta(**facts)
    within = getattr(mark, "metadata", None)  # pydantic's Field keeps its bounds here
    for inner in within if isinstance(within, list) else ():
        yield from _meta_of(inner)
