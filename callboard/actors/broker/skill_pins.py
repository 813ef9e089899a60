"""Skills of a pinned server: its catalogue as it was approved, and what is withheld of what the server gives now.

The first catalogue is taken as a whole, as the first list of tools is; later a skill that is new or changed waits for
the operator. The broker keeps no list of skills, so it reads the catalogue once for each connection to the server,
when a client wants to know of a skill. Plain requests read what is known then.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.listing import INLINE, MAX_CURSOR, MAX_LISTS, READ_AGAIN
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.skill_owners import MAX_FOLDERS
from callboard.actors.client.conversation import Patience
from callboard.actors.client.negotiate import Agreed
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.shares import Shares
from callboard.codecs.bridge.askable import NOTHING
from callboard.codecs.bridge.pinned_skill import (
    PinnedSkill,
    digest_of_read,
    entries_of,
    read_each,
    read_pinned,
)
from callboard.codecs.bridge.skills import SKILL_SCHEME
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.members import Members, raw
from callboard.codecs.skills import ID, MANIFEST, BadSkill, SkillFile
from callboard.codecs.uri_template.match import MAX_URI
from callboard.errors import (
    INTERNAL_ERROR,
    BackendRefused,
    BadAnswer,
    CallboardError,
    DefinitionChanged,
    PeerError,
    RequestFailed,
    ResourceNotFound,
    ServerRefused,
)
from callboard.supervisor import get_logger
from callboard.supervisor.audit import note

T = TypeVar("T")

log = get_logger("callboard.broker")

MAX_CATALOGUE_PAGES: Final = 100
"""Pages of a pinned server's skills that are read: as many as clients are told of."""

MAX_SKILLS: Final = 2000
"""Skills of one pinned server: one more is withheld, and nothing is kept of it."""

MAX_KEPT: Final = MAX_LISTS
"""Bytes that are kept of the entries of one pinned server's skills, as of its lists."""

CHANGES: Final = Rate(100, per=60.0)
"""Changes of skills that are noted of one server. Under a flood of them the others are withheld all the same."""

UNKNOWN: Final = "none"
"""Stands for the digest of what was never approved, or never seen."""


class SkillApprovals(Protocol):
    """The approved digests: `Pins`."""

    def approve_skills(self, server: str, digests: Mapping[str, str], /) -> Mapping[str, str]:
        """The skills to withhold, with the digests that were approved instead of theirs."""

    def has_skills(self, server: str, /) -> bool:
        """Whether skills of a server are pinned."""


class SkillServer(Protocol):
    """A backend, as the pins of its skills know it."""

    name: str
    settings: BackendSettings
    agreed: Agreed | None
    in_flight: Shares

    async def wait_up(self) -> BackendConnection: ...


@attrs.define(eq=False)
class SkillPins:
    """The skills of one pinned server, as they were seen last, and which of them wait for approval."""

    server: SkillServer
    approvals: SkillApprovals
    _known: dict[str, PinnedSkill] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    withheld: dict[str, str] = attrs.field(factory=dict, init=False)
    """Known skills that wait for approval, with the digests that were approved instead."""
    _read_from: BackendConnection | None = attrs.field(default=None, init=False)
    _read_at: float = attrs.field(default=-math.inf, init=False)
    _is_doubted: bool = attrs.field(default=False, init=False)
    """Whether the catalogue is to be read from the same connection again."""
    _has_looked_again: bool = attrs.field(default=False, init=False)
    """Whether a catalogue without any skill was read again. Where it stays empty, some callers may still see skills."""
    _failure: str = attrs.field(default="", init=False)
    _reason_cut: str = attrs.field(default="", init=False)
    """Why not all of the server's skills are kept, according to the log."""
    _reading: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _changes: RateLimit = attrs.field(factory=lambda: RateLimit(CHANGES), init=False)

    def governs(self, uri: str) -> bool:
        """Whether a resource of the server is read as a part of a skill. A server that has had skills does not escape
        by saying that it has none."""
        if uri.startswith(SKILL_SCHEME):
            return self._has_extension or bool(self._known) or self.approvals.has_skills(self.server.name)
        return self._above(uri) is not None

    def review(self) -> bool:
        """The operator has approved of something. Returns whether skills of this server are among it."""
        before = self.withheld
        self._judge([self._known[uri] for uri in before])
        return self.withheld != before

    # The catalogue.

    async def open(self, account: str) -> None:
        """Have the catalogue read, unless it was. Raises `BackendGone`, `BackendRefused`, `Overloaded`."""
        if self._is_known(await self.server.wait_up()):
            return
        self.server.in_flight.take(account)  # so that it does not fall asleep meanwhile
        try:
            async with self._reading:
                connection = await self.server.wait_up()
                if not self._is_known(connection):
                    await self._read(connection)
        finally:
            self.server.in_flight.give_back(account)

    def _is_known(self, connection: BackendConnection) -> bool:
        return connection is self._read_from and not self._is_doubted

    async def open_for(self, account: str) -> None:
        """The same, for a request that is about one skill: that it cannot be is logged as for a list."""
        try:
            await self.open(account)
        except RequestFailed as error:
            log.warning("skills_not_listed", backend=self.server.name, failure=str(error)[:200])
            raise

    def doubt(self) -> bool:
        """The server has something else than it said: the next request has the catalogue read again, unless that was
        done just now. Whether it has."""
        if trio.current_time() - self._read_at < READ_AGAIN:
            return False
        self._is_doubted = True
        return True

    async def _read(self, connection: BackendConnection) -> None:
        if self._failure and trio.current_time() - self._read_at < READ_AGAIN:
            raise self._cannot_read()
        failure, self._reason_cut = f"no response within {self._patience.timeout:g} s", ""
        try:
            with trio.move_on_after(self._patience.timeout):
                found = await self._pages(connection)
                failure = ""
        except CallboardError as error:
            failure = error.brief or str(error) or type(error).__name__
        self._read_at, self._failure = trio.current_time(), failure
        if failure:
            raise self._cannot_read()
        if self._known and connection is self._read_from:
            self._see(found)  # a server must not flood the log by changing all of it whenever it is read
        else:
            self._take(found)
        self._read_from, self._is_doubted = connection, False

    @property
    def _patience(self) -> Patience:
        """For all pages together."""
        return Patience(timeout=self.server.settings.timeout, cap=self.server.settings.timeout)

    async def _pages(self, connection: BackendConnection) -> list[PinnedSkill]:
        """All pages of the server. Raises `ServerRefused`, `BadAnswer`, `ConnectionLost`."""
        patience = self._patience
        cursor: str | None = None
        entries: list[Raw] = []
        for page in range(1, MAX_CATALOGUE_PAGES + 1):
            body = {"_meta": connection.said_for(NOTHING), **({} if cursor is None else {"cursor": cursor})}
            answer = await connection.conversation.send("skills/list", body, patience=patience, wants_progress=False)
            if isinstance(answer, ErrorResponse):
                raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
            entries += entries_of(answer.result)
            size = sum(map(len, entries))
            if size > MAX_KEPT:
                self._cut(f"more than {MAX_KEPT} bytes")
                break
            told = _text_of(answer.result.get("nextCursor"))
            if told is None or told == cursor:
                break
            if page == MAX_CATALOGUE_PAGES or len(told) > MAX_CURSOR:
                self._cut(f"page {page} has another page")
                break
            cursor = told
        return [one for one in await _examined(entries) if one is not None]

    def _take(self, found: Iterable[PinnedSkill]) -> None:
        """The catalogue as it is now. A skill that is not listed any more stays what it was."""
        before, self._known, self._size = self._known, {}, 0
        kept = [one for one in found if self._keep(one)]
        for uri, one in before.items():
            if uri not in self._known:
                self._keep(one)
        self.withheld = {uri: digest for uri, digest in self.withheld.items() if uri in self._known}
        self._judge(kept)

    def _keep(self, one: PinnedSkill) -> bool:
        """Whether there is room for it."""
        before = self._known.get(one.uri)
        size = self._size + one.size - (0 if before is None else before.size)
        if size > MAX_KEPT or (before is None and len(self._known) >= MAX_SKILLS):
            self._cut(f"more than {MAX_SKILLS} skills or {MAX_KEPT} bytes")
            return False
        self._known[one.uri], self._size = one, size
        return True

    def _cut(self, reason: str) -> None:
        if reason != self._reason_cut:
            self._reason_cut = reason
            log.warning("skills_cut", backend=self.server.name, reason=reason, kept=len(self._known))

    def _cannot_read(self) -> BackendRefused:
        about = {"origin": "broker", "reason": "skills not read", "backend": self.server.name}
        return BackendRefused(
            INTERNAL_ERROR, f"{self.server.name}: its skills cannot be read: {self._failure}"[:500], about
        )

    @property
    def _has_extension(self) -> bool:
        declared = UNSET if self.server.agreed is None else self.server.agreed.capabilities.extensions
        return declared is not UNSET and ID in declared

    # Entries that the server gives to clients.

    async def page(self, account: str, ask: Callable[[], Awaitable[Members]]) -> Members:
        """A page of the server's list without the skills that are withheld. Raises as `open` and *ask* do."""
        await self.open(account)
        result = await ask()
        entries = entries_of(result)
        examined = await _examined(entries)
        if not self._known and any(examined) and not self._has_looked_again:
            self._has_looked_again = self.doubt()
            await self.open(account)  # they are the first, and are to be taken as a whole
        if self._known or self._has_looked_again:
            self._see(one for one in examined if one is not None)
        pairs = zip(entries, examined, strict=True)
        return {**result, "skills": raw([entry for entry, one in pairs if one is not None and not self._instead(one)])}

    def check_entry(self, entry: Raw | None, uri: str, asked: str) -> None:
        """Raises `BadAnswer` for an entry that is not that of the skill at *uri*, and `DefinitionChanged` for one that
        is withheld."""
        try:
            one = read_pinned(b"null" if entry is None else entry)
        except (BadSkill, PeerError):
            raise BadAnswer(f"{self.server.name}: an invalid skill") from None
        if one.uri != uri:
            raise BadAnswer(f"{self.server.name}: another skill")
        self._see([one])
        if instead := self._instead(one):
            raise DefinitionChanged(asked, pinned=instead, found=one.digest)

    def _see(self, found: Iterable[PinnedSkill]) -> None:
        """Note what is new or changed."""
        fresh: list[PinnedSkill] = []
        for one in found:
            known = self._known.get(one.uri)
            if known is not None and known.digest == one.digest:
                continue
            if self._changes.allow("entry", trio.current_time()) and self._keep(one):
                fresh.append(one)
        self._judge(fresh)

    def _judge(self, found: Iterable[PinnedSkill]) -> None:
        digests = {one.uri: one.digest for one in found}
        instead = self.approvals.approve_skills(self.server.name, digests)
        kept = {uri: digest for uri, digest in self.withheld.items() if uri not in digests}
        self.withheld = {**kept, **instead}

    def _instead(self, one: PinnedSkill) -> str:
        """The digest that was approved instead of an entry's; empty if the entry may be shown."""
        known = self._known.get(one.uri)
        if known is None:
            return UNKNOWN
        return self.withheld.get(one.uri, "" if known.digest == one.digest else known.digest)

    # Files and folders.

    def check_uri(self, uri: str, asked: str) -> PinnedSkill | None:
        """The skill that a file or folder belongs to. Raises `DefinitionChanged` if that is withheld."""
        one = self._above(uri)
        if one is not None and (instead := self.withheld.get(one.uri)):
            raise DefinitionChanged(asked, pinned=instead, found=one.digest)
        return one

    def file(self, uri: str, asked: str) -> SkillFile | None:
        """The approved entry of a file; None if the files of its skill are dynamic. Raises `ResourceNotFound` for one
        that is in no known skill, and `DefinitionChanged` for one that its skill does not list, or that is withheld."""
        skill = self.check_uri(uri, asked)
        if skill is None:
            self.doubt()
            raise ResourceNotFound(asked)
        try:
            return skill.file(uri)
        except BadSkill:
            raise self._changed_file(uri, asked, UNKNOWN, UNKNOWN) from None

    async def check_read(self, uri: str, asked: str, result: Members) -> None:
        """Raises `DefinitionChanged` if what was read is not the file that was approved."""
        file = self.file(uri, asked)
        found = await _aside(len(result["contents"]), partial(digest_of_read, result, uri, file))
        if found is not None:
            raise self._changed_file(uri, asked, UNKNOWN if file is None else file.digest, found)

    def lets(self, lets: Callable[[str], bool]) -> Callable[[str], bool]:
        """Which rows of a directory may be shown, of those that *lets* lets through."""
        approved = [one for uri, one in self._known.items() if uri not in self.withheld]
        folders = {folder for one in approved for folder in _folders(one.folder)}
        paths: dict[str, frozenset[str] | None] = {}

        def lets_row(uri: str) -> bool:
            one = self._above(uri)
            if one is None:
                return uri in folders and lets(uri)
            if one.uri not in paths:
                paths[one.uri] = one.paths()
            inside = paths[one.uri]
            is_inside = inside is None or uri.removesuffix("/") in inside
            return is_inside and one.uri not in self.withheld and lets(uri)

        return lets_row

    def _above(self, uri: str) -> PinnedSkill | None:
        """The innermost known skill that a file or folder belongs to."""
        found = (self._known.get(f"{folder}/{MANIFEST}") for folder in _folders(uri))
        return next((one for one in found if one is not None), None)

    def _changed_file(self, uri: str, asked: str, pinned: str, found: str) -> DefinitionChanged:
        self.doubt()
        if self._changes.allow("file", trio.current_time()):
            log.warning("definition_changed", backend=self.server.name, file=uri[:MAX_URI], pinned=pinned, found=found)
            note("definition_changed", server=self.server.name, name=uri[:MAX_URI], pinned=pinned, found=found)
        return DefinitionChanged(asked, pinned=pinned, found=found)


def _folders(uri: str) -> Iterator[str]:
    """A URI and the folders above it."""
    for _ in range(MAX_FOLDERS):
        yield uri
        uri = uri.rpartition("/")[0]
        if not uri or uri.endswith("/"):
            return


def _text_of(given: Raw | None) -> str | None:
    try:
        return None if given is None else msgspec.json.decode(given, type=str)
    except msgspec.MsgspecError:
        return None


def _examined(entries: Sequence[Raw]) -> Awaitable[list[PinnedSkill | None]]:
    return _aside(sum(map(len, entries)), partial(read_each, entries))


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Done at once if it is little, and in a thread if it is much."""
    return work() if size <= INLINE else await trio.to_thread.run_sync(work)
