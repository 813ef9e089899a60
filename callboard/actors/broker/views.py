"""Views of one backend: the lists of each signature, where they differ from the base lists.

The base lists come from the shared connection, which declares nothing. Some servers show more to a client that declares
more, so the lists are read once more for each signature that a client comes with.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Never, TypeAlias

import attrs
import trio

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import EVERYBODY, ConnectionKey, Lease
from callboard.actors.broker.listing import (
    CHANGES,
    MAX_LISTS,
    MAX_READ_AGAIN,
    READ_AGAIN,
    BackendList,
    Listing,
    ListReading,
)
from callboard.actors.broker.merging import are_same
from callboard.actors.broker.upstream import Upstream
from callboard.codecs.bridge.askable import Signature, words_for
from callboard.codecs.bridge.definitions import KINDS, TOOLS
from callboard.errors import CallboardError, Overloaded, SupervisorClosed
from callboard.supervisor import Actor, Supervisor, get_logger

log = get_logger("callboard.broker")

VIEW_WAIT: Final = 5.0
"""Seconds that a client which can be asked waits for the lists that are shown to such clients. After that it gets the
base lists, and hears of a change when the others are there."""

VIEWS_AT_ONCE: Final = 2
"""Signatures with lists that are read from one backend at a time: each may need a process of its own."""

MAX_VIEWS: Final = 96
"""Signatures of which one backend's lists are known: the 59 sets of questions, and some with extensions. Of one more,
the view that was needed longest ago is forgotten."""

MAX_VIEWS_EACH: Final = 16
"""The same of one account: a client that declares something else with each request takes the place of its own views."""

_ALL: Final = frozenset(kind.member for kind in KINDS)

OnView: TypeAlias = Callable[[Signature, Listing, bool], None]
"""Told of what a backend shows to clients of a signature, and whether these clients are to be told if it is new. A call
and not a message: a request waits for the view, and must find it in the catalogue when it goes on."""


@attrs.define(eq=False)
class ListView:
    """The lists of one backend as clients of one signature see them."""

    signature: Signature
    account: str
    """The account of the client that needed it last: a connection that is opened for it counts there."""
    lists: dict[str, BackendList] = attrs.field(
        factory=lambda: {kind.member: BackendList(kind) for kind in KINDS}, init=False
    )
    is_known: bool = attrs.field(default=False, init=False)
    """Whether the lists were read, and nothing says that they are others by now."""
    is_late: bool = attrs.field(default=False, init=False)
    """Whether a client has waited for them in vain."""
    is_shown: bool = attrs.field(default=False, init=False)
    """Whether a client has been answered with lists, and must be told of others."""
    is_read_now: bool = attrs.field(default=False, init=False)
    was_tried: bool = attrs.field(default=False, init=False)
    own: set[str] = attrs.field(factory=set, init=False)
    """The lists that are others than the base lists."""
    dirty: set[str] = attrs.field(factory=set, init=False)
    """The lists that are to be read."""
    tried: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the lists have been read, or could not be."""
    spoke: BackendConnection | None = attrs.field(default=None, init=False)
    """The connection that notified last of changed lists."""
    wanted_at: float = attrs.field(default=-math.inf, init=False)
    """When a client needed it last."""
    not_before: float = attrs.field(default=-math.inf, init=False)
    again: float = attrs.field(default=READ_AGAIN, init=False)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.lists.values())


@attrs.define(eq=False)
class ListViews:
    """The views of one backend."""

    backend: Upstream
    supervisor: Supervisor
    on_view: OnView
    _views: dict[Signature, ListView] = attrs.field(factory=dict, init=False)
    _first: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(VIEWS_AT_ONCE), init=False)
    _again: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)
    _pace: BackendList = attrs.field(factory=lambda: BackendList(TOOLS), init=False)  # of all views together
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    # What clients need.

    def want(self, signature: Signature, account: str) -> ListView | None:
        """Have the lists read for a client of *signature*, if they are not known. Returns what the client had better
        wait for. A backend that is down is not waited for, nor one that was waited for in vain."""
        view = self._views.get(signature)
        if (view is not None and view.is_known) or not self.backend.is_up:
            return None
        if view is None:
            if not self._make_room(account):
                return None
            view = self._views[signature] = ListView(signature, account)
        view.account, view.wanted_at = account, trio.current_time()
        if not view.is_read_now:
            if view.wanted_at < view.not_before:
                return None
            self._refresh(view, _ALL)
        return None if view.is_late else view

    def known(self) -> Sequence[ListView]:
        """All views, read or not."""
        return list(self._views.values())

    def knows(self, signature: Signature) -> bool:
        """Whether the lists of *signature* are read again as soon as they change."""
        view = self._views.get(signature)
        return view is not None and view.is_known

    def shown(self, signature: Signature) -> None:
        """A client of *signature* is answered with lists."""
        view = self._views.get(signature)
        if view is not None:
            view.is_shown = True

    # What the backend says.

    def changed(self, connection: BackendConnection, method: str) -> bool:
        """Whether it is about lists, what a connection for clients that can be asked says on no request's way."""
        if method not in CHANGES:
            return False
        signature = connection.key.signature
        view = self._views.get(signature)
        if connection.key.whose == EVERYBODY:
            if view is None and self._make_room(connection.account):
                view = self._views[signature] = ListView(signature, connection.account)
                view.is_shown = True
            if view is not None:
                view.spoke = connection
        if view is not None:
            self._refresh(view, _ALL if not view.is_known else frozenset(CHANGES[method]))
        return True

    def base_changed(self, connection: BackendConnection, method: str) -> None:
        """The shared connection says that its lists have changed. A modern backend says so for all clients."""
        if connection.speaks_for_all:
            for view in self._views.values():
                self._refresh(view, frozenset(CHANGES[method]))

    def base_read(self) -> None:
        """The base lists are others now: what a view has in common with them has changed."""
        base = self.backend.listings.lists
        for member, one in base.items():
            common = {id(each) for each in one.definitions}
            for view in self._views.values():
                self._compare(view, view.lists[member], one, common)
        if sum(one.size for one in base.values()) + sum(view.size for view in self._views.values()) > MAX_LISTS:
            for view in list(self._views.values()):
                self._drop(view)

    def _compare(self, view: ListView, mine: BackendList, base: BackendList, common: Set[int]) -> None:
        """A list that is the same as the base list is not kept, and follows the base list from then on."""
        member = mine.kind.member
        if member in view.own and are_same(mine.definitions, base.definitions):
            view.own.discard(member)
        if member not in view.own:
            mine.definitions, mine.known, mine.size = base.definitions, {}, 0
        else:
            counted = {id(one) for one in mine.known.values()}
            left = [one for one in mine.definitions if id(one) not in common and id(one) not in counted]
            mine.size = sum(map(len, mine.known)) + sum(len(one.data) for one in left)

    def lost(self, connection: BackendConnection) -> None:
        """A connection has ended: lists that only it could speak of are read anew for the next client. A list that is
        the base list needs no reading."""
        for view in self._views.values():
            if view.spoke is connection:
                view.spoke, view.is_known = None, False
            elif view.own and connection.key == _key(view):
                view.is_known = False

    def begin_anew(self) -> None:
        """The backend has come up: it may be another version of itself."""
        for view in self._views.values():
            view.is_known, view.is_late, view.not_before, view.again = False, False, -math.inf, READ_AGAIN

    # How many there are.

    def _make_room(self, account: str) -> bool:
        """Whether there is room for a view more, which a client of *account* needs."""
        own = [view for view in self._views.values() if view.account == account]
        pool = own if len(own) >= MAX_VIEWS_EACH else list(self._views.values())
        if pool is not own and len(pool) < MAX_VIEWS:
            return True
        oldest = min((view for view in pool if not view.is_read_now), key=lambda view: view.wanted_at, default=None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _drop(self, view: ListView) -> None:
        """Forget a view: its clients are shown the base lists, until one of them comes again."""
        del self._views[view.signature]
        base = self.backend.listings.lists
        self.on_view(view.signature, {member: base[member].definitions for member in view.own}, True)

    # How they are read.

    def _refresh(self, view: ListView, members: frozenset[str]) -> None:
        view.dirty |= members
        if not view.is_read_now:
            view.tried = trio.Event()
            try:
                self.supervisor.spawn(ViewReader(self, view), name=f"view-{next(self._names)}", shutdown=0)
            except SupervisorClosed:  # the backend ends
                view.tried.set()
            else:
                view.is_read_now = True

    async def read(self, view: ListView) -> None:
        """Read what is dirty, until nothing is. The first time at once; then in turn with the other views, and no more
        often than a list is read that changes all the time. If there is no connection to be had, another attempt
        follows, for as long as a client may still wonder."""
        while view.dirty:
            try:
                if view.was_tried:
                    async with self._again:
                        await trio.sleep(self._pace.pause(trio.current_time()))
                        await self._read_dirty(view)
                else:
                    view.was_tried = True
                    async with self._first:
                        await self._read_dirty(view)
            except Overloaded:
                view.is_known, view.is_late = False, True
                view.tried.set()
                if trio.current_time() - view.wanted_at > MAX_READ_AGAIN:
                    return
                await trio.sleep(READ_AGAIN)
                view.dirty |= _ALL
            except CallboardError as error:
                self._failed(view, error)
            else:
                view.is_known, view.is_late, view.again = True, False, READ_AGAIN

    async def _read_dirty(self, view: ListView) -> None:
        async with self._connection(view) as connection:
            members, view.dirty = view.dirty, set()
            await self._read_all(view, members, connection)

    @asynccontextmanager
    async def _connection(self, view: ListView) -> AsyncIterator[BackendConnection]:
        """The connection for reading lists: one that belongs to no client; or the one that notified last that its
        lists have changed, if all may see them. A modern backend is told with each request what its client can be
        asked, and needs but the shared connection."""
        backend, use, spoke = self.backend, Lease(), view.spoke
        primary = await backend.wait_up()
        if primary.revision.dialect.terms_per_request:
            yield primary
            return
        if spoke is not None and not spoke.is_lost:
            spoke.begin(use)
            connection = spoke
        else:
            connection = await backend.pool.borrow(_key(view), use, view.account)
        try:
            yield connection
        finally:
            backend.give_back(connection, use)

    async def _read_all(self, view: ListView, members: set[str], connection: BackendConnection) -> None:
        """A list that is not shown is not tried. Raises why the first could not be read, if none could."""
        base = self.backend.listings.lists
        wanted = [member for member in sorted(members) if base[member].failure is None]
        failures: list[CallboardError] = []
        changed: list[str] = []

        async def read(member: str) -> None:
            try:
                if await self._read_one(view, view.lists[member], connection):
                    changed.append(member)
            except CallboardError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for member in wanted:
                nursery.start_soon(read, member)
        if view.spoke is connection and not changed:
            view.spoke = None  # it shows what the others of this signature show
        if failures and len(failures) == len(wanted):
            raise failures[0]

    async def _read_one(self, view: ListView, one: BackendList, connection: BackendConnection) -> bool:
        """Returns whether the list is another one now."""
        listings, member = self.backend.listings, one.kind.member
        base = listings.lists[member]
        others = [each for each in self._all_lists() if each is not one]
        one.told, one.cut = one.told | base.told, one.cut or base.cut  # what the log has said of the base list
        reading = ListReading(connection, one, listings.patience, others, view.signature, base.known)
        if not await listings.read(reading) or self._views.get(view.signature) is not view:
            return False
        view.own.add(member)
        listed = one.definitions
        self._compare(view, one, base, {id(each) for each in base.definitions})
        self.on_view(view.signature, {member: listed}, view.is_shown)
        return True

    def _all_lists(self) -> Iterator[BackendList]:
        yield from self.backend.listings.lists.values()
        for view in self._views.values():
            yield from view.lists.values()

    def _failed(self, view: ListView, error: CallboardError) -> None:
        view.is_known = False
        view.not_before = trio.current_time() + view.again
        view.again = min(2 * view.again, MAX_READ_AGAIN)
        view.dirty.clear()
        asked = words_for(view.signature)
        log.info("view_read_failed", backend=self.backend.name, can_be_asked=asked, reason=str(error)[:200])


@attrs.define(eq=False)
class ViewReader(Actor[Never]):
    """Reads the lists of a backend as clients of one signature see them."""

    mailbox = None

    views: ListViews
    view: ListView

    async def run(self) -> None:
        try:
            await self.views.read(self.view)
        finally:
            self.view.is_read_now = False
            self.view.tried.set()


def _key(view: ListView) -> ConnectionKey:
    """A connection that belongs to no client, like the shared one: lists are for all of that signature."""
    return ConnectionKey(EVERYBODY, view.signature)
