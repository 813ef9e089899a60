"""Chosen handlers of one server, to be copied into another."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import attrs

from callboard.actors.changes import ListName
from callboard.codecs.bridge.apps import SCHEME
from callboard.server.apps import Apps
from callboard.server.compose import PassedOn
from callboard.server.extension import Extension
from callboard.server.registry import HandlerEntry, Offered, Registry, Section
from callboard.server.tasks import Tasks

ORIGINAL: Final = "_callboard_original"
"""Attribute of a function that runs on asyncio: the author's own, which another server places again."""


class Offering(Protocol):
    """A server whose handlers are copied."""

    registry: Registry


@attrs.frozen
class IncludedEntry:
    """One entry, on its way."""

    kind: Offered
    of: ListName
    section: Callable[[Registry], Section[Any]]
    name: str
    entry: Any


@attrs.frozen
class IncludedCompletion:
    """The completion of an argument of a prompt or template that comes along."""

    of: str
    argument: str
    entry: HandlerEntry


def chosen(
    other: Offering,
    tools: Iterable[str] | None,
    prompts: Iterable[str] | None,
    resources: Iterable[str] | None,
) -> tuple[list[IncludedEntry], list[IncludedCompletion]]:
    """These entries of *other*, or all if none are named. Raises LookupError for one that there is not, and ValueError
    for one that *other* has mounted itself."""
    for names in (tools, prompts, resources):
        if isinstance(names, str):
            raise TypeError(f"expected a list of names, not the text {names[:200]!r}")
    is_all = tools is None and prompts is None and resources is None
    found = [
        *_of(other, "tools", "tools", lambda registry: registry.tools, tools, is_all),
        *_of(other, "prompts", "prompts", lambda registry: registry.prompts, prompts, is_all),
        *_resources(other, resources, is_all),
    ]
    names = {one.name for one in found if one.kind != "tools"}
    completions = [
        IncludedCompletion(of, argument, entry)
        for (of, argument), entry in other.registry.completions.items()
        if of in names
    ]
    return found, completions


def _resources(other: Offering, names: Iterable[str] | None, is_all: bool) -> Iterator[IncludedEntry]:
    plain, templates = other.registry.resources.entries, other.registry.templates.entries
    wanted = [*plain, *templates] if is_all else list(names or ())
    for one in wanted:
        if one in templates:
            yield from _of(other, "resources", "resources", lambda registry: registry.templates, [one], False)
        else:
            yield from _of(other, "resources", "resources", lambda registry: registry.resources, [one], False)


def _of(
    other: Offering,
    kind: Offered,
    of: ListName,
    section: Callable[[Registry], Section[Any]],
    names: Iterable[str] | None,
    is_all: bool,
) -> Iterator[IncludedEntry]:
    theirs = section(other.registry)
    for name in dict.fromkeys(theirs.entries if is_all else names or ()):
        if name not in theirs.entries:
            raise LookupError(f"no {theirs.kind} {name!r}")
        entry = theirs.entries[name]
        is_mounted = isinstance(entry.signature, PassedOn)
        if is_mounted:
            raise ValueError(f"{theirs.kind} {name!r} is of a mounted server: include it from there")
        yield IncludedEntry(kind, of, section, name, entry)


def needed_extensions(found: Iterable[IncludedEntry]) -> Iterator[Extension]:
    """Those that a server must declare for these entries."""
    entries = list(found)
    if any(one.kind == "tools" and one.entry.task is not None for one in entries):
        yield Tasks()
    if any(one.name.startswith(SCHEME) for one in entries if one.kind == "resources"):
        yield Apps()
