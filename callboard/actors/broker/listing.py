"""Lists of a backend: each is read page by page, and again when the backend notifies of a change.

A list that cannot be read costs that list, and neither the others nor the backend. What is read is bounded in entries
and in bytes, and passes the guard of definitions before any client sees it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import EVERYBODY
from callboard.actors.client.conversation import Patience
from callboard.actors.client.negotiate import Agreed
from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.bridge.definitions import KINDS, PROMPTS, TOOLS, Kind
from callboard.codecs.bridge.guard import (
    MAX_DEFINITION,
    Definition,
    Examined,
    Refused,
    part_twins,
    read_list,
)
from callboard.codecs.bridge.names import foresee
from callboard.codecs.bridge.overrides import NO_OVERRIDES, ToolOverride, examine_overridden
from callboard.codecs.bridge.tasks import runs_tasks
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import declares
from callboard.errors import (
    METHOD_NOT_FOUND,
    BadAnswer,
    CallboardError,
    ConnectionLost,
    RequestTimedOut,
    ServerRefused,
)
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

MAX_PAGES: Final = 1000
"""Pages of one list that are read."""

MAX_ENTRIES: Final = 10_000
"""Entries of one list that are read."""

MAX_LISTS: Final = 8 * 1024 * 1024
"""Bytes of all definitions of one backend that are kept. Hundreds of large tools have one of them."""

MAX_LIST_READ: Final = 32 * 1024 * 1024
"""Bytes of one list that are read, those included that are left out: a list that holds nothing of use ends, too."""

MAX_CURSOR: Final = 4096
"""Longest cursor of a backend, in characters: each is remembered while its list is read."""

FIRST_LISTS: Final = 5.0
"""Seconds that a backend has for its lists before it counts as up. A list that takes longer is shown later."""

GATHER: Final = 0.05
"""Seconds in which changes of a list are gathered before it is read anew."""

PROMPT: Final = 32
"""Changes of a list that are read at once. Clients are told of these in any case: something may have come and gone."""

EVERY: Final = 2.0
"""Seconds after which one more is. Under a flood of changes a list is read no more often than that."""

READ_AGAIN: Final = 5.0
"""Seconds after which a list is read again that could not be read. Each time that it fails again they are doubled."""

MAX_READ_AGAIN: Final = 300.0
"""Seconds between two attempts to read a list that cannot be read."""

INLINE: Final = 16 * 1024
"""Bytes of definitions that are examined at once. More are examined in a thread, a part at a time."""

IN_THREAD: Final = 256 * 1024
"""Bytes of definitions that are examined in a thread before the next look whether the list is still wanted."""

MAX_TOLD: Final = 20
"""Definitions that are named in the log, of all that one reading of a list leaves out. The others are counted."""

CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resourceTemplates"),
}
_ALL: Final = tuple(kind.member for kind in KINDS)

ExamineAll: TypeAlias = Callable[[Kind, list[bytes]], list[Examined]]

Listing: TypeAlias = Mapping[str, Sequence[Definition]]
"""The lists of one backend."""

_read_text = msgspec.json.Decoder(str | None).decode


@attrs.define(eq=False)
class BackendList:
    """One list of a backend, as it was read last."""

    kind: Kind
    definitions: Sequence[Definition] = ()
    size: int = 0
    """Bytes that are kept of it."""
    incoming: int = 0
    """Bytes that have come so far of the reading that is under way."""
    is_read: bool = False
    """Whether it was read, ever."""
    failure: CallboardError | None = None
    """Why it could not be read the last time."""
    known: dict[bytes, Examined] = attrs.field(factory=dict)
    """The verdict on each definition: the same bytes are not examined twice."""
    told: frozenset[tuple[str | None, str]] = frozenset()
    """Definitions that were omitted, and why, as logged."""
    cut: str = ""
    """Why it was not read to its end, according to the log."""
    dirty: trio.Event = attrs.field(factory=trio.Event)
    tried: trio.Event = attrs.field(factory=trio.Event)
    """Set by the next attempt to read it."""
    said: bool = False
    """Whether the backend said that it has changed."""
    is_prompt: bool = True
    """Whether it is read at once. Else only what is another is told of."""
    read_at: float = -math.inf
    again: float = READ_AGAIN
    _prompt: float = PROMPT
    _counted: float = -math.inf

    def pause(self, now: float) -> float:
        """Seconds to gather further changes before it is read again: few, or more for a backend that never rests."""
        self._prompt = min(PROMPT, self._prompt + max(0.0, now - self._counted) / EVERY)
        missing = max(0.0, 1.0 - self._prompt)
        self._prompt = max(0.0, self._prompt - 1.0)
        self._counted = now + missing * EVERY
        self.is_prompt = not missing
        return GATHER + missing * EVERY


@attrs.define(eq=False)
class BackendLists:
    """All lists of one backend."""

    backend: str
    timeout: float
    on_change: Callable[[], None]
    """Called when some lists are others than before: `take_news` has them."""
    overrides: Mapping[str, ToolOverride] = NO_OVERRIDES
    lists: dict[str, BackendList] = attrs.field(
        factory=lambda: {kind.member: BackendList(kind) for kind in KINDS}, init=False
    )
    _is_first: bool = attrs.field(default=True, init=False)
    """Whether the lists of this connection are still waited for, so that they are told of together."""
    _may_defer: bool = attrs.field(default=False, init=False)
    _said: Set[str] = attrs.field(default=frozenset(), init=False)
    _spoke: BackendConnection | None = attrs.field(default=None, init=False)
    """The process that notified last of changed lists: each process may have other lists."""

    def has_read(self, kind: Kind) -> bool:
        return self.lists[kind.member].is_read

    async def watch(
        self,
        connection: BackendConnection,
        is_strict: bool = False,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read all lists, and from then on what has changed, over and over. Started when all were read, or tried, or
        have had their time. *is_strict*: tools that an earlier process listed are none of this one's until it says so.

        Raises `ConnectionLost` if the connection ends before that.
        """
        self._is_first = True
        self.expect(connection.agreed)
        async with trio.open_nursery() as nursery:
            for one in self.lists.values():
                one.dirty.set()
                one.read_at, one.tried = -math.inf, trio.Event()
                nursery.start_soon(self._keep, one, connection)
            with trio.move_on_after(FIRST_LISTS):
                for one in list(self.lists.values()):
                    await one.tried.wait()
            tools = self.lists[TOOLS.member]
            if is_strict and tools.definitions:
                with trio.move_on_after(self.timeout):
                    await tools.tried.wait()
            if connection.is_lost:
                raise ConnectionLost(connection.lost)
            if is_strict and (tools.failure is not None or not tools.tried.is_set()):
                tools.definitions, tools.is_read = (), False
            self._is_first = False
            for one in self.lists.values():
                one.tried = trio.Event() if one.tried.is_set() else one.tried
            self._tell()
            task_status.started()

    async def read_anew(self, kind: Kind) -> None:
        """Have a list read anew, and wait for it, but not for ever: it may be that it cannot be read."""
        one = self.lists[kind.member]
        mark = one.dirty
        mark.set()
        with trio.move_on_after(self.timeout):
            while one.dirty is mark:  # else the attempt that has ended began after this
                await one.tried.wait()

    def refresh(self, members: Iterable[str] = _ALL) -> None:
        """Read these lists anew, soon."""
        for member in members:
            self.lists[member].dirty.set()

    def changed(self, connection: BackendConnection, method: str) -> bool:
        """Whether it is about lists, what a backend says on no request's way."""
        if method not in CHANGES:
            return False
        if connection.key.whose == EVERYBODY:
            self._spoke = connection if connection.is_process else None
        for member in CHANGES[method]:
            self.lists[member].said = True
        self.refresh(CHANGES[method])
        return True

    def lost(self, connection: BackendConnection) -> None:
        """A connection has ended."""
        if connection is self._spoke:
            self._spoke = None
            self.refresh()

    @property
    def without(self) -> Sequence[str]:
        """Members that mean nothing at this server."""
        return () if self._may_defer else ("execution",)

    def take_kept(self, kind: Kind, page: Sequence[bytes], examined: Sequence[Examined]) -> None:
        """A list as it was when the server ran last."""
        one = self.lists[kind.member]
        one.known, one.size, one.is_read = dict(zip(page, examined, strict=True)), sum(map(len, page)), True
        one.definitions, _ = part_twins(list(one.known.values()))

    def expect(self, agreed: Agreed) -> None:
        """A tool that runs as a task is one only at a server that runs tasks: another one's is shown without that."""
        may_defer = runs_tasks(agreed.revision, agreed.capabilities)
        if may_defer is not self._may_defer:
            self._may_defer = may_defer
            self.lists[TOOLS.member].known.clear()

    def take_news(self) -> tuple[Listing, Set[str]]:
        """All lists, and those of which clients are to be told in any case, since this was called last."""
        said, self._said = self._said, frozenset()
        return {member: one.definitions for member, one in self.lists.items()}, said

    def _tell(self, said: Set[str] = frozenset()) -> None:
        self._said |= said
        self.on_change()

    # One list.

    async def _keep(self, one: BackendList, shared: BackendConnection) -> None:
        """Read a list whenever it has changed: on *shared*, unless another process has said so."""
        while True:
            await one.dirty.wait()
            if one.read_at > -math.inf:
                await trio.sleep(one.pause(trio.current_time()))
            one.dirty = trio.Event()
            spoke = self._spoke
            try:
                await self._read(one, shared if spoke is None or spoke.is_over else spoke)
            except ConnectionLost as error:
                one.failure = error
                await self._wait_over(one, shared)
            except CallboardError as error:
                one.failure = error
                log.warning(
                    "list_read_failed",
                    backend=self.backend,
                    list=one.kind.method,
                    reason=str(error)[:200],
                    again=one.again,
                )
                self._give_up(shared)
                self._tried(one)
                with trio.move_on_after(one.again):
                    await one.dirty.wait()
                one.again = min(2 * one.again, MAX_READ_AGAIN)
                one.dirty.set()
            else:
                one.failure, one.again = None, READ_AGAIN
                self._tried(one)

    async def _wait_over(self, one: BackendList, shared: BackendConnection) -> None:
        """The connection has ended: if it was the shared one, its end tells it all."""
        self._tried(one)
        if not shared.is_lost:
            await trio.sleep(GATHER)
            one.dirty.set()

    def _tried(self, one: BackendList) -> None:
        one.read_at = trio.current_time()
        one.tried.set()
        if not self._is_first:
            one.tried = trio.Event()

    def _give_up(self, connection: BackendConnection) -> None:
        """A backend that has answered none of its lists hangs: its connection ends, and it is tried anew."""
        failed = [one.failure for one in self.lists.values() if _has(connection, one.kind)]
        never = not any(one.is_read for one in self.lists.values() if _has(connection, one.kind))
        if never and all(isinstance(failure, RequestTimedOut) for failure in failed):
            connection.fail(next(failure for failure in failed if failure is not None))

    async def _read(self, one: BackendList, connection: BackendConnection) -> None:
        """Raises `ServerRefused`, `BadAnswer`, and what the connection raises."""
        others = [other for other in self.lists.values() if other is not one]
        is_another = await self.read(ListReading(connection, one, self.patience, others))
        said = frozenset({one.kind.member}) if one.said and one.is_prompt else frozenset[str]()
        one.said = False
        if not self._is_first and (said or is_another):
            self._tell(said)

    @property
    def patience(self) -> Patience:
        """How long the backend may take for one page."""
        return Patience(timeout=self.timeout, cap=self.timeout)

    async def read(self, reading: "ListReading") -> bool:
        """Read a list, and keep what may be shown of it. Returns whether that is another than before.

        Raises as `ListReading.run` does.
        """
        one = reading.of
        try:
            await reading.run(self.without, self.overrides)
        finally:
            one.incoming = 0
        kept, refused = part_twins(reading.found)
        self._log(one, reading, [*refused, *(Refused(each.name, each.withheld) for each in kept if each.withheld)])
        is_same = one.is_read and len(kept) == len(one.definitions)
        is_same = is_same and all(new is old for new, old in zip(kept, one.definitions, strict=True))
        one.known, one.size, one.is_read = reading.known, reading.size, True
        if not is_same:
            one.definitions = kept
        return not is_same

    def _log(self, one: BackendList, reading: "ListReading", refused: Sequence[Refused]) -> None:
        """One line for each definition that is left out, once; of many, the first ones."""
        facts = {"backend": self.backend, "kind": one.kind.name}
        if reading.cut and reading.cut != one.cut:
            log.warning("list_truncated", **facts, list=one.kind.method, reason=reading.cut, kept=len(reading.found))
        told = frozenset((each.name, each.reason) for each in refused)
        news = [each for each in refused if (each.name, each.reason) not in one.told]
        for each in news[:MAX_TOLD]:
            log.warning("definition_left_out", **facts, name=ascii((each.name or "")[:200]), reason=each.reason[:200])
        if len(news) > MAX_TOLD:
            log.warning("definitions_left_out", **facts, more=len(news) - MAX_TOLD)
        one.told, one.cut = told, reading.cut
        mended = [each for each in reading.fresh if isinstance(each, Definition) and each.mended]
        if mended:
            first = mended[0]
            log.info(
                "definitions_repaired",
                **facts,
                count=len(mended),
                name=ascii(first.name[:200]),
                members=first.mended[:8],
            )


@attrs.define(eq=False)
class ListReading:
    """One reading of one list, page by page, until its end or one of the limits."""

    connection: BackendConnection
    of: BackendList
    patience: Patience
    others: Sequence[BackendList]
    """The other lists of the backend, which share the bytes that may be kept."""
    signature: Signature = NOTHING
    """The clients it is read for: a modern backend is told with each request what its client can be asked."""
    shared: Mapping[bytes, Examined] = attrs.field(factory=dict)
    """Definitions that are kept in any case, and are not counted here."""
    found: list[Examined] = attrs.field(factory=list, init=False)
    fresh: list[Examined] = attrs.field(factory=list, init=False)
    """Definitions that were examined for the first time."""
    known: dict[bytes, Examined] = attrs.field(factory=dict, init=False)
    size: int = attrs.field(default=0, init=False)
    cut: str = attrs.field(default="", init=False)
    """Why it was not read to its end."""
    _read: int = attrs.field(default=0, init=False)

    @property
    def kind(self) -> Kind:
        return self.of.kind

    async def run(self, without: Sequence[str] = (), overrides: Mapping[str, ToolOverride] = NO_OVERRIDES) -> None:
        """Read all; nothing if the backend has no such list. Raises `ServerRefused`, `BadAnswer`, `ConnectionLost`."""
        if not _has(self.connection, self.kind):
            return
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            entries, cursor = await self._page(cursor)
            await self._take(entries, partial(examine_overridden, without=without, overrides=overrides))
            if cursor is None or self.cut:
                return
            if cursor in seen or len(cursor) > MAX_CURSOR:
                self.cut = "repeated cursor" if cursor in seen else "cursor too long"
                return
            seen.add(cursor)
        self.cut = f"more than {MAX_PAGES} pages"

    async def _page(self, cursor: str | None) -> tuple[list[Raw], str | None]:
        kind = self.kind
        body: dict[str, Any] = {"_meta": self.connection.said_for(self.signature)}
        if cursor is not None:
            body["cursor"] = cursor  # also an empty one: that is a cursor like any other
        answer = await self.connection.conversation.send(
            kind.method, body, patience=self.patience, wants_progress=False
        )
        if isinstance(answer, ErrorResponse):
            if answer.code == METHOD_NOT_FOUND:
                return [], None  # some declare resources, and have no templates
            raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
        following = answer.result.get("nextCursor")
        try:
            return read_list(kind, answer.result.get(kind.member)), None if following is None else _read_text(following)
        except msgspec.MsgspecError:
            raise BadAnswer(f"{kind.method}: cursor is not a string") from None

    async def _take(self, entries: Sequence[Raw], examine_all: ExamineAll) -> None:
        """Keep the definitions of one page: as copies, not as views of the frame that they came in."""
        page: list[bytes] = []
        before = self.of.known
        room = MAX_LISTS - sum(max(other.size, other.incoming) for other in self.others)
        for entry in entries:
            self._read += len(entry)
            data = bytes(entry)
            size = 0 if len(data) > MAX_DEFINITION or data in self.shared else len(data)
            if len(self.found) + len(page) >= MAX_ENTRIES:
                self.cut = f"more than {MAX_ENTRIES} entries"
            elif self.size + size > room:
                self.cut = f"more than {MAX_LISTS} bytes in all lists"
            elif self._read > MAX_LIST_READ:
                self.cut = f"more than {MAX_LIST_READ} bytes"
            if self.cut:
                break
            self.size += size
            page.append(data)
        self.of.incoming = self.size
        shared = self.shared
        await self._examine(
            [data for data in page if data not in shared and data not in before and data not in self.known], examine_all
        )
        for data in page:
            examined = shared.get(data)
            if examined is None:
                examined = self.known[data] = self.known.get(data) or before[data]
            self.found.append(examined)
        for data in page:
            if len(data) > MAX_DEFINITION:  # told apart by its length alone: nothing to be remembered
                self.known.pop(data, None)

    async def _examine(self, fresh: list[bytes], examine_all: ExamineAll) -> None:
        kind, at = self.kind, 0
        while at < len(fresh):
            part: list[bytes] = []
            size = 0
            while at < len(fresh) and size < IN_THREAD:
                part.append(fresh[at])
                if len(fresh[at]) <= MAX_DEFINITION:  # else it is refused at a glance
                    size += len(fresh[at])
                at += 1
            if size <= INLINE:
                examined = examine_all(kind, part)
            else:
                examined = await trio.to_thread.run_sync(
                    _examine_in_thread, self.connection.backend, kind, part, examine_all
                )
            self.fresh += examined
            self.known.update(zip(part, examined, strict=True))


def _examine_in_thread(backend: str, kind: Kind, part: list[bytes], examine_all: ExamineAll) -> list[Examined]:
    examined = examine_all(kind, part)
    if kind in (TOOLS, PROMPTS):
        foresee(backend, [one.name for one in examined if isinstance(one, Definition)])
    return examined


def _has(connection: BackendConnection, kind: Kind) -> bool:
    return declares(connection.agreed.capabilities, kind.capability)
