"""All that the backends offer, as one: merged, name-spaced, filtered, in the same order every time."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

import attrs
import msgspec
from msgspec import Raw

from callboard.actors.broker.settings import BackendSettings
from callboard.codecs.crossing.definitions import (
    KINDS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    Kind,
    digest_of,
    for_revision,
    front_definition,
)
from callboard.codecs.crossing.names import prefixed, problem_with, told_apart
from callboard.codecs.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members
from callboard.codecs.revisions import Revision
from callboard.codecs.seal import KeyRing, Seal
from callboard.codecs.uri_template import UriTemplate
from callboard.errors import DefinitionChanged, InvalidDefinition, InvalidParams, PeerError
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

PAGE: Final = 250
"""Entries on one page of a merged list."""

CURSOR_TTL: Final = 24 * 3600.0
"""Seconds that a cursor may be used."""

ADDRESS: Final = "callboard://"
"""How a resource is named together with its backend: `callboard://BACKEND/` and the URI, percent-encoded."""

MAX_WARNED: Final = 10_000
"""Odd definitions that are remembered as told of."""

Listing: TypeAlias = Mapping[str, Sequence[Members]]
"""What one backend offers, by the members of its lists."""

Approve: TypeAlias = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""A backend and the digests of all its tools in; those that are to be withheld out, with what was approved instead."""


@attrs.frozen(eq=False)
class Entry:
    """Something that a backend offers: what it calls it, and how clients see it."""

    backend: str
    name: str
    shown: str
    definition: Mapping[str, Raw]
    headers: HeaderMap = NO_HEADERS
    template: UriTemplate | None = None


@attrs.frozen
class Offered:
    """One backend's part of the catalogue."""

    settings: BackendSettings
    listing: Listing
    is_stale: bool = False

    @cached_property
    def named(self) -> Mapping[str, Sequence[tuple[str | None, Members]]]:
        """The same with the names read, once; None for what has none."""
        return {
            kind.member: [(_text(one.get(kind.key)), one) for one in self.listing.get(kind.member, ())]
            for kind in KINDS
        }


@attrs.define(eq=False)
class Catalogue:
    """The merged lists. Order is that of the backends, and within one its own."""

    approve: Approve | None = None
    seal: Seal = attrs.field(factory=lambda: Seal(KeyRing.generate(), "cursor"))
    wall: Callable[[], float] = time.time
    version: int = attrs.field(default=0, init=False)
    _offered: dict[str, Offered] = attrs.field(factory=dict, init=False)
    _entries: dict[str, dict[str, Entry]] = attrs.field(factory=lambda: {kind.member: {} for kind in KINDS}, init=False)
    _contested: dict[str, tuple[str, ...]] = attrs.field(factory=dict, init=False)
    _schemes: dict[str, dict[str, None]] = attrs.field(factory=dict, init=False)
    """Who lists anything of a scheme: looked up by whoever reads what is in no list."""
    _withheld: dict[str, tuple[str, str]] = attrs.field(factory=dict, init=False)
    _made: dict[tuple[int, str, bool], tuple[Members, Entry | None]] = attrs.field(factory=dict, init=False)
    _making: dict[tuple[int, str, bool], tuple[Members, Entry | None]] = attrs.field(factory=dict, init=False)
    _warned: set[tuple[str, ...]] = attrs.field(factory=set, init=False)
    _written: dict[tuple[str, Revision], list[bytes]] = attrs.field(factory=dict, init=False)
    _pages: dict[tuple[str, Revision, int], Raw] = attrs.field(factory=dict, init=False)

    # What changes it.

    def arrange(self, names: Iterable[str], settings: Mapping[str, BackendSettings]) -> set[str]:
        """These are the backends, in this order. What others offered is gone. Returns which lists have changed."""
        kept = {name: self._offered.get(name, Offered(settings[name], {})) for name in names}
        self._offered = {name: attrs.evolve(offered, settings=settings[name]) for name, offered in kept.items()}
        return self._merge()

    def put(self, backend: str, listing: Listing) -> set[str]:
        """A backend has said what it offers. Returns which lists have changed, by their members."""
        if backend not in self._offered:
            return set()
        self._offered[backend] = attrs.evolve(self._offered[backend], listing=listing, is_stale=False)
        return self._merge()

    def mark(self, backend: str, *, is_stale: bool) -> None:
        """A backend is lost, or back. What it offers stays in the lists, with a mark: no change that is told of."""
        offered = self._offered.get(backend)
        if offered is not None and offered.is_stale is not is_stale:
            self._offered[backend] = attrs.evolve(offered, is_stale=is_stale)
            self._merge()

    def review(self) -> set[str]:
        """What is approved of may be something else now. Returns which lists have changed."""
        return self._merge()

    # What is asked of it.

    def tool(self, shown: str) -> Entry | None:
        """Raises `DefinitionChanged` for one that is withheld."""
        if shown in self._withheld:
            pinned, found = self._withheld[shown]
            raise DefinitionChanged(shown, pinned=pinned, found=found)
        return self._entries[TOOLS.member].get(shown)

    def prompt(self, shown: str) -> Entry | None:
        return self._entries[PROMPTS.member].get(shown)

    def owner_of_template(self, template: str) -> tuple[str, str] | None:
        """Whose a template is, or a resource that is named in its place, and how it is written there.

        Raises `InvalidParams` if it is several backends'.
        """
        if template.startswith(ADDRESS):
            return self._addressed(template)
        for kind in (TEMPLATES, RESOURCES):
            owners = [entry.backend for entry in self._entries[kind.member].values() if entry.name == template]
            if len(owners) > 1:
                raise _ambiguous(template, owners)
            if owners:
                return owners[0], template
        return None

    def owner_of(self, uri: str) -> tuple[str, str] | None:
        """Whose a resource is, and by which URI it goes there; None if nobody's. In this order: the backend that the
        URI names, who lists it, whose template it fits, who lists others of its scheme, who alone has any.

        Raises `InvalidParams` if it could be several backends': the message says how each is meant.
        """
        if uri.startswith(ADDRESS):
            return self._addressed(uri)
        if uri in self._contested:
            raise _ambiguous(uri, self._contested[uri])
        listed = self._entries[RESOURCES.member].get(uri)
        if listed is not None:
            return listed.backend, uri
        for candidates in (self._fitting(uri), self._of_scheme(uri), self._having_any()):
            if len(candidates) > 1:
                raise _ambiguous(uri, tuple(candidates))
            if candidates:
                return candidates[0], uri
        return None

    def page(self, kind: Kind, revision: Revision, cursor: str | None) -> tuple[Raw, str | None]:
        """One page of a list, written out, and the cursor of the next. Raises `InvalidParams` for one not ours."""
        shown = self._entries[kind.member]
        start = 0 if cursor is None else self._start(kind, list(shown), cursor)
        following = None
        if len(shown) > start + PAGE:
            last = list(shown)[start + PAGE - 1]
            context = [kind.member.encode()]
            following = self.seal.close(last.encode(), context, expires=self.wall() + CURSOR_TTL)
        return self._page(kind, revision, start), following

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def count_of(self, kind: Kind) -> int:
        """How many of a kind clients are shown."""
        return len(self._entries[kind.member])

    def count(self, backend: str) -> int:
        """How much one backend offers."""
        return sum(len(listed) for listed in self._offered[backend].listing.values())

    # How it is made.

    def _merge(self) -> set[str]:
        before = self._entries
        self._withheld = {}
        self._contested = {}
        self._entries = {
            TOOLS.member: self._named(TOOLS),
            PROMPTS.member: self._named(PROMPTS),
            RESOURCES.member: self._resources(),
            TEMPLATES.member: self._templates(),
        }
        self._schemes = self._by_scheme()
        self._made, self._making = self._making, {}
        self._written.clear()
        self._pages.clear()
        self.version += 1
        return {kind.member for kind in KINDS if not _is_same(before[kind.member], self._entries[kind.member])}

    def _entry(self, kind: Kind, of: Offered, backend: str, name: str, shown: str, definition: Members) -> Entry | None:
        """The entry, made once for as long as the backend does not list it anew: others' news do not concern it."""
        key = (id(definition), shown, of.is_stale)
        kept = self._made.get(key)
        if kept is None or kept[0] is not definition:
            kept = definition, _entry(kind, backend, name, shown, definition, is_stale=of.is_stale)
        self._making[key] = kept
        return kept[1]

    def _warn(self, event: str, backend: str, name: str, **facts: object) -> None:
        """Say once what is odd about a definition, however often the lists are made."""
        about = (event, backend, name, str(facts))
        if about not in self._warned and len(self._warned) < MAX_WARNED:
            self._warned.add(about)
            log.warning(event, backend=backend, name=ascii(name[:200]), **facts)

    def _listed(self, kind: Kind) -> Iterator[tuple[str, Offered, str, Members]]:
        for backend, offered in self._offered.items():
            for name, definition in offered.named[kind.member]:
                if name is None:
                    self._warn("definition_left_out", backend, "", kind=kind.name, reason=f"has no {kind.key}")
                else:
                    yield backend, offered, name, definition

    def _named(self, kind: Kind) -> dict[str, Entry]:
        """Tools or prompts: each under a name that no other has."""
        found = [one for one in self._listed(kind) if self._is_offered(kind, one)]
        names = _apart({(backend, name): offered.settings for backend, offered, name, _ in found})
        is_pinned = kind is TOOLS and any(offered.settings.pin for offered in self._offered.values())
        pinned = self._pinned() if is_pinned and self.approve is not None else {}
        entries: dict[str, Entry] = {}
        for backend, offered, name, definition in found:
            shown = names[backend, name]
            if shown in entries:
                self._warn("definition_left_out", backend, shown, kind=kind.name, reason="listed twice")
                continue
            entry = self._entry(kind, offered, backend, name, shown, definition)
            is_free = kind is not TOOLS or self.approve is None or not offered.settings.pin
            if entry is not None and (is_free or self._is_approved(entry, pinned)):
                entries[shown] = entry
        return entries

    def _is_offered(self, kind: Kind, one: tuple[str, Offered, str, Members]) -> bool:
        backend, offered, name, _ = one
        if kind is TOOLS and not offered.settings.tools.lets(name):
            return False
        problem = problem_with(name)
        if problem is not None:
            self._warn("definition_left_out", backend, name, kind=kind.name, reason=problem)
        return problem is None

    def _pinned(self) -> dict[tuple[str, str], tuple[str, str] | None]:
        """The tools of backends that are pinned, and which may not be shown, with what was approved and what was found
        instead. Of a backend all are looked at, whichever are let through: what is let through later is known then."""
        digests: dict[str, dict[str, str]] = {}
        for backend, offered, name, definition in self._listed(TOOLS):
            if offered.settings.pin and self.approve is not None:
                mine = digests.setdefault(backend, {})
                try:
                    mine.setdefault(name, digest_of(definition))
                except PeerError as error:
                    self._warn("definition_left_out", backend, name, reason=str(error))
        approved: dict[tuple[str, str], tuple[str, str] | None] = {}
        for backend, mine in digests.items():
            withheld = {} if self.approve is None else self.approve(backend, mine)
            for name, found in mine.items():
                approved[backend, name] = (withheld[name], found) if name in withheld else None
        return approved

    def _is_approved(self, entry: Entry, pinned: Mapping[tuple[str, str], tuple[str, str] | None]) -> bool:
        """False also for what has no digest, because two parsers could read it differently."""
        change = pinned.get((entry.backend, entry.name))
        if change is not None:
            self._withheld[entry.shown] = change
        return change is None and (entry.backend, entry.name) in pinned

    def _resources(self) -> dict[str, Entry]:
        found = list(self._listed(RESOURCES))
        owners: dict[str, dict[str, None]] = {}
        for backend, _, uri, _ in found:
            owners.setdefault(uri, {})[backend] = None
        self._contested = {uri: tuple(those) for uri, those in owners.items() if len(those) > 1}
        for uri, those in self._contested.items():
            self._warn("resource_collision", those[0], uri, backends=list(those))
        entries: dict[str, Entry] = {}
        for backend, offered, uri, definition in found:
            shown = address_of(backend, uri) if uri in self._contested else uri
            entry = self._entry(RESOURCES, offered, backend, uri, shown, definition)
            if entry is not None:
                entries.setdefault(shown, entry)
        return entries

    def _templates(self) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for backend, offered, text, definition in self._listed(TEMPLATES):
            entry = self._entry(TEMPLATES, offered, backend, text, text, definition)
            if entry is not None:
                name = text if text not in entries else f"{text} ({backend})"  # a key of ours: shown as it is
                entries.setdefault(name, entry)
        return entries

    # Whose a resource is.

    def _addressed(self, uri: str) -> tuple[str, str] | None:
        named, _, rest = uri.removeprefix(ADDRESS).partition("/")
        backend = unquote(named)
        return (backend, unquote(rest)) if backend in self._offered and rest else None

    def _fitting(self, uri: str) -> list[str]:
        templates = self._entries[TEMPLATES.member].values()
        fits = (one.backend for one in templates if one.template is not None and one.template.match(uri) is not None)
        return list(dict.fromkeys(fits))

    def _of_scheme(self, uri: str) -> list[str]:
        return list(self._schemes.get(uri.partition(":")[0], ()))

    def _having_any(self) -> list[str]:
        having = list(dict.fromkeys(backend for backends in self._schemes.values() for backend in backends))
        return having if len(having) == 1 else []

    def _by_scheme(self) -> dict[str, dict[str, None]]:
        found: dict[str, dict[str, None]] = {}
        for kind in (RESOURCES, TEMPLATES):
            for one in self._entries[kind.member].values():
                found.setdefault(one.name.partition(":")[0], {})[one.backend] = None
        return found

    # Pages.

    def _start(self, kind: Kind, names: list[str], cursor: str) -> int:
        opened = self.seal.open(cursor, [kind.member.encode()], now=self.wall())
        last = None if opened is None else opened.payload.decode()
        if last not in self._entries[kind.member] or last is None:
            raise InvalidParams("Invalid cursor")
        return names.index(last) + 1

    def _page(self, kind: Kind, revision: Revision, start: int) -> Raw:
        page = self._pages.get((kind.member, revision, start))
        if page is None:
            written = self._written.get((kind.member, revision))
            if written is None:
                definitions = (entry.definition for entry in self._entries[kind.member].values())
                written = [for_revision(revision, kind, definition) for definition in definitions]
                self._written[kind.member, revision] = written
            page = Raw(b"[%b]" % b",".join(written[start : start + PAGE]))
            self._pages[kind.member, revision, start] = page
        return page


def _is_same(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> bool:
    """Whether clients are shown the same, but for what is marked in `_meta`."""
    if before.keys() != after.keys() or list(before) != list(after):
        return False
    pairs = zip(before.values(), after.values(), strict=True)
    return all(one is other or _bare(one) == _bare(other) for one, other in pairs)


def _bare(entry: Entry) -> dict[str, Raw]:
    return {key: value for key, value in entry.definition.items() if key != "_meta"}


def address_of(backend: str, uri: str) -> str:
    """How a client names a resource together with its backend."""
    return f"{ADDRESS}{quote(backend, safe='')}/{quote(uri, safe='')}"


def _ambiguous(uri: str, backends: Sequence[str]) -> InvalidParams:
    error = InvalidParams("several servers have this resource: name the one you mean")
    error.data = {"origin": "broker", "candidates": [address_of(backend, uri) for backend in backends]}
    return error


def _apart(settings: Mapping[tuple[str, str], BackendSettings]) -> dict[tuple[str, str], str]:
    """How each tool or prompt, by its backend and its name there, is shown. What two would be called is never the first
    one's alone: each says whose it is; and if that is taken as well, by a digest."""
    wanted = {(backend, name): _wanted(backend, of, name) for (backend, name), of in settings.items()}
    for make in (prefixed, told_apart):
        taken = Counter(wanted.values())
        wanted = {
            key: shown if taken[shown] == 1 else make(key[0], settings[key].rename.get(key[1], key[1]))
            for key, shown in wanted.items()
        }
    return wanted


def _wanted(backend: str, settings: BackendSettings, name: str) -> str:
    return prefixed(backend if settings.prefix is None else settings.prefix, settings.rename.get(name, name))


def _entry(kind: Kind, backend: str, name: str, shown: str, definition: Members, *, is_stale: bool) -> Entry | None:
    """The entry, or None for a definition that a client may not be shown; the reason is logged."""
    try:
        headers = NO_HEADERS
        if kind is TOOLS and b"x-mcp-header" in bytes(definition.get("inputSchema", b"")):
            headers = HeaderMap.compile(msgspec.json.decode(definition["inputSchema"]))
        template = UriTemplate.parse(name) if kind is TEMPLATES else None
    except (InvalidDefinition, ValueError) as error:
        log.warning("definition_left_out", backend=backend, kind=kind.name, name=name[:128], reason=str(error))
        return None
    shaped = front_definition(definition, kind, shown, backend, is_stale=is_stale)
    return Entry(backend, name, shown, shaped, headers, template)


def _text(given: Raw | None) -> str | None:
    try:
        found = None if given is None else msgspec.json.decode(given)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, str) and found else None
