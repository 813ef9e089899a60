"""What an author gives as a model, or as the dict that it is in JSON: held to the protocol when it is said."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from callboard.codecs.revisions import LATEST, Icon, Model, Revision, read, write
from callboard.codecs.revisions.model import members
from callboard.errors import InvalidParams

M = TypeVar("M", bound=Model)


def model_of(kind: type[M], given: Any, option: str) -> M:
    """*given* as a model: it is one, or a dict with the names that the protocol has. Raises TypeError, which names the
    *option*."""
    if not isinstance(given, kind | Mapping):
        raise TypeError(f"{option}: expected {kind.__name__} or a dict, not {type(given).__name__}")
    try:
        found = read(LATEST, kind, write(LATEST, given) if isinstance(given, Model) else given, at=option)
    except (InvalidParams, ValueError, TypeError) as reason:
        raise TypeError(str(reason)) from None
    if isinstance(given, kind):
        return given
    known = tuple(members(kind, LATEST))
    for name in found.extra:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise TypeError(f"{option}: {name!r} is unknown; {hint}known: {', '.join(known)}")
    return found


def icons_of(given: Sequence[Icon | Mapping[str, Any]], option: str = "icons") -> tuple[Icon, ...]:
    """Raises TypeError for what is no icon."""
    if isinstance(given, Icon | Mapping | str):
        raise TypeError(
            f"{option}: expected a list of Icon or of dicts, as in [{{'src': 'https://example.org/a.png'}}]"
        )
    return tuple(model_of(Icon, one, f"{option}[{at}]") for at, one in enumerate(given))


def revisions_of(given: Iterable[Revision | str]) -> frozenset[Revision]:
    """Raises ValueError for one that there is not, and TypeError for a single text."""
    if isinstance(given, str):
        raise TypeError(f"revisions: expected several, as in [{given!r}]")
    try:
        found = frozenset(map(Revision, given))
    except ValueError as reason:
        raise ValueError(f"revisions: {reason}; supported: {', '.join(sorted(Revision))}") from None
    if not found:
        raise ValueError(f"revisions: expected one at least of {', '.join(sorted(Revision))}")
    return found
