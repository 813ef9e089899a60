"""Many backends' lists as one: which name each tool and prompt has there, and what of it is withheld."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import attrs

from callboard.actors.broker.listing import Listing
from callboard.actors.broker.owners import ADDRESS, Owners, address_of
from callboard.actors.broker.policy import NO_FILTER, BackendSettings, Filter
from callboard.actors.broker.skill_owners import SkillOwners, names_another
from callboard.actors.broker.ui_owners import NO_UI, UiOwners
from callboard.codecs.bridge.definitions import KINDS, RESOURCES, TEMPLATES, TOOLS, Kind
from callboard.codecs.bridge.guard import Definition
from callboard.codecs.bridge.names import prefixed, skeleton, told_apart
from callboard.codecs.bridge.skills import SKILL_SCHEME, skill_address
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.members import Members
from callboard.codecs.skills import MANIFEST

Approve: TypeAlias = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""A backend and the digests of all its tools in; those that are to be withheld out, with what was approved instead."""

Key: TypeAlias = tuple[str, str]
"""A backend, and a name there."""


@attrs.frozen(eq=False)
class MergedEntry:
    """A definition of a backend: its name there, and the definition for clients."""

    backend: str
    shown: str
    source: Definition
    guarded: str = ""
    """The name that rules go by, of a tool or prompt: as clients see it who see all servers."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def definition(self) -> Members:
        """As the backend has it."""
        return self.source.members

    @property
    def headers(self) -> HeaderMap:
        return self.source.headers


@attrs.frozen
class BackendPart:
    """One backend's part of the catalogue."""

    settings: BackendSettings
    listing: Listing
    is_stale: bool = False


@attrs.frozen(eq=False)
class MergedList:
    """All entries of one kind, by how they are shown, and what is withheld: approved of and found, by its name."""

    entries: Mapping[str, MergedEntry] = attrs.field(factory=dict)
    withheld: Mapping[str, tuple[str, str]] = attrs.field(factory=dict)
    withheld_of: Mapping[str, Key] = attrs.field(factory=dict)
    """The backend of each that is withheld, and the name that rules go by."""
    names: Mapping[Key, str] = attrs.field(factory=dict)
    """How each tool or prompt is shown, withheld ones too."""

    @cached_property
    def bare(self) -> Mapping[str, Sequence[MergedEntry]]:
        """The entries that their backends call by another name than clients do, by that name. Worked out when it is
        asked for."""
        found: dict[str, list[MergedEntry]] = {}
        for entry in self.entries.values():
            if entry.name != entry.shown:
                found.setdefault(entry.name, []).append(entry)
        return found


@attrs.frozen(eq=False)
class MergedLists:
    """The merged lists of each kind for some clients, and the owners of resources."""

    merged: Mapping[str, MergedList] = attrs.field(factory=lambda: {kind.member: MergedList() for kind in KINDS})
    owners: Owners = attrs.field(factory=Owners)
    ui: UiOwners = NO_UI
    skills: SkillOwners = attrs.field(factory=SkillOwners)

    def with_kinds(self, kinds: Iterable[Kind], offered: Mapping[str, BackendPart], how: "MergeRules") -> "MergedLists":
        """The same, with the lists of these kinds merged anew. Resources and templates decide together which backend a
        URI belongs to, and how it is shown: of these two, none is left as it was. Pages of apps are tools' as well."""
        anew, ui = list(kinds), self.ui
        if TOOLS in anew or RESOURCES in anew:
            ui = UiOwners.of(_listed_in(offered, (TOOLS, RESOURCES)), offered)
        if RESOURCES in anew or TEMPLATES in anew or ui != self.ui:
            anew = list(dict.fromkeys([*anew, RESOURCES, TEMPLATES]))
        merged = {**self.merged, **{kind.member: merge(kind, offered, how, ui) for kind in anew}}
        if RESOURCES not in anew:
            return MergedLists(merged, self.owners, ui, self.skills)
        renamed = ((one.backend, one.name) for one in merged[RESOURCES.member].entries.values() if _is_moved(one))
        skills = SkillOwners.of(renamed, lambda backend: has_prefix(offered[backend].settings))
        resources, templates = (merged[kind.member].entries.values() for kind in (RESOURCES, TEMPLATES))
        return MergedLists(merged, Owners.of(resources, templates), ui, skills)


@attrs.frozen(eq=False)
class MergeRules:
    """What decides about names when lists are merged, beside the settings of each backend."""

    approve: Approve | None = None
    tools: Filter = NO_FILTER
    """Which tools are shown, by the names that clients see."""
    names: Callable[[Kind], Mapping[Key, str]] | None = None
    """The names that rules go by; None if these are the names that are given here."""


def are_same(some: Sequence[Definition], others: Sequence[Definition]) -> bool:
    """Whether two lists of a backend have the same definitions, in the same order: what an override covers as well."""
    return len(some) == len(others) and all(
        one is other or (one.name == other.name and one.data == other.data and one.digest == other.digest)
        for one, other in zip(some, others, strict=True)
    )


def merge(kind: Kind, offered: Mapping[str, BackendPart], how: MergeRules, ui: UiOwners = NO_UI) -> MergedList:
    """Put the lists of one kind together. Cheap: ten thousand entries take some ten milliseconds."""
    merging = _Merging(kind, offered, ui)
    if kind is RESOURCES:
        merging.add_resources()
    elif kind is TEMPLATES:
        merging.add_templates()
    else:
        merging.add_named(how)
    return MergedList(merging.entries, merging.withheld, merging.withheld_of, merging.names)


def _listed_in(offered: Mapping[str, BackendPart], kinds: Iterable[Kind]) -> Iterator[tuple[str, Definition]]:
    for kind in kinds:
        for backend, part in offered.items():
            for one in part.listing.get(kind.member, ()):
                yield backend, one


@attrs.define(eq=False)
class _Merging:
    kind: Kind
    offered: Mapping[str, BackendPart]
    ui: UiOwners = NO_UI
    entries: dict[str, MergedEntry] = attrs.field(factory=dict)
    withheld: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    withheld_of: dict[str, Key] = attrs.field(factory=dict)
    names: Mapping[Key, str] = attrs.field(factory=dict)

    def add_named(self, how: MergeRules) -> None:
        """Tools or prompts: each under a name that no other has."""
        is_tools = self.kind is TOOLS
        found = [one for one in self._listed() if not one[1].withheld and (not is_tools or self._lets(one))]
        names = _apart({(backend, one.name): self.offered[backend].settings for backend, one in found})
        guarded = names if how.names is None else how.names(self.kind)
        changed = self._changed(how.approve) if is_tools and how.approve is not None else {}
        for backend, one in found:
            key = backend, one.name
            shown = names[key]
            if is_tools and not how.tools.lets(shown):
                continue
            if key in changed:
                self.withheld[shown], self.withheld_of[shown] = changed[key], (backend, guarded.get(key, shown))
            else:
                self.entries[shown] = MergedEntry(backend, shown, one, guarded.get(key, shown))
        self.names = names

    def add_resources(self) -> None:
        found = list(self._listed())
        owners = Counter(one.name for _, one in found)
        for backend, one in found:
            # An address is ours to give: what a backend lists as one names that backend.
            is_own = owners[one.name] == 1 and not one.name.startswith(ADDRESS)
            shown = one.name if is_own else address_of(backend, one.name)
            if one.ui:
                shown = self.ui.shown(backend, one.name)
            elif one.name.startswith(SKILL_SCHEME):
                is_own = is_own and not names_another(backend, one.name, self.offered)
                is_plain = is_own and not has_prefix(self.offered[backend].settings)
                shown = one.name if is_plain else skill_address(backend, one.name)
            self.entries[shown] = MergedEntry(backend, shown, one)

    def add_templates(self) -> None:
        for backend, one in self._listed():
            key = one.name if one.name not in self.entries else f"{one.name} ({backend})"  # ours: it is shown as it is
            self.entries[key] = MergedEntry(backend, one.name, one)

    def _listed(self) -> Iterator[tuple[str, Definition]]:
        for backend, offered in self.offered.items():
            for one in offered.listing.get(self.kind.member, ()):
                yield backend, one

    def _lets(self, one: tuple[str, Definition]) -> bool:
        return self.offered[one[0]].settings.tools.lets(one[1].name)

    def _changed(self, approve: Approve) -> dict[Key, tuple[str, str]]:
        """The tools that may not be shown, with what was approved and what was found instead. Of a backend all are
        looked at, let through or not: what is let through later is known then."""
        changed: dict[Key, tuple[str, str]] = {}
        for backend, offered in self.offered.items():
            if not offered.settings.pin:
                continue
            digests = {one.name: one.digest for one in offered.listing.get(TOOLS.member, ())}
            for name, approved in approve(backend, digests).items():
                changed[backend, name] = approved, digests[name]
        return changed


def _apart(settings: Mapping[Key, BackendSettings]) -> dict[Key, str]:
    """How each tool or prompt, by its backend and its name there, is shown. What two would be called, or what looks
    like another backend's, is never the first one's alone: each says whose it is; and if that is taken as well, by a
    digest."""
    wanted = {key: _wanted(key[0], of, key[1]) for key, of in settings.items()}
    for make in (prefixed, told_apart):
        clashing = _clashing(wanted)
        if not clashing:
            break
        for key in clashing:
            wanted[key] = make(key[0], settings[key].rename.get(key[1], key[1]))
    return wanted


def _clashing(wanted: Mapping[Key, str]) -> Sequence[Key]:
    """Definitions with a duplicate name, or with a name that looks like one of another backend."""
    times = Counter(wanted.values())
    if len({backend for backend, _ in wanted}) < 2:
        return [key for key, shown in wanted.items() if times[shown] > 1]
    looks = {key: skeleton(shown) for key, shown in wanted.items()}
    first: dict[str, str] = {}
    shared = {look for key, look in looks.items() if first.setdefault(look, key[0]) != key[0]}
    return [key for key, shown in wanted.items() if times[shown] > 1 or looks[key] in shared]


def _is_moved(one: MergedEntry) -> bool:
    return one.shown != one.name and one.name.startswith(SKILL_SCHEME) and one.name.endswith(f"/{MANIFEST}")


def has_prefix(settings: BackendSettings) -> bool:
    """Whether what a backend offers is shown by other names than its own."""
    return settings.prefix != ""


def _wanted(backend: str, settings: BackendSettings, name: str) -> str:
    return prefixed(backend if settings.prefix is None else settings.prefix, settings.rename.get(name, name))
