"""The catalogue: definitions of all backends, merged, name-spaced and filtered, in a stable order."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Final

import attrs
from msgspec import Raw

from callboard.actors.broker.listing import Listing
from callboard.actors.broker.merging import (
    Approve,
    BackendPart,
    Key,
    MergedEntry,
    MergedList,
    MergedLists,
    MergeRules,
    are_same,
    has_prefix,
)
from callboard.actors.broker.owners import ADDRESS, Knows, address_of, addressed, ambiguous
from callboard.actors.broker.policy import NO_FILTER, BackendSettings, Filter, ServerChoice
from callboard.actors.broker.skill_owners import folders_of
from callboard.actors.broker.visible import GUARDED, VisibleLists, gates_of
from callboard.actors.rules import AccessRules, CallerView, Gate
from callboard.codecs.bridge.apps import SCHEME as UI_SCHEME
from callboard.codecs.bridge.apps import ShownUri, with_uris
from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.bridge.definitions import (
    KINDS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    Kind,
    for_revision,
    front_definition,
)
from callboard.codecs.bridge.skills import SKILL_SCHEME, read_skill_address, skill_addresses
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import Revision
from callboard.codecs.seal import KeyRing, Seal
from callboard.codecs.skills import MANIFEST
from callboard.errors import DefinitionChanged, InvalidParams
from callboard.supervisor import get_logger

_MAY_DEFER: Final = raw({"taskSupport": "optional"})

log = get_logger("callboard.broker")

PAGE: Final = 250
"""Entries on one page of a merged list."""

PAGE_BYTES: Final = 512 * 1024
"""Bytes on one page of a merged list, but for the last entry: far less than an answer may have."""

KEPT_PAGES: Final = 16 * 1024 * 1024
"""Bytes of pages that are kept written out, for all lists and revisions."""

KEPT_PAGES_OF_SOME: Final = 1024 * 1024
"""The same for the lists of some servers, at a path of their own: there may be hundreds of such paths."""

MAX_SHOWN: Final = 16
"""Merged lists that are kept for clients which are shown others than the rest. One more is merged when it is needed."""

CURSOR_TTL: Final = 24 * 3600.0
"""Seconds that a cursor may be used."""


@attrs.define(eq=False)
class Catalogue:
    """The merged lists. Order is that of the backends, and within one its own.

    Where a backend shows other lists to clients of one signature, those clients have merged lists of their own.
    """

    approve: Approve | None = None
    seal: Seal = attrs.field(factory=lambda: Seal(KeyRing.generate(), "cursor"))
    wall: Callable[[], float] = time.time
    tools: Filter = NO_FILTER
    """Which tools are shown, by the names that clients see."""
    main: "Catalogue | None" = None
    """The catalogue of all servers, if this one is of some: rules go by the names there."""
    version: int = attrs.field(default=0, init=False)
    _offered: dict[str, BackendPart] = attrs.field(factory=dict, init=False)
    _base: MergedLists = attrs.field(factory=MergedLists, init=False)
    _others: dict[Signature, dict[str, Listing]] = attrs.field(factory=dict, init=False)
    """By signature and backend, the lists that are others than the backend's base lists."""
    _shown: dict[Signature, MergedLists] = attrs.field(factory=dict, init=False)
    _pages: dict[tuple[MergedList, Revision, int], tuple[Raw, int]] = attrs.field(factory=dict, init=False)
    _kept: int = attrs.field(default=0, init=False)
    _visible: VisibleLists = attrs.field(factory=VisibleLists, init=False)
    _deferring: frozenset[str] = attrs.field(default=frozenset(), init=False)

    # What changes it. The new lists are made first and stored after: what goes wrong changes nothing.

    def arrange(self, names: Iterable[str], settings: Mapping[str, BackendSettings]) -> set[str]:
        """These are the backends, in this order. What others offered is gone. Returns which lists have changed."""
        kept = {name: self._offered.get(name, BackendPart(settings[name], {})) for name in names}
        return self._merge({name: attrs.evolve(offered, settings=settings[name]) for name, offered in kept.items()})

    def put(self, backend: str, listing: Listing) -> set[str]:
        """A backend has said what it offers. Returns which lists have changed, by their members."""
        before = self._offered.get(backend)
        if before is None:
            return set()
        after = attrs.evolve(before, listing=listing, is_stale=False)
        others = [kind for kind in KINDS if before.listing.get(kind.member) is not listing.get(kind.member)]
        if not others and not before.is_stale:
            return set()
        return self._merge({**self._offered, backend: after}, others)

    def put_for(self, signature: Signature, backend: str, listing: Listing) -> set[str]:
        """A backend has said what it offers to clients of *signature*. A list that is not in *listing* stays as it is;
        one that is the same as for all clients follows the base list from now on. Returns which lists have changed for
        these clients."""
        base = self._offered.get(backend)
        if base is None:
            return set()
        mine = dict(self._others.get(signature, {}))
        before = mine.pop(backend, {})
        own = _own({**before, **listing}, base.listing)
        if all(before.get(kind.member) is own.get(kind.member) for kind in KINDS):
            return set()
        shown = self._of(signature)
        if own:
            mine[backend] = own
        self._shown.pop(signature, None)
        self._others.pop(signature, None)
        if mine:
            self._others[signature] = mine
        self._store(self._offered)
        return _changed(shown, self._of(signature))

    def forget_others(self, backend: str) -> None:
        """A backend is another one now: what its predecessor showed to some clients only is gone."""
        offered = self._offered.get(backend)
        for signature in [signature for signature, mine in self._others.items() if backend in mine]:
            self.put_for(signature, backend, {} if offered is None else offered.listing)

    def let_defer(self, backends: Iterable[str]) -> None:
        """Every tool of these *backends* may be called as a task by a client of 2025-11-25."""
        deferring = frozenset(backends)
        if deferring != self._deferring:
            self._deferring = deferring
            self._pages.clear()
            self._kept = 0

    def mark(self, backend: str, *, is_stale: bool) -> None:
        """A backend is lost, or back. What it offers stays in the lists, with a mark: no change that is told of."""
        offered = self._offered.get(backend)
        if offered is not None and offered.is_stale is not is_stale:
            self._store({**self._offered, backend: attrs.evolve(offered, is_stale=is_stale)})

    def review(self) -> set[str]:
        """Apply changed approvals. Returns the lists that have changed."""
        before = dict(self._shown)
        changed = self._merge(self._offered, [TOOLS])
        for signature, shown in before.items():
            changed |= _changed(shown, self._of(signature))
        return changed

    def follow(self, main: "Catalogue", choice: ServerChoice) -> tuple[set[str], dict[Signature, set[str]]]:
        """Show what *main* shows of some servers. Returns which lists have changed for all clients, and which for those
        of each signature that see others."""
        offered, others = main.chosen(choice)
        before, shown = self._base, {one: self._of(one) for one in (*self._others, *others)}
        kinds = [kind for kind in KINDS if kind in (TOOLS, PROMPTS) or _differs(kind, self._offered, offered)]
        self.main, self.tools = main, choice.tools
        self._base = before.with_kinds(kinds, offered, self._how())
        self._others = others
        self._shown.clear()
        self._store(offered)
        changed = {one: _changed(lists, self._of(one)) for one, lists in shown.items()}
        return _changed(before, self._base), changed

    def chosen(self, choice: ServerChoice) -> tuple[dict[str, BackendPart], dict[Signature, dict[str, Listing]]]:
        """What some servers offer, to all clients and to those of each signature that see others."""
        offered = {
            name: attrs.evolve(part, settings=choice.settings_of(part.settings))
            for name in choice.servers
            if (part := self._offered.get(name)) is not None
        }
        others = {
            signature: own
            for signature, mine in self._others.items()
            if (own := {name: listing for name, listing in mine.items() if name in offered})
        }
        return offered, others

    # What is asked of it: by a client of any *signature*.

    @property
    def tells_apart(self) -> bool:
        """Whether some clients are shown other lists than the rest."""
        return bool(self._others)

    def apart(self, backend: str) -> Mapping[Signature, Set[str]]:
        """The lists of *backend* that clients of some signatures see in another form than the base list."""
        return {signature: mine[backend].keys() for signature, mine in self._others.items() if backend in mine}

    def tool(self, shown: str, signature: Signature = NOTHING) -> MergedEntry | None:
        """Raises `DefinitionChanged` for one that is withheld."""
        merged = self._of(signature).merged["tools"]
        if shown in merged.withheld:
            pinned, found = merged.withheld[shown]
            raise DefinitionChanged(shown, pinned=pinned, found=found)
        return merged.entries.get(shown)

    def bare_tools(self, name: str, signature: Signature = NOTHING) -> Sequence[MergedEntry]:
        """The tools that their backends call *name*, and clients do not: an app calls tools of its own server so."""
        return self._of(signature).merged[TOOLS.member].bare.get(name, ())

    def names(self, kind: Kind, signature: Signature = NOTHING) -> Mapping[Key, str]:
        """How each tool or prompt is shown, by its backend and its name there."""
        return self._of(signature).merged[kind.member].names

    def shown_uris(self, backend: str, signature: Signature = NOTHING) -> ShownUri | None:
        """How clients know the `ui://` URIs of *backend*; None if each is shown as it is."""
        return self._of(signature).ui.shown_by(backend)

    def shown_skills(self, backend: str) -> ShownUri | None:
        """How clients know the `skill://` URIs of *backend*; None if each is shown as it is."""
        if self._has_prefix(backend):
            return skill_addresses(backend)
        return self._base.skills.shown_by(backend)

    def _has_prefix(self, backend: str) -> bool:
        part = self._offered.get(backend)
        return part is not None and has_prefix(part.settings)

    def skill_of(self, uri: str, signature: Signature = NOTHING) -> tuple[str, str] | None:
        """The backend that a `skill://` URI names, and the URI there; None if it names none."""
        entries = self._of(signature).merged[RESOURCES.member].entries
        listed = entries.get(uri)
        if listed is not None:
            return listed.backend, listed.name
        for folder in folders_of(uri):
            listed = entries.get(f"{folder}/{MANIFEST}")
            if listed is not None:
                return listed.backend, listed.name.removesuffix(f"/{MANIFEST}") + uri.removeprefix(folder)
        backend, there = read_skill_address(uri)
        return (backend, there) if self._has_prefix(backend) else None

    def withholder(self, shown: str, signature: Signature = NOTHING) -> Key:
        """The backend of a tool that is withheld, and the name that rules go by."""
        return self._of(signature).merged[TOOLS.member].withheld_of[shown]

    def prompt(self, shown: str, signature: Signature = NOTHING) -> MergedEntry | None:
        return self._of(signature).merged[PROMPTS.member].entries.get(shown)

    def owner_of_template(
        self, template: str, signature: Signature = NOTHING, knows: Knows | None = None
    ) -> tuple[str, str] | None:
        """The backend of a template, or of a resource that is named in its place, and its URI there, as far as the
        caller may *know* of it.

        Raises `InvalidParams` if it is several backends'.
        """
        if template.startswith(ADDRESS):
            return self._addressed(template, knows)
        merged = self._of(signature).merged
        for kind in (TEMPLATES, RESOURCES):
            owners = [entry.backend for entry in merged[kind.member].entries.values() if entry.name == template]
            if knows is not None:
                owners = [owner for owner in owners if knows(owner, template)]
            if len(owners) > 1:
                raise ambiguous(template, owners)
            if owners:
                return owners[0], template
        return None

    def owner_of(self, uri: str, signature: Signature = NOTHING, knows: Knows | None = None) -> tuple[str, str] | None:
        """The backend that owns a resource, and its URI there; None if none does that the caller may *know* of: the one
        that the URI names, or as `Owners.find` has it.

        Raises `InvalidParams` if it could be several backends': the message says how each is meant.
        """
        if uri.startswith(ADDRESS):
            return self._addressed(uri, knows)
        lists = self._of(signature)
        if uri.startswith(SKILL_SCHEME) and (named := self.skill_of(uri, signature)) is not None:
            return named if knows is None or knows(*named) else None
        if uri.startswith(UI_SCHEME) and (found := lists.ui.find(uri, knows)) is not None:
            return found
        owner = lists.owners.find(uri, knows)
        if owner is None and uri.startswith(UI_SCHEME):
            owner = lists.ui.only_owner(uri, knows)
        return None if owner is None else (owner, uri)

    def page(
        self,
        kind: Kind,
        revision: Revision,
        cursor: str | None,
        signature: Signature = NOTHING,
        view: CallerView | None = None,
    ) -> tuple[Raw, str | None]:
        """One page of a list, written out, and the cursor of the next: of what a caller may *view*. Raises
        `InvalidParams` for a cursor that is not ours."""
        of = self._of(signature)
        merged = whole = of.merged[kind.member]
        if view is not None:
            merged = self._visible.of(whole, kind, view.rules, view.caller)
        shown = list(merged.entries)
        start = 0 if cursor is None else self._start(kind, whole, merged, cursor)
        page, end = self._page(of, merged, kind, revision, start)
        if end >= len(shown):
            return page, None
        context = [kind.member.encode()]
        return page, self.seal.close(shown[end - 1].encode(), context, expires=self.wall() + CURSOR_TTL)

    def __len__(self) -> int:
        return sum(map(self.count_of, KINDS))

    def count_of(self, kind: Kind) -> int:
        """How many of a kind clients are shown."""
        return len(self._base.merged[kind.member].entries)

    def shown(self, kind: Kind) -> Mapping[str, MergedEntry]:
        """What clients are shown of a kind."""
        return self._base.merged[kind.member].entries

    def withheld(self) -> Mapping[str, tuple[str, str]]:
        """The tools that are not shown, since they changed after they were approved: both digests."""
        return self._base.merged[TOOLS.member].withheld

    def gates(self, kind: Kind, rules: AccessRules) -> tuple[Gate, ...]:
        """What guards each entry of a list."""
        return gates_of(self._base.merged[kind.member], GUARDED[kind], rules)

    def count(self, backend: str) -> int:
        """How much one backend offers."""
        return sum(len(listed) for listed in self._offered[backend].listing.values())

    def counts(self, backend: str) -> dict[str, int]:
        """The same, for each kind."""
        return {kind: len(listed) for kind, listed in self._offered[backend].listing.items()}

    # How it is made.

    def _how(self, signature: Signature = NOTHING) -> MergeRules:
        main = self.main
        names = None if main is None else lambda kind: main.names(kind, signature)
        return MergeRules(self.approve, self.tools, names)

    def _merge(self, offered: dict[str, BackendPart], kinds: Iterable[Kind] = KINDS) -> set[str]:
        before = self._base
        after = before.with_kinds(kinds, offered, self._how())
        if after.owners is not before.owners:
            _log_collisions(before, after)
        self._base = after
        self._store(offered)
        self._sort_out()
        return _changed(before, after)

    def _sort_out(self) -> None:
        """The base lists are others now: what was shown to some clients only may be shown to all, or be gone."""
        self._shown.clear()
        for signature, mine in list(self._others.items()):
            left = {
                backend: own
                for backend, listing in mine.items()
                if backend in self._offered and (own := _own(listing, self._offered[backend].listing))
            }
            if left:
                self._others[signature] = left
            else:
                del self._others[signature]

    def _of(self, signature: Signature) -> MergedLists:
        """The lists for clients of *signature*."""
        if signature not in self._others:
            return self._base
        shown = self._shown.get(signature)
        if shown is None:
            mine = self._others[signature]
            offered = {
                name: attrs.evolve(one, listing={**one.listing, **mine[name]}) if name in mine else one
                for name, one in self._offered.items()
            }
            kinds = [kind for kind in KINDS if any(kind.member in own for own in mine.values())]
            if len(self._shown) >= MAX_SHOWN:
                del self._shown[next(iter(self._shown))]
            shown = self._shown[signature] = self._base.with_kinds(kinds, offered, self._how(signature))
        return shown

    def _store(self, offered: dict[str, BackendPart]) -> None:
        self._offered = offered
        self._pages.clear()
        self._kept = 0
        self._visible.clear()
        self.version += 1

    def _addressed(self, uri: str, knows: Knows | None) -> tuple[str, str] | None:
        backend, there = addressed(uri)
        is_known = backend in self._offered and bool(there) and (knows is None or knows(backend, there))
        return (backend, there) if is_known else None

    # Pages.

    def _start(self, kind: Kind, whole: MergedList, merged: MergedList, cursor: str) -> int:
        """Where the page after a cursor begins in *merged*: behind the entry that was last, which may be hidden now."""
        opened = self.seal.open(cursor, [kind.member.encode()], now=self.wall())
        last = None if opened is None else opened.payload.decode()
        if last is None or last not in whole.entries:
            raise InvalidParams("Invalid cursor")
        before = islice(whole.entries, list(whole.entries).index(last) + 1)
        return sum(name in merged.entries for name in before)

    def _page(self, of: MergedLists, merged: MergedList, kind: Kind, revision: Revision, start: int) -> tuple[Raw, int]:
        """A page, and where the next one begins."""
        key = (merged, revision, start)
        page = self._pages.get(key)
        if page is None:
            page = self._write(of, merged, kind, revision, start)
            if self._kept + len(page[0]) > (KEPT_PAGES if self.main is None else KEPT_PAGES_OF_SOME):
                self._pages.clear()
                self._kept = 0
            self._pages[key] = page
            self._kept += len(page[0])
        return page

    def _write(
        self, of: MergedLists, merged: MergedList, kind: Kind, revision: Revision, start: int
    ) -> tuple[Raw, int]:
        written: list[bytes] = []
        size = 0
        for entry in list(merged.entries.values())[start : start + PAGE]:
            source, shown = entry.source, entry.shown
            if kind is RESOURCES and shown == entry.name and not source.ui and len(of.owners.claimants(entry.name)) > 1:
                shown = address_of(entry.backend, entry.name)
            is_stale = self._offered[entry.backend].is_stale
            members = source.members
            if kind is TOOLS and source.ui and (uris := of.ui.shown_by(entry.backend)) is not None:
                members = with_uris(members, uris)
            definition = front_definition(members, kind, shown, entry.backend, is_stale=is_stale, flags=source.flags)
            if kind is TOOLS and entry.backend in self._deferring:
                definition["execution"] = _MAY_DEFER
            written.append(for_revision(revision, kind, definition))
            size += len(written[-1])
            if size >= PAGE_BYTES:
                break
        return Raw(b"[%b]" % b",".join(written)), start + len(written)


def _differs(kind: Kind, before: Mapping[str, BackendPart], after: Mapping[str, BackendPart]) -> bool:
    """Whether backends have other lists of a kind, or are others."""
    if list(before) != list(after):
        return True
    return any(
        part.listing.get(kind.member) is not before[name].listing.get(kind.member) for name, part in after.items()
    )


def _log_collisions(before: MergedLists, after: MergedLists) -> None:
    """Name resources that several backends list from now on: one of them, and how many there are."""
    listed, known = after.owners.listed, before.owners.listed
    contested = [
        uri
        for uri, backends in listed.items()
        if len(backends) > 1 >= len(known.get(uri, ())) and not uri.startswith(SKILL_SCHEME)  # these are told apart
    ]
    if contested:
        first = contested[0]
        log.warning(
            "resource_collision", name=ascii(first[:200]), backends=list(listed[first])[:8], count=len(contested)
        )


def _own(listing: Listing, base: Listing) -> Listing:
    """The lists of *listing* that are others than the *base* has."""
    return {member: those for member, those in listing.items() if not are_same(those, base.get(member, ()))}


def _changed(before: MergedLists, after: MergedLists) -> set[str]:
    """The lists, by their members, of which clients are shown something else."""
    return {
        member
        for member, merged in after.merged.items()
        if merged is not before.merged[member] and not _is_same(before.merged[member].entries, merged.entries)
    }


def _is_same(before: Mapping[str, MergedEntry], after: Mapping[str, MergedEntry]) -> bool:
    """Whether clients are shown the same, but for what is marked in `_meta`."""
    if len(before) != len(after) or list(before) != list(after):
        return False
    pairs = zip(before.values(), after.values(), strict=True)
    return all(
        one.source is other.source or _bare(one.source.members) == _bare(other.source.members) for one, other in pairs
    )


def _bare(members: Members) -> dict[str, Raw]:
    return {key: value for key, value in members.items() if key != "_meta"}
