"""What a backend offers: its lists, read page by page, and read anew when it says that they changed."""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.broker.leg import Leg
from callboard.actors.broker.uses import EVERYBODY
from callboard.actors.caller import Patience
from callboard.codecs.crossing.definitions import KINDS, Kind
from callboard.codecs.envelope import Error
from callboard.codecs.members import Members, read_members
from callboard.codecs.revisions import declares
from callboard.errors import (
    METHOD_NOT_FOUND,
    BadAnswer,
    CallboardError,
    ConnectionLost,
    PeerError,
    ServerRefused,
)
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

MAX_PAGES: Final = 1000
"""Pages of one list that are read."""

MAX_ENTRIES: Final = 10_000
"""Entries of one list that are read."""

READ_AGAIN: Final = 5.0
"""Seconds after which lists are read again that a backend would not tell, though it said that they changed."""

GATHER: Final = 0.05
"""Seconds in which changes of lists are gathered before they are read anew."""

_ALL: Final = frozenset(kind.member for kind in KINDS)
_CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resourceTemplates"),
}

OnListing: TypeAlias = Callable[[str, dict[str, list[Members]], Set[str]], None]
"""Told of what a backend offers: its name, its lists, and which of them it said had changed."""

_read_array = msgspec.json.Decoder(list[Raw]).decode
_read_text = msgspec.json.Decoder(str | None).decode


@attrs.define(eq=False)
class Listings:
    """All lists of one backend, as they were read last."""

    backend: str
    timeout: float
    on_listing: OnListing
    _dirty: set[str] = attrs.field(factory=set, init=False)
    _is_dirty: trio.Event = attrs.field(factory=trio.Event, init=False)
    _listing: dict[str, list[Members]] = attrs.field(factory=dict, init=False)
    _spoke: Leg | None = attrs.field(default=None, init=False)
    """Which of several processes said last that its lists have changed: they may be others than its neighbour's."""

    async def read(self, leg: Leg, members: Set[str] = _ALL, said: Set[str] = frozenset()) -> None:
        """Read these lists anew; the backend *said* that some have changed. Raises what the connection raises."""
        patience = Patience(timeout=self.timeout, cap=self.timeout)
        for kind in KINDS:
            if kind.member in members:
                self._listing[kind.member] = await read_list(leg, kind, patience)
        self.on_listing(self.backend, dict(self._listing), said)

    def refresh(self, members: Iterable[str] = _ALL) -> None:
        """Read these lists anew, soon."""
        self._dirty.update(members)
        self._is_dirty.set()

    def changed(self, leg: Leg, method: str) -> bool:
        """Whether it is about lists, what a backend says on no request's way."""
        if method not in _CHANGES:
            return False
        if leg.key.whose == EVERYBODY:
            self._spoke = leg if leg.is_process else None
        self.refresh(_CHANGES[method])
        return True

    def lost(self, leg: Leg) -> None:
        """A connection has ended."""
        if leg is self._spoke:
            self._spoke = None
            self.refresh()

    async def watch(self, leg: Leg) -> None:
        """Read what has changed, over and over: on *leg*, unless another process has said so."""
        while True:
            await self._is_dirty.wait()
            await trio.sleep(GATHER)
            dirty, self._dirty, self._is_dirty = self._dirty, set(), trio.Event()
            spoke = self._spoke
            try:
                await self.read(leg if spoke is None or spoke.is_over else spoke, dirty, said=dirty)
            except ConnectionLost:
                continue  # the end of the connection tells it all
            except CallboardError as error:
                log.warning("lists_not_read", backend=self.backend, reason=type(error).__name__)
                await trio.sleep(READ_AGAIN)
                self.refresh(dirty)


async def read_list(leg: Leg, kind: Kind, patience: Patience) -> list[Members]:
    """All that a backend lists of one kind; nothing if it has no such list.

    Raises `ServerRefused`, `BadAnswer` and what the connection raises.
    """
    if not declares(leg.agreed.capabilities, kind.capability):
        return []
    found: list[Members] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        entries, cursor = await _read_page(leg, kind, cursor, patience)
        found += entries
        if len(found) > MAX_ENTRIES:
            raise BadAnswer(f"{kind.method}: more than {MAX_ENTRIES} entries")
        if cursor is None:
            return found
        if cursor in seen:
            raise BadAnswer(f"{kind.method}: the same cursor twice")
        seen.add(cursor)
    raise BadAnswer(f"{kind.method}: more than {MAX_PAGES} pages")


async def _read_page(leg: Leg, kind: Kind, cursor: str | None, patience: Patience) -> tuple[list[Members], str | None]:
    body: dict[str, Any] = {"_meta": dict(leg.caller.said())}
    if cursor is not None:
        body["cursor"] = cursor  # also an empty one: that is a cursor like any other
    answer = await leg.caller.send(kind.method, body, patience=patience, wants_progress=False)
    if isinstance(answer, Error):
        if answer.code == METHOD_NOT_FOUND:
            return [], None  # some declare resources, and have no templates
        raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
    try:
        entries = [_kept(entry) for entry in _read_array(answer.result[kind.member])]
        following = answer.result.get("nextCursor")
        return entries, None if following is None else _read_text(following)
    except (msgspec.MsgspecError, KeyError, PeerError):
        raise BadAnswer(f"{kind.method}: not a list of definitions") from None


def _kept(entry: Raw) -> Members:
    """The members of a definition, kept for as long as it is listed: not as a view of the frame they came in."""
    return read_members(bytes(entry))
